# SPDX-License-Identifier: Apache-2.0
"""The status of a Workload: as a value, its changes, its writes, and the metrics and events of its transitions."""
