# SPDX-License-Identifier: Apache-2.0
"""RemoteAssignments as both sides read and write them.

Maps the object in a mailbox to the values that are decided on, for manager and agent alike. Objects are plain JSON
here, since there are thousands of them, and the API server validates them.
"""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import Final

from multikueue.api.constants import CLUSTER_LABEL, MAILBOX_NAMESPACE_PREFIX, GatePosition, PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PODS_NOT_STARTED_REASON, PREEMPTION_GATED_REASON, WorkloadCondition
from multikueue.api.remoteassignment import AssignmentPhase, Intent, mailbox_namespace
from multikueue.core.conditions import FALSE, TRUE, find_in, truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import parse_unsigned
from multikueue.core.timestamps import format_time, parse_time
from multikueue.dispatch.hub.facts import Observation, RemoteEnd
from multikueue.dispatch.protocol.job_problems import StartProblem, failure_of, failure_wire, start_problem_from
from multikueue.dispatch.worker.assignment_state import FORBIDDEN_BY_POLICY, NO_CAPACITY, ReportedStatus

FINGERPRINT_ANNOTATION: Final = "multikueue.io/fingerprint"
"""On an assignment: a digest of what was sent, to detect whether it has to be updated."""
_FORMER_NO_CAPACITY: Final = "NoRoom"
"""What version 0.1 has for `NoCapacity`. Agents still write it, since the hub may be of that version."""


def cluster_label(cluster: str) -> str:
    """The value of the label that names the cluster of a mailbox; an annotation of the same key has the full name."""
    return mailbox_namespace(cluster).removeprefix(MAILBOX_NAMESPACE_PREFIX)


def cluster_of(obj: JsonObject) -> str:
    """The cluster that an object of a mailbox is for."""
    metadata: JsonObject = obj["metadata"]
    named = (metadata.get("annotations") or {}).get(CLUSTER_LABEL) or (metadata.get("labels") or {}).get(CLUSTER_LABEL)
    return str(named or str(metadata.get("namespace", "")).removeprefix(MAILBOX_NAMESPACE_PREFIX))


def workload_of(obj: JsonObject) -> Key:
    """The Workload that an assignment is for."""
    reference: JsonObject = obj["spec"]["workload"]
    return Key(str(reference["namespace"]), str(reference["name"]))


def assigned_epoch(obj: JsonObject) -> int:
    """The epoch of an assignment. Raises `BadInput`."""
    return parse_unsigned(obj["spec"].get("epoch"), field=f"{_describe(obj)}: spec.epoch")


def observation_of(obj: JsonObject) -> Observation:
    """The assignment and the status that its agent reported last. Raises `BadInput` for what cannot be read."""
    return _observation(obj, status_of(obj))


def unanswered_observation(obj: JsonObject) -> Observation:
    """The assignment without its status, which is invalid. Raises `BadInput`."""
    return _observation(obj, ReportedStatus(epoch=0, phase=AssignmentPhase.PENDING))


def _observation(obj: JsonObject, reported: ReportedStatus) -> Observation:
    spec: JsonObject = obj["spec"]
    return Observation(
        cluster=intern(cluster_of(obj)),
        workload_uid=str(spec["workload"].get("uid", "")),
        epoch=assigned_epoch(obj),
        intent=intent_of(obj),
        fingerprint=str((obj["metadata"].get("annotations") or {}).get(FINGERPRINT_ANNOTATION, "")),
        status_epoch=reported.epoch,
        phase=reported.phase,
        reason=reported.reason,
        message=reported.message,
        job_status=reported.job_status,
        job_uid=reported.job_uid,
        end=reported.end,
        failure=reported.failure,
        gate=gate_of(obj),
        blocked_since=reported.blocked_since,
        start_problem=reported.start_problem,
        refused_change=reported.refused_change,
        provisions=bool(spec.get("provisioning")),
        policy=_policy_of(spec),
    )


def _policy_of(spec: JsonObject) -> PartitionPolicy | None:
    text = spec.get("partitionPolicy")
    return PartitionPolicy(text) if text in set(PartitionPolicy) else None


def gate_of(obj: JsonObject) -> GatePosition | None:
    """The desired position of the preemption gate. Raises `BadInput`."""
    text = obj["spec"].get("preemptionGate")
    try:
        return GatePosition(text) if text else None
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: spec.preemptionGate: {text!r} is not a position") from error


def intent_of(obj: JsonObject) -> Intent:
    """The intent of the assignment. Raises `BadInput`."""
    text = obj["spec"].get("intent")
    try:
        return Intent(text)
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: spec.intent: {text!r} is not an intent") from error


def status_of(obj: JsonObject) -> ReportedStatus:
    """The status that the agent reported last. Raises `BadInput`."""
    status: JsonObject = obj.get("status") or {}
    phase = status.get("phase")
    try:
        return ReportedStatus(
            epoch=parse_unsigned(status.get("epoch") or 0, field="status.epoch"),
            phase=AssignmentPhase(phase) if phase else AssignmentPhase.PENDING,
            reason=intern(reported_reason(status)),
            message=str(status.get("message") or ""),
            job_uid=str(status.get("jobUID") or ""),
            job_status=status.get("jobStatus"),
            end=_end(status.get("finished")),
            blocked_since=_blocked_since(status),
            start_problem=_problem(status, WorkloadCondition.PODS_STARTED, otherwise=PODS_NOT_STARTED_REASON),
            refused_change=_problem(status, WorkloadCondition.CHANGE_FORWARDED, otherwise=FORBIDDEN_BY_POLICY),
            failure=failure_of(status),
        )
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: status: {error}") from error


def reported_reason(status: JsonObject) -> str:
    """The reason in the status of a RemoteAssignment, whichever version of the agent wrote it."""
    reason = str(status.get("reason") or "")
    return NO_CAPACITY if reason == _FORMER_NO_CAPACITY else reason


def status_wire(status: ReportedStatus, *, sequence: int, boot_id: str, now: datetime) -> JsonObject:
    """The whole `status` as JSON, which replaces the former one."""
    finished = None
    if status.end is not None:
        finished = {
            "reason": status.end.reason,
            "message": truncate_message(status.end.message),
            "time": format_time(status.end.time or now),
        }
    fields: JsonObject = {
        "epoch": status.epoch,
        "phase": str(status.phase),
        "reason": _FORMER_NO_CAPACITY if status.reason == NO_CAPACITY else status.reason,
        "message": truncate_message(status.message),
        "jobUID": status.job_uid,
        "jobStatus": status.job_status,
        "finished": finished,
        "failure": failure_wire(status.failure),
        "conditions": _conditions(status, now=now),
        "sequence": sequence,
        "bootID": boot_id,
    }
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _end(finished: JsonObject | None) -> RemoteEnd | None:
    if not finished:
        return None
    time = finished.get("time")
    return RemoteEnd(
        reason=str(finished.get("reason") or ""),
        message=str(finished.get("message") or ""),
        time=parse_time(time) if time else None,
    )


def _conditions(status: ReportedStatus, *, now: datetime) -> list[JsonObject] | None:
    found = [] if status.blocked_since is None else [_blocked(status, status.blocked_since)]
    if status.start_problem is not None:
        found.append(_false(WorkloadCondition.PODS_STARTED, status.start_problem, now=now))
    if status.refused_change is not None:
        found.append(_false(WorkloadCondition.CHANGE_FORWARDED, status.refused_change, now=now))
    return found or None


def _blocked(status: ReportedStatus, since: datetime) -> JsonObject:
    return {
        "type": WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
        "status": TRUE,
        "reason": PREEMPTION_GATED_REASON,
        "message": truncate_message(status.message),
        "lastTransitionTime": format_time(since),
    }


def _blocked_since(status: JsonObject) -> datetime | None:
    found = find_in(status, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES)
    if found is None or found.get("status") != TRUE:
        return None
    return parse_time(found["lastTransitionTime"])


def _false(condition: WorkloadCondition, problem: StartProblem, *, now: datetime) -> JsonObject:
    return {
        "type": condition,
        "status": FALSE,
        "reason": problem.reason,
        "message": problem.message,
        "lastTransitionTime": format_time(problem.since or now),
    }


def _problem(status: JsonObject, condition: WorkloadCondition, *, otherwise: str) -> StartProblem | None:
    """The problem that the agent reports; an unreadable time is left out, since the hub uses its own clock."""
    found = find_in(status, condition)
    if found is None or found.get("status") != FALSE:
        return None
    try:
        since = parse_time(found.get("lastTransitionTime") or "")
    except BadInput:
        since = None
    return start_problem_from(found.get("reason"), found.get("message"), since=since, otherwise=otherwise)


def _describe(obj: JsonObject) -> str:
    metadata: JsonObject = obj["metadata"]
    return f"RemoteAssignment {metadata.get('namespace')}/{metadata.get('name')}"
