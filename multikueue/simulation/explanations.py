# SPDX-License-Identifier: Apache-2.0
"""An explanation as a page for a person.

Owns the layout of `mkctl explain`: where the workload stands, then each flavor that was looked at with the figures that
were compared, then who would have to go.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from multikueue.engine.explain import Explanation, PodSetCheck


def show(explanation: Explanation, console: Console) -> None:
    """Print the explanation."""
    place = (
        f", number {explanation.position + 1} in {explanation.cluster_queue}"
        if explanation.position is not None
        else ""
    )
    if not place and explanation.cluster_queue:
        place = f" in {explanation.cluster_queue}"
    console.print(f"[bold]workload/{explanation.workload}[/]: {explanation.standing}{place}")
    if explanation.message:
        reason = f" ({explanation.reason})" if explanation.reason else ""
        console.print(f"{explanation.message}{reason}")
    for pod_set in explanation.pod_sets:
        console.print(f"\npod set [bold]{pod_set.name}[/] x{pod_set.count}: {pod_set.mode}. {pod_set.ended}".rstrip())
        if pod_set.flavors:
            console.print(_flavors(pod_set))
        for flavor in pod_set.flavors:
            for reason in flavor.reasons:
                console.print(f"  {reason}")
    if explanation.victims:
        victims = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("WOULD EVICT", "CLUSTERQUEUE", "PRIORITY", "REASON", "RULE"):
            victims.add_column(column, overflow="fold")
        for victim in explanation.victims:
            victims.add_row(
                str(victim.workload), victim.cluster_queue, str(victim.priority), str(victim.reason), victim.rule
            )
        console.print()
        console.print(victims)


def _flavors(pod_set: PodSetCheck) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "FLAVOR",
        "RESOURCE",
        "ASKED",
        "NOMINAL",
        "USED",
        "FREE",
        "BORROWABLE",
        "AT MOST",
        "SHORT",
        "OUTCOME",
    ):
        table.add_column(column, overflow="fold", min_width=len(column))
    for flavor in pod_set.flavors:
        mark = "* " if flavor.chosen else "  "
        if not flavor.resources:
            table.add_row(mark + flavor.flavor, "", "", "", "", "", "", "", "", flavor.mode)
        for row in flavor.resources:
            table.add_row(
                mark + flavor.flavor,
                row.resource,
                row.requested,
                row.nominal,
                row.used,
                row.free,
                row.borrowable,
                row.capacity,
                row.short,
                row.mode,
            )
    return table
