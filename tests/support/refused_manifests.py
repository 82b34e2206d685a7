# SPDX-License-Identifier: Apache-2.0
"""Manifests that a hub refuses, one for each rule, and a few that it takes.

Owns short builders of queues, flavors, Workloads and Jobs; `REFUSED` holds what the webhooks refuse, `UNFIT` what the
schemas of the kinds refuse, `GOOD` a queue with a Job in it.
"""

from __future__ import annotations

from typing import Any

from multikueue.api import constants

Object = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
T0 = "2026-01-01T12:00:00Z"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


def made(kind: str, spec: Object, *, version: str = KUEUE, status: Object | None = None, **meta: Any) -> Object:
    obj: Object = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", **meta}, "spec": spec}
    return obj if status is None else obj | {"status": status}


def a_queue(**spec: Any) -> Object:
    return made("ClusterQueue", {"namespaceSelector": {}} | spec)


def a_group(*flavors: Object, resources: tuple[str, ...] = ("cpu",)) -> Object:
    return {"coveredResources": list(resources), "flavors": list(flavors)}


def a_flavor(name: str = "f", *, resources: tuple[str, ...] = ("cpu",), **quotas: Any) -> Object:
    return {"name": name, "resources": [{"name": each, "nominalQuota": "4"} | quotas for each in resources]}


def quotas(**given: Any) -> Object:
    return a_queue(resourceGroups=[a_group(a_flavor(**given))])


def nodes(**spec: Any) -> Object:
    return made("ResourceFlavor", spec)


def taint(**given: Any) -> Object:
    return nodes(nodeTaints=[{"key": "k", "effect": "NoSchedule"} | given])


def toleration(**given: Any) -> Object:
    return nodes(tolerations=[{"key": "k", "operator": "Equal"} | given])


def selecting(**given: Any) -> Object:
    return a_queue(namespaceSelector={"matchExpressions": [{"key": "k", "operator": "Exists"} | given]})


def concurrent(mode: str = "TryPreferredFlavors", *, flavors: int = 1, last: str | None = None, **spec: Any) -> Object:
    migration: Object = {"mode": mode}
    if last is not None:
        migration["constraints"] = {"lastAcceptableFlavorName": last}
    groups = [a_group(*(a_flavor(f"f{n}") for n in range(flavors)))]
    return a_queue(concurrentAdmissionPolicy={"migration": migration}, **({"resourceGroups": groups} | spec))


def pods(*sets: Object, status: Object | None = None, **meta: Any) -> Object:
    podsets = [{"name": f"set{n}", "count": 3, "template": TEMPLATE} | each for n, each in enumerate(sets or ({},))]
    return made("Workload", {"queueName": "lq", "podSets": podsets}, status=status, namespace="team", **meta)


def asking(requests: Object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    return pods({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}})


def templated(**meta: Any) -> Object:
    return pods({"template": TEMPLATE | {"metadata": meta}})


def placed(**request: Any) -> Object:
    return pods({"topologyRequest": request})


def reserved(*assignments: Object, **status: Any) -> Object:
    condition = {"type": "QuotaReserved", "status": "True", "reason": "R", "message": "", "lastTransitionTime": T0}
    if assignments:
        status["admission"] = {"clusterQueue": "cq", "podSetAssignments": list(assignments)}
    return pods(status={"conditions": [condition]} | status)


def checked(*updates: Object) -> Object:
    check = {"name": "c", "state": "Ready", "lastTransitionTime": T0, "message": "", "podSetUpdates": list(updates)}
    return pods(status={"admissionChecks": [check]})


def a_job(
    *, labels: Object | None = None, annotations: Object | None = None, template: Object | None = None, **spec: Any
) -> Object:
    pod = TEMPLATE | {"metadata": {"annotations": template or {}}}
    given = {"parallelism": 3, "completions": 3, "template": pod} | spec
    meta: Object = {"namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "lq"} | (labels or {})}
    return made("Job", given, version="batch/v1", annotations=annotations or {}, **meta)


ELASTIC = {constants.ELASTIC_JOB_ANNOTATION: "true"}
GATES = constants.ADMISSION_GATED_BY_ANNOTATION
REQUIRED = constants.POD_SET_REQUIRED_TOPOLOGY_ANNOTATION
PREFERRED = constants.POD_SET_PREFERRED_TOPOLOGY_ANNOTATION
UNCONSTRAINED = constants.POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION
GROUP = constants.POD_SET_GROUP_NAME_ANNOTATION
SLICE = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION
SLICE_SIZE = constants.POD_SET_SLICE_SIZE_ANNOTATION
LAYERS = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION
EQUAL = constants.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION
MANY = tuple(f"r{n}" for n in range(30))
APART = [tuple(f"r{n}-{m}" for m in range(64)) for n in range(5)]

REFUSED: dict[str, Object] = {
    # ClusterQueue, Cohort
    "a preemption that contradicts itself": a_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
    "a preference that is never asked for": a_queue(
        flavorFungibility={"preference": "BorrowingOverPreemption", "whenCanBorrow": "MayStopSearch"}
    ),
    "a resource that is no name": a_queue(resourceGroups=[a_group(a_flavor(resources=("!",)), resources=("!",))]),
    "a resource twice": a_queue(resourceGroups=[a_group(a_flavor()), a_group(a_flavor("g"))]),
    "a flavor twice": a_queue(
        resourceGroups=[a_group(a_flavor()), a_group(a_flavor(resources=("memory",)), resources=("memory",))]
    ),
    "too many combinations": a_queue(
        resourceGroups=[a_group(*(a_flavor(f"f{n}", resources=MANY) for n in range(20)), resources=MANY)]
    ),
    "too many resources": a_queue(
        resourceGroups=[a_group(a_flavor(f"f{n}", resources=of), resources=of) for n, of in enumerate(APART)]
    ),
    "too many flavors": a_queue(resourceGroups=[a_group(*(a_flavor(f"f{n}") for n in range(257)))]),
    "a flavor without a covered resource": a_queue(resourceGroups=[a_group(a_flavor(), resources=("cpu", "memory"))]),
    "a flavor of another resource": a_queue(resourceGroups=[a_group(a_flavor(resources=("memory",)))]),
    "a quota below nothing": quotas(nominalQuota="-1"),
    "borrowing without a cohort": quotas(borrowingLimit="1"),
    "lending more than there is": a_queue(
        cohortName="c", resourceGroups=[a_group(a_flavor(nominalQuota="1", lendingLimit="2"))]
    ),
    "a weight below nothing": a_queue(fairSharing={"weight": "-1"}),
    "a weight that is next to nothing": made("Cohort", {"fairSharing": {"weight": "1n"}}),
    "a check on a flavor that is not there": a_queue(
        resourceGroups=[a_group(a_flavor())],
        admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["gone"]}]},
    ),
    "concurrent admission without flavors": concurrent(resourceGroups=[]),
    "concurrent admission on too many flavors": concurrent(flavors=17),
    "concurrent admission in a strict queue": concurrent(queueingStrategy="StrictFIFO"),
    "constraints of another mode": concurrent("RetainFirstAdmission", last="f0"),
    "a last flavor that is not there": concurrent(last="gone"),
    "a cohort that lends below nothing": made("Cohort", {"resourceGroups": [a_group(a_flavor(lendingLimit="-1"))]}),
    # selectors, ResourceFlavor
    "a selector's label that is no key": selecting(key="!"),
    "a selector without values": selecting(operator="In"),
    "a selector with values too many": selecting(values=["v"]),
    "a selector of an unknown operator": selecting(operator="Near"),
    "a selector's value that is none": selecting(operator="In", values=["!"]),
    "a node label that is no key": nodes(nodeLabels={"!": "v"}),
    "a node label that is no value": nodes(nodeLabels={"k": "!"}),
    "a taint that is no key": taint(key="!"),
    "a taint that is no value": taint(value="!"),
    "a taint of an unknown effect": taint(effect="Never"),
    "a taint twice": nodes(nodeTaints=[{"key": "k", "effect": "NoSchedule"}] * 2),
    "a toleration that is no key": toleration(key="!"),
    "a toleration of everything that says equal": toleration(key=""),
    "a toleration for a time without an end": toleration(effect="NoSchedule", tolerationSeconds=1),
    "a toleration of an unknown operator": toleration(operator="Near"),
    "a toleration of a value that only has to exist": toleration(operator="Exists", value="v"),
    "a toleration that is no value": toleration(value="!"),
    "a toleration of an unknown effect": toleration(effect="Never"),
    # Workload
    "a minimum of an elastic workload": pods({"minCount": 1}, annotations=ELASTIC),
    "two minimums": pods({"minCount": 1}, {"minCount": 1}),
    "a template's label that is none": templated(labels={"!": "!"}),
    "a template's annotation that is none": templated(annotations={"!": "v"}),
    "the resource of pods": asking({"pods": "1"}),
    "a request below nothing": asking({"cpu": "-1"}),
    "slices without a size": placed(podSetSliceRequiredTopology="k"),
    "slices without a topology": placed(podSetSliceSize=1),
    "slices of no pods": placed(podSetSliceRequiredTopology="k", podSetSliceSize=0),
    "slices and layers": placed(
        podSetSliceSize=1,
        podSetSliceRequiredTopology="k",
        podsetSliceRequiredTopologyConstraints=[{"topology": "k", "size": 1}],
    ),
    "quota without an admission": reserved(),
    "an admission without a pod set": reserved({"name": "other"}),
    "an admission that does not divide": reserved({"name": "set0", "count": 3, "resourceUsage": {"memory": "1"}}),
    "more domains than an assignment may have": reserved(
        {
            "name": "set0",
            "topologyAssignment": {
                "levels": ["rack"],
                "slices": [
                    {"domainCount": 100_001, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 1}}
                ],
            },
        }
    ),
    "a slice for one of another namespace": pods(
        {}, annotations=ELASTIC | {constants.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: "other/w"}
    ),
    "reclaimable pods of no pod set": pods(status={"reclaimablePods": [{"name": "other", "count": 1}]}),
    "more pods reclaimed than there are": pods(status={"reclaimablePods": [{"name": "set0", "count": 4}]}),
    "updates of some pod sets only": checked({"name": "set0"}, {"name": "set0"}),
    "updates of no pod set": checked({"name": "other"}),
    "a boost that is no number": pods(annotations={constants.PRIORITY_BOOST_ANNOTATION: "²"}),
    # Job
    "a queue that is no name": a_job(labels={"kueue.x-k8s.io/queue-name": "Not A Name"}),
    "a workload that is no name": a_job(labels={constants.PREBUILT_WORKLOAD_LABEL: "Not A Name"}),
    "a time that is none": a_job(labels={constants.MAX_EXEC_TIME_LABEL: "²"}),
    "a minimum above the parallelism": a_job(annotations={constants.JOB_MIN_PARALLELISM_ANNOTATION: "9"}),
    "a minimum of an elastic job": a_job(annotations=ELASTIC | {constants.JOB_MIN_PARALLELISM_ANNOTATION: "1"}),
    "equality that is no boolean": a_job(annotations={EQUAL: "maybe"}),
    "equality of a job that has no indexes": a_job(annotations={EQUAL: "true"}),
    "equality that does not hold": a_job(annotations={EQUAL: "true"}, completionMode="Indexed", completions=2),
    "a topology of an elastic job": a_job(annotations=ELASTIC, template={REQUIRED: "k"}),
    "a group of one": a_job(template={GROUP: "g", REQUIRED: "k"}),
    # annotations
    "a gate that is no path": a_job(annotations={GATES: "gate"}),
    "a gate that is too long": pods(annotations={GATES: f"example.com/{'g' * 60}"}),
    "a gate twice": pods(annotations={GATES: "example.com/g,example.com/g"}),
    "two topologies": a_job(template={REQUIRED: "k", PREFERRED: "k"}),
    "a topology that is no key": a_job(template={REQUIRED: "!"}),
    "a topology that is no boolean": a_job(template={UNCONSTRAINED: "maybe"}),
    "a group that is a number": a_job(template={GROUP: "7", REQUIRED: "k"}),
    "a group without a topology": a_job(template={GROUP: "g"}),
    "a group with slices": a_job(template={GROUP: "g", REQUIRED: "k", SLICE: "k", SLICE_SIZE: "1"}),
    "a slice without a size": a_job(template={SLICE: "k"}),
    "a size without a slice": a_job(template={SLICE_SIZE: "1"}),
    "a slice of no pods": a_job(template={SLICE: "k", SLICE_SIZE: "0"}),
    "a slice of too many pods": a_job(template={SLICE: "k", SLICE_SIZE: "9"}),
    "layers that are no JSON": a_job(template={LAYERS: "{"}),
    "layers that are no list": a_job(template={LAYERS: "{}"}),
    "a layer without a size": a_job(template={LAYERS: '[{"topology": "k"}]'}),
    "layers of endless text": a_job(template={LAYERS: "[" + " " * constants.MAX_TOPOLOGY_CONSTRAINTS_LENGTH + "]"}),
    "a layer of too many pods": a_job(template={LAYERS: '[{"topology": "k", "size": 2147483648}]'}),
    "layers that do not divide": a_job(
        template={LAYERS: '[{"topology": "k", "size": 3}, {"topology": "l", "size": 2}]'}
    ),
    "layers and slices": a_job(template={LAYERS: '[{"topology": "k", "size": 1}]', SLICE: "k", SLICE_SIZE: "1"}),
    # what the models cannot read
    "a quantity that is none": quotas(nominalQuota="1x"),
    "a list for an object": made("ClusterQueue", {"preemption": []}),
    "a text for a number": pods({"count": "many"}),
}
UNFIT: dict[str, Object] = {
    "a policy that is none": a_queue(preemption={"withinClusterQueue": "Sometimes"}),
    "a strategy that is none": a_queue(queueingStrategy="LIFO"),
    "a stop policy that is none": made("LocalQueue", {"clusterQueue": "cq", "stopPolicy": "Maybe"}, namespace="team"),
    "a queue that is no name": made("LocalQueue", {"clusterQueue": "Not A Name"}, namespace="team"),
    "a cohort that is its own parent's name and too long": made("Cohort", {"parentName": "c" * 300}),
    "a flavor without resources": a_queue(resourceGroups=[a_group({"name": "f", "resources": []})]),
    "borrowing without a cohort": quotas(borrowingLimit="1"),
    "a number that is text": pods({"count": "3"}),
    "no pods": pods({"count": -1}),
    "too many pod sets": pods(*({} for _ in range(19))),
    "a pod set twice": pods({"name": "a"}, {"name": "a"}),
    "a pod set that is no name": pods({"name": "Not A Name"}),
    "a container without a name": pods({"template": {"spec": {"containers": [{"image": "i"}]}}}),
    "too many node labels": nodes(nodeLabels={f"k{n}": "v" for n in range(9)}),
    "a check without a controller": made("AdmissionCheck", {}),
    "a class without a value": {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "x"}},
}
GOOD: list[Object] = [
    {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "f"}},
    made("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [a_group(a_flavor())]}, name="cq"),
    made("LocalQueue", {"clusterQueue": "cq"}, name="lq", namespace="team"),
    a_job() | {"metadata": {"name": "fine", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}},
]
