# SPDX-License-Identifier: Apache-2.0
"""Aggregated APIs: versions of groups that other servers serve behind this one."""
