# SPDX-License-Identifier: Apache-2.0
"""A cluster autoscaler for local clusters, as far as ProvisioningRequests need one."""
