# SPDX-License-Identifier: Apache-2.0
"""The live table of the demo.

On a terminal one table that is drawn over itself; elsewhere one line per change of stage, so that a CI log reads as a
story. The last table is printed in both cases.
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

from multikueue.cli.demo_jobs import Row, Stage
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
_LEAST_NOTE: Final = 12


def table(rows: Sequence[Row], *, title: str, width: int) -> Table:
    """All Jobs, one a line of at most `width` characters: a note is cut, never a name."""
    room = max(_LEAST_NOTE, width - _OTHER_COLUMNS)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("TEAM", "JOB", "STAGE", "CLUSTER"):
        drawn.add_column(column, no_wrap=True)
    drawn.add_column("PODS", justify="right", no_wrap=True)
    drawn.add_column("QUEUED", justify="right", no_wrap=True)
    drawn.add_column("NOTE", no_wrap=True)
    for row in rows:
        style = _STYLES[row.stage]
        drawn.add_row(
            row.key.namespace,
            row.key.name,
            f"[{style}]{row.stage.value}[/{style}]",
            row.cluster or "-",
            f"{row.succeeded}/{row.completions}",
            f"{row.queued_seconds:.0f}s",
            row.note if len(row.note) <= room else f"{row.note[: room - 1]}…",
        )
    return drawn


def summary(rows: Sequence[Row]) -> str:
    """How many Jobs are in which stage."""
    counted = Counter(row.stage for row in rows)
    return ", ".join(f"{counted[stage]} {stage.value}" for stage in Stage if counted[stage])


class LiveTable:
    """Shows rows while inside."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._stages: dict[Key, Stage] = {}
        self._rows: Sequence[Row] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Draw them."""
        self._rows = rows
        if self._console.is_terminal:
            self._live.update(self._table(rows))
            return
        for row in rows:
            if self._stages.get(row.key) is not row.stage:
                where = f" on {row.cluster}" if row.cluster else ""
                self._console.print(f"{row.key}: {row.stage.value}{where}", highlight=False)
                self._stages[row.key] = row.stage

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

    def _table(self, rows: Sequence[Row]) -> Table:
        return table(rows, title=summary(rows), width=self._console.width)
