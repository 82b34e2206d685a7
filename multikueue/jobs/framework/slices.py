# SPDX-License-Identifier: Apache-2.0
"""The Workloads of an elastic job, its slices: which one the job runs by, and what follows from a new size of the job.

An elastic job that shrinks gives quota back from the slice that it has. One that grows gets another slice, which is
admitted in place of the first; until then the job runs on at its old size. Pure; `manager/controllers` carries it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from multikueue.api.constants import (
    DEFAULT_POD_SET,
    ELASTIC_JOB_ANNOTATION,
    ELASTIC_JOB_POD_LABEL,
    ELASTIC_JOB_SCHEDULING_GATE,
    FIRST_EPOCH_ANNOTATION,
    POD_SET_LABEL,
    WORKLOAD_SLICE_NAME_ANNOTATION,
    WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION,
)
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.reasons import FinishedReason, WorkloadCondition
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.core.parsing import count_of
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.protocol import JobIntegration, PodSetInfo

Sizes = Mapping[str, int]
"""The counts of the pod sets, by their names in their order."""

_NOTHING: Final[JsonObject] = {}
_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
_INDEX_DIGITS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """What becomes of the slices of one job.

    `current` is the slice by which the job runs, or is to run; None if it has none. `shrinks`: it is to get the size of
    the job in place. `grows`: a new slice of that size is to replace it. `pending` is the slice that is to replace it
    and waits for quota; `resized` if that one is to get the size of the job.
    """

    current: JsonObject | None
    shrinks: bool = False
    grows: bool = False
    pending: JsonObject | None = None
    resized: bool = False
    obsolete: tuple[JsonObject, ...] = ()
    """Slices to delete: pending ones that the job does not need any more, and replaced ones except the newest."""
    replaced: tuple[JsonObject, ...] = ()
    """Slices whose quota a newer one has taken over, and that are kept."""


def is_elastic(obj: JsonObject) -> bool:
    """Whether a job or a Workload has the annotation of elastic jobs."""
    return _annotations(obj).get(ELASTIC_JOB_ANNOTATION) == "true"


def elastic_problem(job: JsonObject, kind: JobIntegration) -> str:
    """Why a job with the annotation cannot be elastic; empty if it can, and for a job without it."""
    if not is_elastic(job):
        return ""
    if kind.traits.resizable:
        return ""
    name = kind.resource.kind
    return f"a {name} cannot be elastic, only batch/v1 Jobs and RayClusters can; remove the annotation"


def chain_of(workload: JsonObject) -> str:
    """The name of the first slice of the job, which its later ones have in an annotation."""
    return str(_annotations(workload).get(WORKLOAD_SLICE_NAME_ANNOTATION) or workload["metadata"]["name"])


def assigned_as(workload: JsonObject) -> tuple[Key, str]:
    """Key and uid by which the assignments of a Workload name it.

    All slices of an elastic job have those of the job's first slice and of the job: its remote job is one, and outlives
    each of them.
    """
    metadata = workload["metadata"]
    owner = controller_of(workload)
    if owner is None or not is_elastic(workload):
        return Key(metadata["namespace"], metadata["name"]), str(metadata["uid"])
    return Key(metadata["namespace"], chain_of(workload)), str(owner["uid"])


def dispatch_epoch(workload: JsonObject) -> int:
    """The epoch in which the Workload is dispatched."""
    stats = (workload.get("status") or {}).get("schedulingStats") or {}
    counts = (count_of(each, "count", at="evictions", default=0) for each in stats.get("evictions") or ())
    return epoch_of(counts, _annotations(workload))


def replaces(workload: JsonObject) -> str:
    """The name of the slice that this one replaces; empty if it is none that replaces another."""
    name = str(_annotations(workload).get(WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION) or "")
    return name.removeprefix(f"{workload['metadata'].get('namespace', '')}/")


def slice_annotations(name: str, older: JsonObject | None) -> dict[str, str]:
    """The annotations of a new slice with that name."""
    if older is None:
        return {ELASTIC_JOB_ANNOTATION: "true", WORKLOAD_SLICE_NAME_ANNOTATION: name}
    metadata, epoch = older["metadata"], dispatch_epoch(older)
    return {
        ELASTIC_JOB_ANNOTATION: "true",
        **({FIRST_EPOCH_ANNOTATION: str(epoch)} if epoch > 1 else {}),
        WORKLOAD_SLICE_NAME_ANNOTATION: chain_of(older),
        WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: str(Key(metadata["namespace"], metadata["name"])),
    }


def sizes_of(pod_sets: Iterable[JsonObject]) -> dict[str, int]:
    """The counts of pod sets. Raises `BadInput`."""
    return {
        str(each.get("name")): count_of(each, "count", at=f"podSets[{index}]", default=1)
        for index, each in enumerate(pod_sets)
    }


def with_sizes(pod_sets: Iterable[JsonObject], sizes: Sizes) -> list[JsonObject]:
    """The pod sets with these counts; others keep theirs."""
    return [{**each, "count": sizes.get(str(each.get("name")), each.get("count", 1))} for each in pod_sets]


def resized(workload: JsonObject, sizes: Sizes) -> JsonObject:
    """The Workload with these counts."""
    spec = workload["spec"]
    return {**workload, "spec": {**spec, "podSets": with_sizes(spec.get("podSets") or (), sizes)}}


def gated(infos: Iterable[PodSetInfo]) -> tuple[PodSetInfo, ...]:
    """With the gate and the label of the pods of elastic jobs, of which no more may start than were admitted."""
    return tuple(
        replace(
            info,
            labels={**info.labels, ELASTIC_JOB_POD_LABEL: "true"},
            scheduling_gates=(*info.scheduling_gates, {"name": ELASTIC_JOB_SCHEDULING_GATE}),
        )
        for info in infos
    )


def pods_to_start(pods: Iterable[JsonObject], admitted: Sizes) -> list[JsonObject]:
    """The gated pods of a job that may start: of each pod set as many as were admitted, less those that have started.

    The first indexes of an indexed Job come first, then the oldest pods. A pod counts until it has ended, also while it
    is being deleted.
    """
    counts = Counter[str]()
    waiting: dict[str, list[JsonObject]] = {}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _ENDED_PHASES:
            continue
        pod_set = str((pod["metadata"].get("labels") or {}).get(POD_SET_LABEL) or DEFAULT_POD_SET)
        if not is_gated(pod):
            counts[pod_set] += 1
        elif not _deleting(pod):
            waiting.setdefault(pod_set, []).append(pod)
    return [
        pod
        for pod_set, found in sorted(waiting.items())
        for pod in sorted(found, key=_start_order)[: max(0, admitted.get(pod_set, 0) - counts[pod_set])]
    ]


def is_gated(pod: JsonObject) -> bool:
    """Whether a pod waits for the admission of a slice."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == ELASTIC_JOB_SCHEDULING_GATE for gate in gates)


def without_gate(pod: JsonObject) -> list[JsonObject]:
    """The gates of a pod except that of elastic jobs."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return [gate for gate in gates if gate.get("name") != ELASTIC_JOB_SCHEDULING_GATE]


def _start_order(pod: JsonObject) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    index = str((metadata.get("annotations") or {}).get(_INDEX_ANNOTATION) or "")
    number = int(index) if index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS else 0
    return number, str(metadata.get("creationTimestamp") or ""), str(metadata["name"])


def holds_quota(workload: JsonObject) -> bool:
    """Whether quota is reserved for a slice."""
    return _is(workload, WorkloadCondition.QUOTA_RESERVED)


def was_replaced(workload: JsonObject) -> bool:
    """Whether a newer slice has taken over its quota."""
    found = _condition(workload, WorkloadCondition.FINISHED)
    return found.get("status") == TRUE and found.get("reason") == FinishedReason.WORKLOAD_SLICE_REPLACED


def took_over(workload: JsonObject) -> bool:
    """Whether it has the quota of a slice by which the job runs, and may wait for its checks while the job runs on."""
    return bool(replaces(workload)) and holds_quota(workload) and not _is(workload, WorkloadCondition.EVICTED)


def waits_for_checks(workload: JsonObject) -> bool:
    """Whether it is a slice that took over and is not admitted yet: the job runs on at its former size."""
    return is_elastic(workload) and took_over(workload) and not _is(workload, WorkloadCondition.ADMITTED)


def oldest_first(workloads: Iterable[JsonObject]) -> list[JsonObject]:
    """In the order of their creation; of slices that were made in one second one comes after those before it."""
    found = {str(each["metadata"]["name"]): each for each in workloads}

    def order(workload: JsonObject) -> tuple[str, int, bool]:
        created, former = str(workload["metadata"].get("creationTimestamp")), replaces(workload)
        before: set[str] = set()
        while former in found and former not in before:
            before.add(former)
            former = replaces(found[former])
        return created, len(before), bool(replaces(workload))

    return sorted(found.values(), key=order)


def current_slice(slices: Sequence[JsonObject]) -> JsonObject | None:
    """Of slices, the oldest first, the one by which the job runs: the newest with quota, else the oldest."""
    living = [each for each in slices if not was_replaced(each)]
    ended = [each for each in living if _is(each, WorkloadCondition.FINISHED)]
    if ended:
        return ended[-1]
    holding = [each for each in living if holds_quota(each)]
    if holding:
        return holding[-1]
    return next((each for each in living if not _deleting(each)), living[0] if living else None)


def plan_slices(wanted: Sizes | None, slices: Sequence[JsonObject]) -> SlicePlan:
    """What follows from the size of the job; `slices` are its Workloads, the oldest first.

    `wanted` is None for a job that has ended, or whose size cannot be read: it neither grows nor shrinks.
    """
    current = current_slice(slices)
    replaced = tuple(each for each in slices if was_replaced(each))
    if current is None:
        return SlicePlan(current=None, obsolete=replaced[:-1], replaced=replaced[-1:])
    # A slice with quota besides the current one is being finished as replaced; of a job that has ended it is too late.
    ended = _is(current, WorkloadCondition.FINISHED)
    others = [each for each in slices if each is not current and not was_replaced(each)]
    waiting = [each for each in others if ended or not holds_quota(each)]
    stays = _is(current, WorkloadCondition.ADMITTED) and _may_go_on(current)
    chosen = next((each for each in reversed(waiting) if not _deleting(each) and _replaces(each, current)), None)
    has = sizes_of(current["spec"].get("podSets") or ())
    same_shape = wanted is not None and list(wanted) == list(has)
    grows = same_shape and wanted is not None and any(wanted[name] > has[name] for name in has)
    pending = chosen if stays and grows else None
    return SlicePlan(
        current=current,
        shrinks=same_shape and not grows and wanted != has and holds_quota(current) and _may_go_on(current),
        grows=grows and stays and pending is None and not any(_deleting(each) for each in waiting),
        pending=pending,
        resized=pending is not None and sizes_of(pending["spec"].get("podSets") or ()) != wanted,
        obsolete=(*(each for each in waiting if each is not pending), *replaced[:-1]),
        replaced=replaced[-1:],
    )


def _may_go_on(workload: JsonObject) -> bool:
    """Whether neither the slice nor its job is being stopped."""
    if _is(workload, WorkloadCondition.EVICTED) or _is(workload, WorkloadCondition.FINISHED) or _deleting(workload):
        return False
    active: bool = workload["spec"].get("active") is not False
    return active


def _replaces(workload: JsonObject, other: JsonObject) -> bool:
    return replaces(workload) == str(other["metadata"]["name"])


def _is(workload: JsonObject, condition: str) -> bool:
    return _condition(workload, condition).get("status") == TRUE


def _condition(workload: JsonObject, kind: str) -> JsonObject:
    found = (workload.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), _NOTHING)


def _deleting(workload: JsonObject) -> bool:
    return "deletionTimestamp" in workload["metadata"]


def _annotations(obj: JsonObject) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}
