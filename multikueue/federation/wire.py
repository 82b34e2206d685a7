# SPDX-License-Identifier: Apache-2.0
"""RemoteAssignments as both sides read and write them.

Owns the mapping between the object in a mailbox and the values that are decided on, so that manager and agent cannot
drift apart. Objects are plain JSON here: they pass by the thousand, and validation is the API server's.
"""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import Final

from multikueue.api.constants import CLUSTER_LABEL, MAILBOX_NAMESPACE_PREFIX, GatePosition, PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PREEMPTION_GATED_REASON, WorkloadCondition
from multikueue.api.remoteassignment import Intent, Phase, mailbox_namespace
from multikueue.core.conditions import TRUE, truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.federation.facts import Observation, RemoteEnd
from multikueue.federation.mirror import Word

FINGERPRINT_ANNOTATION: Final = "multikueue.io/fingerprint"
"""On an assignment: a digest of what was sent, to tell whether it has to be sent again."""


def cluster_label(cluster: str) -> str:
    """The value of the label that says whose mailbox it is; the full name stands in an annotation of the same key."""
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


def observation_of(obj: JsonObject) -> Observation:
    """The wish and the cluster's last word. Raises `BadInput` for an intent or phase that nobody knows."""
    spec: JsonObject = obj["spec"]
    said = word_of(obj)
    return Observation(
        cluster=intern(cluster_of(obj)),
        workload_uid=str(spec["workload"].get("uid", "")),
        epoch=int(spec["epoch"]),
        intent=intent_of(obj),
        fingerprint=str((obj["metadata"].get("annotations") or {}).get(FINGERPRINT_ANNOTATION, "")),
        status_epoch=said.epoch,
        phase=said.phase,
        reason=said.reason,
        message=said.message,
        job_status=said.job_status,
        job_uid=said.job_uid,
        end=said.end,
        gate=gate_of(obj),
        blocked_since=said.blocked_since,
        policy=_policy_of(spec),
    )


def _policy_of(spec: JsonObject) -> PartitionPolicy | None:
    text = spec.get("partitionPolicy")
    return PartitionPolicy(text) if text in set(PartitionPolicy) else None


def gate_of(obj: JsonObject) -> GatePosition | None:
    """Where the preemption gate of the clone is to be. Raises `BadInput`."""
    text = obj["spec"].get("preemptionGate")
    try:
        return GatePosition(text) if text else None
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: spec.preemptionGate: {text!r} is not a position") from error


def intent_of(obj: JsonObject) -> Intent:
    """What the cluster is to do. Raises `BadInput`."""
    text = obj["spec"].get("intent")
    try:
        return Intent(text)
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: spec.intent: {text!r} is not an intent") from error


def word_of(obj: JsonObject) -> Word:
    """What the agent said last. Raises `BadInput`."""
    status: JsonObject = obj.get("status") or {}
    phase = status.get("phase")
    try:
        return Word(
            epoch=int(status.get("epoch") or 0),
            phase=Phase(phase) if phase else Phase.PENDING,
            reason=intern(str(status.get("reason") or "")),
            message=str(status.get("message") or ""),
            job_uid=str(status.get("jobUID") or ""),
            job_status=status.get("jobStatus"),
            end=_end(status.get("finished")),
            blocked_since=_blocked_since(status.get("conditions")),
        )
    except ValueError as error:
        raise BadInput(f"{_describe(obj)}: status: {error}") from error


def status_of(word: Word, *, sequence: int, boot_id: str, now: datetime) -> JsonObject:
    """The status that says `word`, whole: it replaces what was said before."""
    finished = None
    if word.end is not None:
        finished = {
            "reason": word.end.reason,
            "message": truncate_message(word.end.message),
            "time": format_time(word.end.time or now),
        }
    fields: JsonObject = {
        "epoch": word.epoch,
        "phase": str(word.phase),
        "reason": word.reason,
        "message": truncate_message(word.message),
        "jobUID": word.job_uid,
        "jobStatus": word.job_status,
        "finished": finished,
        "conditions": None if word.blocked_since is None else [_blocked(word, word.blocked_since)],
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


def _blocked(word: Word, since: datetime) -> JsonObject:
    return {
        "type": WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
        "status": TRUE,
        "reason": PREEMPTION_GATED_REASON,
        "message": truncate_message(word.message),
        "lastTransitionTime": format_time(since),
    }


def _blocked_since(conditions: list[JsonObject] | None) -> datetime | None:
    for entry in conditions or ():
        if entry.get("type") == WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES and entry.get("status") == TRUE:
            return parse_time(entry["lastTransitionTime"])
    return None


def _describe(obj: JsonObject) -> str:
    metadata: JsonObject = obj["metadata"]
    return f"RemoteAssignment {metadata.get('namespace')}/{metadata.get('name')}"
