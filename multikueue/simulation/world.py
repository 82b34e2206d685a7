# SPDX-License-Identifier: Apache-2.0
"""An engine that knows what a set of manifests says.

Owns the way from manifests to engine values: namespaces, classes and queues before workloads, Jobs as the Workloads
that the manager would make of them. What the engine does not heed (a Deployment, a ConfigMap) is passed over. Where
the manifests hold no Namespace at all, every namespace that is named exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from multikueue.api.constants import WORKLOAD_PRIORITY_CLASS_GROUP
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.engine import Engine, intake
from multikueue.engine.settings import Settings
from multikueue.engine.values import PriorityClass
from multikueue.engine.workloads import Workload
from multikueue.simulation.manifests import Manifest

_NAME_LABEL: Final = "kubernetes.io/metadata.name"


@dataclass(slots=True)
class World:
    """The engine, and what was handed to it."""

    engine: Engine
    cluster_queues: list[str] = field(default_factory=list)
    cohorts: list[str] = field(default_factory=list)
    workloads: dict[Key, Workload] = field(default_factory=dict)


def build(manifests: Iterable[Manifest], *, settings: Settings, now: datetime) -> World:
    """The world at `now`, before its first cycle. Raises `BadInput` that names the object and its file."""
    by_kind: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_kind.setdefault(manifest.kind, []).append(manifest)
    world = World(Engine(settings))
    for kind, take in _TAKERS.items():
        for manifest in by_kind.get(kind, ()):
            try:
                take(world, manifest.obj, now)
            except (BadInput, ValueError, TypeError, KeyError, AttributeError) as error:
                raise BadInput(f"{manifest}: {_text(error)}") from error
    if "Namespace" not in by_kind:
        for name in _named_namespaces(by_kind):
            _namespace(world, {"metadata": {"name": name}}, now)
    priorities = [intake.priority_class(m.obj) for kind in _CLASSES for m in by_kind.get(kind, ())]
    shapes = intake.Shapes()
    for manifest in [*by_kind.get("Workload", ()), *by_kind.get("Job", ())]:
        try:
            obj = manifest.obj if manifest.kind == "Workload" else _workload_of_job(manifest.obj, priorities)
            if obj is not None:
                _take_workload(world, obj, shapes, priorities, now)
        except (BadInput, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"{manifest}: {_text(error)}") from error
    world.engine.flush(now)
    cohorts = {live.value.cohort for live in world.engine.lives.values() if live.value and live.value.cohort}
    world.cohorts = sorted(cohorts | set(world.cohorts))
    return world


def _text(error: BaseException) -> str:
    # A value of the wrong shape surfaces as one of Python's own errors, whose text alone says little.
    return str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"


def _take_workload(
    world: World, obj: JsonObject, shapes: intake.Shapes, priorities: list[PriorityClass], now: datetime
) -> None:
    reference = (obj.get("spec") or {}).get("priorityClassRef") or {}
    default = next(
        (
            known.value
            for known in priorities
            if (known.group, known.name) == (reference.get("group"), reference.get("name"))
        ),
        0,
    )
    value = intake.workload(_in_namespace(obj), shapes, default_priority=default)
    if not value.uid:
        value = replace(value, uid=str(value.key))  # a total order even where nobody gave uids
    world.workloads[value.key] = value
    world.engine.upsert_workload(value, now)


def _workload_of_job(obj: JsonObject, priorities: list[PriorityClass]) -> JsonObject | None:
    from multikueue.integrations import workloads
    from multikueue.integrations.registry import Registry

    integration = Registry(["batch/job"]).for_kind(str(obj.get("apiVersion")), "Job")
    if integration is None:
        raise BadInput(f"Jobs of {obj.get('apiVersion')} are not known; use batch/v1")
    job = _in_namespace(obj)
    if not integration.queue_name(job):
        return None
    hint = integration.priority(job)
    wanted = hint.workload_class or hint.pod_class
    group = WORKLOAD_PRIORITY_CLASS_GROUP if hint.workload_class else None
    chosen = next(
        (known for known in priorities if known.name == wanted and (group is None or known.group == group)), None
    )
    if wanted and chosen is None:
        raise BadInput(f"priority class {wanted!r} is not among the manifests")
    made = workloads.workload_for(job, integration, priority=workloads.Priority(value=chosen.value if chosen else 0))
    metadata = job["metadata"]
    made["metadata"]["creationTimestamp"] = metadata.get("creationTimestamp")
    return made


def _in_namespace(obj: JsonObject) -> JsonObject:
    metadata = obj["metadata"]
    if metadata.get("namespace"):
        return obj
    return obj | {"metadata": metadata | {"namespace": "default"}}


def _named_namespaces(by_kind: Mapping[str, list[Manifest]]) -> set[str]:
    return {
        manifest.obj["metadata"].get("namespace") or "default"
        for kind in ("LocalQueue", "Workload", "Job")
        for manifest in by_kind.get(kind, ())
    }


def _namespace(world: World, obj: JsonObject, now: datetime) -> None:
    metadata = obj["metadata"]
    labels = {_NAME_LABEL: metadata["name"]} | (metadata.get("labels") or {})
    world.engine.upsert_namespace(intake.namespace(obj | {"metadata": metadata | {"labels": labels}}), now)


def _cluster_queue(world: World, obj: JsonObject, now: datetime) -> None:
    value = intake.cluster_queue(obj)
    world.cluster_queues.append(value.name)
    world.engine.upsert_cluster_queue(value, now)


def _cohort(world: World, obj: JsonObject, now: datetime) -> None:
    value = intake.cohort(obj)
    world.cohorts += [value.name] + ([value.parent] if value.parent else [])
    world.engine.upsert_cohort(value, now)


def _local_queue(world: World, obj: JsonObject, now: datetime) -> None:
    world.engine.upsert_local_queue(intake.local_queue(_in_namespace(obj)), now)


_CLASSES: Final = ("WorkloadPriorityClass", "PriorityClass")
_TAKERS: Final = {
    "Namespace": _namespace,
    "LimitRange": lambda world, obj, now: world.engine.upsert_limit_range(intake.limit_range(_in_namespace(obj)), now),
    "RuntimeClass": lambda world, obj, now: world.engine.upsert_runtime_class(intake.runtime_class(obj), now),
    "ResourceFlavor": lambda world, obj, now: world.engine.upsert_flavor(intake.flavor(obj), now),
    "AdmissionCheck": lambda world, obj, now: world.engine.upsert_admission_check(intake.admission_check(obj), now),
    "Cohort": _cohort,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
}
