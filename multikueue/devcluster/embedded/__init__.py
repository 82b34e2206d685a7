# SPDX-License-Identifier: Apache-2.0
"""Clusters in pure Python: our own API server and controllers, one process for each cluster."""
