# SPDX-License-Identifier: Apache-2.0
"""Devices that pods claim, as amounts of the resources that queues have quota of (`docs/spec/engine.md §2.3`)."""
