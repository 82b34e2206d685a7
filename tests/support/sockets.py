# SPDX-License-Identifier: Apache-2.0
"""Waits for TLS connections to end: the server answers a close with one of its own, which takes it a few milliseconds.

Import `sockets_settle` into the conftest of tests with real clients: it waits inside the loop that reads the answer.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import anyio
import pytest

_SETTLE_SECONDS = 10.0


@pytest.fixture(autouse=True)
async def sockets_settle(anyio_backend: str) -> AsyncIterator[None]:
    """After a test, let its connections end; what is still open then is for the leak check to report."""
    before = _sockets()
    yield
    with anyio.move_on_after(_SETTLE_SECONDS):
        while _sockets() - before:
            await anyio.sleep(0.01)


def _sockets() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the descriptor of this very listing
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found
