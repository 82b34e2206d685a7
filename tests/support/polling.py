# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another task or a cluster does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_GROWTH: Final = 1.25


async def until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait until it holds. Raises TimeoutError after half a minute, and AssertionError if it holds no longer."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.005)
    assert condition(), what


async def comes_to_hold(condition: Callable[[], Awaitable[bool]], *, seconds: float) -> bool:
    """Ask until it holds; False if it did not within `seconds`.

    The pauses grow to half a second: dozens of cases that ask a real API server twenty times a second are what makes
    its controllers late.
    """
    pause = _FIRST_PAUSE
    with anyio.move_on_after(seconds):
        while not await condition():
            await anyio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return True
    return False
