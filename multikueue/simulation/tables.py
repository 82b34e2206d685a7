# SPDX-License-Identifier: Apache-2.0
"""A run as tables for a user who is about to change a quota.

Owns the layout. Takes the document of `simulation.report`, so that tables and JSON always agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from multikueue.api.objects import JsonObject

_STYLES: Final = {
    "Reserved": "green",
    "Preempting": "yellow",
    "Pending": "cyan",
    "Skipped": "cyan",
    "Bypassed": "cyan",
    "Inadmissible": "red",
}
_WIDE: Final = 100
_NO_DECISIONS: Final = "Nothing to decide: no Job or Workload in the manifests is pending in an active queue."
_WHOLE: Final = frozenset(
    {"CYCLE", "WORKLOAD", "CLUSTERQUEUE", "OUTCOME", "RESERVING", "PENDING", "INADMISSIBLE", "SHARE"}
)


def show(document: JsonObject, console: Console) -> None:
    """Print the run."""
    for stop in document.get("stopped", ()):
        _line(console, f"{stop['workload']} loses its quota:", f"{stop['message']} ({stop['reason']})", "yellow")
    _show_decisions(document, console)
    console.print()
    console.print(_queues(document, wide=console.width >= _WIDE))
    if document["notQueued"]:
        console.print()
    for entry in document["notQueued"]:
        _line(console, f"{entry['workload']} is not queued:", f"{entry['message']} ({entry['reason']})", "red")
    if "diff" in document:
        console.print()
        if document["diff"]["changes"]:
            console.print(_differences(document["diff"]))
        console.print(f"{document['diff']['unchanged']} workloads unchanged.")


def _line(console: Console, head: str, rest: str, style: str) -> None:
    console.print(Text.assemble((head, style), f" {rest}"))


def _show_decisions(document: JsonObject, console: Console) -> None:
    rows = list(_rows(document))
    if not rows:
        console.print(_NO_DECISIONS)
        return
    wide = console.width >= _WIDE
    decisions = _table("CYCLE", "WORKLOAD", "CLUSTERQUEUE", "OUTCOME", "GETS", *(["WHY"] if wide else []))
    for row in rows:
        outcome = Text(row.outcome, _STYLES.get(row.outcome, ""))
        decisions.add_row(row.cycle, row.workload, row.queue, outcome, row.gets, *([Text(row.why)] if wide else []))
    console.print(decisions)
    if not wide:
        # A narrow column would break every message into single words.
        console.print()
        for row in rows:
            if row.why:
                _line(console, f"{row.workload}, cycle {row.cycle}:", row.why, _STYLES.get(row.outcome, ""))


class _Row(NamedTuple):
    """A line of the table of decisions."""

    cycle: str
    workload: str
    queue: str
    outcome: str
    gets: str
    why: str


def _rows(document: JsonObject) -> Iterator[_Row]:
    for cycle in document["cycles"]:
        number = str(cycle["cycle"])
        for decision in cycle["decisions"]:
            yield _Row(
                number,
                decision["workload"],
                decision["clusterQueue"],
                decision["outcome"],
                _gets(decision),
                _why(decision),
            )
        for queue, equals in _bypassed(cycle).items():
            named = f"{len(equals)} equal ones" if len(equals) > 1 else equals[0]["workload"]
            yield _Row(number, named, queue, "Bypassed", "", equals[0]["message"])


def _bypassed(cycle: JsonObject) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for entry in cycle["bypassed"]:
        found.setdefault(entry["clusterQueue"], []).append(entry)
    return found


def _differences(diff: JsonObject) -> Table:
    differences = _table("WORKLOAD", "WITH THESE MANIFESTS", "WITH THE OTHERS")
    for change in diff["changes"]:
        differences.add_row(change["workload"], change["before"], change["after"])
    return differences


def _queues(document: JsonObject, *, wide: bool) -> Table:
    columns = "CLUSTERQUEUE", "ACTIVE", "USED/NOMINAL", "BORROWED", "RESERVING", "PENDING", "INADMISSIBLE", "SHARE"
    queues = _table(*columns) if wide else _narrow_table(*columns)
    for name, state in document["clusterQueues"].items():
        queues.add_row(
            name,
            "yes" if state["active"] else Text.assemble(("no", "red"), f": {state['message']}"),
            _amounts(state["usage"], state["nominal"]),
            _amounts(state["borrowed"]),
            str(state["reserving"]),
            str(len(state["pending"])),
            str(len(state["inadmissible"])),
            str(state["weightedShare"]),
        )
    return queues


def _gets(decision: JsonObject) -> str:
    if decision["outcome"] not in ("Reserved", "Preempting"):
        return ""
    lines = []
    for pod_set in decision["podSets"]:
        flavors = sorted(set(pod_set["flavors"].values()))
        used = ", ".join(f"{resource} {amount}" for resource, amount in pod_set["resourceUsage"].items())
        lines.append(f"{pod_set['name']} x{pod_set['count']}: {used} on {'+'.join(flavors)}")
    if decision["borrows"]:
        lines.append("borrows")
    return "\n".join(lines)


def _why(decision: JsonObject) -> str:
    lines = [decision["message"]] if decision["outcome"] != "Reserved" else []
    lines += [f"evicts {victim['workload']} ({victim['reason']})" for victim in decision["victims"]]
    return "\n".join(lines)


def _amounts(usage: dict[str, dict[str, str]], nominal: JsonObject | None = None) -> str:
    lines = []
    for flavor, amounts in usage.items():
        of = (nominal or {}).get(flavor, {})
        parts = (f"{name} {amount}{'/' + of[name] if name in of else ''}" for name, amount in amounts.items())
        lines.append(f"{flavor}: {', '.join(parts)}")
    return "\n".join(lines)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    return table


def _narrow_table(*columns: str) -> Table:
    """A table for 80 columns: no header is broken, and every cell may be."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", min_width=len(column))
    return table
