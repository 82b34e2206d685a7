# SPDX-License-Identifier: Apache-2.0
"""Real clusters for the tests of this folder."""

from __future__ import annotations

from multikueue.testing.plugin import binaries_cluster, binaries_provider, kube_binaries
from tests.support.sockets import sockets_settle

__all__ = ["binaries_cluster", "binaries_provider", "kube_binaries", "sockets_settle"]
