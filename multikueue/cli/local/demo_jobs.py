# SPDX-License-Identifier: Apache-2.0
"""The jobs of the demo, and the rows that show their state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from devcluster.kubelet import journal
from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason
from multikueue.api.resource import JOBS, PODS, Resource
from multikueue.cli.conditions import condition_of, has_condition
from multikueue.cli.local.demo_kinds import MIX, pods_by_owner, spec_of
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB

QUEUE: Final = "jobs"
TEAMS: Final = ("team-a", "team-b")
_RUN_FOR: Final = ("500ms", "800ms", "1200ms")  # long enough to be visible, short enough for a quick demo


class Stage(StrEnum):
    """The state of a job in the demo's table."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    DISPATCHING = "dispatching"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRow:
    """The state of one job."""

    key: Key
    kind: str = JOBS.kind
    stage: Stage
    cluster: str = ""
    active: int = 0
    succeeded: int = 0
    completions: int = 1
    queued_seconds: float = 0.0
    note: str = ""


def jobs(count: int, *, mixed: bool = False) -> list[JsonObject]:
    """`count` Jobs of one or two pods, alternately of team A and team B; `mixed` with the other kinds in turn.

    Each pod of a group is one of them.
    """
    if not mixed:
        return [_job(number, JOBS) for number in range(count)]
    found = []
    for number in range(count):
        kind = MIX[number // len(TEAMS) % len(MIX)]
        found.append(_member(number, count) if kind.grouped else _job(number, kind.resource))
    return found


def row(
    job: JsonObject, workload: JsonObject | None, *, now: datetime, integration: JobIntegration = BATCH_JOB
) -> DemoRow:
    """The row of a job of that kind and its Workload."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    key = Key(metadata["namespace"], metadata["name"])
    end = integration.finished(job)
    if end is not None:
        stage = Stage.FINISHED if end.reason == FinishedReason.SUCCEEDED else Stage.FAILED
    elif workload is None:
        stage = Stage.SUBMITTED
    elif has_condition(workload, "Admitted"):
        stage = Stage.RUNNING
    elif has_condition(workload, "QuotaReserved"):
        stage = Stage.DISPATCHING
    else:
        stage = Stage.QUEUED
    admitted = condition_of(workload, "Admitted")
    until = parse_time(admitted["lastTransitionTime"]) if admitted.get("status") == "True" else now
    created = parse_time(metadata["creationTimestamp"])
    is_job = integration is BATCH_JOB
    # An object of a list has no kind.
    pods = 0 if is_job else sum(pods_by_owner(job | {"kind": integration.resource.kind}).values())
    return DemoRow(
        key=key,
        kind=integration.resource.kind,
        stage=stage,
        cluster=((workload or {}).get("status") or {}).get("clusterName", ""),
        active=status.get("active", 0) if is_job else int(integration.is_active(job)),
        succeeded=status.get("succeeded", 0) if is_job else pods * (stage is Stage.FINISHED),
        completions=spec.get("completions", 1) if is_job else pods,
        queued_seconds=max(0.0, (until - created).total_seconds()),
        note=_note(stage, workload),
    )


def workload_by_job(workloads: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Workloads by the uid of the job that owns them."""
    return {
        owner["uid"]: workload for workload in workloads for owner in workload["metadata"].get("ownerReferences") or []
    }


def wrong_runs(submitted: Sequence[JsonObject], entries: Iterable[journal.JournalEntry]) -> list[str]:
    """Violations of 'each pod of each job ran once, on one cluster' in the journal of the virtual nodes."""
    starts: dict[tuple[str, str], list[journal.JournalEntry]] = {}
    for entry in entries:
        if entry.event == journal.STARTED:
            # A pod without an owner is a job itself.
            owner = entry.owner or f"{PODS.kind}/{entry.pod}"
            starts.setdefault((entry.namespace, owner), []).append(entry)
    problems = []
    for job in submitted:
        namespace, wanted = job["metadata"]["namespace"], pods_by_owner(job)
        by_owner = {owner: starts.pop((namespace, owner), []) for owner in wanted}
        ran = [entry for entries in by_owner.values() for entry in entries]
        clusters = sorted({entry.cluster for entry in ran})
        different = any(len({entry.uid for entry in by_owner[owner]}) != count for owner, count in wanted.items())
        if different or len(clusters) != 1:
            problems.append(
                f"{job['kind']} {namespace}/{job['metadata']['name']}: {len(ran)} pods ran on {clusters}, expected"
                f" {sum(wanted.values())} on one cluster"
            )
    problems += [f"{owner} in {namespace} ran but was never submitted" for namespace, owner in starts]
    return problems


def _member(number: int, count: int) -> JsonObject:
    """A pod of a group, which has one pod if `count` leaves no other."""
    size = len(TEAMS)
    first = number - number % size
    made = _job(number, PODS, team=TEAMS[first // size // len(MIX) % size])
    total = min(size, count - first)
    made["metadata"]["labels"][constants.POD_GROUP_NAME_LABEL] = f"demo-group-{first + 1:02}"
    made["metadata"]["annotations"][constants.POD_GROUP_TOTAL_COUNT_ANNOTATION] = str(total)
    return made


def _job(number: int, resource: Resource, *, team: str = "") -> JsonObject:
    metadata: JsonObject = {
        "name": f"demo-{number + 1:02}",
        "namespace": team or TEAMS[number % len(TEAMS)],
        "labels": {constants.QUEUE_NAME_LABEL: QUEUE},
    }
    if resource == JOBS:
        pods = 1 + number // len(TEAMS) % 2
        run_for = _RUN_FOR[number % len(_RUN_FOR)]
        spec: JsonObject = {"parallelism": pods, "completions": pods, "template": _template(run_for)}
    else:
        spec = spec_of(resource, _template)
    if resource == PODS:
        metadata["annotations"] = {constants.RUN_FOR_ANNOTATION: _RUN_FOR[-1]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _template(run_for: str) -> JsonObject:
    return {
        "metadata": {"annotations": {constants.RUN_FOR_ANNOTATION: run_for}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "busybox:stable", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
            ],
        },
    }


def _note(stage: Stage, workload: JsonObject | None) -> str:
    if stage is Stage.QUEUED:
        return str(condition_of(workload, "QuotaReserved").get("message") or "")
    if stage is Stage.DISPATCHING:
        checks = ((workload or {}).get("status") or {}).get("admissionChecks") or []
        return "; ".join(check["message"] for check in checks if check.get("message"))
    return ""
