# SPDX-License-Identifier: Apache-2.0
"""The timeline of a workload across hub and workers, assembled from the objects that exist.

Sources are conditions, checks, annotations and managed fields on the hub, assignments with their status, and jobs and
events of the workers. Entries are ordered by time, and an event and a condition about the same change are one entry.
The timeline is incomplete: a condition has only its last change, and events are kept for about an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import (
    ADMISSION_FIELD_MANAGER,
    AVOIDED_ANNOTATION,
    EPOCH_ANNOTATION,
    JOB_CONTROLLER_FIELD_MANAGER_PREFIX,
    RECLAIMABLE_PODS_FIELD_MANAGER,
    VERDICTS_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import EvictedReason, WorkloadCondition, evicted_event
from multikueue.core.conditions import find_in
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.protocol.annotations import avoided_of, gate_opening_of, round_of
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.dispatch.protocol.wire import cluster_of, reported_reason

HUB: Final = "hub"
_SAME: Final = timedelta(seconds=2)  # conditions have whole seconds, and events come a moment later
_LONG_AGO: Final = parse_time("1970-01-01T00:00:00Z")
_OURS: Final = (
    ADMISSION_FIELD_MANAGER,
    RECLAIMABLE_PODS_FIELD_MANAGER,
    JOB_CONTROLLER_FIELD_MANAGER_PREFIX,
    "mk-manager",
    "multikueue-",
    "kube-controller-manager",
)
_FIELDS_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One entry. `evidence` is creation, object, condition, check, event, copy (an assignment), writer or cluster."""

    time: datetime
    cluster: str
    what: str
    why: str = ""
    evidence: str = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObjects:
    """The job on one worker, if it still exists, and the events about it and its pods."""

    job: JsonObject | None = None
    events: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineObjects:
    """The objects about one workload."""

    workload: JsonObject
    job: JsonObject | None = None
    events: tuple[JsonObject, ...] = ()
    assignments: tuple[JsonObject, ...] = ()
    clusters: tuple[JsonObject, ...] = ()
    workers: Mapping[str, WorkerObjects] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The entries in order, and the facts without a time."""

    workload: str
    epoch: int
    cluster_name: str
    nominated: tuple[str, ...]
    evictions: tuple[tuple[str, int], ...]
    entries: tuple[TimelineEntry, ...]


def timeline(objects: TimelineObjects) -> Timeline:
    """The timeline of a workload."""
    metadata: JsonObject = objects.workload["metadata"]
    status: JsonObject = objects.workload.get("status") or {}
    evictions: list[JsonObject] = (status.get("schedulingStats") or {}).get("evictions") or []
    found = [*_of_job(objects.job, HUB), *_of_workload(objects.workload), *_of_events(objects.events, HUB)]
    for assignment in objects.assignments:
        found += _of_assignment(assignment)
    for name, worker in objects.workers.items():
        found += _of_job(worker.job, name)
        found += _of_events(worker.events, name)
    began = parse_time(metadata["creationTimestamp"])
    if objects.job is not None:
        began = min(began, parse_time(objects.job["metadata"]["creationTimestamp"]))
    found = [entry for entry in found if entry.time >= began - _SAME]
    found += [entry for entry in _of_clusters(objects, found) if entry.time >= began]
    return Timeline(
        workload=f"{metadata['namespace']}/{metadata['name']}",
        epoch=epoch_of((int(each["count"]) for each in evictions), metadata.get("annotations") or {}),
        cluster_name=str(status.get("clusterName") or ""),
        nominated=tuple(status.get("nominatedClusterNames") or ()),
        evictions=tuple((_because(each), int(each["count"])) for each in evictions),
        entries=tuple(_in_order(_once(found))),
    )


def _in_order(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """By time. Events have microseconds. Of entries with whole seconds, creations come before what is about the created
    object, changes of a cluster before their consequences, and the rest last in its second."""
    found = list(entries)
    first: dict[tuple[str, datetime], float] = {}
    for entry in found:
        if entry.time.microsecond:
            there = entry.cluster, entry.time.replace(microsecond=0)
            first[there] = min(first.get(there, 1.0), entry.time.microsecond / 1e6)

    def place(entry: TimelineEntry) -> tuple[datetime, float]:
        second = entry.time.replace(microsecond=0)
        if entry.time.microsecond:
            return second, entry.time.microsecond / 1e6
        if entry.evidence == "cluster":
            return second, 0.0
        if entry.evidence == "creation":
            return second, 0.0 if entry.cluster == HUB else first.get((entry.cluster, second), 1.0)
        return second, 1.0

    return sorted(found, key=place)


def _because(eviction: JsonObject) -> str:
    cause = eviction.get("underlyingCause")
    return f"{eviction['reason']}{f' due to {cause}' if cause else ''}"


def _of_workload(workload: JsonObject) -> Iterator[TimelineEntry]:
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    status: JsonObject = workload.get("status") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    why = f"for LocalQueue {spec.get('queueName', '')}, priority {spec.get('priority') or 0}"
    yield TimelineEntry(parse_time(metadata["creationTimestamp"]), HUB, "Workload created", why, "creation")
    yield from _of_conditions("Workload", status, HUB)
    for check in status.get("admissionChecks") or ():
        moment = parse_time(check["lastTransitionTime"])
        yield TimelineEntry(moment, HUB, f"check {check['name']} {check['state']}", check.get("message") or "", "check")
    requeue: JsonObject = status.get("requeueState") or {}
    if requeue.get("requeueAt"):
        why = f"back-off after {requeue.get('count') or 1} requeues"
        yield TimelineEntry(parse_time(requeue["requeueAt"]), HUB, "Workload may be queued again", why)
    kept = round_of(annotations)
    if kept is not None:
        yield TimelineEntry(kept.began, HUB, f"round with {kept.clusters} clusters began", f"epoch {kept.epoch}")
    opening = gate_opening_of(annotations)
    if opening is not None:
        why = f"its preemption gate was opened, epoch {opening.epoch}"
        yield TimelineEntry(opening.at, HUB, f"{opening.cluster} may preempt from here", why)
    for cluster, until in avoided_of(annotations, _LONG_AGO).items():
        why = f"it failed this workload ({AVOIDED_ANNOTATION})"
        yield TimelineEntry(until, HUB, f"{cluster} is avoided until here", why)
    yield from _of_writers("Workload", metadata)


def _of_job(job: JsonObject | None, cluster: str) -> Iterator[TimelineEntry]:
    if job is None:
        return
    metadata = job["metadata"]
    status: JsonObject = job["status"] if isinstance(job.get("status"), dict) else {}
    created = parse_time(metadata["creationTimestamp"])
    epoch = (metadata.get("annotations") or {}).get(EPOCH_ANNOTATION)
    kind = str(job.get("kind") or "Job")
    if cluster == HUB:
        writers = [entry for entry in metadata.get("managedFields") or () if _foreign(entry)]
        by = next((str(each["manager"]) for each in writers if parse_time(each["time"]) - created < _SAME), "")
        yield TimelineEntry(created, cluster, f"{kind} created", f"by {by}" if by else "", "creation")
        yield from _of_writers(kind, metadata)
    else:
        yield TimelineEntry(
            created, cluster, f"{kind} created", f"epoch {epoch}" if epoch else "not created by an agent", "creation"
        )
    started = _moment_of(status.get("startTime"))
    if started is not None:
        yield TimelineEntry(started, cluster, f"{kind} started")
    yield from _of_conditions(kind, status, cluster)
    if metadata.get("deletionTimestamp"):
        yield TimelineEntry(parse_time(metadata["deletionTimestamp"]), cluster, f"{kind} is being deleted")


def _of_conditions(kind: str, status: JsonObject, cluster: str) -> Iterator[TimelineEntry]:
    """The conditions with a time; the status of a custom resource may have any shape."""
    conditions = status.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        moment = _moment_of(each.get("lastTransitionTime")) if isinstance(each, dict) else None
        if moment is None:
            continue
        what = f"{kind} {each.get('type')}" if each.get("status") == "True" else f"{kind} not {each.get('type')}"
        why = ": ".join(str(part) for part in (each.get("reason"), each.get("message")) if part)
        yield TimelineEntry(moment, cluster, what, why, "condition")


def _moment_of(value: object) -> datetime | None:
    """The time in a status; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except BadInput:
        return None


def _of_writers(kind: str, metadata: JsonObject) -> Iterator[TimelineEntry]:
    """Other writers of the object, after its creation."""
    created = parse_time(metadata["creationTimestamp"])
    for each in metadata.get("managedFields") or ():
        if _foreign(each) and parse_time(each["time"]) - created >= _SAME:
            fields = list(_fields(each.get("fieldsV1") or {}))
            more = f" and {len(fields) - _FIELDS_SHOWN} more" if len(fields) > _FIELDS_SHOWN else ""
            shown = ", ".join(fields[:_FIELDS_SHOWN]) + more
            yield TimelineEntry(parse_time(each["time"]), HUB, f"{kind} written by {each['manager']}", shown, "writer")


def _foreign(managed: JsonObject) -> bool:
    return bool(managed.get("time")) and not str(managed.get("manager")).startswith(_OURS)


def _fields(owned: JsonObject, prefix: str = "") -> Iterator[str]:
    for key, inner in owned.items():
        if not key.startswith("f:"):
            continue
        path = f"{prefix}{key.removeprefix('f:')}"
        if prefix.count(".") < 1 and any(name.startswith("f:") for name in inner):
            yield from _fields(inner, f"{path}.")
        else:
            yield path


def _of_events(events: Iterable[JsonObject], cluster: str) -> Iterator[TimelineEntry]:
    for event in events:
        about: JsonObject = event.get("regarding") or event.get("involvedObject") or {}
        series: JsonObject = event.get("series") or {}
        moment = (
            event.get("eventTime") or event.get("deprecatedFirstTimestamp") or event["metadata"]["creationTimestamp"]
        )
        count = int(series.get("count") or event.get("deprecatedCount") or 1)
        last = series.get("lastObservedTime") or event.get("deprecatedLastTimestamp")
        named = f"Pod {about.get('name')}" if about.get("kind") == "Pod" else str(about.get("kind"))
        what, reported = f"{named} {event.get('reason')}", str(event.get("note") or event.get("message") or "")
        yield TimelineEntry(parse_time(moment), cluster, what, reported, "event")
        if count > 1 and last:
            # The times of those between are not recorded.
            yield TimelineEntry(parse_time(last), cluster, what, f"{reported} (the last of {count})", "event")


def _of_assignment(obj: JsonObject) -> Iterator[TimelineEntry]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    cluster, created = cluster_of(obj), parse_time(metadata["creationTimestamp"])
    verdicts = (metadata.get("annotations") or {}).get(VERDICTS_ANNOTATION, "")
    changed, reported = created, None
    for each in metadata.get("managedFields") or ():
        if each.get("time") and each.get("subresource") == "status":
            reported = max(reported or created, parse_time(each["time"]))
        elif each.get("time"):
            changed = max(changed, parse_time(each["time"]))
    intent = f"{spec['intent']}, epoch {spec['epoch']}"
    if changed > created:
        yield TimelineEntry(created, HUB, f"assignment sent to {cluster}", verdicts, "copy")
        yield TimelineEntry(changed, HUB, f"assignment of {cluster} changed: {intent}", "", "copy")
    else:
        yield TimelineEntry(created, HUB, f"assignment sent to {cluster}: {intent}", verdicts, "copy")
    if reported is not None and status.get("phase"):
        why = ": ".join(filter(None, (reported_reason(status), status.get("message"))))
        yield TimelineEntry(reported, cluster, f"reports {status['phase']}, epoch {status.get('epoch')}", why, "copy")
    ended: JsonObject = status.get("finished") or {}
    if ended.get("time"):
        why = str(ended.get("message") or "")
        yield TimelineEntry(parse_time(ended["time"]), cluster, f"the job ended: {ended.get('reason')}", why, "copy")


def _of_clusters(objects: TimelineObjects, entries: Iterable[TimelineEntry]) -> Iterator[TimelineEntry]:
    """When the clusters involved were lost or connected again."""
    texts = [f"{entry.cluster} {entry.what} {entry.why}" for entry in entries]
    status: JsonObject = objects.workload.get("status") or {}
    named = {status.get("clusterName"), *(status.get("nominatedClusterNames") or ())}
    for cluster in objects.clusters:
        name: str = cluster["metadata"]["name"]
        if name not in named and not any(_mentions(text, name) for text in texts):
            continue
        active = find_in(cluster.get("status"), "Active")
        if active is not None:
            why = f"{active.get('reason')}: {active.get('message')}"
            what = "the cluster is connected" if active["status"] == "True" else "the cluster is not available"
            yield TimelineEntry(parse_time(active["lastTransitionTime"]), name, what, why, "cluster")


def _mentions(text: str, name: str) -> bool:
    return f'"{name}"' in text or name in text.replace(":", " ").replace(",", " ").split()


def _once(entries: list[TimelineEntry]) -> Iterator[TimelineEntry]:
    """Without conditions and checks that an event of the same moment repeats in more detail."""
    events = [entry for entry in entries if entry.evidence == "event"]
    for entry in entries:
        if entry.evidence in ("condition", "check") and any(_repeats(event, entry) for event in events):
            continue
        yield entry


def _repeats(event: TimelineEntry, entry: TimelineEntry) -> bool:
    if event.cluster != entry.cluster or not -_SAME < event.time - entry.time < _SAME:
        return False
    if entry.evidence == "check":
        return bool(entry.why) and entry.why in event.why
    if entry.what == f"Workload {WorkloadCondition.EVICTED}":
        reason, _, message = entry.why.partition(": ")
        return event.what.startswith(f"Workload {evicted_event(reason)}") and message in event.why
    return entry.what == event.what and entry.what != f"Workload {EvictedReason.PREEMPTED}"
