# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a CronJob: the Jobs to delete, the Job to create, its status and events.

Pure: CronJob, its Jobs and the time in, `CronPlan` out. Decides as kube-controller-manager, in the same order and with
the same events.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from devcluster.controllers.job_sync import COMPLETE, FAILED, ControllerEvent
from devcluster.cron_schedule import Schedule, most_recent, parse_schedule, zone_of
from devcluster.resources import CRON_JOBS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import format_time, parse_time

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY: Final = 100
"""More missed times than this cause a warning event."""
_PADDING: Final = timedelta(milliseconds=100)
_LONGEST_DEADLINE: Final = 100 * 365 * 86_400
"""Seconds; a longer startingDeadlineSeconds has no effect."""


@dataclass(frozen=True, slots=True)
class Start:
    """A Job to create."""

    body: JsonObject
    scheduled: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedJobs:
    """Uids of Jobs that no longer exist."""

    deleted: Collection[str] = ()
    """Deleted in this reconcile."""
    missing: Collection[str] = ()
    """Deleted by another client."""


@dataclass(slots=True, kw_only=True)
class CronPlan:
    """What to do, in this order: delete the replaced Jobs, start the next, write the status."""

    status: JsonObject
    replaced: list[JsonObject] = field(default_factory=list)
    """References to active Jobs that must be deleted before the next one starts."""
    start: Start | None = None
    events: list[ControllerEvent] = field(default_factory=list)
    after: float | None = None
    """Seconds until the next reconcile without an event; None for never."""


def outdated(cron: JsonObject, jobs: Sequence[JsonObject]) -> list[JsonObject]:
    """The finished Jobs beyond the history limits, the oldest first."""
    spec = cron["spec"]
    found: list[JsonObject] = []
    for condition, limit in ((COMPLETE, "successfulJobsHistoryLimit"), (FAILED, "failedJobsHistoryLimit")):
        if spec.get(limit) is not None:
            ended = sorted((job for job in jobs if finished_condition(job) == condition), key=_by_start)
            found += ended[: max(0, len(ended) - spec[limit])]
    return found


def plan(cron: JsonObject, jobs: Sequence[JsonObject], *, removed: RemovedJobs, now: datetime) -> CronPlan:
    """The plan for a CronJob whose outdated Jobs are deleted."""
    found = CronPlan(status=copy.deepcopy(cron.get("status") or {}))
    for uid in removed.deleted:
        deactivate(found.status, uid)
    _follow(found, jobs, missing=removed.missing)
    if "deletionTimestamp" not in cron["metadata"]:
        _schedule(found, cron, now=now)
    return found


def activate(status: JsonObject, job: JsonObject, scheduled: datetime) -> None:
    """Add a started Job to the status."""
    metadata = job["metadata"]
    reference = {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
    reference |= {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    status["active"] = [*(status.get("active") or ()), reference]
    status["lastScheduleTime"] = format_time(scheduled)


def deactivate(status: JsonObject, uid: str) -> None:
    """Remove a Job from the active ones."""
    left = [entry for entry in status.get("active") or () if entry.get("uid") != uid]
    status.pop("active", None)
    if left:
        status["active"] = left


def is_active(status: JsonObject, uid: str) -> bool:
    """Whether the Job is active in the status."""
    return any(entry.get("uid") == uid for entry in status.get("active") or ())


def finished_condition(job: JsonObject) -> str:
    """`Complete` or `Failed`; empty for a Job that has not finished."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = (entry["type"] for entry in conditions if entry["status"] == "True")
    return next((kind for kind in true if kind in (COMPLETE, FAILED)), "")


def _follow(found: CronPlan, jobs: Iterable[JsonObject], *, missing: Collection[str]) -> None:
    """Update the active Jobs and lastSuccessfulTime."""
    status = found.status
    for job in jobs:
        uid, name, end = job["metadata"]["uid"], job["metadata"]["name"], finished_condition(job)
        if not end:
            if not is_active(status, uid):
                text = f"Saw a job that the controller did not create or forgot: {name}"
                found.events.append(ControllerEvent("Warning", "UnexpectedJob", text))
            continue
        if is_active(status, uid):
            deactivate(status, uid)
            found.events.append(
                ControllerEvent("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {end}")
            )
        completed = (job.get("status") or {}).get("completionTime")
        if end == COMPLETE and completed:
            last = status.get("lastSuccessfulTime")
            if last is None or parse_time(last) < parse_time(completed):
                status["lastSuccessfulTime"] = completed
    for entry in list(status.get("active") or ()):
        if entry.get("uid") in missing:
            deactivate(status, entry["uid"])
            found.events.append(
                ControllerEvent("Normal", "MissingJob", f"Active job went missing: {entry.get('name')}")
            )


def _schedule(found: CronPlan, cron: JsonObject, *, now: datetime) -> None:
    """Decide whether a Job is due, and when to reconcile again."""
    spec, status = cron["spec"], found.status
    text, zone = spec["schedule"], spec.get("timeZone") or ""
    try:
        zone_of(zone)
    except BadInput as error:
        found.events.append(ControllerEvent("Warning", "UnknownTimeZone", f'invalid timeZone: "{zone}": {error}'))
        return
    if spec.get("suspend"):
        return
    try:
        schedule = parse_schedule(text, time_zone=zone)
    except BadInput as error:
        found.events.append(
            ControllerEvent("Warning", "UnparseableSchedule", f'unparseable schedule: "{text}" : {error}')
        )
        return
    since = parse_time(status.get("lastScheduleTime") or cron["metadata"]["creationTimestamp"])
    deadline = spec.get("startingDeadlineSeconds")
    earliest = since if deadline is None else max(since, now - timedelta(seconds=min(deadline, _LONGEST_DEADLINE)))
    try:
        due, missed = most_recent(schedule, since=earliest, now=now)
        found.after = _requeue_after(schedule, since=since, now=now)
    except BadInput as error:
        found.events.append(ControllerEvent("Warning", "InvalidSchedule", f"invalid schedule: {text} : {error}"))
        return
    if due is None:
        return
    if missed > _MANY:
        advice = "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        found.events.append(ControllerEvent("Warning", "TooManyMissedTimes", f"too many missed start times. {advice}"))
    if deadline is not None and due + timedelta(seconds=min(deadline, _LONGEST_DEADLINE)) < now:
        shown = due.strftime("%a, %d %b %Y %H:%M:%S +0000")
        found.events.append(
            ControllerEvent("Warning", "MissSchedule", f"Missed scheduled time to start a job: {shown}")
        )
        return
    active = status.get("active") or []
    processed = any(entry.get("name") == job_name(cron, due) for entry in active)
    if processed or status.get("lastScheduleTime") == format_time(due):
        return
    policy = spec.get("concurrencyPolicy")
    if policy == "Forbid" and active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        found.events.append(ControllerEvent("Normal", "JobAlreadyActive", text))
        return
    if policy == "Replace":
        found.replaced += active
    found.start = Start(job_of(cron, due), due)


def _requeue_after(schedule: Schedule, *, since: datetime, now: datetime) -> float | None:
    recent, _ = most_recent(schedule, since=since, now=now)
    upcoming = schedule.after(recent or since)
    return (upcoming + _PADDING - now).total_seconds() if upcoming is not None else None


def job_name(cron: JsonObject, scheduled: datetime) -> str:
    """The name of the Job for a scheduled time, unique per minute."""
    return f"{cron['metadata']['name']}-{int(scheduled.timestamp()) // 60}"


def job_of(cron: JsonObject, scheduled: datetime) -> JsonObject:
    """The Job for a scheduled time."""
    template = copy.deepcopy(cron["spec"]["jobTemplate"])
    metadata = template.get("metadata") or {}
    local = scheduled.astimezone(zone_of(cron["spec"].get("timeZone") or "")).isoformat().replace("+00:00", "Z")
    made: JsonObject = {
        "name": job_name(cron, scheduled),
        "namespace": cron["metadata"]["namespace"],
        "labels": metadata.get("labels"),
        "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: local},
        "ownerReferences": [
            {
                "apiVersion": CRON_JOBS.api_version,
                "kind": CRON_JOBS.kind,
                "name": cron["metadata"]["name"],
                "uid": cron["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {key: value for key, value in made.items() if value},
        "spec": template.get("spec") or {},
    }


def _by_start(job: JsonObject) -> tuple[bool, str, str]:
    """Oldest first, Jobs that never started last."""
    started = (job.get("status") or {}).get("startTime")
    return started is None, started or "", job["metadata"]["name"]
