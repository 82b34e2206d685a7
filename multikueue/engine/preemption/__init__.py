# SPDX-License-Identifier: Apache-2.0
"""Selects the workloads to evict for another one (`docs/spec/engine.md §4`)."""
