# SPDX-License-Identifier: Apache-2.0
"""Work in the queues of the worker cluster: the clone of a Workload, its preemption gate, and the job behind it. Pure.

Owns what a clone is created from, what its status means to the hub, how the preemption gate of the hub is read and
opened, and the manifests of a job with and without queues. Promises that gates of other controllers are left as they
are and that no gate is closed here: the worker's engine closes one with an eviction. `is_queued` shows whether a
remote job was created for the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    MANAGER_UID_ANNOTATION,
    MULTIKUEUE_PREEMPTION_GATE,
    PREBUILT_WORKLOAD_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    QUEUE_NAME_LABEL,
    WORKLOAD_NAME_ANNOTATION,
    GatePosition,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.core.conditions import TRUE, find_in, is_true_in
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.dispatch.hub.facts import RemoteEnd
from multikueue.dispatch.protocol.epochs import marked_epoch
from multikueue.dispatch.protocol.wire import assigned_epoch, gate_of
from multikueue.dispatch.worker.assignment_state import Obstacle
from multikueue.jobs.framework.protocol import JobIntegration

GATE_FIELD_MANAGER: Final = "multikueue-preemption-gate"
WAITS_IN_QUEUE: Final = "it waits in the LocalQueue of the worker cluster"
_QUEUEING_LABELS: Final = frozenset({QUEUE_NAME_LABEL, PREBUILT_WORKLOAD_LABEL})
_LABEL_LENGTH: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneAdmission:
    """The state of a clone in the queues of the worker; `shortage` is empty once it is admitted."""

    shortage: str = ""
    obstacle: Obstacle | None = None
    halt: Obstacle | None = None
    """Why the worker's engine has stopped it."""
    end: RemoteEnd | None = None
    blocked_since: datetime | None = None
    """Since when it waits for its preemption gate only."""
    stuck: bool = False
    """Whether the gate is to be opened and could not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSpec:
    """The part of an assignment that a clone is created from."""

    assignment: str
    epoch: int
    manager_uid: str
    workload: Key
    queue: str
    spec: JsonObject
    labels: JsonObject
    annotations: JsonObject
    gate: GatePosition | None = None
    """The position of its preemption gate; None if the hub sends none."""

    @classmethod
    def of(cls, obj: JsonObject) -> CloneSpec:
        """Of an assignment in the mailbox. Raises `BadInput`."""
        spec: JsonObject = obj["spec"]
        return cls(
            assignment=obj["metadata"]["name"],
            epoch=assigned_epoch(obj),
            manager_uid=str(spec["managerUID"]),
            workload=Key(str(spec["workload"]["namespace"]), str(spec["workload"]["name"])),
            queue=str(spec.get("queueName") or ""),
            spec=spec.get("workloadSpec") or {},
            labels=spec.get("workloadLabels") or {},
            annotations=spec.get("workloadAnnotations") or {},
            gate=gate_of(obj),
        )


def clone_epoch(clone: JsonObject) -> int:
    """The epoch that the clone was created for."""
    return marked_epoch(clone["metadata"].get("annotations") or {})


def clone_manager(clone: JsonObject) -> str:
    """The uid of the management cluster that the clone was created for."""
    return str((clone["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))


def clone_admission(clone: JsonObject) -> CloneAdmission:
    """The state of the clone, from its conditions."""
    status: JsonObject = clone.get("status") or {}
    finished = _true(status, WorkloadCondition.FINISHED)
    if finished is not None and finished.get("reason") == FinishedReason.OUT_OF_SYNC:
        moment = parse_time(finished["lastTransitionTime"])
        end = RemoteEnd(reason=finished["reason"], message=str(finished.get("message", "")), time=moment)
        return CloneAdmission(end=end, halt=Obstacle(end.reason, end.message))
    evicted = _true(status, WorkloadCondition.EVICTED)
    if evicted is not None and finished is None:
        # The worker evicted it, for example for work of a higher priority there; the hub decides where it runs next.
        return CloneAdmission(
            shortage=WAITS_IN_QUEUE,
            halt=Obstacle(str(evicted.get("reason", "")), str(evicted.get("message", ""))),
        )
    if finished is not None or is_true_in(status, WorkloadCondition.ADMITTED):
        return CloneAdmission()
    reserved: JsonObject = find_in(status, WorkloadCondition.QUOTA_RESERVED) or {}
    waits = "" if reserved.get("status") == TRUE else str(reserved.get("message") or "")
    blocked = gate_blocked_since(clone) if reserved.get("status") != TRUE else None
    return CloneAdmission(shortage=f"{WAITS_IN_QUEUE}{': ' if waits else ''}{waits}", blocked_since=blocked)


def gate_is_closed(clone: JsonObject) -> bool:
    """Whether the clone has the preemption gate of the hub and it is not open; without a state it is closed."""
    if not _has_gate(clone["spec"]):
        return False
    states: list[JsonObject] = (clone.get("status") or {}).get("preemptionGates") or []
    return not any(_is_our_gate(entry) and entry.get("position") == GatePosition.OPEN for entry in states)


def gate_is_to_open(clone: JsonObject, *, gate: GatePosition | None, spec: JsonObject) -> bool:
    """Whether the closed gate is to be opened; `gate` and `spec` are what the hub sends now.

    A hub that sends no gates any more would never open it: then the agent does.
    """
    wanted = gate is GatePosition.OPEN or (gate is None and not _has_gate(spec))
    return wanted and gate_is_closed(clone)


def gate_blocked_since(clone: JsonObject) -> datetime | None:
    """Since when the engine would have to preempt for the clone and may not; None if it waits for something else.

    The condition stays after the gate was opened until the engine evaluates the clone again, so that it counts only
    while the gate is closed.
    """
    if not gate_is_closed(clone):
        return None
    found = find_in(clone.get("status"), WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES)
    if found is None or found.get("status") != TRUE:
        return None
    return parse_time(found["lastTransitionTime"])


def opened_gate(clone: JsonObject, *, now: datetime) -> JsonObject:
    """The body of the status apply that opens the gate of the clone with that uid."""
    metadata = clone["metadata"]
    entry = {
        "name": MULTIKUEUE_PREEMPTION_GATE,
        "position": str(GatePosition.OPEN),
        "lastTransitionTime": format_time(now),
    }
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {name: metadata[name] for name in ("name", "namespace", "uid")},
        "status": {"preemptionGates": [entry]},
    }


def queued_manifest(
    manifest: JsonObject, *, integration: JobIntegration, workload: str, pod_sets: Sequence[JsonObject]
) -> JsonObject:
    """The job for the queues of the worker, which names the Workload that they admit."""
    manifest = integration.queued_manifest(manifest, pod_sets)
    metadata = manifest["metadata"]
    if len(workload) <= _LABEL_LENGTH:
        # Older engines read the label, newer ones the annotation that is set already.
        labels = {**(metadata.get("labels") or {}), PREBUILT_WORKLOAD_LABEL: workload}
        metadata = {**metadata, "labels": labels}
    return {**manifest, "metadata": metadata}


def unqueued_manifest(manifest: JsonObject) -> JsonObject:
    """The job outside the queues of a worker that has some: otherwise its engine would suspend the job."""
    metadata: JsonObject = manifest["metadata"]
    labels = {name: text for name, text in (metadata.get("labels") or {}).items() if name not in _QUEUEING_LABELS}
    annotations = dict(metadata["annotations"])
    annotations[WORKLOAD_NAME_ANNOTATION] = annotations.pop(PREBUILT_WORKLOAD_ANNOTATION)
    return {**manifest, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def is_queued(job: JsonObject, *, workload: str) -> bool:
    """Whether the job may be a `queued_manifest`; such a job has no label if the name is too long for one."""
    metadata: JsonObject = job["metadata"]
    if WORKLOAD_NAME_ANNOTATION in (metadata.get("annotations") or {}):
        return False
    return PREBUILT_WORKLOAD_LABEL in (metadata.get("labels") or {}) or len(workload) > _LABEL_LENGTH


def _true(status: JsonObject, kind: str) -> JsonObject | None:
    found = find_in(status, kind)
    return found if found is not None and found.get("status") == TRUE else None


def _has_gate(spec: JsonObject) -> bool:
    return any(map(_is_our_gate, spec.get("preemptionGates") or ()))


def _is_our_gate(entry: JsonObject) -> bool:
    return entry.get("name") == MULTIKUEUE_PREEMPTION_GATE
