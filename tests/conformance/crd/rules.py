# SPDX-License-Identifier: Apache-2.0
"""Two stories for each rule in `crds/`: one that keeps it, one that breaks it.

Owns hand-made objects, by kind, version, place and message of the rule. A story begins with the changes to the kind's
plain object that is created (a merge patch), and goes on with merge patches, of the object or of its status. That no
rule is forgotten is checked against the manifests by the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from multikueue.api import crds

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One rule of one version of a kind."""

    kind: str
    version: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version}{self.path or ' itself'}: {self.message}"


@dataclass(frozen=True, slots=True)
class Story:
    """What is done to one object."""

    create: Document
    then: tuple[Document, ...] = ()
    """Merge patches; those of nothing but the status go to the subresource."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A story that keeps the rule and one that breaks it at its end."""

    kept: Story
    broken: Story


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
    for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(word), dict):
            yield from _rules(schema[word], path + mark)


def create(spec: Document, *, kept: Document, broken: Document) -> Pair:
    """A rule that one look tells about; both are changes of the spec."""
    return Pair(Story({"spec": {**spec, **kept}}), Story({"spec": {**spec, **broken}}))


def change(before: Document, *, kept: Document, broken: Document) -> Pair:
    """A rule about how the object may change."""
    return Pair(Story(before, (kept,)), Story(before, (broken,)))


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


_TOLERATIONS: Final[Mapping[str, tuple[Document, Document]]] = {
    "operator must be Exists when 'key' is empty, which means 'match all values and all keys'": (
        {"operator": "Exists"},
        {"operator": "Equal", "value": "v"},
    ),
    "effect must be 'NoExecute' when 'tolerationSeconds' is set": (
        {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
    ),
    "supported toleration values: 'Equal'(default), 'Exists'": (
        {"key": "k", "operator": "Equal", "value": "v"},
        {"key": "k", "operator": "Gt", "value": "1"},
    ),
    "a value must be empty when 'operator' is 'Exists'": (
        {"key": "k", "operator": "Exists"},
        {"key": "k", "operator": "Exists", "value": "v"},
    ),
    "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'": (
        {"key": "k", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "k", "operator": "Exists", "effect": "Whatever"},
    ),
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
    for message, (kept, broken) in _TOLERATIONS.items():
        found[".spec.tolerations", message] = create({}, kept={"tolerations": [kept]}, broken={"tolerations": [broken]})
    return found


def _levels(*labels: str) -> Document:
    return {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}


_HOST: Final = "kubernetes.io/hostname"


def _topology(version: str) -> dict[tuple[str, str], Pair]:
    found = {
        (".spec.levels", "must be unique"): Pair(Story(_levels("block", "rack")), Story(_levels("rack", "rack"))),
        (
            ".spec.levels",
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ): Pair(Story(_levels("rack", _HOST)), Story(_levels(_HOST, "rack"))),
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
            Story(_levels("block", _HOST), (_levels("rack", _HOST),)),
            Story(_levels("block", "rack"), (_levels("row", "rack"),)),
        )
    return found


def _condition(type: str) -> Document:
    moment = "2026-01-02T03:04:05Z"
    return {"type": type, "status": "True", "reason": "R", "message": "", "lastTransitionTime": moment}


def _reserved(*types: str, **more: object) -> Document:
    return {"status": {"conditions": [_condition(type) for type in types], **more}}


def _assignment(name: str, **more: object) -> Document:
    return {"name": name, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1, **more}


def _admission(*assignments: Document) -> Document:
    return {"admission": {"clusterQueue": "cq", "podSetAssignments": [*assignments]}}


def _held(before: Document, *, kept: Document, broken: Document, types: tuple[str, ...] = ("QuotaReserved",)) -> Pair:
    """A rule about how the spec may change while quota is reserved."""
    reserve = _reserved(*types)
    return Pair(
        Story({"spec": before}, (reserve, {"spec": kept})),
        Story({"spec": before}, (reserve, {"spec": broken})),
    )


def _status(kept: Document, broken: Document) -> Pair:
    return Pair(Story({}, ({"status": kept},)), Story({}, ({"status": broken},)))


def _check(toleration: Document) -> Document:
    state = {"name": "ac", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    return {"admissionChecks": [{**state, "podSetUpdates": [{"name": "main", "tolerations": [toleration]}]}]}


def _workload() -> dict[tuple[str, str], Pair]:
    """The rules of both versions."""
    pod_set = _pod_set()
    found = {
        ("", "podSetAssignments must have the same number of podSets as the spec"): _status(
            {**_reserved("QuotaReserved")["status"], **_admission(_assignment("main"))},
            {**_reserved("QuotaReserved")["status"], **_admission(_assignment("main"), _assignment("more"))},
        ),
        ("", "queueName is immutable while workload quota reserved"): _held(
            {"queueName": "a"}, kept={"active": False}, broken={"queueName": "b"}
        ),
        ("", "maximumExecutionTimeSeconds is immutable while workload quota reserved"): _held(
            {"maximumExecutionTimeSeconds": 10},
            kept={"active": False},
            broken={"maximumExecutionTimeSeconds": 20},
            types=("QuotaReserved", "Admitted"),
        ),
        (".spec.podSets[]", "minCount should be positive and less or equal to count"): create(
            {},
            kept={"podSets": [{**pod_set, "count": 3, "minCount": 2}]},
            broken={"podSets": [{**pod_set, "count": 3, "minCount": 4}]},
        ),
        (".status", "clusterName is immutable once set"): Pair(
            Story({}, ({"status": {"clusterName": "w1"}}, {"status": {"clusterName": "w1", **_reserved()["status"]}})),
            Story({}, ({"status": {"clusterName": "w1"}}, {"status": {"clusterName": "w2"}})),
        ),
        (".status", "clusterName and nominatedClusterNames are mutually exclusive"): _status(
            {"nominatedClusterNames": ["w1", "w2"]}, {"clusterName": "w1", "nominatedClusterNames": ["w1"]}
        ),
    }
    for message, (kept, broken) in _TOLERATIONS.items():
        path = ".status.admissionChecks[].podSetUpdates[].tolerations"
        found[path, message] = _status(_check(kept), _check(broken))
    return found


def _pod_set() -> Document:
    return {
        "name": "main",
        "count": 1,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}},
    }


_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"


def _workload_v1beta1() -> dict[tuple[str, str], Pair]:
    ranked = {"priority": 5, "priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"}
    return {
        **_workload(),
        (".spec", "priority should not be nil when priorityClassName is set"): create(
            {"priorityClassName": "high"}, kept={"priority": 1}, broken={}
        ),
        ("", "priorityClassSource is immutable while workload quota reserved"): _held(
            ranked, kept={"priority": 6}, broken={"priorityClassSource": _CLASS}
        ),
        (
            "",
            "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to "
            "kueue.x-k8s.io/workloadpriorityclass",
        ): Pair(
            Story(
                {"spec": {**ranked, "priorityClassSource": _CLASS}},
                (_reserved("QuotaReserved"), {"spec": {"priorityClassName": "low"}}),
            ),
            Story({"spec": ranked}, (_reserved("QuotaReserved"), {"spec": {"priorityClassName": "low"}})),
        ),
    }


def _reference(group: str, kind: str, name: str = "high") -> Document:
    return {"priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _slice(**more: object) -> Document:
    """Levels and one slice of a topology assignment, as parts of a status."""
    plain: Document = {
        "domainCount": 2,
        "podCounts": {"universal": 1},
        "valuesPerLevel": [{"universal": "r1"}],
    }
    return {"levels": ["rack"], "slices": [{**plain, **more}]}


def _topology_status(assignment: Document) -> Document:
    return _admission(_assignment("main", topologyAssignment=assignment))


def _workload_v1beta2() -> dict[tuple[str, str], Pair]:
    core, own = ("scheduling.k8s.io", "PriorityClass"), ("kueue.x-k8s.io", "WorkloadPriorityClass")
    ranked = {"priority": 5, **_reference(*core)}
    place = ".status.admission.podSetAssignments[].topologyAssignment"
    roots = {"individual": {"roots": ["a", "b"]}}
    return {
        **_workload(),
        (".spec", "priority should not be nil when priorityClassRef is set"): create(
            _reference(*own), kept={"priority": 1}, broken={}
        ),
        (".spec.priorityClassRef", "only the PriorityClass kind is allowed for the scheduling.k8s.io group"): create(
            {"priority": 1}, kept=_reference(*core), broken=_reference(core[0], own[1])
        ),
        (
            ".spec.priorityClassRef",
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
        ): create({"priority": 1}, kept=_reference(*own), broken=_reference(own[0], core[1])),
        ("", "priorityClassRef is immutable while workload quota reserved"): _held(
            {"priority": 5}, kept={"priority": 6}, broken=_reference(*core)
        ),
        ("", "priorityClassRef.group is immutable while workload quota reserved"): _held(
            ranked, kept={"priority": 6}, broken=_reference(*own)
        ),
        ("", "priorityClassRef.kind is immutable while workload quota reserved"): _held(
            ranked, kept={"priority": 7}, broken=_reference(*own)
        ),
        (
            "",
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        ): Pair(
            Story(
                {"spec": {"priority": 5, **_reference(*own)}},
                (_reserved("QuotaReserved"), {"spec": _reference(*own, "low")}),
            ),
            Story({"spec": ranked}, (_reserved("QuotaReserved"), {"spec": _reference(*core, "low")})),
        ),
        (
            place,
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
        ): _status(
            _topology_status(_slice()),
            _topology_status(_slice(valuesPerLevel=[{"universal": "r1"}, {"universal": "r2"}])),
        ),
        (f"{place}.slices[]", "podCounts.individual must have length equal to domainCount"): _status(
            _topology_status(_slice(podCounts={"individual": [1, 2]})),
            _topology_status(_slice(podCounts={"individual": [1, 2, 3]})),
        ),
        (
            f"{place}.slices[]",
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
        ): _status(
            _topology_status(_slice(valuesPerLevel=[roots])),
            _topology_status(_slice(valuesPerLevel=[roots], domainCount=3)),
        ),
        (
            f"{place}.slices[].podCounts",
            "exactly one of the fields in [universal individual] must be set",
        ): _status(
            _topology_status(_slice(podCounts={"individual": [2, 2]})),
            _topology_status(_slice(podCounts={"individual": [1, 2], "universal": 1})),
        ),
        (
            f"{place}.slices[].valuesPerLevel[]",
            "exactly one of the fields in [universal individual] must be set",
        ): _status(
            _topology_status(_slice(valuesPerLevel=[{"individual": {"prefix": "r", "roots": ["a", "b"]}}])),
            _topology_status(_slice(valuesPerLevel=[{**roots, "universal": "r1"}])),
        ),
    }


def _assignment_rules() -> dict[tuple[str, str], Pair]:
    return {
        ("", "workload, origin and managerUID are immutable"): change(
            {}, kept={"spec": {"intent": "Run"}}, broken={"spec": {"origin": "elsewhere"}}
        ),
        ("", "epoch must not go back"): change({}, kept={"spec": {"epoch": 4}}, broken={"spec": {"epoch": 2}}),
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
    ("Workload", "v1beta1"): _workload_v1beta1(),
    ("Workload", "v1beta2"): _workload_v1beta2(),
    ("RemoteAssignment", "v1alpha1"): _assignment_rules(),
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
    "Workload": {"podSets": [_pod_set()]},
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
}


def pairs() -> dict[Key, Pair]:
    """Every pair of stories by its rule."""
    return {
        Key(kind, version, path, message): pair
        for (kind, version), found in _RULES.items()
        for (path, message), pair in found.items()
    }


def plain(kind: str) -> Document:
    """The spec that stories of a kind begin with."""
    return dict(_SPECS[kind])
