# SPDX-License-Identifier: Apache-2.0
"""The pods of a TrainJob, which its runtime describes, and the runtime patch that admission writes.

What describes its pods is added to the job by `with_runtime` and `with_pod_sets`. Without either, only a job is known
that has the number of its nodes and their requests itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace, pod_set_places
from multikueue.jobs.framework.capabilities import RecordedPods, RuntimeReference
from multikueue.jobs.kinds.training_runtime import (
    NODES_ALONE,
    PATCH_MANAGER,
    PATCHED_JOBS,
    PATCHED_POD,
    ReplicatedPods,
    changed_pods,
    described_pods,
    pods_without_runtime,
    recorded_pods,
)

_GROUP: Final = "trainer.kubeflow.org"
CLUSTER_TRAINING_RUNTIMES: Final = Resource(
    _GROUP, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False
)
TRAINING_RUNTIMES: Final = Resource(_GROUP, "v1alpha1", "TrainingRuntime", "trainingruntimes")
_DESCRIBED: Final = "runtime"
"""The field with the described pods, which a TrainJob does not have."""
_REFERENCE: Final[Keys] = ("spec", "runtimeRef")
_OWN_FIELDS: Final = ("runtimeRef", "trainer", "initializer")
_PATCHES: Final[Keys] = ("spec", "runtimePatches")
_MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_GATES: Final[Keys] = ("spec", "schedulingGates")
_TOLERATIONS: Final[Keys] = ("spec", "tolerations")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """What describes the pods of a job."""

    runtime: JsonObject | None = None
    recorded: RecordedPods | None = None
    """They have what the job says of them."""
    pods: tuple[ReplicatedPods, ...] = ()
    """As they may be, where the runtime does not matter."""


class TrainJobIntegration(DeclaredIntegration):
    """`trainer.kubeflow.org/trainjob`."""

    runtimes: tuple[Resource, ...] = (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES)

    def runtime_of(self, job: JsonObject) -> RuntimeReference | None:
        """The runtime that it names, a ClusterTrainingRuntime unless it says otherwise."""
        reference = value_at(job, _REFERENCE)
        if not isinstance(reference, dict) or not isinstance(reference.get("name"), str):
            return None
        kind = reference.get("kind") or CLUSTER_TRAINING_RUNTIMES.kind
        resource = next((each for each in self.runtimes if each.kind == kind), None)
        if resource is None or (reference.get("apiGroup") or _GROUP) != _GROUP:
            return None
        namespace = str(job["metadata"].get("namespace") or "") if resource.namespaced else ""
        return RuntimeReference(resource, Key(namespace, reference["name"]))

    def with_runtime(
        self, job: JsonObject, runtime: JsonObject | None, *, recorded: RecordedPods | None = None
    ) -> JsonObject:
        """The job with the pods of its runtime, or as that described them when they were recorded.

        Without a runtime those of a job that has its numbers itself.
        """
        return {**job, _DESCRIBED: _Description(runtime=runtime, recorded=recorded)}

    def own_description(self, job: JsonObject) -> JsonObject:
        """Its runtime, trainer, initializer and runtime patches but ours."""
        patches = value_at(job, _PATCHES) or []
        if isinstance(patches, list):
            patches = [each for each in patches if not isinstance(each, dict) or each.get("manager") != PATCH_MANAGER]
        return {"patches": patches, **{field: value_at(job, ("spec", field)) for field in _OWN_FIELDS}}

    def runtime_version(self, job: JsonObject) -> str:
        """Its uid and generation."""
        by: _Description = job.get(_DESCRIBED) or _Description()
        if by.recorded is not None:
            return by.recorded.version
        return "" if by.runtime is None else version_of(by.runtime)

    def with_pod_sets(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """The job with the pod sets of its Workload, of which its trainer and initializer change nothing.

        Without any it has no pods that are known.
        """
        return {**job, _DESCRIBED: _Description(recorded=RecordedPods(pod_sets, ""))}

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """One for each replicated job of the runtime."""
        return self._places(job, _patches(job))

    def job_refusals(self, job: JsonObject) -> tuple[str, ...]:
        """As for each kind, but its runtime need not be there yet."""
        return super().job_refusals(
            job if _DESCRIBED in job else {**job, _DESCRIBED: _Description(pods=(NODES_ALONE,))}
        )

    def with_template(self, job: JsonObject, place: PodSetPlace, template: JsonObject) -> JsonObject:
        """The job with a runtime patch that makes its own template of the pod set into this one."""
        patches = _patches(job)
        others = [each for each in patches if each.get("manager") != PATCH_MANAGER]
        own = next(each.template for each in self._places(job, others) if each.name == place.name)
        entries = [each for each in _own_entries(patches) if each.get("name") != place.name]
        pod = _addition(own, template)
        if pod:
            entries.append({"name": place.name, **with_value({}, PATCHED_POD, pod)})
        made = [*others, {"manager": PATCH_MANAGER, **with_value({}, PATCHED_JOBS, entries)}] if entries else others
        changed: JsonObject = with_value(job, _PATCHES, made) if made else without_value(job, _PATCHES)
        return changed

    def with_original(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Without our runtime patch."""
        patches = _patches(job)
        others = [each for each in patches if each.get("manager") != PATCH_MANAGER]
        if len(others) == len(patches):
            return job
        restored: JsonObject = with_value(job, _PATCHES, others) if others else without_value(job, _PATCHES)
        return restored

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """As for each kind; an agent knows the pods from the Workload alone."""
        made = super().queued_manifest(self.with_pod_sets(manifest, pod_sets), pod_sets)
        return {field: value for field, value in made.items() if field != _DESCRIBED}

    def _unmarked(self, job: JsonObject) -> JsonObject:
        # The label is in the patch that `with_original` takes away.
        return job

    def _manifest(self, job: JsonObject, metadata: JsonObject) -> JsonObject:
        return super()._manifest({field: value for field, value in job.items() if field != _DESCRIBED}, metadata)

    def _places(self, job: JsonObject, patches: Sequence[JsonObject]) -> tuple[PodSetPlace, ...]:
        described = self._described(job)
        if not described:
            return ()
        pods = changed_pods(job, described, patches)
        shown = [
            {"name": each.name, "replicas": each.replicas, "parallelism": each.parallelism, "template": each.template}
            for each in pods
        ]
        return pod_set_places({**job, _DESCRIBED: shown}, self.spec.pod_sets)

    def _described(self, job: JsonObject) -> tuple[ReplicatedPods, ...]:
        """The pods before the job changes them. Raises `BadInput`."""
        by: _Description = job.get(_DESCRIBED) or _Description()
        if by.recorded is not None:
            return recorded_pods(by.recorded.pod_sets, _readable(by.runtime))
        pods = by.pods or pods_without_runtime(job) if by.runtime is None else described_pods(by.runtime)
        if pods:
            return pods
        named = self.runtime_of(job)
        if named is None:
            reference = value_at(job, _REFERENCE)
            parts = [reference] if not isinstance(reference, dict) else map(reference.get, ("apiGroup", "kind", "name"))
            found = " ".join(excerpt(each) for each in parts)
            raise BadInput(f"spec.runtimeRef: expected a TrainingRuntime or a ClusterTrainingRuntime, found {found}")
        raise BadInput(
            f"spec.runtimeRef: {named.resource.kind} {named.key} not found; create it, or set spec.trainer.numNodes"
            " and spec.trainer.resourcesPerNode in a TrainJob without an initializer"
        )


def version_of(runtime: JsonObject) -> str:
    """What tells one state of a runtime from another."""
    metadata: JsonObject = runtime["metadata"]
    return f"{metadata.get('uid', '')}/{metadata.get('generation', 0)}"


def _readable(runtime: JsonObject | None) -> tuple[ReplicatedPods, ...]:
    """The pods of a runtime, none if it cannot be read any more: what runs was made of it before."""
    try:
        return () if runtime is None else described_pods(runtime)
    except BadInput:
        return ()


def _patches(job: JsonObject) -> list[JsonObject]:
    patches = value_at(job, _PATCHES) or []
    if not isinstance(patches, list) or not all(isinstance(each, dict) for each in patches):
        raise BadInput(f"spec.runtimePatches: expected a list of objects, found {excerpt(patches)}")
    return patches


def _own_entries(patches: Sequence[JsonObject]) -> list[JsonObject]:
    """What our patch changes, by replicated job; those that are no objects are of another writer."""
    found = [value_at(each, PATCHED_JOBS) or [] for each in patches if each.get("manager") == PATCH_MANAGER]
    return [entry for entries in found if isinstance(entries, list) for entry in entries if isinstance(entry, dict)]


def _addition(own: JsonObject, template: JsonObject) -> JsonObject:
    """What a patch has to say so that a pod template becomes another one with more in it."""
    pod: JsonObject = {}
    for keys in _MAPS:
        before = value_at(own, keys) or {}
        added = {key: value for key, value in (value_at(template, keys) or {}).items() if key not in before}
        pod = with_value(pod, keys, added) if added else pod
    present = value_at(own, _GATES) or []
    gates = [each for each in value_at(template, _GATES) or () if each not in present]
    pod = with_value(pod, _GATES, gates) if gates else pod
    tolerations = value_at(template, _TOLERATIONS) or []
    # A patch replaces this list, so that it has to have those of the runtime and of the user as well.
    if any(each not in (value_at(own, _TOLERATIONS) or []) for each in tolerations):
        pod = with_value(pod, _TOLERATIONS, tolerations)
    return pod
