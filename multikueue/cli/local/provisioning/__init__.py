# SPDX-License-Identifier: Apache-2.0
"""`mkctl demo --example provisioning` and `provisioning-one-cluster`: capacity is provisioned, revoked and replaced."""
