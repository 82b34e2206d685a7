# SPDX-License-Identifier: Apache-2.0
"""The engine over manifests, without a cluster: what `mkctl simulate` and `mkctl explain` stand on."""
