# SPDX-License-Identifier: Apache-2.0
"""What the demo submits and how it reads what became of it.

Pure: manifests out, rows out of Jobs and Workloads. One row a Job, with the one word that a user wants to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.devcluster.nodes import journal

QUEUE: Final = "jobs"
TEAMS: Final = ("team-a", "team-b")
_RUN_FOR: Final = ("500ms", "800ms", "1200ms")  # long enough to be seen, short enough that all are done in seconds


class Stage(StrEnum):
    """Where a Job stands, for a person."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    DISPATCHING = "dispatching"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One Job."""

    key: Key
    stage: Stage
    cluster: str = ""
    active: int = 0
    succeeded: int = 0
    completions: int = 1
    queued_seconds: float = 0.0
    note: str = ""


def jobs(count: int) -> list[JsonObject]:
    """`count` Jobs of one or two pods, by turns of team A and team B."""
    return [_job(number) for number in range(count)]


def row(job: JsonObject, workload: JsonObject | None, *, now: datetime) -> Row:
    """What a Job and its Workload tell."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    key = Key(metadata["namespace"], metadata["name"])
    conditions = _conditions(workload)
    ended = _ended(status)
    if ended is not None:
        stage = Stage.FINISHED if ended == "Complete" else Stage.FAILED
    elif workload is None:
        stage = Stage.SUBMITTED
    elif _true(conditions, "Admitted"):
        stage = Stage.RUNNING
    elif _true(conditions, "QuotaReserved"):
        stage = Stage.DISPATCHING
    else:
        stage = Stage.QUEUED
    admitted = conditions.get("Admitted")
    until = parse_time(admitted["lastTransitionTime"]) if admitted and admitted["status"] == "True" else now
    created = parse_time(metadata["creationTimestamp"])
    return Row(
        key=key,
        stage=stage,
        cluster=((workload or {}).get("status") or {}).get("clusterName", ""),
        active=status.get("active", 0),
        succeeded=status.get("succeeded", 0),
        completions=spec.get("completions", 1),
        queued_seconds=max(0.0, (until - created).total_seconds()),
        note=_note(stage, conditions, workload),
    )


def workload_by_job(workloads: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Workloads by the uid of the Job that owns them."""
    return {
        owner["uid"]: workload for workload in workloads for owner in workload["metadata"].get("ownerReferences") or []
    }


def wrong_runs(submitted: Sequence[JsonObject], entries: Iterable[journal.Entry]) -> list[str]:
    """What the journal of the virtual nodes has against 'each pod of each Job ran once, on one cluster'."""
    starts: dict[tuple[str, str], list[journal.Entry]] = {}
    for entry in entries:
        if entry.event == journal.STARTED:
            starts.setdefault((entry.namespace, entry.owner), []).append(entry)
    problems = []
    for job in submitted:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        ran = starts.pop((namespace, f"Job/{name}"), [])
        wanted, clusters = job["spec"]["completions"], sorted({entry.cluster for entry in ran})
        if len({entry.uid for entry in ran}) != wanted or len(clusters) != 1:
            problems.append(
                f"Job {namespace}/{name}: {len(ran)} pods ran on {clusters}, wanted {wanted} on one cluster"
            )
    problems += [f"{owner} in {namespace} ran and was never submitted" for namespace, owner in starts]
    return problems


def _job(number: int) -> JsonObject:
    team = TEAMS[number % len(TEAMS)]
    pods = 1 + number // len(TEAMS) % 2
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"demo-{number + 1:02}",
            "namespace": team,
            "labels": {constants.QUEUE_NAME_LABEL: QUEUE},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {constants.RUN_FOR_ANNOTATION: _RUN_FOR[number % len(_RUN_FOR)]}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox:stable",
                            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                        }
                    ],
                },
            },
        },
    }


def _conditions(thing: JsonObject | None) -> Mapping[str, JsonObject]:
    status = (thing or {}).get("status") or {}
    return {condition["type"]: condition for condition in status.get("conditions") or []}


def _true(conditions: Mapping[str, JsonObject], name: str) -> bool:
    return name in conditions and conditions[name]["status"] == "True"


def _ended(status: JsonObject) -> str | None:
    for condition in status.get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


def _note(stage: Stage, conditions: Mapping[str, JsonObject], workload: JsonObject | None) -> str:
    if stage is Stage.QUEUED:
        reserved = conditions.get("QuotaReserved")
        return str(reserved["message"]) if reserved is not None else ""
    if stage is Stage.DISPATCHING:
        checks = ((workload or {}).get("status") or {}).get("admissionChecks") or []
        return "; ".join(check["message"] for check in checks if check.get("message"))
    return ""
