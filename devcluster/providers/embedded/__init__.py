# SPDX-License-Identifier: Apache-2.0
"""Clusters in pure Python: the embedded API server and controllers, one process per cluster."""
