# SPDX-License-Identifier: Apache-2.0
"""Progress and errors of `mkctl`, on standard error.

Progress is a bar or a spinner on a terminal and plain lines elsewhere. `errors_of` maps errors to exit codes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType
from typing import Final, NoReturn, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from devcluster.progress import Step
from multikueue.cli.console import PrintableConsole
from multikueue.cli.terminal import BAD_INPUT, FAILED, INTERRUPTED, print_message
from multikueue.core.errors import BadInput, MultikueueError

_PLAIN_WIDTH: Final = 160
_PLAIN_EVERY: Final = 10.0  # seconds between two lines for the same step, without a terminal


def terminal_or_wide() -> Console:
    """A console for standard output, wide enough for every table if it is not a terminal."""
    found = PrintableConsole()
    return found if found.is_terminal else PrintableConsole(width=_PLAIN_WIDTH)


class Output(StrEnum):
    """Output format of a command."""

    TABLE = "table"
    JSON = "json"


class StepDisplay:
    """Context manager that shows progress; call it with each step, from any thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or PrintableConsole(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
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
        """Show the step."""
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
    """Print the error and exit with the code."""
    print_message(f"mkctl {command}: {error}")
    raise typer.Exit(code)


@contextmanager
def errors_of(command: str) -> Iterator[None]:
    """Print our errors and exit: code 2 for bad input, 130 for ^C, 1 for others."""
    try:
        yield
    except BadInput as error:
        fail(command, error, code=BAD_INPUT)
    except MultikueueError as error:
        fail(command, error)
    except KeyboardInterrupt:
        fail(command, "interrupted", code=INTERRUPTED)
