# SPDX-License-Identifier: Apache-2.0
"""Several coroutines at once, with one error instead of a group of them.

What comes up together fails together, and a person wants to read the first cause, not a tree of consequences.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import anyio


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Await all; when one fails the others are cancelled and its error is raised by itself."""
    try:
        async with anyio.create_task_group() as tasks:
            for coroutine in work:
                tasks.start_soon(_awaited, coroutine)
    except BaseExceptionGroup as group:
        raise first_cause(group) from None
    finally:
        for coroutine in work:
            coroutine.close()  # one that was cancelled before its first step was never awaited


def first_cause(error: BaseException) -> BaseException:
    """The first error in a tree of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _awaited(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine
