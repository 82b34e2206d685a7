# SPDX-License-Identifier: Apache-2.0
"""The history of a workload across hub and workers, from what the objects still tell.

Owns the assembly: conditions, checks, annotations and managed fields of the hub, copies with what was said of them,
and Jobs and events of the workers, as lines of time, cluster, what and why. Promises that the order is that of time,
and that one happening is one line where an event and a condition tell the same. Leaves out what nobody wrote down: a
condition remembers its last change only, and events are kept for an hour or so.
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
from multikueue.core.timestamps import parse_time
from multikueue.federation.annotations import avoided_of, gate_opening_of, round_of
from multikueue.federation.epochs import epoch_of
from multikueue.federation.wire import cluster_of

HUB: Final = "hub"
_SAME: Final = timedelta(seconds=2)  # conditions know whole seconds, and events come a moment after what they tell
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
class Entry:
    """One line. `told_by` is the evidence: creation, object, condition, check, event, copy, writer or cluster."""

    time: datetime
    cluster: str
    what: str
    why: str = ""
    told_by: str = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTale:
    """What one worker has to tell: its Job, if it is still there, and the events about it and its pods."""

    job: JsonObject | None = None
    events: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tale:
    """Everything that was found about one workload."""

    workload: JsonObject
    job: JsonObject | None = None
    events: tuple[JsonObject, ...] = ()
    assignments: tuple[JsonObject, ...] = ()
    clusters: tuple[JsonObject, ...] = ()
    workers: Mapping[str, WorkerTale] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The lines in order, and what stands without a time."""

    workload: str
    epoch: int
    cluster_name: str
    nominated: tuple[str, ...]
    evictions: tuple[tuple[str, int], ...]
    entries: tuple[Entry, ...]


def story(tale: Tale) -> Story:
    """The story of a workload."""
    metadata: JsonObject = tale.workload["metadata"]
    status: JsonObject = tale.workload.get("status") or {}
    evictions: list[JsonObject] = (status.get("schedulingStats") or {}).get("evictions") or []
    found = [*_of_job(tale.job, HUB), *_of_workload(tale.workload), *_of_events(tale.events, HUB)]
    for assignment in tale.assignments:
        found += _of_assignment(assignment)
    for name, worker in tale.workers.items():
        found += _of_job(worker.job, name)
        found += _of_events(worker.events, name)
    began = parse_time(metadata["creationTimestamp"])
    if tale.job is not None:
        began = min(began, parse_time(tale.job["metadata"]["creationTimestamp"]))
    found = [entry for entry in found if entry.time >= began - _SAME]
    found += [entry for entry in _of_clusters(tale, found) if entry.time >= began]
    return Story(
        workload=f"{metadata['namespace']}/{metadata['name']}",
        epoch=epoch_of((int(each["count"]) for each in evictions), metadata.get("annotations") or {}),
        cluster_name=str(status.get("clusterName") or ""),
        nominated=tuple(status.get("nominatedClusterNames") or ()),
        evictions=tuple((_because(each), int(each["count"])) for each in evictions),
        entries=tuple(_in_order(_once(found))),
    )


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By time. Events know microseconds; of what knows whole seconds only, creations come before what tells of the
    created, clusters that are lost or back before what follows from it, and the rest last in its second."""
    found = list(entries)
    first: dict[tuple[str, datetime], float] = {}
    for entry in found:
        if entry.time.microsecond:
            there = entry.cluster, entry.time.replace(microsecond=0)
            first[there] = min(first.get(there, 1.0), entry.time.microsecond / 1e6)

    def place(entry: Entry) -> tuple[datetime, float]:
        second = entry.time.replace(microsecond=0)
        if entry.time.microsecond:
            return second, entry.time.microsecond / 1e6
        if entry.told_by == "cluster":
            return second, 0.0
        if entry.told_by == "creation":
            return second, 0.0 if entry.cluster == HUB else first.get((entry.cluster, second), 1.0)
        return second, 1.0

    return sorted(found, key=place)


def _because(eviction: JsonObject) -> str:
    cause = eviction.get("underlyingCause")
    return f"{eviction['reason']}{f' due to {cause}' if cause else ''}"


def _of_workload(workload: JsonObject) -> Iterator[Entry]:
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    status: JsonObject = workload.get("status") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    why = f"for LocalQueue {spec.get('queueName', '')}, priority {spec.get('priority') or 0}"
    yield Entry(parse_time(metadata["creationTimestamp"]), HUB, "Workload created", why, "creation")
    yield from _of_conditions("Workload", status, HUB)
    for check in status.get("admissionChecks") or ():
        moment = parse_time(check["lastTransitionTime"])
        yield Entry(moment, HUB, f"check {check['name']} {check['state']}", check.get("message") or "", "check")
    requeue: JsonObject = status.get("requeueState") or {}
    if requeue.get("requeueAt"):
        why = f"back-off after {requeue.get('count') or 1} requeues"
        yield Entry(parse_time(requeue["requeueAt"]), HUB, "Workload may be queued again", why)
    kept = round_of(annotations)
    if kept is not None:
        yield Entry(kept.began, HUB, f"round with {kept.clusters} clusters began", f"epoch {kept.epoch}")
    opening = gate_opening_of(annotations)
    if opening is not None:
        why = f"its preemption gate was opened, epoch {opening.epoch}"
        yield Entry(opening.at, HUB, f"{opening.cluster} may preempt from here", why)
    for cluster, until in avoided_of(annotations, _LONG_AGO).items():
        why = f"it failed this workload ({AVOIDED_ANNOTATION})"
        yield Entry(until, HUB, f"{cluster} is avoided until here", why)
    yield from _of_writers("Workload", metadata)


def _of_job(job: JsonObject | None, cluster: str) -> Iterator[Entry]:
    if job is None:
        return
    metadata, status = job["metadata"], job.get("status") or {}
    created = parse_time(metadata["creationTimestamp"])
    epoch = (metadata.get("annotations") or {}).get(EPOCH_ANNOTATION)
    if cluster == HUB:
        writers = [entry for entry in metadata.get("managedFields") or () if _foreign(entry)]
        by = next((str(each["manager"]) for each in writers if parse_time(each["time"]) - created < _SAME), "")
        yield Entry(created, cluster, "Job created", f"by {by}" if by else "", "creation")
        yield from _of_writers("Job", metadata)
    else:
        yield Entry(created, cluster, "Job created", f"epoch {epoch}" if epoch else "not one of ours", "creation")
    if status.get("startTime"):
        yield Entry(parse_time(status["startTime"]), cluster, "Job started")
    yield from _of_conditions("Job", status, cluster)
    if metadata.get("deletionTimestamp"):
        yield Entry(parse_time(metadata["deletionTimestamp"]), cluster, "Job is being deleted")


def _of_conditions(kind: str, status: JsonObject, cluster: str) -> Iterator[Entry]:
    for each in status.get("conditions") or ():
        if not each.get("lastTransitionTime"):
            continue
        what = f"{kind} {each['type']}" if each["status"] == "True" else f"{kind} not {each['type']}"
        why = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
        yield Entry(parse_time(each["lastTransitionTime"]), cluster, what, why, "condition")


def _of_writers(kind: str, metadata: JsonObject) -> Iterator[Entry]:
    """Who else wrote it, after it was made."""
    created = parse_time(metadata["creationTimestamp"])
    for each in metadata.get("managedFields") or ():
        if _foreign(each) and parse_time(each["time"]) - created >= _SAME:
            fields = list(_fields(each.get("fieldsV1") or {}))
            more = f" and {len(fields) - _FIELDS_SHOWN} more" if len(fields) > _FIELDS_SHOWN else ""
            shown = ", ".join(fields[:_FIELDS_SHOWN]) + more
            yield Entry(parse_time(each["time"]), HUB, f"{kind} written by {each['manager']}", shown, "writer")


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


def _of_events(events: Iterable[JsonObject], cluster: str) -> Iterator[Entry]:
    for event in events:
        about: JsonObject = event.get("regarding") or event.get("involvedObject") or {}
        series: JsonObject = event.get("series") or {}
        moment = (
            event.get("eventTime") or event.get("deprecatedFirstTimestamp") or event["metadata"]["creationTimestamp"]
        )
        count = int(series.get("count") or event.get("deprecatedCount") or 1)
        last = series.get("lastObservedTime") or event.get("deprecatedLastTimestamp")
        named = f"Pod {about.get('name')}" if about.get("kind") == "Pod" else str(about.get("kind"))
        what, said = f"{named} {event.get('reason')}", str(event.get("note") or event.get("message") or "")
        yield Entry(parse_time(moment), cluster, what, said, "event")
        if count > 1 and last:
            # Of those between nobody wrote down when they were.
            yield Entry(parse_time(last), cluster, what, f"{said} (the last of {count})", "event")


def _of_assignment(obj: JsonObject) -> Iterator[Entry]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    cluster, created = cluster_of(obj), parse_time(metadata["creationTimestamp"])
    verdicts = (metadata.get("annotations") or {}).get(VERDICTS_ANNOTATION, "")
    told, said = created, None
    for each in metadata.get("managedFields") or ():
        if each.get("time") and each.get("subresource") == "status":
            said = max(said or created, parse_time(each["time"]))
        elif each.get("time"):
            told = max(told, parse_time(each["time"]))
    intent = f"{spec['intent']}, epoch {spec['epoch']}"
    if told > created:
        yield Entry(created, HUB, f"copy sent to {cluster}", verdicts, "copy")
        yield Entry(told, HUB, f"{cluster} told: {intent}", "", "copy")
    else:
        yield Entry(created, HUB, f"copy sent to {cluster}: {intent}", verdicts, "copy")
    if said is not None and status.get("phase"):
        why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        yield Entry(said, cluster, f"says {status['phase']}, epoch {status.get('epoch')}", why, "copy")
    ended: JsonObject = status.get("finished") or {}
    if ended.get("time"):
        why = str(ended.get("message") or "")
        yield Entry(parse_time(ended["time"]), cluster, f"the job ended there: {ended.get('reason')}", why, "copy")


def _of_clusters(tale: Tale, entries: Iterable[Entry]) -> Iterator[Entry]:
    """When clusters that play a part were lost or came back."""
    texts = [f"{entry.cluster} {entry.what} {entry.why}" for entry in entries]
    status: JsonObject = tale.workload.get("status") or {}
    named = {status.get("clusterName"), *(status.get("nominatedClusterNames") or ())}
    for cluster in tale.clusters:
        name: str = cluster["metadata"]["name"]
        if name not in named and not any(_mentions(text, name) for text in texts):
            continue
        for each in (cluster.get("status") or {}).get("conditions") or ():
            if each["type"] == "Active":
                why = f"{each.get('reason')}: {each.get('message')}"
                what = "the cluster is connected" if each["status"] == "True" else "the cluster is not available"
                yield Entry(parse_time(each["lastTransitionTime"]), name, what, why, "cluster")


def _mentions(text: str, name: str) -> bool:
    return f'"{name}"' in text or name in text.replace(":", " ").replace(",", " ").split()


def _once(entries: list[Entry]) -> Iterator[Entry]:
    """Without the conditions and checks that an event of the same moment tells too, in more words."""
    events = [entry for entry in entries if entry.told_by == "event"]
    for entry in entries:
        if entry.told_by in ("condition", "check") and any(_tells(event, entry) for event in events):
            continue
        yield entry


def _tells(event: Entry, entry: Entry) -> bool:
    if event.cluster != entry.cluster or not -_SAME < event.time - entry.time < _SAME:
        return False
    if entry.told_by == "check":
        return bool(entry.why) and entry.why in event.why
    if entry.what == f"Workload {WorkloadCondition.EVICTED}":
        reason, _, message = entry.why.partition(": ")
        return event.what.startswith(f"Workload {evicted_event(reason)}") and message in event.why
    return entry.what == event.what and entry.what != f"Workload {EvictedReason.PREEMPTED}"
