# SPDX-License-Identifier: Apache-2.0
"""Pending workloads: their order, inadmissible ones, and flushes."""
