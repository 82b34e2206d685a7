# SPDX-License-Identifier: Apache-2.0
"""Whom a workload has evicted to get in (`docs/spec/engine.md §4`)."""
