# SPDX-License-Identifier: Apache-2.0
"""What holds for all component tests: connections to real servers end before anybody looks for leaks."""

from __future__ import annotations

from tests.support.sockets import sockets_settle

__all__ = ["sockets_settle"]
