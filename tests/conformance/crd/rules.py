# SPDX-License-Identifier: Apache-2.0
"""Two scenarios for each rule in `crds/`: one that satisfies it, one that violates it.

By kind, version, path and message of the rule. A scenario creates the kind's plain object with a merge patch applied,
and continues with merge patches of the object or its status. The tests check that every rule of the manifests has a
pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from multikueue.api import crds
from tests.conformance.crd.scenarios import TOLERATIONS, Document, Pair, Scenario, change, create
from tests.conformance.crd.workload_rules import plain_pod_set, workload_v1beta1, workload_v1beta2


@dataclass(frozen=True, slots=True)
class Key:
    """One rule of one version of a kind."""

    kind: str
    version: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version}{self.path or ' itself'}: {self.message}"


def manifests() -> Iterator[Key]:
    """Every rule of the manifests."""
    for definition in crds.manifests():
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            for path, message in _rules(schema, ""):
                yield Key(definition["spec"]["names"]["kind"], version["name"], path, message)


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(keyword), dict):
            yield from _rules(schema[keyword], path + mark)


_COVERED: Final = "flavors must have the same number of resources as the coveredResources"
_CPU: Final[Document] = {"name": "cpu", "nominalQuota": "10"}
_MEMORY: Final[Document] = {"name": "memory", "nominalQuota": "1Gi"}


def _group(*resources: Document, covered: tuple[str, ...] = ("cpu",)) -> list[Document]:
    return [{"coveredResources": [*covered], "flavors": [{"name": "default", "resources": [*resources]}]}]


def _covering() -> Pair:
    return create(
        {},
        kept={"resourceGroups": _group(_CPU, _MEMORY, covered=("cpu", "memory"))},
        broken={"resourceGroups": _group(_CPU, covered=("cpu", "memory"))},
    )


def _cluster_queue(cohort: str, stop: str) -> dict[tuple[str, str], Pair]:
    borrowing = _group({**_CPU, "borrowingLimit": "1"})
    try_next = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
    return {
        (".spec", "borrowingLimit must be nil when cohort is empty"): create(
            {"resourceGroups": borrowing}, kept={cohort: "team"}, broken={}
        ),
        (
            ".spec.flavorFungibility",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        ): create(
            {},
            kept={"flavorFungibility": {**try_next, "preference": "BorrowingOverPreemption"}},
            broken={"flavorFungibility": {**try_next, "whenCanBorrow": stop, "preference": "BorrowingOverPreemption"}},
        ),
        (".spec.preemption", "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"): create(
            {},
            kept={"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}},
            broken={"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}},
        ),
        (
            ".spec.resourceGroups[]",
            "flavors must have the same number of resources as the coveredResources",
        ): _covering(),
    }


def _flavor() -> dict[tuple[str, str], Pair]:
    topology = {"nodeLabels": {"pool": "a"}, "topologyName": "racks"}
    found = {
        (".spec", "at least one nodeLabel is required when topology is set"): create(
            {}, kept=topology, broken={"topologyName": "racks", "nodeLabels": {}}
        ),
        (".spec", "topologyName is immutable when topologyName is set"): change(
            {"spec": topology}, kept={"spec": {"nodeLabels": {"pool": "b"}}}, broken={"spec": {"topologyName": "rows"}}
        ),
        (".spec.nodeTaints", "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"): create(
            {},
            kept={"nodeTaints": [{"key": "k", "effect": "NoExecute"}]},
            broken={"nodeTaints": [{"key": "k", "effect": "Whatever"}]},
        ),
    }
    for message, (kept, broken) in TOLERATIONS.items():
        found[".spec.tolerations", message] = create({}, kept={"tolerations": [kept]}, broken={"tolerations": [broken]})
    return found


def _levels(*labels: str) -> Document:
    return {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}


_HOST: Final = "kubernetes.io/hostname"


def _topology(version: str) -> dict[tuple[str, str], Pair]:
    found = {
        (".spec.levels", "must be unique"): Pair(Scenario(_levels("block", "rack")), Scenario(_levels("rack", "rack"))),
        (
            ".spec.levels",
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ): Pair(Scenario(_levels("rack", _HOST)), Scenario(_levels(_HOST, "rack"))),
    }
    if version == "v1beta1":
        found[".spec.levels", "field is immutable"] = change(
            _levels("block", "rack"), kept={"metadata": {"labels": {"a": "b"}}}, broken=_levels("block", "row")
        )
    else:
        message = (
            "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change"
        )
        found[".spec.levels", message] = Pair(
            Scenario(_levels("block", _HOST), (_levels("rack", _HOST),)),
            Scenario(_levels("block", "rack"), (_levels("row", "rack"),)),
        )
    return found


def _assignment_rules() -> dict[tuple[str, str], Pair]:
    return {
        ("", "workload, origin and managerUID are immutable"): change(
            {}, kept={"spec": {"intent": "Run"}}, broken={"spec": {"origin": "elsewhere"}}
        ),
        ("", "epoch must not go back"): change({}, kept={"spec": {"epoch": 4}}, broken={"spec": {"epoch": 2}}),
    }


def _log_request_rules() -> dict[tuple[str, str], Pair]:
    return {
        ("", "only cursor may be changed; create another request"): change(
            {}, kept={"spec": {"cursor": 3}}, broken={"spec": {"tailLines": 5}}
        ),
        ("", "cursor must not go back"): change(
            {"spec": {"cursor": 2}}, kept={"spec": {"cursor": 2}}, broken={"spec": {"cursor": 1}}
        ),
    }


def _immutable(name: str, value: object, other: object) -> Pair:
    return change({"spec": {name: value}}, kept={"metadata": {"labels": {"a": "b"}}}, broken={"spec": {name: other}})


_RULES: Final[Mapping[tuple[str, str], Mapping[tuple[str, str], Pair]]] = {
    ("AdmissionCheck", "v1beta1"): {
        (".spec.controllerName", "field is immutable"): _immutable("controllerName", "a.io/a", "a.io/b")
    },
    ("AdmissionCheck", "v1beta2"): {
        (".spec.controllerName", "field is immutable"): _immutable("controllerName", "a.io/a", "a.io/b")
    },
    ("ClusterQueue", "v1beta1"): _cluster_queue("cohort", "Borrow"),
    ("ClusterQueue", "v1beta2"): _cluster_queue("cohortName", "MayStopSearch"),
    ("Cohort", "v1beta1"): {
        (
            ".spec.resourceGroups[]",
            "flavors must have the same number of resources as the coveredResources",
        ): _covering()
    },
    ("Cohort", "v1beta2"): {
        (
            ".spec.resourceGroups[]",
            "flavors must have the same number of resources as the coveredResources",
        ): _covering()
    },
    ("LocalQueue", "v1beta1"): {(".spec.clusterQueue", "field is immutable"): _immutable("clusterQueue", "a", "b")},
    ("LocalQueue", "v1beta2"): {(".spec.clusterQueue", "field is immutable"): _immutable("clusterQueue", "a", "b")},
    ("MultiKueueCluster", "v1beta2"): {
        (
            ".spec.clusterSource",
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
        ): create(
            {},
            kept={"clusterSource": {"clusterProfileRef": {"name": "p"}}},
            broken={
                "clusterSource": {
                    "clusterProfileRef": {"name": "p"},
                    "kubeConfig": {"location": "s", "locationType": "Secret"},
                }
            },
        )
    },
    ("MultiKueueConfig", "v1beta2"): {
        (".spec.clusters", "must be unique"): create({}, kept={"clusters": ["a", "b"]}, broken={"clusters": ["a", "a"]})
    },
    ("ResourceFlavor", "v1beta1"): _flavor(),
    ("ResourceFlavor", "v1beta2"): _flavor(),
    ("Topology", "v1beta1"): _topology("v1beta1"),
    ("Topology", "v1beta2"): _topology("v1beta2"),
    ("Workload", "v1beta1"): workload_v1beta1(),
    ("Workload", "v1beta2"): workload_v1beta2(),
    ("RemoteAssignment", "v1alpha1"): _assignment_rules(),
    ("JobLogRequest", "v1alpha1"): _log_request_rules(),
}

_SPECS: Final[Mapping[str, Document]] = {
    "AdmissionCheck": {"controllerName": "a.io/a"},
    "ClusterQueue": {},
    "Cohort": {},
    "LocalQueue": {"clusterQueue": "a"},
    "MultiKueueCluster": {},
    "MultiKueueConfig": {"clusters": ["a"]},
    "ResourceFlavor": {},
    "Topology": {"levels": [{"nodeLabel": "rack"}]},
    "Workload": {"podSets": [plain_pod_set()]},
    "RemoteAssignment": {
        "workload": {"namespace": "team", "name": "wl", "uid": "u"},
        "origin": "hub",
        "managerUID": "m",
        "epoch": 3,
        "intent": "Reserve",
        "queueName": "q",
        "priority": 0,
        "workloadSpec": {},
    },
    "JobLogRequest": {"job": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}},
}


def pairs() -> dict[Key, Pair]:
    """Every pair of scenarios by its rule."""
    return {
        Key(kind, version, path, message): pair
        for (kind, version), found in _RULES.items()
        for (path, message), pair in found.items()
    }


def plain(kind: str) -> Document:
    """The initial spec of the scenarios of a kind."""
    return dict(_SPECS[kind])
