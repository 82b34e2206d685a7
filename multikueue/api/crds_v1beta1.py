# SPDX-License-Identifier: Apache-2.0
"""The v1beta1 schemas of Kueue's kinds, as changes to v1beta2.

They have the differences of `docs/spec/kueue-api.md §1.13` and the looser limits of the older version. v1beta1 needs no
models, since `api.conversion` converts objects to v1beta2 first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from multikueue.api.meta import JsonObject
from multikueue.api.schema import DNS_SUBDOMAIN, IMMUTABLE, QUANTITY, UNIQUE, CelRule, Column
from multikueue.api.topology import HOSTNAME_LOWEST
from multikueue.api.workload_rules import WORKLOAD_RULES_V1BETA1

_STRING: Final[JsonObject] = {"type": "string"}
_NAME: Final[JsonObject] = {"type": "string", "maxLength": 253, "pattern": DNS_SUBDOMAIN}
_CHECK_NAME: Final[JsonObject] = {"type": "string", "maxLength": 316}
_TIME: Final[JsonObject] = {"type": "string", "format": "date-time"}
_QUANTITY: Final[JsonObject] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY,
    "x-kubernetes-int-or-string": True,
}
_INT32: Final[JsonObject] = {"type": "integer", "format": "int32"}
_CONSUMED: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "consumedResources": {"type": "object", "additionalProperties": _QUANTITY},
        "lastUpdate": _TIME,
    },
    "required": ["consumedResources", "lastUpdate"],
}


class _Schema:
    """A schema that is being changed; a path is written as `spec.podSets[].name`, `{}` for the values of a map."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root

    def at(self, path: str) -> JsonObject:
        node = self.root
        for step in path.split("."):
            name = step.rstrip("[]{}")
            node = node["properties"][name]
            for opening in step[len(name) :: 2]:
                node = node["items" if opening == "[" else "additionalProperties"]
        return node

    def put(self, path: str, schema: JsonObject) -> None:
        parent, _, name = path.rpartition(".")
        properties = self.at(parent)["properties"]
        properties[name] = schema
        self.at(parent)["properties"] = dict(sorted(properties.items()))

    def remove(self, *paths: str) -> None:
        for path in paths:
            parent, _, name = path.rpartition(".")
            del self.at(parent)["properties"][name]

    def move(self, old: str, new: str) -> None:
        schema = self.at(old)
        self.remove(old)
        self.put(new, schema)

    def loosen(self, path: str, *keywords: str) -> None:
        for keyword in keywords:
            del self.at(path)[keyword]

    def set(self, path: str, keyword: str, value: Any) -> None:
        self.at(path)[keyword] = value

    def rules(self, path: str, *rules: CelRule) -> None:
        node = self.at(path) if path else self.root
        node["x-kubernetes-validations"] = [{"rule": rule.rule, "message": rule.message} for rule in rules]


def schema_v1beta1(kind: str, schema: JsonObject) -> JsonObject:
    """The v1beta1 schema of `kind`; `schema`, that of v1beta2, is used up."""
    changed = _Schema(schema)
    if "conditions" in schema["properties"].get("status", {}).get("properties", {}):
        changed.loosen("status.conditions", "maxItems")
    change = _CHANGES.get(kind)
    if change is not None:
        change(changed)
    return changed.root


def columns_v1beta1(kind: str, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of v1beta1: the same, by the older names of fields."""
    if kind != "ClusterQueue":
        return columns
    return tuple(replace(column, path=column.path.replace(".spec.cohortName", ".spec.cohort")) for column in columns)


def _object(properties: JsonObject, *required: str) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _by_name(items: JsonObject) -> JsonObject:
    return {
        "type": "array",
        "items": items,
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


def _atomic(items: JsonObject, **limits: int) -> JsonObject:
    return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic", **limits}


def _admission_check(schema: _Schema) -> None:
    schema.loosen("spec.controllerName", "minLength", "maxLength")
    for field in ("apiGroup", "kind", "name"):
        schema.loosen(f"spec.parameters.{field}", "minLength")
    schema.put("spec.retryDelayMinutes", {"type": "integer", "format": "int64", "default": 15})


def _cluster_queue(schema: _Schema) -> None:
    schema.move("spec.cohortName", "spec.cohort")
    schema.remove("spec.concurrentAdmissionPolicy")
    for rule in schema.at("spec")["x-kubernetes-validations"]:
        rule["rule"] = rule["rule"].replace("self.cohortName", "self.cohort")
    schema.put("spec.admissionChecks", {"type": "array", "items": _CHECK_NAME})
    schema.loosen("spec.admissionChecksStrategy", "required")
    checks = "spec.admissionChecksStrategy.admissionChecks"
    schema.loosen(checks, "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    schema.loosen(f"{checks}[].name", "minLength")
    schema.loosen(f"{checks}[].onFlavors", "maxItems", "x-kubernetes-list-type")
    schema.loosen("spec.admissionScope.admissionMode", "enum")
    schema.at("spec.flavorFungibility.whenCanBorrow")["enum"].append("Borrow")
    schema.at("spec.flavorFungibility.whenCanPreempt")["enum"].append("Preempt")
    schema.loosen("spec.resourceGroups[].coveredResources", "x-kubernetes-list-type")
    schema.put("status.fairSharing.admissionFairSharingStatus", _CONSUMED)
    pending = _object({"name": _STRING, "namespace": _STRING}, "name", "namespace")
    schema.put(
        "status.pendingWorkloadsStatus",
        _object({"clusterQueuePendingWorkload": _atomic(pending), "lastChangeTime": _TIME}, "lastChangeTime"),
    )


def _cohort(schema: _Schema) -> None:
    schema.loosen("spec.resourceGroups[].coveredResources", "x-kubernetes-list-type")
    schema.put("status.fairSharing.admissionFairSharingStatus", _CONSUMED)


def _local_queue(schema: _Schema) -> None:
    schema.move("status.flavorsUsage", "status.flavorUsage")
    taint = {"effect": _STRING, "key": _STRING, "timeAdded": _TIME, "value": _STRING}
    flavor = {
        "name": _NAME,
        "nodeLabels": {
            "type": "object",
            "additionalProperties": _STRING,
            "maxProperties": 8,
            "x-kubernetes-map-type": "atomic",
        },
        "nodeTaints": _atomic(_object(taint, "effect", "key"), maxItems=8),
        "resources": {"type": "array", "items": _STRING, "maxItems": 64, "x-kubernetes-list-type": "set"},
        "topology": _object({"levels": _atomic(_STRING, minItems=1, maxItems=16), "name": _NAME}, "levels", "name"),
    }
    schema.put("status.flavors", _by_name(_object(flavor, "name")))


def _multikueue_cluster(schema: _Schema) -> None:
    schema.move("spec.clusterSource.clusterProfileRef", "spec.clusterProfileRef")
    schema.move("spec.clusterSource.kubeConfig", "spec.kubeConfig")
    schema.remove("spec.clusterSource")
    schema.set("spec", "required", ["kubeConfig"])
    schema.set("spec.kubeConfig", "required", ["location", "locationType"])
    schema.loosen("spec.kubeConfig.location", "minLength", "maxLength")


def _multikueue_config(schema: _Schema) -> None:
    schema.loosen("spec.clusters[]", "maxLength")
    schema.loosen("spec.clusters", "x-kubernetes-validations")
    schema.set("spec.clusters", "x-kubernetes-list-type", "set")
    schema.remove("spec.quotaManagement")


def _provisioning_request_config(schema: _Schema) -> None:
    schema.loosen("spec.podSetUpdates.nodeSelector", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    schema.loosen("spec.provisioningClassName", "minLength")


def _topology(schema: _Schema) -> None:
    schema.rules("spec.levels", IMMUTABLE, UNIQUE, HOSTNAME_LOWEST)


def _workload_priority_class(schema: _Schema) -> None:
    schema.loosen("description", "maxLength")


def _workload(schema: _Schema) -> None:
    _workload_spec(schema)
    _workload_status(schema)
    schema.rules("", *WORKLOAD_RULES_V1BETA1)


def _workload_spec(schema: _Schema) -> None:
    schema.remove("spec.preemptionGates", "spec.priorityClassRef")
    schema.put("spec.priorityClassName", dict(_NAME))
    sources = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]
    schema.put("spec.priorityClassSource", {"type": "string", "enum": sources, "default": ""})
    schema.set("spec", "required", ["podSets"])
    schema.rules(
        "spec",
        CelRule(
            "has(self.priorityClassName) ? has(self.priority) : true",
            "priority should not be nil when priorityClassName is set",
        ),
    )
    schema.set("spec.podSets[]", "required", ["count", "template"])
    request = "spec.podSets[].topologyRequest"
    schema.remove(f"{request}.podsetSliceRequiredTopologyConstraints")
    schema.loosen(f"{request}.subGroupCount", "minimum")
    for field in (
        "podIndexLabel",
        "podSetGroupName",
        "podSetSliceRequiredTopology",
        "preferred",
        "required",
        "subGroupIndexLabel",
    ):
        schema.loosen(f"{request}.{field}", "maxLength")


def _workload_status(schema: _Schema) -> None:
    # v1beta1 has the misspelt name.
    schema.move("status.accumulatedPastExecutionTimeSeconds", "status.accumulatedPastExexcutionTimeSeconds")
    schema.remove("status.preemptionGates")
    schema.set("status.admission", "required", ["clusterQueue", "podSetAssignments"])
    assignment = "status.admission.podSetAssignments[]"
    schema.set(assignment, "required", ["name"])
    schema.loosen(f"{assignment}.delayedTopologyRequest", "enum", "maxLength")
    domain = {"count": _INT32 | {"minimum": 1}, "values": _atomic(_STRING, minItems=1, maxItems=16)}
    schema.put(
        f"{assignment}.topologyAssignment",
        _object(
            {
                "domains": {"type": "array", "items": _object(domain, "count", "values")},
                "levels": _atomic(_STRING, minItems=1, maxItems=16),
            },
            "domains",
            "levels",
        ),
    )
    schema.loosen("status.admissionChecks[].name", "minLength")
    schema.loosen("status.admissionChecks[].podSetUpdates[].tolerations", "x-kubernetes-list-type")
    schema.loosen("status.clusterName", "maxLength")
    schema.loosen("status.nominatedClusterNames[]", "maxLength")
    schema.loosen("status.schedulingStats.evictions", "maxItems")
    schema.loosen("status.unhealthyNodes", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    schema.loosen("status.unhealthyNodes[].name", "maxLength")


_CHANGES: Final[Mapping[str, Callable[[_Schema], None]]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "MultiKueueCluster": _multikueue_cluster,
    "MultiKueueConfig": _multikueue_config,
    "ProvisioningRequestConfig": _provisioning_request_config,
    "Topology": _topology,
    "Workload": _workload,
    "WorkloadPriorityClass": _workload_priority_class,
}
