# SPDX-License-Identifier: Apache-2.0
"""The engine over manifests, without a cluster: for `mkctl simulate` and `mkctl explain`."""
