# SPDX-License-Identifier: Apache-2.0
"""Decisions of the hub: the plan of each workload, and the health of clusters and checks."""
