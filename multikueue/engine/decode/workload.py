# SPDX-License-Identifier: Apache-2.0
"""Workloads from API objects of v1beta2.

Owns the reading of spec and status. Priorities are read from `spec.priority`. Conditions lose their messages, except
those that a later message quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from multikueue.api.constants import (
    ADMISSION_GATED_BY_ANNOTATION,
    DEFAULT_POD_SET,
    JOB_UID_LABEL,
    PRIORITY_BOOST_ANNOTATION,
    WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION,
    CheckState,
    DelayedTopology,
)
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.topologyslices import expand
from multikueue.core.conditions import TRUE, Condition
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.core.timestamps import parse_time
from multikueue.engine import resources
from multikueue.engine.decode import fields
from multikueue.engine.decode.fields import Json, Source
from multikueue.engine.decode.pods import Shapes, topology_request
from multikueue.engine.workloads import (
    Admission,
    AssignedDomains,
    CheckStatus,
    NodeUpdate,
    PodSet,
    PodSetAdmission,
    Workload,
)

_QUOTED: Final = frozenset(
    {WorkloadCondition.EVICTED, WorkloadCondition.PREEMPTED, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES}
)
_INT32: Final = re.compile(r"[+-]?\d{1,10}")
_BEGINNING: Final = parse_time("1970-01-01T00:00:00Z")


def workload(source: Source, shapes: Shapes, *, default_priority: int = 0) -> Workload:
    """A Workload; `default_priority` is that of its class, used while `spec.priority` is not set."""
    data = fields.read(source)
    metadata = fields.mapping(data, "metadata")
    annotations = fields.mapping(metadata, "annotations")
    spec = fields.mapping(data, "spec")
    status = fields.mapping(data, "status")
    requeue = fields.mapping(status, "requeueState")
    return Workload(
        key=Key(fields.interned(metadata, "namespace"), fields.text(metadata, "name")),
        uid=fields.text(metadata, "uid"),
        created=fields.moment(metadata, "creationTimestamp") or _BEGINNING,
        queue_name=fields.interned(spec, "queueName"),
        pod_sets=tuple(_pod_set(item, shapes) for item in fields.items(spec, "podSets")),
        priority=fields.whole(spec, "priority", default_priority),
        priority_boost=_boost(fields.text(annotations, PRIORITY_BOOST_ANNOTATION)),
        active=spec.get("active") is not False,
        deleting=fields.deleting(data),
        generation=fields.whole(metadata, "generation", 0),
        job_uid=fields.text(fields.mapping(metadata, "labels"), JOB_UID_LABEL),
        gated_by=_gates(fields.text(annotations, ADMISSION_GATED_BY_ANNOTATION)),
        preemption_gate_closed=_gate_closed(spec, status),
        replaces=fields.text(annotations, WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION),
        reclaimable={
            fields.text(item, "name"): fields.whole(item, "count", 0)
            for item in fields.items(status, "reclaimablePods")
        },
        admission=_admission(status),
        conditions=fields.conditions(status, keep_messages_of=_QUOTED),
        checks=tuple(_check(item) for item in fields.items(status, "admissionChecks")),
        requeue_at=fields.moment(requeue, "requeueAt"),
        requeue_count=fields.integer(requeue, "count"),
        unhealthy_nodes=tuple(fields.text(item, "name") for item in fields.items(status, "unhealthyNodes")),
        maximum_execution_seconds=fields.integer(spec, "maximumExecutionTimeSeconds"),
        past_execution_seconds=fields.whole(status, "accumulatedPastExecutionTimeSeconds", 0),
    )


def held_quota(source: Source) -> Workload | None:
    """A Workload that cannot be read, reduced to the quota that it holds; None if it holds none that can be read.

    Its quota must not be released because the rest of it became unreadable.
    """
    try:
        data = fields.read(source)
        metadata = fields.mapping(data, "metadata")
        spec, status = fields.mapping(data, "spec"), fields.mapping(data, "status")
        admission = _admission(status)
        states = {
            fields.text(item, "type"): fields.text(item, "status") == TRUE
            for item in fields.items(status, "conditions")
        }
    except (BadInput, ValueError):
        return None
    if admission is None or spec.get("active") is False or states.get(WorkloadCondition.FINISHED):
        return None
    if not states.get(WorkloadCondition.QUOTA_RESERVED):
        return None
    held = (kind for kind in (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED) if states.get(kind))
    return Workload(
        key=Key(fields.interned(metadata, "namespace"), fields.text(metadata, "name")),
        uid=fields.text(metadata, "uid"),
        created=_BEGINNING,
        queue_name=fields.interned(spec, "queueName"),
        pod_sets=(),
        admission=admission,
        conditions=tuple(
            Condition(type=kind, status=TRUE, reason="", last_transition_time=_BEGINNING) for kind in held
        ),
    )


def _pod_set(source: Json, shapes: Shapes) -> PodSet:
    name = fields.interned(source, "name") or DEFAULT_POD_SET
    try:
        return PodSet(
            name=name,
            count=fields.whole(source, "count", 1),
            min_count=fields.integer(source, "minCount"),
            shape=shapes.of(fields.mapping(fields.mapping(source, "template"), "spec")),
            topology=topology_request(source, "topologyRequest"),
        )
    except BadInput as error:
        raise BadInput(f"podSet {name}: {error}") from error


def _admission(status: Json) -> Admission | None:
    source = fields.mapping(status, "admission")
    if not source:
        return None
    return Admission(
        fields.interned(source, "clusterQueue"),
        tuple(_pod_set_admission(item) for item in fields.items(source, "podSetAssignments")),
    )


def _pod_set_admission(source: Json) -> PodSetAdmission:
    delayed = fields.text(source, "delayedTopologyRequest")
    usage: Mapping[str, object] = fields.mapping(source, "resourceUsage")
    return PodSetAdmission(
        name=fields.interned(source, "name") or DEFAULT_POD_SET,
        flavors=fields.labels(source, "flavors"),
        usage={resource: _usage(resource, value) for resource, value in usage.items()},
        count=fields.integer(source, "count"),
        delayed_topology=DelayedTopology(delayed) if delayed else None,
        topology=_domains(source),
    )


def _domains(source: Json) -> AssignedDomains | None:
    if source.get("topologyAssignment") is None:
        return None
    try:
        plain = expand(dict(fields.mapping(source, "topologyAssignment")))
        levels = tuple(map(str, plain["levels"]))
        domains = tuple((tuple(map(str, each["values"])), int(each["count"])) for each in plain["domains"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"status.admission.podSetAssignments: topologyAssignment: {error}") from error
    if any(len(values) != len(levels) for values, _ in domains):
        raise BadInput("status.admission.podSetAssignments: topologyAssignment: a domain has no value for each level")
    return AssignedDomains(levels, domains)


def _usage(resource: str, value: object) -> int:
    try:
        return resources.amount_of(resource, str(value))
    except BadInput as error:
        raise BadInput(f"status.admission.podSetAssignments: resourceUsage[{excerpt(resource)}]: {error}") from error


def _check(source: Json) -> CheckStatus:
    return CheckStatus(
        name=fields.interned(source, "name"),
        state=CheckState(fields.text(source, "state") or CheckState.PENDING),
        message=fields.text(source, "message"),
        last_transition_time=fields.moment(source, "lastTransitionTime"),
        requeue_after_seconds=fields.integer(source, "requeueAfterSeconds"),
        retry_count=fields.integer(source, "retryCount"),
        updates=tuple(_update(item) for item in fields.items(source, "podSetUpdates") if _concerns_nodes(item)),
    )


def _concerns_nodes(update: Json) -> bool:
    return bool(update.get("nodeSelector") or update.get("tolerations"))


def _update(source: Json) -> NodeUpdate:
    return NodeUpdate(
        name=fields.text(source, "name"),
        node_selector=fields.labels(source, "nodeSelector"),
        tolerations=fields.tolerations(source),
    )


def _boost(annotation: str) -> int:
    # An annotation that is not a 32-bit number means no boost: docs/spec/engine.md §1.3 rule 3.
    if not _INT32.fullmatch(annotation) or not -(2**31) <= int(annotation) < 2**31:
        return 0
    return int(annotation)


def _gates(annotation: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in annotation.split(",") if entry.strip())


def _gate_closed(spec: Json, status: Json) -> bool:
    opened = {
        fields.text(item, "name")
        for item in fields.items(status, "preemptionGates")
        if fields.text(item, "position") == "Open"
    }
    return any(fields.text(item, "name") not in opened for item in fields.items(spec, "preemptionGates"))
