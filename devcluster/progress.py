# SPDX-License-Identifier: Apache-2.0
"""Progress of long-running work.

A `Step` is a value: a terminal draws it, a supervisor writes it to a file, a test ignores it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """The current step; `done` of `total` units if known."""

    text: str
    done: int = 0
    total: int | None = None


Progress: TypeAlias = Callable[[Step], None]


def ignore_progress(step: Step) -> None:
    """Discard the step."""
