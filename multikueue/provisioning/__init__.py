# SPDX-License-Identifier: Apache-2.0
"""ProvisioningRequests as an admission check, decided from values: what to request, and the state that follows."""
