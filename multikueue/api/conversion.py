# SPDX-License-Identifier: Apache-2.0
"""Between v1beta1 and v1beta2 of Kueue's kinds (`docs/spec/kueue-api.md §1.13`).

Converts every field with another name, shape or value. Promises not to change its argument, to keep what both versions
can express, and that a conversion up and down again gives the same object; what only one version can express is
dropped, as in Kueue. Works on plain objects: the API server calls it for every read in the older version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from multikueue.api.constants import (
    POD_PRIORITY_CLASS_GROUP,
    POD_PRIORITY_CLASS_KIND,
    POD_PRIORITY_CLASS_SOURCE,
    WORKLOAD_PRIORITY_CLASS_GROUP,
    WORKLOAD_PRIORITY_CLASS_KIND,
    WORKLOAD_PRIORITY_CLASS_SOURCE,
    FungibilityPolicy,
    KubeConfigLocation,
)
from multikueue.api.objects import JsonObject, describe
from multikueue.api.resource import KUEUE_GROUP
from multikueue.api.topologyslices import compress, expand
from multikueue.core.errors import BadInput

_NEW: Final = "v1beta2"
_OLD: Final = "v1beta1"
_REFERENCES: Final = {
    WORKLOAD_PRIORITY_CLASS_SOURCE: (WORKLOAD_PRIORITY_CLASS_GROUP, WORKLOAD_PRIORITY_CLASS_KIND),
    POD_PRIORITY_CLASS_SOURCE: (POD_PRIORITY_CLASS_GROUP, POD_PRIORITY_CLASS_KIND),
}
_SOURCES: Final = {reference: source for source, reference in _REFERENCES.items()}


def convert(obj: JsonObject, to_version: str) -> JsonObject:
    """`obj` in `to_version`, written as `v1beta2` or `kueue.x-k8s.io/v1beta2`.

    Raises `BadInput` for another group or a version that is not one of the two.
    """
    group, _, version = to_version.rpartition("/")
    given = str(obj.get("apiVersion", ""))
    given_group, _, given_version = given.rpartition("/")
    if given_group != KUEUE_GROUP or group not in ("", KUEUE_GROUP):
        raise BadInput(f"cannot convert {given} to {to_version}: only {KUEUE_GROUP} has versions to convert between")
    for name in (given_version, version):
        if name not in (_OLD, _NEW):
            raise BadInput(f"{KUEUE_GROUP}/{name} of {obj.get('kind')} is not served; use {_NEW} or {_OLD}")
    converted = obj | {"apiVersion": f"{KUEUE_GROUP}/{version}"}
    if given_version == version:
        return converted
    step = (_UP if version == _NEW else _DOWN).get(str(obj.get("kind", "")))
    if step is not None:
        for part in ("spec", "status"):
            if isinstance(converted.get(part), dict):
                converted[part] = dict(converted[part])
        try:
            step(_part(converted, "spec"), _part(converted, "status"))
        except BadInput as error:
            raise BadInput(f"{describe(obj)}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The API server has validated the object before; a manifest in a file was not.
            raise BadInput(f"{describe(obj)}: not the shape of {given}: {error!r}") from error
    return converted


def _part(obj: JsonObject, name: str) -> JsonObject:
    # An absent part is changed in a dict that is discarded.
    part = obj.get(name)
    return part if isinstance(part, dict) else {}


def _move(obj: JsonObject, old: str, new: str) -> None:
    if old in obj:
        obj[new] = obj.pop(old)


def _edit(obj: JsonObject, name: str, change: Callable[[JsonObject], None]) -> None:
    if isinstance(obj.get(name), dict):
        obj[name] = dict(obj[name])
        change(obj[name])


def _edit_each(obj: JsonObject, name: str, change: Callable[[JsonObject], None]) -> None:
    if isinstance(obj.get(name), list):
        obj[name] = [dict(item) for item in obj[name]]
        for item in obj[name]:
            change(item)


def _drop(*names: str) -> Callable[[JsonObject], None]:
    def drop(obj: JsonObject) -> None:
        for name in names:
            obj.pop(name, None)

    return drop


def _cluster_queue_up(spec: JsonObject, status: JsonObject) -> None:
    _move(spec, "cohort", "cohortName")
    checks = [dict(check) for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()]
    known = {check.get("name") for check in checks}
    # If both forms are given, no check may be lost.
    checks += [{"name": name} for name in spec.pop("admissionChecks", None) or () if name not in known]
    spec.pop("admissionChecksStrategy", None)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": checks}
    _edit(spec, "flavorFungibility", _fungibility_up)
    status.pop("pendingWorkloadsStatus", None)
    _fair_sharing_up(spec, status)


def _fungibility_up(fungibility: JsonObject) -> None:
    for field in ("whenCanBorrow", "whenCanPreempt"):
        if fungibility.get(field) in ("Borrow", "Preempt"):
            fungibility[field] = str(FungibilityPolicy.MAY_STOP_SEARCH)


def _fair_sharing_up(_: JsonObject, status: JsonObject) -> None:
    _edit(status, "fairSharing", _drop("admissionFairSharingStatus"))


def _cluster_queue_down(spec: JsonObject, _: JsonObject) -> None:
    _move(spec, "cohortName", "cohort")
    spec.pop("concurrentAdmissionPolicy", None)


def _local_queue_up(_: JsonObject, status: JsonObject) -> None:
    _move(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)


def _local_queue_down(_: JsonObject, status: JsonObject) -> None:
    _move(status, "flavorsUsage", "flavorUsage")


def _workload_up(spec: JsonObject, status: JsonObject) -> None:
    name, source = spec.pop("priorityClassName", None), spec.pop("priorityClassSource", None)
    reference = _REFERENCES.get(source or "")
    # A name without a source could be of either kind of class; the priority itself is kept.
    if name and reference is not None:
        spec["priorityClassRef"] = {"group": reference[0], "kind": reference[1], "name": name}
    _move(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    _edit(status, "admission", lambda admission: _edit_each(admission, "podSetAssignments", _assignment(compress)))


def _workload_down(spec: JsonObject, status: JsonObject) -> None:
    reference = spec.pop("priorityClassRef", None)
    if isinstance(reference, dict):
        source = _SOURCES.get((reference.get("group", ""), reference.get("kind", "")))
        if source is not None:
            spec["priorityClassName"] = reference.get("name")
            spec["priorityClassSource"] = source
    spec.pop("preemptionGates", None)
    status.pop("preemptionGates", None)
    _edit_each(
        spec,
        "podSets",
        lambda pod_set: _edit(pod_set, "topologyRequest", _drop("podsetSliceRequiredTopologyConstraints")),
    )
    _move(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    _edit(status, "admission", lambda admission: _edit_each(admission, "podSetAssignments", _assignment(expand)))


def _assignment(change: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject], None]:
    def apply(assignment: JsonObject) -> None:
        if isinstance(assignment.get("topologyAssignment"), dict):
            assignment["topologyAssignment"] = change(assignment["topologyAssignment"])

    return apply


def _multikueue_cluster_up(spec: JsonObject, _: JsonObject) -> None:
    kube_config, profile = spec.pop("kubeConfig", None), spec.pop("clusterProfileRef", None)
    # v1beta1 requires a kubeConfig even with a profile: an empty location means that there is none.
    if profile is not None and not (kube_config or {}).get("location"):
        spec["clusterSource"] = {"clusterProfileRef": profile}
    elif kube_config is not None:
        spec["clusterSource"] = {"kubeConfig": kube_config}


def _multikueue_cluster_down(spec: JsonObject, _: JsonObject) -> None:
    source = spec.pop("clusterSource", None) or {}
    if source.get("clusterProfileRef") is not None:
        spec["clusterProfileRef"] = source["clusterProfileRef"]
    spec["kubeConfig"] = source.get("kubeConfig") or {"location": "", "locationType": str(KubeConfigLocation.SECRET)}


def _drop_from_spec(name: str) -> Callable[[JsonObject, JsonObject], None]:
    def change(spec: JsonObject, _: JsonObject) -> None:
        spec.pop(name, None)

    return change


_Steps = Mapping[str, Callable[[JsonObject, JsonObject], Any]]
_UP: Final[_Steps] = {
    "ClusterQueue": _cluster_queue_up,
    "LocalQueue": _local_queue_up,
    "Cohort": _fair_sharing_up,
    "Workload": _workload_up,
    "MultiKueueCluster": _multikueue_cluster_up,
    "AdmissionCheck": _drop_from_spec("retryDelayMinutes"),
}
_DOWN: Final[_Steps] = {
    "ClusterQueue": _cluster_queue_down,
    "LocalQueue": _local_queue_down,
    "Workload": _workload_down,
    "MultiKueueCluster": _multikueue_cluster_down,
    "MultiKueueConfig": _drop_from_spec("quotaManagement"),
}
