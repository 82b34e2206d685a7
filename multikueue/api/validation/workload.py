# SPDX-License-Identifier: Apache-2.0
"""Workload, its spec and its status (`docs/spec/kueue-api.md §3.1`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from multikueue.api import constants, featuregates
from multikueue.api.featuregates import ELASTIC_JOBS, Gate
from multikueue.api.podtemplate import ResourceRequirements
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.topologyslices import MAX_DOMAINS
from multikueue.api.validation import formats, metadata
from multikueue.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from multikueue.api.workload import (
    Admission,
    AdmissionCheckState,
    PodSet,
    PodSetAssignment,
    TopologyRequest,
    Workload,
)
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity


def validate_workload(
    new: Workload, old: Workload | None = None, *, gate: Gate = featuregates.default
) -> list[FieldError]:
    """Everything that is wrong with `new`, written to the object or its status; `old` is what it replaces."""
    errors = [*_spec(new, gate), *_status(new), *_replacement(new)]
    errors += formats.priority_boost(new.metadata.annotations)
    errors += formats.admission_gates(new.metadata.annotations, None if old is None else old.metadata.annotations)
    errors += formats.elastic(new.metadata.annotations, None if old is None else old.metadata.annotations, gate=gate)
    if old is not None:
        errors += _update(new, old, gate)
    return errors


def is_true(workload: Workload, condition: WorkloadCondition) -> bool:
    """Whether the workload has the condition."""
    return any(c.type == condition and c.status == "True" for c in workload.status.conditions)


def is_elastic(workload: Workload) -> bool:
    """Whether the workload is a slice of an elastic job."""
    return workload.metadata.annotations.get(constants.ELASTIC_JOB_ANNOTATION) == "true"


def _spec(workload: Workload, gate: Gate) -> Iterator[FieldError]:
    partial = 0
    for index, pod_set in enumerate(workload.spec.pod_sets):
        path = f"spec.podSets[{index}]"
        yield from _template(pod_set, path, gate)
        if pod_set.topology_request is not None and gate("TASValidateWorkloadSliceSize"):
            yield from _topology_request(pod_set.topology_request, f"{path}.topologyRequest")
        if pod_set.min_count is not None:
            partial += 1
            if is_elastic(workload):
                yield forbidden(f"{path}.minCount", "may not be combined with an elastic job")
    if partial > 1:
        yield invalid("spec.podSets", partial, "at most one podSet can use minCount")


def _replacement(workload: Workload) -> Iterator[FieldError]:
    """A slice may replace only one in the same namespace."""
    key = constants.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION
    replaced = workload.metadata.annotations.get(key)
    if replaced is not None and Key.parse(replaced).namespace not in ("", workload.metadata.namespace):
        detail = f"must name a Workload of the namespace {workload.metadata.namespace}"
        yield invalid(formats.at(formats.ANNOTATIONS, key), replaced, detail)


def _template(pod_set: PodSet, path: str, gate: Gate) -> Iterator[FieldError]:
    template = pod_set.template
    if gate("WorkloadValidationForPodSetMetadata"):
        yield from metadata.labels(template.metadata.labels, f"{path}.template.metadata.labels")
        yield from metadata.annotation_keys(template.metadata.annotations, f"{path}.template.metadata.annotations")
    spec = f"{path}.template.spec"
    containers = chain(
        ((f"{spec}.initContainers[{i}]", container) for i, container in enumerate(template.spec.init_containers)),
        ((f"{spec}.containers[{i}]", container) for i, container in enumerate(template.spec.containers)),
    )
    for where, container in containers:
        yield from _requirements(container.resources, f"{where}.resources", gate)
    if template.spec.resources is not None:
        yield from _requirements(template.spec.resources, f"{spec}.resources", gate)


def _requirements(requirements: ResourceRequirements, path: str, gate: Gate) -> Iterator[FieldError]:
    for name, amounts in (("requests", requirements.requests), ("limits", requirements.limits)):
        for resource, amount in amounts.items():
            where = formats.at(f"{path}.{name}", resource)
            if resource == constants.PODS_RESOURCE:
                yield invalid(where, resource, "the key is reserved for internal kueue use")
            if amount.exact() < 0 and gate("WorkloadValidateResourcesAreNonNegative"):
                yield invalid(where, str(amount), "must be greater than or equal to 0")


def _topology_request(request: TopologyRequest, path: str) -> Iterator[FieldError]:
    topology, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    if topology is not None and size is None:
        yield required(f"{path}.podSetSliceSize", "must be set when podSetSliceRequiredTopology is set")
    if size is not None:
        if topology is None:
            yield required(f"{path}.podSetSliceRequiredTopology", "must be set when podSetSliceSize is set")
        if size < 1:
            yield invalid(f"{path}.podSetSliceSize", size, "must be greater than 0")
    if request.podset_slice_required_topology_constraints and (topology is not None or size is not None):
        yield forbidden(
            f"{path}.podsetSliceRequiredTopologyConstraints",
            "may not be combined with podSetSliceRequiredTopology or podSetSliceSize",
        )


def _status(workload: Workload) -> Iterator[FieldError]:
    pod_sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    admission = workload.status.admission
    if is_true(workload, WorkloadCondition.QUOTA_RESERVED):
        if admission is None:
            yield required("status.admission", "must be set while quota is reserved")
        else:
            yield from _assignments(admission, pod_sets)
    for reclaimable in workload.status.reclaimable_pods:
        path = formats.at("status.reclaimablePods", reclaimable.name)
        known = pod_sets.get(reclaimable.name)
        if known is None:
            yield not_supported(f"{path}.name", reclaimable.name, pod_sets)
        # An elastic job that was scaled down may have reclaimed more pods than it has left.
        elif reclaimable.count > known.count and not is_elastic(workload):
            yield invalid(f"{path}.count", reclaimable.count, f"should be less or equal to {known.count}")
    for index, check in enumerate(workload.status.admission_checks):
        yield from _check(check, f"status.admissionChecks[{index}]", pod_sets)


def _assignments(admission: Admission, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    path = "status.admission.podSetAssignments"
    assigned = {assignment.name for assignment in admission.pod_set_assignments}
    for name in pod_sets.keys() - assigned:
        yield required(path, f"podSet {name} has no assignment")
    for index, assignment in enumerate(admission.pod_set_assignments):
        known = pod_sets.get(assignment.name)
        if known is None:
            yield not_found(f"{path}[{index}].name", assignment.name)
            continue
        if assignment.topology_assignment is not None:
            domains = sum(entry.domain_count for entry in assignment.topology_assignment.slices)
            if domains > MAX_DOMAINS:
                yield too_many(f"{path}[{index}].topologyAssignment.slices", count=domains, limit=MAX_DOMAINS)
        count = known.count if assignment.count is None else assignment.count
        for resource, usage in assignment.resource_usage.items():
            if count and _units(resource, usage) % count:
                where = formats.at(f"{path}[{index}].resourceUsage", resource)
                yield invalid(where, str(usage), f"is not a multiple of {count}")


def _units(resource: str, amount: Quantity) -> int:
    return amount.milli_ceil() if resource == "cpu" else amount.ceil()


def _check(check: AdmissionCheckState, path: str, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    updates = check.pod_set_updates
    if updates and len(updates) != len(pod_sets):
        yield invalid(
            f"{path}.podSetUpdates", len(updates), "must have the same number of podSetUpdates as the podSets"
        )
    counts = Counter(update.name for update in updates)
    for index, update in enumerate(updates):
        where = f"{path}.podSetUpdates[{index}]"
        if update.name not in pod_sets:
            yield not_supported(f"{where}.name", update.name, pod_sets)
        if counts[update.name] > 1:
            yield duplicate(f"{where}.name", update.name)
        yield from metadata.labels(update.labels, f"{where}.labels")
        yield from metadata.annotation_keys(update.annotations, f"{where}.annotations")
        yield from metadata.labels(update.node_selector, f"{where}.nodeSelector")
        yield from metadata.tolerations(update.tolerations, f"{where}.tolerations")


def _update(new: Workload, old: Workload, gate: Gate) -> Iterator[FieldError]:
    held = is_true(old, WorkloadCondition.QUOTA_RESERVED)
    elastic = is_elastic(new) and gate(ELASTIC_JOBS)
    if held and not _same_pod_sets(new, old, elastic=elastic):
        yield forbidden("spec.podSets", "field is immutable while quota is reserved")
    # An evicted job that is sent to another cluster starts there with all its pods.
    evicted = is_true(new, WorkloadCondition.EVICTED)
    if held and is_true(new, WorkloadCondition.QUOTA_RESERVED) and not elastic and not evicted:
        yield from _reclaimable_grows(new, old)
    yield from _admission_kept(new.status.admission, old.status.admission, gate)
    yield from _checks_frozen(new, old)
    yield from _cluster_nominated(new, old, gate)


def _same_pod_sets(new: Workload, old: Workload, *, elastic: bool) -> bool:
    if not elastic:
        return new.spec.pod_sets == old.spec.pod_sets
    counted = {pod_set.name: pod_set.count for pod_set in old.spec.pod_sets}
    recounted = tuple(
        pod_set.model_copy(update={"count": counted.get(pod_set.name, pod_set.count)}) for pod_set in new.spec.pod_sets
    )
    return recounted == old.spec.pod_sets


def _reclaimable_grows(new: Workload, old: Workload) -> Iterator[FieldError]:
    now = {reclaimable.name: reclaimable.count for reclaimable in new.status.reclaimable_pods}
    for reclaimable in old.status.reclaimable_pods:
        count = now.get(reclaimable.name)
        path = formats.at("status.reclaimablePods", reclaimable.name)
        if count is None:
            yield required(path, "cannot be removed")
        elif count < reclaimable.count:
            yield invalid(f"{path}.count", count, f"cannot be less than {reclaimable.count}")


def _admission_kept(new: Admission | None, old: Admission | None, gate: Gate) -> Iterator[FieldError]:
    if new is None or old is None:
        return
    topology = gate("TopologyAwareScheduling")
    before, after = _fixed(old, topology=topology), _fixed(new, topology=topology)
    if before != after:
        yield forbidden("status.admission", "can be set or unset, but not changed")


def _fixed(admission: Admission, *, topology: bool) -> tuple[str, tuple[PodSetAssignment, ...]]:
    assignments = admission.pod_set_assignments
    if topology:
        moving = {"topology_assignment": None, "delayed_topology_request": None}
        assignments = tuple(assignment.model_copy(update=moving) for assignment in assignments)
    return admission.cluster_queue, assignments


def _checks_frozen(new: Workload, old: Workload) -> Iterator[FieldError]:
    before = {check.name: check for check in old.status.admission_checks}
    for index, check in enumerate(new.status.admission_checks):
        was = before.get(check.name)
        ready = constants.CheckState.READY
        if was is not None and was.state == check.state == ready and was.pod_set_updates != check.pod_set_updates:
            path = f"status.admissionChecks[{index}].podSetUpdates"
            yield forbidden(path, "field is immutable while the check is Ready")


def _cluster_nominated(new: Workload, old: Workload, gate: Gate) -> Iterator[FieldError]:
    name = new.status.cluster_name
    # A slice that replaces another runs on the same cluster, without a nomination.
    replaces = constants.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION in new.metadata.annotations and gate(ELASTIC_JOBS)
    if name is None or name == old.status.cluster_name or replaces:
        return
    if name not in old.status.nominated_cluster_names:
        nominated = ", ".join(old.status.nominated_cluster_names) or "none"
        yield invalid("status.clusterName", name, f"must be one of the nominated clusters: {nominated}")
