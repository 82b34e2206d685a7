# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another task does."""

from __future__ import annotations

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait until it holds. Raises TimeoutError after half a minute, and AssertionError if it holds no longer."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.005)
    assert condition(), what
