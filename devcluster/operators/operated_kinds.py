# SPDX-License-Identifier: Apache-2.0
"""The job kinds that the generic operator plays, as data: pods, suspension, `managedBy`, and the status they show."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from devcluster.operators import definitions
from multikueue.api.objects import JsonObject
from multikueue.api.resource import LEADER_WORKER_SETS, Resource


class State(StrEnum):
    """How far an object is."""

    SUSPENDED = "Suspended"
    PENDING = "Pending"
    """Not all pods are ready."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods of one template."""

    name: str
    count: int
    template: JsonObject
    names: tuple[str, ...] = ()
    """The names of the pods; by default object, role and number."""


@dataclass(slots=True)
class RoleCounts:
    """How many pods of a role are so."""

    wanted: int = 0
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """What an object's status is made from."""

    state: State
    roles: Mapping[str, RoleCounts]

    def total(self, name: str) -> int:
        """The sum of a count over the roles."""
        return sum(int(getattr(each, name)) for each in self.roles.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatedKind:
    """One kind."""

    resource: Resource
    roles: Callable[[JsonObject], Iterator[Role]]
    """The pods of an object, which is running."""
    controller: str = ""
    """The value of `managedBy` with which the operator runs an object, as without one."""
    managed_by: tuple[str, ...] = ("spec", "managedBy")
    suspend: tuple[str, ...] = ("spec", "suspend")
    leaders: tuple[str, ...] = ()
    """The roles whose success is that of the object; all by default."""
    finishes: bool = True
    """Whether it ends by itself."""
    serves: bool = False
    """Whether its pods are to run as long as it has them: those that ended are made again."""
    conditions: Mapping[State, tuple[str, ...]] = field(default_factory=dict)
    """The types of conditions that are True in a state; all others of the table are False once they were True."""
    status: Callable[[Progress], JsonObject] = lambda progress: {}
    """Other fields of the status."""


def at(value: Any, *path: str) -> Any:
    """The value at a path; None if it is absent."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


_TRAINING: Final[Mapping[State, tuple[str, ...]]] = {
    State.SUSPENDED: ("Suspended",),
    State.PENDING: ("Created",),
    State.RUNNING: ("Created", "Running"),
    State.SUCCEEDED: ("Created", "Succeeded"),
    State.FAILED: ("Created", "Failed"),
}


def _replica_statuses(progress: Progress) -> JsonObject:
    counts = {
        role: {
            name: value
            for name, value in (("active", each.active), ("succeeded", each.succeeded), ("failed", each.failed))
            if value
        }
        for role, each in progress.roles.items()
    }
    return {"replicaStatuses": counts} if counts else {}


def _training(resource: Resource, field_name: str, *leaders: str, controller: str) -> OperatedKind:
    def roles(obj: JsonObject) -> Iterator[Role]:
        for name, each in (obj["spec"].get(field_name) or {}).items():
            yield Role(name=name, count=each.get("replicas", 1), template=each["template"])

    return OperatedKind(
        resource=resource,
        roles=roles,
        controller=controller,
        managed_by=("spec", "runPolicy", "managedBy"),
        suspend=("spec", "runPolicy", "suspend"),
        leaders=leaders,
        conditions=_TRAINING,
        status=_replica_statuses,
    )


_TRAINING_OPERATOR: Final = "kubeflow.org/training-operator"
_RAY_OPERATOR: Final = "ray.io/kuberay-operator"


def _ray_roles(cluster: JsonObject) -> Iterator[Role]:
    yield Role(name="head", count=1, template=cluster["headGroupSpec"]["template"])
    for each in cluster.get("workerGroupSpecs") or ():
        count = each.get("replicas", 1) * each.get("numOfHosts", 1)
        yield Role(name=each["groupName"], count=count, template=each["template"])


def _ray_job_roles(obj: JsonObject) -> Iterator[Role]:
    spec = obj["spec"]
    yield from _ray_roles(spec["rayClusterSpec"])
    if spec.get("submissionMode", "K8sJobMode") == "K8sJobMode":
        usual = {"spec": {"restartPolicy": "Never", "containers": [{"name": "submitter", "image": "rayproject/ray"}]}}
        yield Role(name="submitter", count=1, template=spec.get("submitterPodTemplate") or usual)


_DEPLOYMENT_STATUS: Final = {
    State.SUSPENDED: ("Suspended", ""),
    State.PENDING: ("Initializing", ""),
    State.RUNNING: ("Running", "RUNNING"),
    State.SUCCEEDED: ("Complete", "SUCCEEDED"),
    State.FAILED: ("Failed", "FAILED"),
}


def _ray_cluster_status(progress: Progress) -> JsonObject:
    workers = [each for name, each in progress.roles.items() if name not in ("head", "submitter")]
    state = {State.SUSPENDED: "suspended", State.RUNNING: "ready", State.FAILED: "failed"}.get(progress.state, "")
    return {
        "state": state,
        "desiredWorkerReplicas": sum(each.wanted for each in workers),
        "readyWorkerReplicas": sum(each.ready for each in workers),
    }


def _ray_job_status(progress: Progress) -> JsonObject:
    deployment, job = _DEPLOYMENT_STATUS[progress.state]
    return {"jobDeploymentStatus": deployment, "jobStatus": job, "rayClusterStatus": _ray_cluster_status(progress)}


_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODES: Final[JsonObject] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {_STEP: "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "trainer"}]}}},
    },
}
"""What a TrainJob runs if nothing else is known of its runtime."""


def _train_roles(obj: JsonObject) -> Iterator[Role]:
    """The replicated jobs of the runtime, with what patches and the trainer change of them."""
    runtime, trainer = obj.get("runtime"), obj["spec"].get("trainer") or {}
    for job in at(runtime, "spec", "template", "spec", "replicatedJobs") or [_NODES]:
        template = copy.deepcopy(at(job, "template", "spec", "template"))
        pod = template["spec"]
        pod |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        for patch in obj["spec"].get("runtimePatches") or ():
            for change in at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") or ():
                if change["name"] == job["name"]:
                    changed = at(change, "template", "spec", "template") or {}
                    _add(template, {**changed, "spec": {**(changed.get("spec") or {}), "tolerations": []}})
                    pod["tolerations"] = at(changed, "spec", "tolerations") or pod["tolerations"]
        count = job.get("replicas", 1) * (at(job, "template", "spec", "parallelism") or 1)
        if at(job, "template", "metadata", "labels", _STEP) == "trainer":
            count = trainer.get("numNodes") or at(runtime, "spec", "mlPolicy", "numNodes") or count
            (container,) = (each for each in pod["containers"] if each["name"] == "node")
            container["image"] = trainer.get("image") or container["image"]
            container["resources"] = trainer.get("resourcesPerNode") or container.get("resources") or {}
        yield Role(name=job["name"], count=count, template=template)


def _add(template: JsonObject, other: JsonObject) -> None:
    """Add labels, annotations, node selectors and tolerations of another template."""
    for part, name in (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector")):
        template.setdefault(part, {}).setdefault(name, {}).update(at(other, part, name) or {})
    template["spec"].setdefault("tolerations", []).extend(at(other, "spec", "tolerations") or ())


def _train_status(progress: Progress) -> JsonObject:
    suspended = progress.state is State.SUSPENDED
    return {
        "jobsStatus": [
            {
                "name": name,
                "ready": int(each.wanted > 0 and each.ready == each.wanted),
                "succeeded": int(each.wanted > 0 and each.succeeded == each.wanted),
                "failed": int(each.failed > 0),
                "active": int(each.active > 0),
                "suspended": int(suspended),
            }
            for name, each in progress.roles.items()
        ]
    }


def _wrapped_roles(obj: JsonObject) -> Iterator[Role]:
    """The pod sets of each component, with the infos that admission adds to them."""
    for index, component in enumerate(obj["spec"].get("components") or ()):
        declared = component.get("podSets") or ()
        infos = component.get("podSetInfos") or [{}] * len(declared)
        for number, (each, info) in enumerate(zip(declared, infos, strict=True)):
            template = copy.deepcopy(at(component, *each["path"].split(".")))
            _add(template, {"metadata": info, "spec": info})
            yield Role(name=f"{index}-{number}", count=each.get("replicas", 1), template=template)


_PHASES: Final = {State.PENDING: "Resuming"}


def _wrapper_status(progress: Progress) -> JsonObject:
    return {"phase": _PHASES.get(progress.state, progress.state.value)}


_LEADER_WORKER_LABELS: Final = "leaderworkerset.sigs.k8s.io"


def _leader_worker_roles(obj: JsonObject) -> Iterator[Role]:
    name, spec = obj["metadata"]["name"], obj["spec"]
    groups, made = spec.get("replicas", 1), spec["leaderWorkerTemplate"]
    size: int = made.get("size", 1)
    for group in range(groups):
        labels = {f"{_LEADER_WORKER_LABELS}/name": name, f"{_LEADER_WORKER_LABELS}/group-index": str(group)}
        for index in range(size):
            given = made["workerTemplate"] if index else made.get("leaderTemplate") or made["workerTemplate"]
            template = _labelled(given, {**labels, f"{_LEADER_WORKER_LABELS}/worker-index": str(index)})
            own = f"{name}-{group}-{index}" if index else f"{name}-{group}"
            yield Role(name=f"{group}-{index}", count=1, template=template, names=(own,))


def _labelled(template: JsonObject, labels: Mapping[str, str]) -> JsonObject:
    found = copy.deepcopy(template)
    metadata = found.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return found


def _leader_worker_status(progress: Progress) -> JsonObject:
    groups: dict[str, bool] = {}
    for role, each in progress.roles.items():
        group = role.partition("-")[0]
        groups[group] = groups.get(group, True) and each.ready == each.wanted
    return {"replicas": len(groups), "readyReplicas": sum(groups.values()), "updatedReplicas": len(groups)}


def _spark_roles(obj: JsonObject) -> Iterator[Role]:
    for role in ("driver", "executor"):
        pod = obj["spec"].get(role) or {}
        containers = [{"name": "spark", "image": obj["spec"].get("image", "spark")}]
        template: JsonObject = {
            "metadata": {},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": containers},
        }
        _add(template, {"metadata": pod, "spec": pod})
        yield Role(name=role, count=pod.get("instances", 1), template=template)


_SPARK_STATES: Final = {
    State.SUSPENDED: "SUSPENDED",
    State.PENDING: "SUBMITTED",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "FAILED",
}


def _spark_status(progress: Progress) -> JsonObject:
    return {"applicationState": {"state": _SPARK_STATES[progress.state]}}


KINDS: Final[tuple[OperatedKind, ...]] = (
    _training(definitions.PYTORCH_JOBS, "pytorchReplicaSpecs", "Master", controller=_TRAINING_OPERATOR),
    _training(definitions.TF_JOBS, "tfReplicaSpecs", "Chief", "Master", controller=_TRAINING_OPERATOR),
    _training(definitions.XGBOOST_JOBS, "xgbReplicaSpecs", "Master", controller=_TRAINING_OPERATOR),
    _training(definitions.PADDLE_JOBS, "paddleReplicaSpecs", "Master", controller=_TRAINING_OPERATOR),
    _training(definitions.JAX_JOBS, "jaxReplicaSpecs", controller=_TRAINING_OPERATOR),
    _training(definitions.MPI_JOBS, "mpiReplicaSpecs", "Launcher", controller="kubeflow.org/mpi-operator"),
    OperatedKind(
        resource=definitions.TRAIN_JOBS,
        roles=_train_roles,
        controller="trainer.kubeflow.org/trainjob-controller",
        conditions={
            State.SUSPENDED: ("Suspended",),
            State.SUCCEEDED: ("Complete",),
            State.FAILED: ("Failed",),
        },
        status=_train_status,
    ),
    OperatedKind(
        resource=definitions.RAY_JOBS,
        roles=_ray_job_roles,
        controller=_RAY_OPERATOR,
        leaders=("submitter",),
        status=_ray_job_status,
    ),
    OperatedKind(
        resource=definitions.RAY_CLUSTERS,
        roles=lambda obj: _ray_roles(obj["spec"]),
        controller=_RAY_OPERATOR,
        finishes=False,
        conditions={State.RUNNING: ("RayClusterProvisioned", "HeadPodReady")},
        status=_ray_cluster_status,
    ),
    OperatedKind(
        resource=definitions.RAY_SERVICES,
        roles=lambda obj: _ray_roles(obj["spec"]["rayClusterConfig"]),
        controller=_RAY_OPERATOR,
        suspend=("spec", "rayClusterConfig", "suspend"),
        finishes=False,
        conditions={State.RUNNING: ("Ready",)},
        status=lambda progress: {"activeServiceStatus": {"rayClusterStatus": _ray_cluster_status(progress)}},
    ),
    OperatedKind(
        resource=definitions.APP_WRAPPERS,
        roles=_wrapped_roles,
        controller="workload.codeflare.dev/appwrapper-controller",
        conditions={
            State.PENDING: ("QuotaReserved", "ResourcesDeployed"),
            State.RUNNING: ("QuotaReserved", "ResourcesDeployed", "PodsReady"),
            State.SUCCEEDED: ("ResourcesDeployed",),
            State.FAILED: ("ResourcesDeployed",),
        },
        status=_wrapper_status,
    ),
    OperatedKind(
        resource=LEADER_WORKER_SETS,
        roles=_leader_worker_roles,
        finishes=False,
        serves=True,
        conditions={State.RUNNING: ("Available",)},
        status=_leader_worker_status,
    ),
    OperatedKind(
        resource=definitions.SPARK_APPLICATIONS, roles=_spark_roles, leaders=("driver",), status=_spark_status
    ),
)
"""All kinds that the generic operator plays."""


def kind_of(resource: Resource) -> OperatedKind:
    """The kind of a resource."""
    return next(each for each in KINDS if each.resource == resource)
