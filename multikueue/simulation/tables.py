# SPDX-License-Identifier: Apache-2.0
"""A run as tables for a person who is about to change a quota.

Owns the layout: what was decided, how each queue stands, and what is in no queue. Takes the document of
`simulation.report`, so that a table can never say something else than the JSON.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from multikueue.api.objects import JsonObject

_STYLES = {"Reserved": "green", "Preempting": "yellow", "Pending": "cyan", "Skipped": "cyan", "Inadmissible": "red"}


def show(document: JsonObject, console: Console) -> None:
    """Print the run."""
    decisions = _table("CYCLE", "WORKLOAD", "CLUSTERQUEUE", "OUTCOME", "GETS", "WHY")
    for cycle in document["cycles"]:
        for decision in cycle["decisions"]:
            outcome = decision["outcome"]
            decisions.add_row(
                str(cycle["cycle"]),
                decision["workload"],
                decision["clusterQueue"],
                f"[{_STYLES.get(outcome, 'default')}]{outcome}[/]",
                _gets(decision),
                _why(decision),
            )
    for stop in document.get("stopped", ()):
        console.print(f"[yellow]{stop['workload']} loses its quota:[/] {stop['message']} ({stop['reason']})")
    if decisions.row_count:
        console.print(decisions)
    else:
        console.print("Nothing waits for a decision.")
    console.print()
    console.print(_queues(document))
    for entry in document["notQueued"]:
        console.print(f"\n[red]{entry['workload']} is in no queue:[/] {entry['message']} ({entry['reason']})")
    if "diff" in document:
        console.print()
        console.print(_differences(document["diff"]))
        console.print(f"{document['diff']['unchanged']} workloads stand as before.")


def _differences(diff: JsonObject) -> Table:
    differences = _table("WORKLOAD", "WITH THESE MANIFESTS", "WITH THE OTHERS")
    for change in diff["changes"]:
        differences.add_row(change["workload"], change["before"], change["after"])
    return differences


def _queues(document: JsonObject) -> Table:
    queues = _table("CLUSTERQUEUE", "ACTIVE", "USED", "BORROWED", "RESERVING", "PENDING", "PARKED", "SHARE")
    for name, state in document["clusterQueues"].items():
        queues.add_row(
            name,
            "yes" if state["active"] else f"[red]no[/]: {state['message']}",
            _amounts(state["usage"]),
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


def _amounts(usage: dict[str, dict[str, str]]) -> str:
    return "\n".join(
        f"{flavor}: " + ", ".join(f"{resource} {amount}" for resource, amount in amounts.items())
        for flavor, amounts in usage.items()
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", min_width=len(column))
    return table
