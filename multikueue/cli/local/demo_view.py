# SPDX-License-Identifier: Apache-2.0
"""The live table of the demo.

On a terminal the table is redrawn; elsewhere each change of stage is one line. The last table is printed in both cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from multikueue.api.resource import JOBS
from multikueue.cli.local.demo_jobs import DemoRow, Stage
from multikueue.core.keys import Key

_STYLES: Final = {
    Stage.SUBMITTED: "dim",
    Stage.QUEUED: "yellow",
    Stage.DISPATCHING: "cyan",
    Stage.RUNNING: "bold green",
    Stage.FINISHED: "green",
    Stage.FAILED: "bold red",
}
_OTHER_COLUMNS: Final = 62  # characters that the columns before the note take
_KIND_COLUMN: Final = 13
_LEAST_NOTE: Final = 12


def table(rows: Sequence[DemoRow], *, title: str, width: int) -> Table:
    """One line per job of at most `width` characters; notes are cut, names are not."""
    mixed = _are_mixed(rows)
    width_left = max(_LEAST_NOTE, width - _OTHER_COLUMNS - (_KIND_COLUMN if mixed else 0))
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("TEAM", *(("KIND",) if mixed else ()), "JOB", "STAGE", "CLUSTER"):
        drawn.add_column(column, no_wrap=True)
    drawn.add_column("PODS", justify="right", no_wrap=True)
    drawn.add_column("QUEUED", justify="right", no_wrap=True)
    drawn.add_column("NOTE", no_wrap=True)
    for row in rows:
        style = _STYLES[row.stage]
        drawn.add_row(
            row.key.namespace,
            *((row.kind,) if mixed else ()),
            row.key.name,
            Text(row.stage.value, style),
            row.cluster or "-",
            f"{row.succeeded}/{row.completions}",
            f"{row.queued_seconds:.0f}s",
            row.note if len(row.note) <= width_left else f"{row.note[: width_left - 1]}…",
        )
    return drawn


def _are_mixed(rows: Sequence[DemoRow]) -> bool:
    return any(row.kind != JOBS.kind for row in rows)


def summary(rows: Sequence[DemoRow]) -> str:
    """The number of jobs in each stage."""
    counted = Counter(row.stage for row in rows)
    return ", ".join(f"{counted[stage]} {stage.value}" for stage in Stage if counted[stage])


class LiveTable:
    """Context manager that shows rows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._stages: dict[tuple[str, Key], Stage] = {}
        self._rows: Sequence[DemoRow] = ()

    def show(self, rows: Sequence[DemoRow]) -> None:
        """Show the rows."""
        self._rows = rows
        if self._console.is_terminal:
            self._live.update(self._table(rows))
            return
        for row in rows:
            if self._stages.get((row.kind, row.key)) is not row.stage:
                where = f" on {row.cluster}" if row.cluster else ""
                named = f"{row.kind} {row.key}" if _are_mixed(rows) else str(row.key)
                self._console.print(f"{named}: {row.stage.value}{where}", highlight=False)
                self._stages[row.kind, row.key] = row.stage

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        if self._rows:
            self._console.print(self._table(self._rows))

    def _table(self, rows: Sequence[DemoRow]) -> Table:
        return table(rows, title=summary(rows), width=self._console.width)
