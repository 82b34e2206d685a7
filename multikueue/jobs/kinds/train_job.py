# SPDX-License-Identifier: Apache-2.0
"""The pods of a TrainJob, as far as the job itself describes them.

The rest is in a runtime, which is another object and is not read: the job has to have its number of nodes and their
resources. What admission adds is written as a runtime patch with a manager of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace
from multikueue.jobs.declared.template_types import pod_template

PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
_NODE: Final = "node"
_TRAINER: Final[Keys] = ("spec", "trainer")
_PATCHES: Final[Keys] = ("spec", "runtimePatches")
_REPLICATED: Final[Keys] = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_POD: Final[Keys] = ("template", "spec", "template")
_MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_LISTS: Final = (("spec", "tolerations"), ("spec", "schedulingGates"))
_CONTAINER_FIELDS: Final = ("image", "command", "args", "env")


class TrainJobIntegration(DeclaredIntegration):
    """`trainer.kubeflow.org/trainjob`."""

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """One pod set of the training nodes."""
        (declared,) = self.spec.pod_sets
        count = declared.count.of(job)
        if count is None:
            raise BadInput("spec.trainer.numNodes: expected a number, found nothing; the runtime's number is not read")
        template = _template(job, _patches(job))
        return (PodSetPlace(name=_NODE, count=count, keys=_TRAINER, template=template, declared=declared, scope=job),)

    def with_template(self, job: JsonObject, place: PodSetPlace, template: JsonObject) -> JsonObject:
        """The job with a runtime patch that makes its own template into this one."""
        others = [each for each in _patches(job) if each.get("manager") != PATCH_MANAGER]
        own = _template(job, others)
        pod: JsonObject = {}
        for keys in _MAPS:
            before = value_at(own, keys) or {}
            added = {key: value for key, value in (value_at(template, keys) or {}).items() if key not in before}
            pod = with_value(pod, keys, added) if added else pod
        for keys in _LISTS:
            present = value_at(own, keys) or []
            extra = [each for each in value_at(template, keys) or () if each not in present]
            pod = with_value(pod, keys, extra) if extra else pod
        if not pod:
            return self.with_original(job, ())
        entry: JsonObject = {"name": _NODE, **with_value({}, _POD, pod)}
        patch = {"manager": PATCH_MANAGER, **with_value({}, _REPLICATED, [entry])}
        changed: JsonObject = with_value(job, _PATCHES, [*others, patch])
        return changed

    def with_original(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Without our runtime patch."""
        patches = _patches(job)
        others = [each for each in patches if each.get("manager") != PATCH_MANAGER]
        if len(others) == len(patches):
            return job
        restored: JsonObject = with_value(job, _PATCHES, others) if others else without_value(job, _PATCHES)
        return restored


def _patches(job: JsonObject) -> list[JsonObject]:
    patches = value_at(job, _PATCHES) or []
    if not isinstance(patches, list) or not all(isinstance(each, dict) for each in patches):
        raise BadInput(f"spec.runtimePatches: expected a list of objects, found {excerpt(patches)}")
    return patches


def _template(job: JsonObject, patches: Sequence[JsonObject]) -> JsonObject:
    """The template of a training node, with these patches."""
    trainer: dict[str, Any] = value_at(job, _TRAINER) or {}
    resources = trainer.get("resourcesPerNode") if isinstance(trainer, dict) else None
    if not isinstance(resources, dict):
        raise BadInput("spec.trainer.resourcesPerNode: expected requests, found nothing; the runtime's are not read")
    container = {field: trainer[field] for field in _CONTAINER_FIELDS if trainer.get(field) is not None}
    made: JsonObject = {"spec": {"containers": [{"name": _NODE, **container, "resources": resources}]}}
    for pod in _pods(patches):
        for keys in _MAPS:
            added = value_at(pod, keys)
            made = with_value(made, keys, {**(value_at(made, keys) or {}), **added}) if added else made
        for keys in _LISTS:
            extra = value_at(pod, keys)
            made = with_value(made, keys, [*(value_at(made, keys) or ()), *extra]) if extra else made
    return pod_template(made, at="spec.trainer")


def _pods(patches: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The pod templates of the patches of the training nodes."""
    for index, patch in enumerate(patches):
        replicated = value_at(patch, _REPLICATED) or []
        for entry in replicated if isinstance(replicated, list) else ():
            if isinstance(entry, dict) and entry.get("name") == _NODE:
                yield pod_template(value_at(entry, _POD) or {}, at=f"spec.runtimePatches[{index}]")
