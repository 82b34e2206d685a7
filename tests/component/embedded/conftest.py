# SPDX-License-Identifier: Apache-2.0
"""Clusters in pure Python for the tests of this folder, and real programs to judge them."""

from __future__ import annotations

from multikueue.testing.plugin import kube_binaries
from tests.support.sockets import sockets_settle

__all__ = ["kube_binaries", "sockets_settle"]
