# SPDX-License-Identifier: Apache-2.0
"""An explanation as a page for a person.

Owns the words of `mkctl explain`: where the workload stands, then each flavor that was looked at with the figures that
were compared, then who would have to go. Plain lines, so that they fold as a terminal folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from multikueue.engine.explain import Explanation, FlavorCheck, PodSetCheck, ResourceCheck

_FIT: Final = "Fit"
_MODES: Final = {
    _FIT: "fits",
    "NoFit": "does not fit",
    "Preempt": "does not fit into what is free",
    "DeferredFit": "fits when evictions under way are complete",
    "preemptionMode=NoCandidates": "does not fit, and there is nobody to evict",
    "preemptionMode=Preempt": "fits when workloads of its own queue are evicted",
    "preemptionMode=Reclaim": "fits when workloads of other queues are evicted",
}


def text(explanation: Explanation) -> str:
    """The explanation, line by line."""
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    queue = explanation.cluster_queue
    place = f" in {queue}" if queue else ""
    if explanation.position is not None:
        place = f", number {explanation.position + 1}{place}"
    yield f"workload/{explanation.workload}: {explanation.standing}{place}"
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
    told = {reason for flavor in pod_set.flavors for reason in flavor.reasons}
    yield from (f"  {reason}" for reason in pod_set.reasons if reason not in told)
    if pod_set.ended:
        yield f"  The search ended: {pod_set.ended}."


def _flavor(flavor: FlavorCheck) -> Iterator[str]:
    chosen = (" (taken)" if flavor.mode == _FIT else " (waited for)") if flavor.chosen else ""
    yield f"  flavor {flavor.flavor}{chosen}: {_MODES.get(flavor.mode, flavor.mode)}"
    for row in flavor.resources:
        yield f"    {row.resource}: {_figures(row)}"
    yield from (f"    {reason}" for reason in flavor.reasons)


def _figures(row: ResourceCheck) -> str:
    short = f", {row.short} short" if row.short != "0" else ""
    limit = f", may borrow {row.borrowing_limit}" if row.borrowing_limit is not None else ""
    borrowed = f", {row.borrowable} of it borrowed" if row.borrowable != "0" else ""
    return (
        f"asks {row.requested} of {row.free} free{borrowed}{short}"
        f" (nominal {row.nominal}{limit}, used {row.used}, at most {row.capacity})"
    )
