# SPDX-License-Identifier: Apache-2.0
"""Runs several coroutines concurrently and raises the first error instead of an exception group."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import anyio


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Await all. If one fails, the others are cancelled and its error is raised."""
    try:
        async with anyio.create_task_group() as tasks:
            for coroutine in work:
                tasks.start_soon(_awaited, coroutine)
    except BaseExceptionGroup as group:
        raise first_cause(group) from None
    finally:
        for coroutine in work:
            coroutine.close()  # a coroutine cancelled before its first step was never awaited


def first_cause(error: BaseException) -> BaseException:
    """The first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _awaited(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine
