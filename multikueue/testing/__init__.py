# SPDX-License-Identifier: Apache-2.0
"""Pytest fixtures for clusters and complete federations: `pytest_plugins = ["multikueue.testing.plugin"]`."""
