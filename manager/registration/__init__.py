# SPDX-License-Identifier: Apache-2.0
"""Registration of agents: which certificate requests are approved, and the status of ClusterRegistrations."""
