# SPDX-License-Identifier: Apache-2.0
"""The worker cluster's decisions: the steps of one assignment, and the capacity of nodes."""
