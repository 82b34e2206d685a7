# SPDX-License-Identifier: Apache-2.0
"""How long-running work tells what it is doing.

A `Step` is a value, so that a terminal can draw it, a supervisor can write it to a file, and a test can ignore it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """What is being done now; `done` of `total` units where that is known."""

    text: str
    done: int = 0
    total: int | None = None


Progress: TypeAlias = Callable[[Step], None]


def silent(step: Step) -> None:
    """Tell nobody."""
