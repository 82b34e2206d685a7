# SPDX-License-Identifier: Apache-2.0
"""Whole federations of processes for the tests of this folder."""

from __future__ import annotations

from multikueue.testing.plugin import kube_binaries, make_federation
from tests.support.sockets import sockets_settle

__all__ = ["kube_binaries", "make_federation", "sockets_settle"]
