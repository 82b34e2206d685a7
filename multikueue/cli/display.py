# SPDX-License-Identifier: Apache-2.0
"""How mkctl talks: progress and errors on standard error, results on standard output.

Owns the progress display, which is a bar or a spinner on a terminal and plain lines elsewhere, and the one way an error
ends a command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType
from typing import Final, NoReturn, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from multikueue.core.errors import BadInput, MultikueueError
from multikueue.devcluster.progress import Step

FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130  # what a shell reports for ^C
_PLAIN_WIDTH: Final = 160
_PLAIN_EVERY: Final = 10.0  # seconds between two lines of one growing step, where there is no terminal


def terminal_or_wide() -> Console:
    """Standard output: as wide as the terminal is, and wide enough for every table where there is none."""
    found = Console()
    return found if found.is_terminal else Console(width=_PLAIN_WIDTH)


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


class StepDisplay:
    """Shows steps while inside; call it with each one, from any thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._last = ""
        self._printed = 0.0

    def __call__(self, step: Step) -> None:
        """Show a step."""
        if self._console.is_terminal:
            width = max(20, self._console.width - 40)
            self._bar.update(self._task, description=step.text[:width], completed=step.done, total=step.total)
            return
        now = time.monotonic()
        head = step.text.split(":")[0]
        if head != self._last or now - self._printed > _PLAIN_EVERY:
            share = f" ({step.done} of {step.total})" if step.total else ""
            self._console.print(f"{step.text}{share}", highlight=False, soft_wrap=True)
            self._last, self._printed = head, now

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def fail(command: str, error: object, *, code: int = FAILED) -> NoReturn:
    """End the command with one message and an exit code."""
    print(f"mkctl {command}: {error}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def errors_of(command: str) -> Iterator[None]:
    """Turn our errors into a message and an exit code: 2 for bad input, 130 for ^C, 1 for the rest."""
    try:
        yield
    except BadInput as error:
        fail(command, error, code=BAD_INPUT)
    except MultikueueError as error:
        fail(command, error)
    except KeyboardInterrupt:
        fail(command, "interrupted", code=INTERRUPTED)
