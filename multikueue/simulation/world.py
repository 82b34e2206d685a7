# SPDX-License-Identifier: Apache-2.0
"""An engine that knows what a set of manifests says.

Owns the way from manifests to engine values: namespaces, classes and queues before workloads, Jobs as the Workloads
that the manager would make of them. What the engine does not heed (a Deployment, a ConfigMap) is passed over. Where
the manifests hold no Namespace at all, every namespace that is named exists. What has no creation time is created now,
in the order of the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from multikueue.api.constants import NAMESPACE_NAME_LABEL
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import QuotaReservedReason
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    KUEUE_GROUP,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.quantity import QuantityError
from multikueue.engine import Engine, intake
from multikueue.engine.explain import Explanation
from multikueue.engine.settings import Settings
from multikueue.engine.workloads import Workload
from multikueue.simulation.jobs import Classes, Jobs, owners
from multikueue.simulation.manifests import Manifest
from multikueue.simulation.refusals import Refusal

# What a value of the wrong shape raises where it is read.
_WRONG_SHAPE: Final = (TypeError, KeyError, AttributeError, ValueError, RecursionError)
_NAMESPACED: Final = frozenset({"LocalQueue", "Workload", "Job", "LimitRange"})
_DEFAULT_NAMESPACE: Final = "default"
Kind = tuple[str, str]


@dataclass(slots=True)
class World:
    """The engine, and what was handed to it."""

    engine: Engine
    cluster_queues: list[str] = field(default_factory=list)
    cohorts: list[str] = field(default_factory=list)
    workloads: dict[Key, Workload] = field(default_factory=dict)
    refused: dict[Key, Refusal] = field(default_factory=dict)

    def explain(self, key: Key, now: datetime) -> Explanation:
        """Why a workload stands where it stands."""
        refusal = self.refused.get(key)
        if refusal is None:
            return self.engine.explain(key, now)
        reason = QuotaReservedReason(refusal.reason)
        return Explanation(workload=key, standing="NotQueued", reason=reason, message=refusal.message)


def build(manifests: Iterable[Manifest], *, settings: Settings, now: datetime) -> World:
    """The world at `now`, before its first cycle. Raises `BadInput` that names the object and its place."""
    by_kind: dict[Kind, list[Manifest]] = {}
    queued: list[Manifest] = []
    for number, manifest in enumerate(manifests):
        kind = (manifest.group, manifest.kind)
        if kind in _QUEUED or kind in _TAKERS or kind in _CLASSES:
            with _reading(manifest):
                identified = Manifest(_identified(manifest, number), manifest.source)
            (queued if kind in _QUEUED else by_kind.setdefault(kind, [])).append(identified)
    world = World(Engine(settings))
    if _NAMESPACE not in by_kind:
        by_kind[_NAMESPACE] = _named_namespaces([*queued, *by_kind.get(_LOCAL, ())])
    for kind, take in _TAKERS.items():
        for manifest in by_kind.get(kind, ()):
            with _reading(manifest):
                take(world, manifest.obj, now)
    _take_queued(world, queued, by_kind, now)
    world.engine.flush(now)
    values = (live.value for live in world.engine.lives.values())
    world.cohorts = sorted({value.cohort for value in values if value is not None and value.cohort} | {*world.cohorts})
    return world


@contextmanager
def _reading(manifest: Manifest) -> Iterator[None]:
    """Errors name the object."""
    try:
        yield
    except (MultikueueError, QuantityError) as error:
        raise BadInput(f"{manifest}: {error}") from error
    except _WRONG_SHAPE as error:
        # One of Python's own errors, whose text alone says little.
        raise BadInput(f"{manifest}: not the shape of a {manifest.kind}: {error!r}") from error


def _identified(manifest: Manifest, number: int) -> JsonObject:
    """The object with the name and namespace that it would have in a cluster."""
    metadata = manifest.obj.get("metadata")
    if not isinstance(metadata, dict):
        raise BadInput("an object needs metadata.name")
    changes: JsonObject = {}
    if not metadata.get("name"):
        if not metadata.get("generateName"):
            raise BadInput("an object needs metadata.name")
        changes["name"] = f"{metadata['generateName']}{number + 1:05}"
    if manifest.kind in _NAMESPACED and not metadata.get("namespace"):
        changes["namespace"] = _DEFAULT_NAMESPACE
    return manifest.obj | {"metadata": metadata | changes} if changes else manifest.obj


def _named_namespaces(manifests: Iterable[Manifest]) -> list[Manifest]:
    names = {str(manifest.obj["metadata"]["namespace"]) for manifest in manifests}
    return [Manifest({"metadata": {"name": name}}, "") for name in sorted(names)]


def _take_queued(
    world: World, queued: Sequence[Manifest], by_kind: Mapping[Kind, list[Manifest]], now: datetime
) -> None:
    """Workloads, and Jobs as Workloads, in the order of the manifests."""
    classes = Classes(_classes(by_kind))
    jobs = Jobs(
        classes=classes,
        local_queues=world.engine.waiting.local_queues.keys(),
        owners=owners(manifest.obj for manifest in queued if manifest.kind == WORKLOADS.kind),
    )
    shapes = intake.Shapes()
    for number, manifest in enumerate(queued):
        with _reading(manifest):
            made = manifest.obj if manifest.kind == WORKLOADS.kind else jobs.workload_of(manifest.obj)
            if isinstance(made, Refusal):
                world.refused[made.workload] = made
            elif made is not None:
                _take_workload(world, _workload(made, shapes, classes, number=number, now=now), now)


def _workload(obj: JsonObject, shapes: intake.Shapes, classes: Classes, *, number: int, now: datetime) -> Workload:
    reference = (obj.get("spec") or {}).get("priorityClassRef") or {}
    default = classes.value(str(reference.get("group")), str(reference.get("name"))) or 0
    value = intake.workload(obj, shapes, default_priority=default)
    metadata = obj["metadata"]
    created = value.created if metadata.get("creationTimestamp") else now
    return replace(value, created=created, uid=value.uid or f"{number:08}")


def _take_workload(world: World, value: Workload, now: datetime) -> None:
    world.workloads[value.key] = value
    world.engine.upsert_workload(value, now)


def _classes(by_kind: Mapping[Kind, list[Manifest]]) -> dict[tuple[str, str], JsonObject]:
    found = {}
    for kind in _CLASSES:
        for manifest in by_kind.get(kind, ()):
            with _reading(manifest):
                value = intake.priority_class(manifest.obj)
                found[value.group, value.name] = manifest.obj
    return found


def _namespace(world: World, obj: JsonObject, now: datetime) -> None:
    metadata = obj["metadata"]
    labels = {NAMESPACE_NAME_LABEL: metadata["name"]} | (metadata.get("labels") or {})
    world.engine.upsert_namespace(intake.namespace(obj | {"metadata": metadata | {"labels": labels}}), now)


def _cluster_queue(world: World, obj: JsonObject, now: datetime) -> None:
    value = intake.cluster_queue(obj)
    world.cluster_queues.append(value.name)
    world.engine.upsert_cluster_queue(value, now)


def _cohort(world: World, obj: JsonObject, now: datetime) -> None:
    value = intake.cohort(obj)
    world.cohorts += [value.name] + ([value.parent] if value.parent else [])
    world.engine.upsert_cohort(value, now)


_NAMESPACE: Final = ("", NAMESPACES.kind)
_LOCAL: Final = (KUEUE_GROUP, LOCAL_QUEUES.kind)
_QUEUED: Final = frozenset({(KUEUE_GROUP, WORKLOADS.kind), (JOBS.group, JOBS.kind)})
_CLASSES: Final = ((KUEUE_GROUP, WORKLOAD_PRIORITY_CLASSES.kind), (PRIORITY_CLASSES.group, PRIORITY_CLASSES.kind))
# In this order: what is referred to before what refers to it.
_TAKERS: Final[Mapping[Kind, Callable[[World, JsonObject, datetime], None]]] = {
    _NAMESPACE: _namespace,
    ("", LIMIT_RANGES.kind): lambda world, obj, now: world.engine.upsert_limit_range(intake.limit_range(obj), now),
    (RUNTIME_CLASSES.group, RUNTIME_CLASSES.kind): lambda world, obj, now: world.engine.upsert_runtime_class(
        intake.runtime_class(obj), now
    ),
    (KUEUE_GROUP, RESOURCE_FLAVORS.kind): lambda world, obj, now: world.engine.upsert_flavor(intake.flavor(obj), now),
    (KUEUE_GROUP, ADMISSION_CHECKS.kind): lambda world, obj, now: world.engine.upsert_admission_check(
        intake.admission_check(obj), now
    ),
    (KUEUE_GROUP, COHORTS.kind): _cohort,
    (KUEUE_GROUP, CLUSTER_QUEUES.kind): _cluster_queue,
    _LOCAL: lambda world, obj, now: world.engine.upsert_local_queue(intake.local_queue(obj), now),
}
