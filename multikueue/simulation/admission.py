# SPDX-License-Identifier: Apache-2.0
"""Which of the manifests a hub would accept.

Owns the order of the checks: defaults, names, schemas, then the rules of the manager's webhooks, by the same functions
that the manager runs. Rejected objects are reported with their fields; kinds that the engine does not use, and jobs of
kinds or namespaces that the manager does not serve, are counted. The rest is simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from multikueue.api import admission, featuregates, names
from multikueue.api.configuration_rules import FRAMEWORKS
from multikueue.api.constants import CONFIG_GROUP, DEFAULT_PRIORITY_CLASS, NAMESPACE_NAME_LABEL, QUEUE_NAME_LABEL
from multikueue.api.defaulting import is_queued
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject, describe
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
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
    Resource,
)
from multikueue.api.validation.errors import invalid
from multikueue.api.validation.quota import LENDS_BEYOND_NOMINAL
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.admission import defaulted
from multikueue.jobs.framework.admission import refusals as job_refusals
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.simulation.job_kinds import SimulatedKinds, is_declaration, unsupported_version
from multikueue.simulation.jobs import JobPlaces, names_workload
from multikueue.simulation.manifests import WRONG_SHAPE, Manifest, Manifests, Unusable, wrong_shape
from multikueue.simulation.simulated_cluster import identify

_READ: Final = {
    (resource.group, resource.kind): resource
    for resource in (
        ADMISSION_CHECKS,
        CLUSTER_QUEUES,
        COHORTS,
        DEVICE_CLASSES,
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
}
_NOT_READ: Final = "the engine does not use this kind"
_NOT_QUEUED: Final = "not queued, so no Workload is created for it"
_OF_ITS_OWNER: Final = "its owner is queued, whose Workload has its pods"
_NOT_MANAGED: Final = "jobs of its namespace are not managed (managedJobsNamespaceSelector)"
_REASON_LENGTH: Final = 1000
_TOLERATED: Final = LENDS_BEYOND_NOMINAL
"""A rule of the webhooks alone: engines run ClusterQueues that were made without webhooks and break it."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many objects of one kind were ignored, and why."""

    api_version: str
    kind: str
    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} {excerpt(self.api_version)[1:-1]} {excerpt(self.kind)[1:-1]}: {self.reason}"


@dataclass(slots=True)
class CheckedManifests:
    """The objects to simulate, those that a hub would reject or that cannot be read, and those that were ignored."""

    manifests: list[Manifest] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)
    warnings: list[Unusable] = field(default_factory=list)
    """Objects that a hub would reject now, and that are simulated all the same (see `_TOLERATED`)."""
    left_out: list[LeftOut] = field(default_factory=list)


SchemaRules = Callable[[Resource, JsonObject], Sequence[str]]
"""Why the API server rejects a new object by the schema of its kind."""


def check_manifests(
    given: Manifests,
    *,
    gate: Gate = featuregates.default,
    kinds: SimulatedKinds | None = None,
    schema_rules: SchemaRules = lambda resource, obj: (),
) -> CheckedManifests:
    """Sort the manifests; `gate` and `kinds` are those of the manager's Configuration."""
    kinds = kinds or SimulatedKinds()
    checked = CheckedManifests(unusable=list(given.unusable))
    places = _places(given, kinds)
    passed: Counter[tuple[str, str, str]] = Counter()
    for number, manifest in enumerate(given.found):
        if manifest.group == CONFIG_GROUP:
            checked.manifests.append(manifest)
            continue
        if is_declaration(manifest):
            continue
        resource = _READ.get((manifest.group, manifest.kind))
        integration = kinds.integration(manifest.group, manifest.kind) if resource is None else None
        if resource is None and integration is None:
            reason = kinds.why_not(manifest.group, manifest.kind) if _is_job(manifest) else _NOT_READ
            passed[str(manifest.obj["apiVersion"]), manifest.kind, reason] += 1
            continue
        reasons: tuple[str, ...]
        try:
            obj = identify(manifest, number, job=integration is not None)
            manifest = Manifest(obj, manifest.source)
            if integration is not None:
                reason = _left_out(obj, integration, kinds, places)
                if reason:
                    passed[str(obj["apiVersion"]), manifest.kind, reason] += 1
                    continue
                reasons = _job_reasons(obj, integration, places, gate=gate)
            else:
                assert resource is not None
                obj = admission.default(resource, obj, gate=gate)
                # The schema is checked before webhooks, which do not see what it rejects.
                reasons = tuple(_names(obj, namespace_names=resource == NAMESPACES, namespaced=resource.namespaced))
                reasons = reasons or tuple(schema_rules(resource, obj)) or _reasons(resource, obj, gate=gate)
        except BadInput as error:
            reasons = (str(error),)
        except WRONG_SHAPE as error:
            reasons = (wrong_shape(manifest, error),)
        tolerated = all(reason.endswith(_TOLERATED) for reason in reasons)
        if reasons:
            problems = checked.warnings if tolerated else checked.unusable
            problems.append(Unusable(str(manifest), tuple(map(_cut, reasons))))
        if tolerated:
            checked.manifests.append(Manifest(obj, manifest.source))
    checked.left_out = [LeftOut(version, kind, count, why) for (version, kind, why), count in sorted(passed.items())]
    return checked


def _places(given: Manifests, kinds: SimulatedKinds) -> JobPlaces:
    """What jobs depend on; objects of another shape are reported when they are read."""
    local_queues, namespaces, jobs, has_default_class = set(), {}, [], False
    for number, manifest in enumerate(given.found):
        kind = (manifest.group, manifest.kind)
        if kind == (LOCAL_QUEUES.group, LOCAL_QUEUES.kind):
            local_queues.add(_key(manifest))
        elif kind == (NAMESPACES.group, NAMESPACES.kind):
            name = _key(manifest).name
            namespaces[name] = {NAMESPACE_NAME_LABEL: name} | _labels(manifest)
        elif kind == (WORKLOAD_PRIORITY_CLASSES.group, WORKLOAD_PRIORITY_CLASSES.kind):
            has_default_class = has_default_class or _key(manifest).name == DEFAULT_PRIORITY_CLASS
        elif kind not in _READ and kinds.integration(*kind) is not None:
            try:
                jobs.append(identify(manifest, number, job=True))
            except (BadInput, *WRONG_SHAPE):
                continue
    return JobPlaces(
        kinds, local_queues=local_queues, namespaces=namespaces, jobs=jobs, has_default_class=has_default_class
    )


def _left_out(obj: JsonObject, integration: JobIntegration, kinds: SimulatedKinds, places: JobPlaces) -> str:
    """Why an object of a kind of jobs is none of the manager's jobs; empty if it is one."""
    if not places.manages(str(obj["metadata"]["namespace"])):
        return _NOT_MANAGED
    surroundings = places.of(obj)
    if surroundings.owner_managed:
        return _OF_ITS_OWNER
    queued = is_queued(obj, surroundings) or names_workload(obj)
    return "" if queued and kinds.is_job(obj, integration, surroundings) else _NOT_QUEUED


def _job_reasons(obj: JsonObject, integration: JobIntegration, places: JobPlaces, *, gate: Gate) -> tuple[str, ...]:
    """What the API server rejects in the name of a job, else what the webhook rejects in it after its defaults."""
    if obj["apiVersion"] != integration.resource.api_version:
        return (f"apiVersion: {unsupported_version(obj['apiVersion'], integration)}",)
    found = tuple(_names(obj))
    if found:
        return found
    surroundings = places.of(obj)
    placed = defaulted(obj, integration, surroundings, gate=gate)
    has_queue = bool(surroundings.namespace_queue) or surroundings.default_queue
    return _plain(obj, job_refusals(placed, None, integration, has_default_queue=has_queue, gate=gate))


def _names(obj: JsonObject, *, namespace_names: bool = False, namespaced: bool = True) -> Iterator[str]:
    """What the API server itself rejects in names."""
    for name, check in (("name", names.dns_subdomain), ("namespace", names.dns_label)):
        value = obj["metadata"].get(name)
        if value is None or (name == "namespace" and not namespaced):
            continue
        check = names.dns_label if namespace_names else check
        if not isinstance(value, str):
            yield f"metadata.{name}: expected text, found {excerpt(value)}"
            continue
        yield from (str(invalid(f"metadata.{name}", value[:300], problem)) for problem in check(value))


def _reasons(resource: Resource, obj: JsonObject, *, gate: Gate) -> tuple[str, ...]:
    """What the manager's webhook rejects."""
    return _plain(obj, admission.refusals(resource, obj, gate=gate))


def _plain(obj: JsonObject, reasons: Iterable[str]) -> tuple[str, ...]:
    """Without the name of the object, which precedes them already."""
    return tuple(reason.replace(f"{describe(obj)}: ", "") for reason in reasons)


def _is_job(manifest: Manifest) -> bool:
    """A kind of Kueue's integrations, or any with a queue name; Pods and Deployments are jobs only with one."""
    if QUEUE_NAME_LABEL in _labels(manifest):
        return True
    return f"{manifest.group}/{manifest.kind}".lower() in FRAMEWORKS


def _key(manifest: Manifest) -> Key:
    metadata = manifest.obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return Key(str(found.get("namespace") or "default"), str(found.get("name") or ""))


def _labels(manifest: Manifest) -> dict[str, str]:
    metadata = manifest.obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _cut(reason: str) -> str:
    return reason if len(reason) <= _REASON_LENGTH else f"{reason[:_REASON_LENGTH]}…"
