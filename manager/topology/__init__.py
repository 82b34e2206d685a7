# SPDX-License-Identifier: Apache-2.0
"""Topology aware scheduling on the cluster: nodes, the pods on them, and pods that wait for their domain."""
