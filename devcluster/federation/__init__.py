# SPDX-License-Identifier: Apache-2.0
"""A federation of local clusters: hub, workers, manager and agents, started and stopped together."""
