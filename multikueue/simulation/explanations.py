# SPDX-License-Identifier: Apache-2.0
"""An explanation as text for a user, and as a document for a program.

Owns the texts of `mkctl explain`: the state of the workload, each flavor that was tried with the figures that were
compared, then the workloads that would be evicted. Lines are not wrapped; the terminal does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.engine.explain import Explanation, FlavorCheck, PodSetCheck, ResourceCheck

_FIT: Final = "Fit"
_MODES: Final = {
    _FIT: "fits",
    "NoFit": "does not fit",
    "Preempt": "does not fit into free quota",
    "DeferredFit": "fits after pending evictions complete",
    "preemptionMode=NoCandidates": "does not fit, and no workload may be preempted",
    "preemptionMode=Preempt": "fits after evicting workloads of the same queue",
    "preemptionMode=Reclaim": "fits after evicting workloads of other queues",
}
_FORMER_STATES: Final = {"Inadmissible": "Parked"}
"""`standing` was the name of `state`; kept for one release."""


def lines(explanation: Explanation) -> Iterator[str]:
    """The explanation, line by line; messages may contain newlines."""
    queue = explanation.cluster_queue
    place = f" in {queue}" if queue else ""
    if explanation.position is not None:
        place = f", number {explanation.position + 1}{place}"
    yield f"workload/{explanation.workload}: {explanation.state}{place}"
    if explanation.message:
        yield f"{explanation.reason}: {explanation.message}" if explanation.reason else explanation.message
    for pod_set in explanation.pod_sets:
        yield ""
        yield from _pod_set(pod_set)
    if explanation.victims:
        yield ""
        yield "It would evict:"
    for victim in explanation.victims:
        yield f"  {victim.workload} of {victim.cluster_queue}, priority {victim.priority}: {victim.reason}"
        yield f"    {victim.rule}"


def _pod_set(pod_set: PodSetCheck) -> Iterator[str]:
    yield f"Pod set {pod_set.name} x{pod_set.count}: {_MODES[pod_set.mode]}."
    for flavor in pod_set.flavors:
        yield from _flavor(flavor)
    reported = {reason for flavor in pod_set.flavors for reason in flavor.reasons}
    yield from (f"  {reason}" for reason in pod_set.reasons if reason not in reported)
    if pod_set.ended:
        yield f"  The search ended: {pod_set.ended}."


def _flavor(flavor: FlavorCheck) -> Iterator[str]:
    chosen = (" (chosen)" if flavor.mode == _FIT else " (chosen, waiting)") if flavor.chosen else ""
    yield f"  flavor {flavor.flavor}{chosen}: {_MODES.get(flavor.mode, flavor.mode)}"
    for row in flavor.resources:
        yield f"    {row.resource}: {_figures(row)}"
    yield from (f"    {reason}" for reason in flavor.reasons)


def _figures(row: ResourceCheck) -> str:
    short = f", {row.short} short" if row.short != "0" else ""
    limit = f", may borrow {row.borrowing_limit}" if row.borrowing_limit is not None else ""
    borrowed = f", {row.borrowable} of it borrowed" if row.borrowable != "0" else ""
    return (
        f"requests {row.requested} of {row.free} free{borrowed}{short}"
        f" (nominal {row.nominal}{limit}, used {row.used}, at most {row.capacity})"
    )


def document(explanation: Explanation) -> JsonObject:
    """The explanation under its JSON names."""
    shown = _camel(asdict(explanation))
    assert isinstance(shown, dict)
    shown["workload"] = str(explanation.workload)
    shown["standing"] = _FORMER_STATES.get(explanation.state, explanation.state)
    for victim, source in zip(shown["victims"], explanation.victims, strict=True):
        victim["workload"] = str(source.workload)
    return shown


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {_name(str(key)): _camel(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(inner) for inner in value]
    return str(value) if isinstance(value, str) else value


def _name(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)
