# SPDX-License-Identifier: Apache-2.0
"""What users write, to be answered by the webhooks of a manager: new objects, and changes of those that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devcluster.operators.definitions import JOB_SETS, MPI_JOBS, PYTORCH_JOBS, RAY_CLUSTERS, RAY_JOBS, TRAIN_JOBS
from multikueue.api import constants
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY, PREBUILT_WORKLOAD_LABEL, QUEUE_NAME_LABEL
from multikueue.api.resource import DEPLOYMENTS, JOBS, LEADER_WORKER_SETS, PODS, STATEFUL_SETS, Resource
from tests.support import refused_manifests as given
from tests.support.refused_manifests import T0, Object, a_job, a_queue, made, pods

KINDS: Final = (JOB_SETS, MPI_JOBS, PYTORCH_JOBS, RAY_CLUSTERS, RAY_JOBS, TRAIN_JOBS, LEADER_WORKER_SETS)
"""Those that need a definition."""
QUEUE: Final = "q"
"""It has quota; that of `tests.support.refused_manifests` has none."""
_TEMPLATE: Final = {"metadata": {"labels": {"app": "x"}}, "spec": given.TEMPLATE["spec"] | {"restartPolicy": "Always"}}
_SELECTOR: Final = {"matchLabels": {"app": "x"}}
_CLASS: Final = "kueue.x-k8s.io/priority-class"
_MANAGED: Final = "kueue.x-k8s.io/managed"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
_RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
_MINIMUM: Final = constants.JOB_MIN_PARALLELISM_ANNOTATION
_ELASTIC: Final = constants.ELASTIC_JOB_ANNOTATION
_TIME: Final = constants.MAX_EXEC_TIME_LABEL


@dataclass(frozen=True, slots=True)
class Change:
    """A merge patch of an object, or of its status."""

    body: Object
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A new object; or the last of some changes of it, once it runs if it `runs`."""

    title: str
    new: Object
    changes: Sequence[Change] = ()
    runs: bool = False


def writes() -> Iterator[Write]:
    """All of them."""
    for title, obj in {**given.REFUSED, **given.UNFIT, **_NEW}.items():
        if "status" in obj:
            status = Change({"status": obj["status"]}, "status")
            yield Write(title, {key: value for key, value in obj.items() if key != "status"}, [status])
        else:
            yield Write(title, obj)
    yield from _of_jobs()
    yield from _of_workloads()
    yield from _of_other_kinds()
    yield from _of_topologies()


def _metadata(key: str, value: str | None, *, part: str = "labels") -> Change:
    return Change({"metadata": {part: {key: value}}})


def _spec(**fields: Any) -> Change:
    return Change({"spec": fields})


def _running_job(**given: Any) -> Object:
    return a_job(**given | {"labels": {QUEUE_NAME_LABEL: QUEUE} | given.get("labels", {})})


def _of_jobs() -> Iterator[Write]:
    waiting, running = a_job(), _running_job()
    low = {_CLASS: "low"}
    annotated = "annotations"
    for state, job in (("waits", waiting), ("runs", running)):
        for title, change in {
            "another queue": _metadata(QUEUE_NAME_LABEL, "other"),
            "no queue": _metadata(QUEUE_NAME_LABEL, None),
            "a queue that is no name": _metadata(QUEUE_NAME_LABEL, "Not A Name"),
            "a prebuilt Workload": _metadata(PREBUILT_WORKLOAD_LABEL, "w"),
            "a time": _metadata(_TIME, "9"),
            "a priority": _metadata(_CLASS, "high"),
            "elastic": _metadata(_ELASTIC, "true", part=annotated),
            "a minimum": _metadata(_MINIMUM, "1", part=annotated),
            "fewer pods": _spec(parallelism=2),
            "more pods": _spec(parallelism=4),
            "suspended": _spec(suspend=True),
            "started": _spec(suspend=False),
        }.items():
            yield Write(f"a Job that {state} gets: {title}", job, [change], runs=job is running)
        for title, change in {
            "another time": _metadata(_TIME, "8"),
            "no time": _metadata(_TIME, None),
            "another priority": _metadata(_CLASS, "high"),
            "no priority": _metadata(_CLASS, None),
            "fewer pods": _spec(parallelism=2),
            "another minimum": _metadata(_MINIMUM, "2", part=annotated),
            "no minimum": _metadata(_MINIMUM, None, part=annotated),
        }.items():
            queue = {QUEUE_NAME_LABEL: job["metadata"]["labels"][QUEUE_NAME_LABEL]}
            full = a_job(labels=queue | low | {_TIME: "99"}, annotations={_MINIMUM: "1"})
            yield Write(f"a Job with all that {state} gets: {title}", full, [change], runs=job is running)
    without = made("Job", {"parallelism": 1, "template": given.TEMPLATE}, version="batch/v1", namespace="team")
    yield Write("a Job without a queue that runs gets one", without, [_metadata(QUEUE_NAME_LABEL, QUEUE)])
    elastic = a_job(annotations={_ELASTIC: "true"})
    yield Write("an elastic Job is not any more", elastic, [_metadata(_ELASTIC, None, part=annotated)])
    yield Write("an elastic Job that runs grows", _running_job(annotations={_ELASTIC: "true"}), [_spec(parallelism=4)])


def _of_workloads() -> Iterator[Write]:
    waits, runs = given.asking({"cpu": "1"}), given.asking({"cpu": "1"})
    runs["spec"]["queueName"] = QUEUE
    low = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"}
    for title, change in {
        "another queue": _spec(queueName="other"),
        "another priority": _spec(priority=7),
        "a priority class": _spec(priorityClassRef=low, priority=1),
        "not active": _spec(active=False),
        "a time": _spec(maximumExecutionTimeSeconds=9),
        "another number of pods": _spec(podSets=[waits["spec"]["podSets"][0] | {"count": 2}]),
        "another template": _spec(podSets=pods()["spec"]["podSets"]),
        "a gate": _metadata(given.GATES, "example.com/g", part="annotations"),
        "a boost": _metadata(constants.PRIORITY_BOOST_ANNOTATION, "5", part="annotations"),
        "a boost that is none": _metadata(constants.PRIORITY_BOOST_ANNOTATION, "", part="annotations"),
        "a label": _metadata("a", "b"),
    }.items():
        yield Write(f"a Workload that waits gets: {title}", waits, [change])
        yield Write(f"a Workload that holds quota gets: {title}", runs, [change], runs=True)
    for title, changes in _statuses().items():
        yield Write(f"the status of a Workload that holds quota gets: {title}", runs, changes, runs=True)
    gated = pods(annotations={given.GATES: "example.com/a,example.com/b"})
    for title, value in {"one less": "example.com/a", "none": None, "another": "example.com/c", "empty": ""}.items():
        yield Write(f"the gates of a Workload: {title}", gated, [_metadata(given.GATES, value, part="annotations")])


def _statuses() -> Mapping[str, Sequence[Change]]:
    def status(**fields: Any) -> Change:
        return Change({"status": fields}, "status")

    def admission(queue: str = QUEUE, **fields: Any) -> Change:
        usage = {"name": "set0", "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}} | fields
        return status(admission={"clusterQueue": queue, "podSetAssignments": [usage]})

    reclaimed = status(reclaimablePods=[{"name": "set0", "count": 2}])
    check = {"name": "c", "state": "Ready", "lastTransitionTime": T0, "message": ""}
    update = status(admissionChecks=[check | {"podSetUpdates": [{"name": "set0", "labels": {"a": "b"}}]}])
    changed = check | {"podSetUpdates": [{"name": "set0", "labels": {"a": "c"}}]}
    chosen = status(clusterName="a", nominatedClusterNames=None)
    return {
        "the same": [admission()],
        "another flavor": [admission(flavors={"cpu": "g"})],
        "fewer pods": [admission(count=2, resourceUsage={"cpu": "2"})],
        "another queue": [admission("other")],
        "no admission": [status(admission=None)],
        "no reservation": [status(admission=None, conditions=None)],
        "fewer pods reclaimed": [reclaimed, status(reclaimablePods=[{"name": "set0", "count": 1}])],
        "no pods reclaimed": [reclaimed, status(reclaimablePods=None)],
        "other updates of a ready check": [update, status(admissionChecks=[changed])],
        "no updates of a ready check": [update, status(admissionChecks=[check])],
        "updates of a check that retries": [update, status(admissionChecks=[changed | {"state": "Retry"}])],
        "a cluster that was not nominated": [status(clusterName="a")],
        "a cluster that was nominated": [status(nominatedClusterNames=["a"]), chosen],
        "another cluster": [status(nominatedClusterNames=["a", "b"]), chosen, status(clusterName="b")],
        "both clusters": [status(nominatedClusterNames=["a"]), status(clusterName="a")],
        "more than ten clusters": [status(nominatedClusterNames=[f"c{n}" for n in range(11)])],
    }


def _pod(**meta: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "team"} | meta, **given.TEMPLATE}


def _queued(**labels: str) -> Object:
    return {"labels": {QUEUE_NAME_LABEL: "lq", **labels}}


def _set(kind: str, version: str, spec: Object, **meta: Any) -> Object:
    return made(kind, spec, version=version, namespace="team", **(_queued() | meta))


def _scaled(kind: str, **spec: Any) -> Object:
    service = {"serviceName": "s"} if kind == "StatefulSet" else {}
    return _set(kind, "apps/v1", {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE, **service, **spec})


def _leaders(**more: Any) -> Object:
    return _set(
        "LeaderWorkerSet",
        LEADER_WORKER_SETS.api_version,
        {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": _TEMPLATE, **more}},
    )


def _ray(**spec: Any) -> Object:
    workers = {"groupName": "workers", "replicas": 1, "template": given.TEMPLATE}
    return {"headGroupSpec": {"rayStartParams": {}, "template": given.TEMPLATE}, "workerGroupSpecs": [workers], **spec}


def _ray_job(cluster: Object | None = None, **spec: Any) -> Object:
    made_of = {"shutdownAfterJobFinishes": True, "rayClusterSpec": _ray() if cluster is None else cluster}
    return _set("RayJob", RAY_JOBS.api_version, made_of | spec)


def _of_other_kinds() -> Iterator[Write]:
    group = _queued(**{_GROUP: "g"}) | {"annotations": {_TOTAL: "2"}}
    for title, obj in {
        "a pod": _pod(**_queued()),
        "a pod without a queue": _pod(),
        "a pod that says it is not managed": _pod(**_queued(**{_MANAGED: "false"})),
        "a pod of a group": _pod(**group),
        "a pod of a group without a number": _pod(**_queued(**{_GROUP: "g"})),
        "a pod of a group that is no name": _pod(**_queued(**{_GROUP: "Not A Name"}) | {"annotations": {_TOTAL: "2"}}),
        "a pod with a number without a group": _pod(**_queued(), annotations={_TOTAL: "2"}),
        "a pod of a group of none": _pod(**_queued(**{_GROUP: "g"}), annotations={_TOTAL: "0"}),
        "a pod of a group of some": _pod(**_queued(**{_GROUP: "g"}), annotations={_TOTAL: "some"}),
        "a pod of a queue that is no name": _pod(labels={QUEUE_NAME_LABEL: "Not A Name"}),
        "a pod of a Workload": _pod(**_queued(**{PREBUILT_WORKLOAD_LABEL: "w"})),
        "a pod of a group and another Workload": _pod(
            labels=group["labels"] | {PREBUILT_WORKLOAD_LABEL: "w"}, annotations=group["annotations"]
        ),
        "a Deployment": _scaled("Deployment"),
        "a StatefulSet": _scaled("StatefulSet"),
        "a LeaderWorkerSet": _leaders(),
        "a LeaderWorkerSet with leaders": _leaders(leaderTemplate=_TEMPLATE),
        "a Deployment with a topology": _scaled(
            "Deployment",
            template=_TEMPLATE | {"metadata": {"labels": {"app": "x"}, "annotations": {given.REQUIRED: "!"}}},
        ),
        "a RayJob": _ray_job(),
        "a RayJob on a cluster that there is": _ray_job(clusterSelector={"a": "b"}),
        "a RayJob that leaves its cluster": _ray_job(shutdownAfterJobFinishes=False),
        "a RayJob without a cluster": _ray_job({}),
        "a RayJob that scales": _ray_job(_ray(enableInTreeAutoscaling=True)),
        "a RayJob with a group named head": _ray_job(
            _ray(workerGroupSpecs=[{"groupName": "head", "replicas": 1, "template": given.TEMPLATE}])
        ),
        "a RayJob with too many groups": _ray_job(
            _ray(
                workerGroupSpecs=[{"groupName": f"g{n}", "replicas": 1, "template": given.TEMPLATE} for n in range(18)]
            )
        ),
        "a RayCluster": _set("RayCluster", RAY_CLUSTERS.api_version, _ray()),
        "a RayCluster that scales": _set("RayCluster", RAY_CLUSTERS.api_version, _ray(enableInTreeAutoscaling=True)),
        "a JobSet": _job_set(),
        "a PyTorchJob": _set("PyTorchJob", PYTORCH_JOBS.api_version, _replicas("pytorch")),
        "an MPIJob": _set("MPIJob", MPI_JOBS.api_version, _replicas("mpi")),
        "a TrainJob": _set("TrainJob", TRAIN_JOBS.api_version, {"runtimeRef": {"name": "r"}}),
    }.items():
        yield Write(title, obj)
    for title, change in {
        "another group": _metadata(_GROUP, "h"),
        "no group": _metadata(_GROUP, None),
        "another number": _metadata(_TOTAL, "3", part="annotations"),
        "another queue": _metadata(QUEUE_NAME_LABEL, "other"),
        "no managed label": _metadata(_MANAGED, None),
        "not retriable": _metadata(_RETRIABLE, "false", part="annotations"),
    }.items():
        yield Write(f"a pod of a group gets: {title}", _pod(**group), [change])
    retried = [_metadata(_RETRIABLE, "false", part="annotations"), _metadata(_RETRIABLE, "true", part="annotations")]
    yield Write("a pod of a group is retriable again", _pod(**group), retried)
    for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
        obj = _leaders() if kind == "LeaderWorkerSet" else _scaled(kind)
        for title, changes in {
            "another queue": [_metadata(QUEUE_NAME_LABEL, "other")],
            "no queue": [_metadata(QUEUE_NAME_LABEL, None)],
            "a priority": [_metadata(_CLASS, "high")],
            "more replicas": [_spec(replicas=3)],
            "no replicas": [_spec(replicas=0)],
            "replicas again": [_spec(replicas=0), _spec(replicas=2)],
        }.items():
            yield Write(f"a {kind} gets: {title}", obj, changes)
        ready = Change({"status": {"replicas": 2, "readyReplicas": 2}}, "status")
        yield Write(f"a {kind} that is ready gets: another queue", obj, [ready, _metadata(QUEUE_NAME_LABEL, "other")])
        yield Write(f"a {kind} that is ready gets: no queue", obj, [ready, _metadata(QUEUE_NAME_LABEL, None)])
    bigger = Change({"spec": {"leaderWorkerTemplate": {"size": 3}}})
    yield Write("a LeaderWorkerSet gets: another size", _leaders(), [bigger])


def _of_topologies() -> Iterator[Write]:
    asked = {
        "two topologies": {given.REQUIRED: "k", given.PREFERRED: "k"},
        "a topology that is no key": {given.PREFERRED: "!"},
        "a topology that is no boolean": {given.UNCONSTRAINED: "maybe"},
        "a group of one": {given.REQUIRED: "k", given.GROUP: "g"},
        "a slice without a size": {given.SLICE: "k"},
        "a slice of too many pods": {given.SLICE: "k", given.SLICE_SIZE: "9"},
    }
    for title, keys in asked.items():
        pod = _queued() | {"annotations": keys}
        template = {"metadata": {"labels": {"app": "x"}, "annotations": keys}, "spec": _TEMPLATE["spec"]}
        workers = {"groupName": "workers", "replicas": 1, "template": template}
        for kind, obj in {
            "a pod": _pod(**pod),
            "a pod of a group": _pod(labels=pod["labels"] | {_GROUP: "g"}, annotations=keys | {_TOTAL: "2"}),
            "a JobSet": _job_set(keys),
            "a PyTorchJob": _set("PyTorchJob", PYTORCH_JOBS.api_version, _replicas("pytorch", keys)),
            "an MPIJob": _set(
                "MPIJob", MPI_JOBS.api_version, {"mpiReplicaSpecs": _replicas("pytorch", keys)["pytorchReplicaSpecs"]}
            ),
            "a RayJob": _ray_job(_ray(workerGroupSpecs=[workers])),
            "a RayCluster": _set("RayCluster", RAY_CLUSTERS.api_version, _ray(workerGroupSpecs=[workers])),
            "a Deployment": _scaled("Deployment", template=template),
            "a StatefulSet": _scaled("StatefulSet", template=template),
            "a LeaderWorkerSet": _leaders(workerTemplate=template),
            "the leaders of a LeaderWorkerSet": _leaders(leaderTemplate=template),
        }.items():
            yield Write(f"{kind} asks for {title}", obj)
    required, preferred = {given.REQUIRED: "k", given.GROUP: "g"}, {given.PREFERRED: "k", given.GROUP: "g"}
    other = {given.REQUIRED: "l", given.GROUP: "g"}
    for title, asks, pods_of in (
        ("of two", (required, required), (1, 3)),
        ("of two without a leader", (required, required), (2, 3)),
        ("of three", (required, required, required), (1, 1, 3)),
        ("of two topologies", (required, other), (1, 3)),
        ("that is required and preferred", (required, preferred), (1, 3)),
    ):
        yield Write(f"a JobSet asks for a group {title}", _job_set(*asks, pods=pods_of))


def _job_set(*annotations: Mapping[str, str], pods: Sequence[int] = (1,)) -> Object:
    jobs = []
    for number, (each, count) in enumerate(zip(annotations or ({},), pods, strict=True)):
        template = given.TEMPLATE | {"metadata": {"annotations": dict(each)}}
        job = {"spec": {"parallelism": count, "completions": count, "template": template}}
        jobs.append({"name": f"r{number}", "replicas": 1, "template": job})
    return _set("JobSet", JOB_SETS.api_version, {"replicatedJobs": jobs})


def _replicas(kind: str, annotations: Mapping[str, str] | None = None) -> Object:
    template = given.TEMPLATE | {"metadata": {"annotations": dict(annotations or {})}}
    return {f"{kind}ReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}


_NEW: Final[Mapping[str, Object]] = {
    "a queue": a_queue(resourceGroups=[given.a_group(given.a_flavor())]),
    "a queue without anything": made("ClusterQueue", {}),
    "a queue in a cohort": a_queue(
        cohortName="c", resourceGroups=[given.a_group(given.a_flavor(borrowingLimit="1", lendingLimit="1"))]
    ),
    "a flavor": given.nodes(nodeLabels={"a": "b"}),
    "a cohort": made("Cohort", {"resourceGroups": [given.a_group(given.a_flavor())]}),
    "a cohort with a limit": made("Cohort", {"resourceGroups": [given.a_group(given.a_flavor(borrowingLimit="1"))]}),
    "a local queue": made("LocalQueue", {"clusterQueue": "cq"}, namespace="team"),
    "a Workload": given.asking({"cpu": "1"}),
    "a Workload that may run in part": pods({"minCount": 1}),
    "a Job": a_job(),
    "a Job with a minimum": a_job(annotations={_MINIMUM: "1"}),
    "a Job that another controller manages": a_job(managedBy="example.com/other"),
    "a Job that MultiKueue manages": a_job(managedBy=MULTIKUEUE_MANAGED_BY),
    "a Job without a queue": made("Job", {"template": given.TEMPLATE}, version="batch/v1", namespace="team"),
    "an elastic Job": a_job(annotations={_ELASTIC: "true"}),
    "a Job with a time": a_job(labels={_TIME: "9"}),
    "a Job with a time of nothing": a_job(labels={_TIME: "0"}),
    "a Job with a time below nothing": a_job(labels={_TIME: "-1"}),
}
RESOURCES: Final[Mapping[str, Resource]] = {
    each.kind: each for each in (JOBS, PODS, DEPLOYMENTS, STATEFUL_SETS, *KINDS)
}
