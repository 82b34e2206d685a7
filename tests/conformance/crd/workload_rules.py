# SPDX-License-Identifier: Apache-2.0
"""The rules of Workloads: what their status and their admission allow to change."""

from __future__ import annotations

from typing import Final

from tests.conformance.crd.scenarios import TOLERATIONS, Document, Pair, Scenario, create


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
        Scenario({"spec": before}, (reserve, {"spec": kept})),
        Scenario({"spec": before}, (reserve, {"spec": broken})),
    )


def _status(kept: Document, broken: Document) -> Pair:
    return Pair(Scenario({}, ({"status": kept},)), Scenario({}, ({"status": broken},)))


def _check(toleration: Document) -> Document:
    state = {"name": "ac", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    return {"admissionChecks": [{**state, "podSetUpdates": [{"name": "main", "tolerations": [toleration]}]}]}


def _workload() -> dict[tuple[str, str], Pair]:
    """The rules of both versions."""
    pod_set = plain_pod_set()
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
            Scenario(
                {}, ({"status": {"clusterName": "w1"}}, {"status": {"clusterName": "w1", **_reserved()["status"]}})
            ),
            Scenario({}, ({"status": {"clusterName": "w1"}}, {"status": {"clusterName": "w2"}})),
        ),
        (".status", "clusterName and nominatedClusterNames are mutually exclusive"): _status(
            {"nominatedClusterNames": ["w1", "w2"]}, {"clusterName": "w1", "nominatedClusterNames": ["w1"]}
        ),
    }
    for message, (kept, broken) in TOLERATIONS.items():
        path = ".status.admissionChecks[].podSetUpdates[].tolerations"
        found[path, message] = _status(_check(kept), _check(broken))
    return found


def plain_pod_set() -> Document:
    return {
        "name": "main",
        "count": 1,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}},
    }


_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"


def workload_v1beta1() -> dict[tuple[str, str], Pair]:
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
            Scenario(
                {"spec": {**ranked, "priorityClassSource": _CLASS}},
                (_reserved("QuotaReserved"), {"spec": {"priorityClassName": "low"}}),
            ),
            Scenario({"spec": ranked}, (_reserved("QuotaReserved"), {"spec": {"priorityClassName": "low"}})),
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


def workload_v1beta2() -> dict[tuple[str, str], Pair]:
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
            Scenario(
                {"spec": {"priority": 5, **_reference(*own)}},
                (_reserved("QuotaReserved"), {"spec": _reference(*own, "low")}),
            ),
            Scenario({"spec": ranked}, (_reserved("QuotaReserved"), {"spec": _reference(*core, "low")})),
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
