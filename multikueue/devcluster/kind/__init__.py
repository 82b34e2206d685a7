# SPDX-License-Identifier: Apache-2.0
"""Clusters of kind, in containers, for tests where docker is. What drives kind is pytest-kind, an optional package."""
