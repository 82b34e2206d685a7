# SPDX-License-Identifier: Apache-2.0
"""An engine with the objects of a set of manifests.

Owns the way from manifests to engine values: namespaces, classes and queues before workloads, jobs as the Workloads
that the manager would create for them. Objects that the engine does not use (a Deployment, a ConfigMap) are ignored;
objects that cannot be read are recorded and skipped. If the manifests contain no Namespace, every namespace that is
named exists. Objects without a creation time are created now, in the order of the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from multikueue.api.constants import NAMESPACE_NAME_LABEL
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION, QuotaReservedReason
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
    KUEUE_GROUP,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.core.conditions import TRUE, find_in
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.engine import Engine, decode
from multikueue.engine.explain import Explanation
from multikueue.engine.settings import Settings
from multikueue.engine.workloads import Workload
from multikueue.simulation.job_kinds import SimulatedKinds
from multikueue.simulation.jobs import Classes, Refusal, SimulatedJobs, members_by_group, owners
from multikueue.simulation.manifests import WRONG_SHAPE, Manifest, Unusable, wrong_shape

_NAMESPACED: Final = frozenset({"LocalQueue", "Workload", "LimitRange", "ResourceClaimTemplate"})
_DEFAULT_NAMESPACE: Final = "default"
Kind = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job among the manifests."""

    group: str
    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.key}"


@dataclass(slots=True)
class SimulatedCluster:
    """The engine and its input."""

    engine: Engine
    cluster_queues: list[str] = field(default_factory=list)
    cohorts: list[str] = field(default_factory=list)
    workloads: dict[Key, Workload] = field(default_factory=dict)
    refused: dict[Key, Refusal] = field(default_factory=dict)
    unusable: list[Unusable] = field(default_factory=list)
    jobs: dict[SimulatedJob, Key] = field(default_factory=dict)
    """The Workload of each job."""

    def explain(self, key: Key, now: datetime) -> Explanation:
        """The state of a workload and its reasons."""
        refusal = self.refused.get(key)
        if refusal is None:
            return self.engine.explain(key, now)
        reason = QuotaReservedReason(refusal.reason)
        return Explanation(workload=key, state="NotQueued", reason=reason, message=refusal.message)


def build(
    manifests: Iterable[Manifest],
    *,
    settings: Settings,
    now: datetime,
    of_hub: bool = False,
    kinds: SimulatedKinds | None = None,
) -> SimulatedCluster:
    """The cluster at `now`, before its first cycle; `of_hub` if the objects are a hub's, with their statuses.

    Otherwise an AdmissionCheck is active unless its status says otherwise, since no controller sets it. `kinds` are
    those of jobs.
    """
    kinds = kinds or SimulatedKinds()
    cluster = SimulatedCluster(Engine(settings))
    by_kind: dict[Kind, list[Manifest]] = {}
    queued: list[Manifest] = []
    others: list[JsonObject] = []
    for number, manifest in enumerate(manifests):
        kind = (manifest.group, manifest.kind)
        is_read = kind == _WORKLOAD or kind in _ADDERS or kind in _CLASSES
        is_job = not is_read and kinds.integration(*kind) is not None
        if is_read or is_job:
            with _reading(cluster, manifest):
                identified = Manifest(identify(manifest, number, job=is_job), manifest.source)
                is_queued = is_job or kind == _WORKLOAD
                (queued if is_queued else by_kind.setdefault(kind, [])).append(identified)
        else:
            others.append(manifest.obj)
    if _NAMESPACE not in by_kind:
        by_kind[_NAMESPACE] = _named_namespaces([*queued, *by_kind.get(_LOCAL, ())])
    for kind, add in _ADDERS.items():
        for manifest in by_kind.get(kind, ()):
            with _reading(cluster, manifest):
                assumed = kind == _CHECK and not of_hub
                add(cluster, _assumed_active(manifest.obj) if assumed else manifest.obj, now)
    _add_queued(cluster, queued, by_kind, others, kinds=kinds, now=now)
    cluster.engine.flush(now)
    values = (cached.value for cached in cluster.engine.cluster_queues.values())
    cluster.cohorts = sorted(
        {value.cohort for value in values if value is not None and value.cohort} | {*cluster.cohorts}
    )
    return cluster


@contextmanager
def _reading(cluster: SimulatedCluster, manifest: Manifest) -> Iterator[None]:
    """Record an object that cannot be read, and skip it."""
    try:
        yield
    except MultikueueError as error:
        cluster.unusable.append(Unusable(str(manifest), (str(error),)))
    except WRONG_SHAPE as error:
        cluster.unusable.append(Unusable(str(manifest), (wrong_shape(manifest, error),)))


def identify(manifest: Manifest, number: int, *, job: bool = False) -> JsonObject:
    """The object with the name and namespace that it would have in a cluster; `job` if it is one. Raises `BadInput`."""
    metadata = manifest.obj.get("metadata")
    if not isinstance(metadata, dict):
        raise BadInput("an object needs metadata.name")
    changes: JsonObject = {}
    if not metadata.get("name"):
        if not metadata.get("generateName"):
            raise BadInput("an object needs metadata.name")
        changes["name"] = f"{metadata['generateName']}{number + 1:05}"
    if (job or manifest.kind in _NAMESPACED) and not metadata.get("namespace"):
        changes["namespace"] = _DEFAULT_NAMESPACE
    return manifest.obj | {"metadata": metadata | changes} if changes else manifest.obj


def _named_namespaces(manifests: Iterable[Manifest]) -> list[Manifest]:
    names = {str(manifest.obj["metadata"]["namespace"]) for manifest in manifests}
    return [Manifest({"metadata": {"name": name}}, "") for name in sorted(names)]


def _labelled(namespace: Manifest) -> tuple[str, JsonObject]:
    """The name of a Namespace and its labels; of one that is refused for its labels only that of its name."""
    metadata: JsonObject = namespace.obj["metadata"]
    name, labels = str(metadata["name"]), metadata.get("labels")
    return name, {NAMESPACE_NAME_LABEL: name} | (labels if isinstance(labels, dict) else {})


def _add_queued(
    cluster: SimulatedCluster,
    queued: Sequence[Manifest],
    by_kind: Mapping[Kind, list[Manifest]],
    others: Sequence[JsonObject],
    *,
    kinds: SimulatedKinds,
    now: datetime,
) -> None:
    """Workloads, and jobs as Workloads, in the order of the manifests; a group has the place of its first member.

    Among the `others` are the runtimes that jobs name.
    """
    classes = Classes(_classes(cluster, by_kind))
    objects = [manifest.obj for manifest in queued if (manifest.group, manifest.kind) != _WORKLOAD]
    jobs = SimulatedJobs(
        classes=classes,
        local_queues=cluster.engine.waiting.local_queues.keys(),
        owners=owners(manifest.obj for manifest in queued if (manifest.group, manifest.kind) == _WORKLOAD),
        kinds=kinds,
        namespaces=dict(_labelled(manifest) for manifest in by_kind.get(_NAMESPACE, ())),
        jobs=objects,
        runtimes=others,
    )
    groups = members_by_group(jobs, objects)
    shapes = decode.Shapes()
    for number, manifest in enumerate(queued):
        with _reading(cluster, manifest):
            made: JsonObject | Refusal | None = manifest.obj
            if (manifest.group, manifest.kind) != _WORKLOAD:
                group = jobs.group_of(manifest.obj)
                members = [manifest.obj] if group is None else groups.pop(group, [])
                made = jobs.workload_of(*members) if members else None
                _note_workload(cluster, manifest, members, made)
            if isinstance(made, Refusal):
                cluster.refused[made.workload] = made
            elif made is not None:
                _take_workload(cluster, _workload(made, shapes, classes, number=number, now=now), now)


def _note_workload(
    cluster: SimulatedCluster, manifest: Manifest, members: Sequence[JsonObject], made: JsonObject | Refusal | None
) -> None:
    """Keep which Workload the job, or each member of the group, has."""
    if made is None:
        return
    metadata = {} if isinstance(made, Refusal) else made["metadata"]
    workload = made.workload if isinstance(made, Refusal) else Key(metadata["namespace"], metadata["name"])
    for member in members:
        key = Key(str(member["metadata"]["namespace"]), str(member["metadata"]["name"]))
        cluster.jobs[SimulatedJob(manifest.group, manifest.kind, key)] = workload


def _workload(obj: JsonObject, shapes: decode.Shapes, classes: Classes, *, number: int, now: datetime) -> Workload:
    reference = (obj.get("spec") or {}).get("priorityClassRef") or {}
    default = classes.value(str(reference.get("group")), str(reference.get("name"))) or 0
    value = decode.workload(obj, shapes, default_priority=default)
    metadata = obj["metadata"]
    created = value.created if metadata.get("creationTimestamp") else now
    return replace(value, created=created, uid=value.uid or f"{number:08}")


def _take_workload(cluster: SimulatedCluster, value: Workload, now: datetime) -> None:
    cluster.engine.upsert_workload(value, now)
    cluster.workloads[value.key] = value


def _classes(cluster: SimulatedCluster, by_kind: Mapping[Kind, list[Manifest]]) -> dict[tuple[str, str], JsonObject]:
    found = {}
    for kind in _CLASSES:
        for manifest in by_kind.get(kind, ()):
            with _reading(cluster, manifest):
                value = decode.priority_class(manifest.obj)
                found[value.group, value.name] = manifest.obj
    return found


def _namespace(cluster: SimulatedCluster, obj: JsonObject, now: datetime) -> None:
    metadata = obj["metadata"]
    labels = {NAMESPACE_NAME_LABEL: metadata["name"]} | (metadata.get("labels") or {})
    cluster.engine.upsert_namespace(decode.namespace(obj | {"metadata": metadata | {"labels": labels}}), now)


def _assumed_active(check: JsonObject) -> JsonObject:
    """The AdmissionCheck with the condition Active, unless it has one."""
    status = check.get("status") or {}
    if not isinstance(status, dict) or not isinstance(status.get("conditions") or [], list):
        return check  # decoding reports what is wrong with it
    conditions = status.get("conditions") or []
    if find_in(status, ACTIVE_CONDITION) is not None:
        return check
    return check | {"status": status | {"conditions": [*conditions, {"type": ACTIVE_CONDITION, "status": TRUE}]}}


def _cluster_queue(cluster: SimulatedCluster, obj: JsonObject, now: datetime) -> None:
    value = decode.cluster_queue(obj)
    cluster.engine.upsert_cluster_queue(value, now)
    cluster.cluster_queues.append(value.name)


def _cohort(cluster: SimulatedCluster, obj: JsonObject, now: datetime) -> None:
    value = decode.cohort(obj)
    cluster.engine.upsert_cohort(value, now)
    cluster.cohorts += [value.name] + ([value.parent] if value.parent else [])


_NAMESPACE: Final = ("", NAMESPACES.kind)
_CHECK: Final = (KUEUE_GROUP, ADMISSION_CHECKS.kind)
_LOCAL: Final = (KUEUE_GROUP, LOCAL_QUEUES.kind)
_WORKLOAD: Final = (KUEUE_GROUP, WORKLOADS.kind)
_CLASSES: Final = ((KUEUE_GROUP, WORKLOAD_PRIORITY_CLASSES.kind), (PRIORITY_CLASSES.group, PRIORITY_CLASSES.kind))
# In this order: objects before those that refer to them.
_ADDERS: Final[Mapping[Kind, Callable[[SimulatedCluster, JsonObject, datetime], None]]] = {
    _NAMESPACE: _namespace,
    ("", LIMIT_RANGES.kind): lambda cluster, obj, now: cluster.engine.upsert_limit_range(decode.limit_range(obj), now),
    (RUNTIME_CLASSES.group, RUNTIME_CLASSES.kind): lambda cluster, obj, now: cluster.engine.upsert_runtime_class(
        decode.runtime_class(obj), now
    ),
    (DEVICE_CLASSES.group, DEVICE_CLASSES.kind): lambda cluster, obj, now: cluster.engine.upsert_device_class(
        decode.device_class(obj), now
    ),
    (RESOURCE_CLAIM_TEMPLATES.group, RESOURCE_CLAIM_TEMPLATES.kind): lambda cluster, obj, now: (
        cluster.engine.upsert_claim_template(decode.claim_template(obj), now)
    ),
    (KUEUE_GROUP, RESOURCE_FLAVORS.kind): lambda cluster, obj, now: cluster.engine.upsert_flavor(
        decode.flavor(obj), now
    ),
    (KUEUE_GROUP, TOPOLOGIES.kind): lambda cluster, obj, now: cluster.engine.upsert_topology(decode.topology(obj), now),
    _CHECK: lambda cluster, obj, now: cluster.engine.upsert_admission_check(decode.admission_check(obj), now),
    (KUEUE_GROUP, COHORTS.kind): _cohort,
    (KUEUE_GROUP, CLUSTER_QUEUES.kind): _cluster_queue,
    _LOCAL: lambda cluster, obj, now: cluster.engine.upsert_local_queue(decode.local_queue(obj), now),
}
