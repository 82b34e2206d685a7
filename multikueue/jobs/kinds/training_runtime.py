# SPDX-License-Identifier: Apache-2.0
"""The pods that a TrainingRuntime or ClusterTrainingRuntime describes, and what a TrainJob changes of them.

As Kueue 0.17.0 counts them (`docs/jobs/trainjob.md`): each replicated job of the runtime is a pod set. What plugins of
Kubeflow Trainer add to containers is left out, since it changes no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.declaration import MAX_POD_SETS
from multikueue.jobs.declared.paths import Keys, shown, value_at
from multikueue.jobs.declared.pod_set_places import pod_set_name
from multikueue.jobs.declared.template_types import pod_template
from multikueue.jobs.kinds.template_patches import patched, with_container

NODE: Final = "node"
"""The container of a training node, and the usual name of its replicated job."""
PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
"""The manager of the runtime patch that admission writes, as Kueue's."""
PATCHED_JOBS: Final[Keys] = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
PATCHED_POD: Final[Keys] = ("template", "spec", "template")
_STEP_LABEL: Final[Keys] = ("template", "metadata", "labels", "trainer.kubeflow.org/trainjob-ancestor-step")
_JOBS: Final[Keys] = ("spec", "template", "spec", "replicatedJobs")
_NODES: Final[Keys] = ("spec", "mlPolicy", "numNodes")
_LAUNCHER_IS_NODE: Final[Keys] = ("spec", "mlPolicy", "mpi", "runLauncherAsNode")
_TRAINER: Final[Keys] = ("spec", "trainer")
_INITIALIZER: Final[Keys] = ("spec", "initializer")
_FIELDS: Final = ("image", "command", "args")
_STORAGE: Final = "STORAGE_URI"


class TrainingStep(StrEnum):
    """What the pods of a replicated job do, by the label on it."""

    TRAINER = "trainer"
    DATASET = "dataset-initializer"
    MODEL = "model-initializer"
    OTHER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedPods:
    """The pods of one replicated job."""

    name: str
    template: JsonObject
    replicas: int = 1
    parallelism: int = 1
    step: TrainingStep = TrainingStep.OTHER
    other_nodes: int | None = None
    """How many nodes of `spec.trainer.numNodes` are others than these; None if it does not count these."""

    @property
    def has_requests_of_trainer(self) -> bool:
        """Whether `spec.trainer` says what they request."""
        return self.step is TrainingStep.TRAINER or self.other_nodes is not None


NODES_ALONE: Final = ReplicatedPods(
    name=NODE, template={"spec": {"containers": [{"name": NODE}]}}, step=TrainingStep.TRAINER, other_nodes=0
)


def described_pods(runtime: JsonObject) -> tuple[ReplicatedPods, ...]:
    """The pods of a runtime, before any TrainJob changes them. Raises `BadInput`."""
    named = f"{runtime.get('kind')} {runtime['metadata']['name']}: "
    jobs = value_at(runtime, _JOBS)
    if not isinstance(jobs, list) or not 0 < len(jobs) <= MAX_POD_SETS:
        raise BadInput(f"{named}{shown(_JOBS)}: expected 1 to {MAX_POD_SETS} replicated jobs, found {excerpt(jobs)}")
    found = [_described(job, at=f"{named}{shown((*_JOBS, index))}") for index, job in enumerate(jobs)]
    nodes = value_at(runtime, _NODES)
    count = None if nodes is None else _count(nodes, at=f"{named}{shown(_NODES)}")
    found = [_of_trainer(each, count) for each in found]
    # The launcher is the first of the nodes then.
    others = 1 if value_at(runtime, _LAUNCHER_IS_NODE) is True else 0
    counted = next(
        (each for each in found if (each.name == NODE if others else each.step is TrainingStep.TRAINER)), None
    )
    return tuple(replace(each, other_nodes=others) if each is counted else each for each in found)


def recorded_pods(
    pod_sets: Iterable[JsonObject], described: Iterable[ReplicatedPods] = ()
) -> tuple[ReplicatedPods, ...]:
    """The pod sets of a Workload, of which a TrainJob changes nothing any more. Raises `BadInput`.

    How many replicas they have is in no pod set: it is as the runtime, which may have changed, describes it now.
    """
    replicas = {each.name: each.replicas for each in described}
    return tuple(
        _recorded(
            str(each.get("name")),
            each.get("template") or {},
            count=_count(each.get("count", 1), at=f"podSets[{index}].count"),
            replicas=replicas.get(str(each.get("name")), 1),
        )
        for index, each in enumerate(pod_sets)
    )


def _recorded(name: str, template: JsonObject, *, count: int, replicas: int) -> ReplicatedPods:
    if not replicas or count % replicas:
        replicas = 1
    return ReplicatedPods(name=name, template=template, replicas=replicas, parallelism=count // replicas)


def pods_without_runtime(job: JsonObject) -> tuple[ReplicatedPods, ...]:
    """The nodes of a TrainJob that says itself how many they are and what they request; none if it does not."""
    trainer = value_at(job, _TRAINER)
    if not isinstance(trainer, dict) or value_at(job, _INITIALIZER) is not None:
        return ()
    if trainer.get("numNodes") is None or not isinstance(trainer.get("resourcesPerNode"), dict):
        return ()
    return (NODES_ALONE,)


def changed_pods(
    job: JsonObject, described: Iterable[ReplicatedPods], patches: Sequence[JsonObject]
) -> tuple[ReplicatedPods, ...]:
    """The pods with what the TrainJob changes of them: by these patches, its trainer, its initializer.

    Raises `BadInput`.
    """
    trainer = _object(job, _TRAINER)
    nodes = trainer.get("numNodes")
    count = None if nodes is None else _count(nodes, at=shown((*_TRAINER, "numNodes")))
    return tuple(_changed(each, job, trainer, count, patches) for each in described)


def _changed(
    pods: ReplicatedPods, job: JsonObject, trainer: JsonObject, nodes: int | None, patches: Sequence[JsonObject]
) -> ReplicatedPods:
    template, parallelism = pods.template, pods.parallelism
    for change, adds in _changes(patches, pods.name):
        template = patched(template, change, adds=adds)
    if pods.has_requests_of_trainer:
        fields = _FIELDS if pods.step is TrainingStep.TRAINER else ()
        template = _with_trainer(template, trainer, fields=fields)
    if pods.step in (TrainingStep.DATASET, TrainingStep.MODEL):
        template = _with_initializer(template, job, pods.step)
    if nodes is not None and pods.other_nodes is not None:
        parallelism = max(nodes - pods.other_nodes, min(nodes, 1))
    return replace(pods, template=pod_template(template, at=f"the pods of {pods.name}"), parallelism=parallelism)


def _changes(patches: Sequence[JsonObject], name: str) -> Iterator[tuple[JsonObject, bool]]:
    """What patches change of the pod template of a replicated job, and whether they only add to its lists."""
    for index, patch in enumerate(patches):
        entries = value_at(patch, PATCHED_JOBS) or []
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                change = pod_template(value_at(entry, PATCHED_POD) or {}, at=f"spec.runtimePatches[{index}]")
                yield change, patch.get("manager") == PATCH_MANAGER


def _with_trainer(template: JsonObject, trainer: JsonObject, *, fields: Iterable[str]) -> JsonObject:
    change = {field: trainer[field] for field in fields if trainer.get(field) is not None}
    if trainer.get("resourcesPerNode") is not None:
        change["resources"] = _object({"trainer": trainer}, ("trainer", "resourcesPerNode"))
    return with_container(template, NODE, change, environment=_environment(trainer, at=_TRAINER))


def _with_initializer(template: JsonObject, job: JsonObject, step: TrainingStep) -> JsonObject:
    """The pods of an initializer, which has a container of the same name."""
    at = (*_INITIALIZER, step.removesuffix("-initializer"))
    given = _object(job, at)
    storage = given.get("storageUri")
    environment = [] if storage is None else [{"name": _STORAGE, "value": storage}]
    environment += _environment(given, at=at)
    secret = given.get("secretRef")
    sources = [] if secret is None else [{"secretRef": secret}]
    return with_container(template, step, {}, environment=environment, sources=sources)


def _described(job: Any, *, at: str) -> ReplicatedPods:
    if not isinstance(job, dict):
        raise BadInput(f"{at}: expected an object, found {excerpt(job)}")
    label = value_at(job, _STEP_LABEL)
    parallelism = value_at(job, ("template", "spec", "parallelism"))
    return ReplicatedPods(
        name=pod_set_name(job.get("name"), at=f"{at}.name"),
        template=pod_template(value_at(job, PATCHED_POD), at=f"{at}.{shown(PATCHED_POD)}"),
        replicas=_count(job.get("replicas", 1), at=f"{at}.replicas"),
        parallelism=_count(1 if parallelism is None else parallelism, at=f"{at}.template.spec.parallelism"),
        step=TrainingStep(label) if label in tuple(TrainingStep) else TrainingStep.OTHER,
    )


def _of_trainer(pods: ReplicatedPods, nodes: int | None) -> ReplicatedPods:
    """Trainer makes one Job of the nodes, of as many pods as the runtime has nodes."""
    if pods.step is not TrainingStep.TRAINER:
        return pods
    return replace(pods, replicas=1, parallelism=pods.parallelism if nodes is None else nodes)


def _environment(given: JsonObject, *, at: Keys) -> list[JsonObject]:
    variables = given.get("env") or []
    if not isinstance(variables, list) or not all(isinstance(each, dict) for each in variables):
        raise BadInput(f"{shown((*at, 'env'))}: expected a list of objects, found {excerpt(variables)}")
    return variables


def _object(job: JsonObject, at: Keys) -> JsonObject:
    found = value_at(job, at)
    if found is not None and not isinstance(found, dict):
        raise BadInput(f"{shown(at)}: expected an object, found {excerpt(found)}")
    return found or {}


def _count(value: Any, *, at: str) -> int:
    return parse_unsigned(value, field=at, maximum=MAX_INT32)
