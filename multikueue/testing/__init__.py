# SPDX-License-Identifier: Apache-2.0
"""Fixtures that give a test real clusters, or a whole federation: `pytest_plugins = ["multikueue.testing.plugin"]`."""
