# SPDX-License-Identifier: Apache-2.0
"""Small CustomResourceDefinitions of job kinds: the fields that the operators use, and unknown ones are preserved.

Only types that matter are declared, so a wrong one is refused; no defaults, which the kinds' own webhooks set.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from devcluster.errors import TimedOut
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, LEADER_WORKER_SETS, Resource
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient

_SERVED_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02


def _kubeflow(kind: str) -> Resource:
    return Resource("kubeflow.org", "v1", kind, f"{kind.lower()}s")


JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
MPI_JOBS: Final = Resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
PYTORCH_JOBS: Final = _kubeflow("PyTorchJob")
TF_JOBS: Final = _kubeflow("TFJob")
XGBOOST_JOBS: Final = _kubeflow("XGBoostJob")
PADDLE_JOBS: Final = _kubeflow("PaddleJob")
JAX_JOBS: Final = _kubeflow("JAXJob")
TRAIN_JOBS: Final = Resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
TRAINING_RUNTIMES: Final = Resource("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_TRAINING_RUNTIMES: Final = Resource(
    "trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False
)
RAY_JOBS: Final = Resource("ray.io", "v1", "RayJob", "rayjobs")
RAY_CLUSTERS: Final = Resource("ray.io", "v1", "RayCluster", "rayclusters")
RAY_SERVICES: Final = Resource("ray.io", "v1", "RayService", "rayservices")
APP_WRAPPERS: Final = Resource("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers")
SPARK_APPLICATIONS: Final = Resource("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications")

_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "format": "int32", "minimum": 0}


def _object(**properties: Any) -> JsonObject:
    return {**_ANY, "properties": properties}


def _array(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


def _roles(schema: JsonObject) -> JsonObject:
    return {"type": "object", "additionalProperties": schema}


_REPLICA: Final = _object(replicas=_COUNT, restartPolicy=_TEXT, template=_ANY)
_RUN_POLICY: Final = _object(suspend=_FLAG, managedBy=_TEXT, backoffLimit=_COUNT)
_RAY: Final = _object(
    suspend=_FLAG,
    managedBy=_TEXT,
    headGroupSpec=_object(template=_ANY),
    workerGroupSpecs=_array(_object(groupName=_TEXT, replicas=_COUNT, numOfHosts=_COUNT, template=_ANY)),
)
_MANAGED: Final = {"suspend": _FLAG, "managedBy": _TEXT}


def _training(roles: str) -> JsonObject:
    return _object(runPolicy=_RUN_POLICY, **{roles: _roles(_REPLICA)})


SPECS: Final[dict[Resource, JsonObject]] = {
    JOB_SETS: _object(**_MANAGED, replicatedJobs=_array(_object(name=_TEXT, replicas=_COUNT, template=_ANY))),
    MPI_JOBS: _training("mpiReplicaSpecs"),
    PYTORCH_JOBS: _training("pytorchReplicaSpecs"),
    TF_JOBS: _training("tfReplicaSpecs"),
    XGBOOST_JOBS: _training("xgbReplicaSpecs"),
    PADDLE_JOBS: _training("paddleReplicaSpecs"),
    JAX_JOBS: _training("jaxReplicaSpecs"),
    TRAIN_JOBS: _object(**_MANAGED, trainer=_object(numNodes=_COUNT, image=_TEXT)),
    TRAINING_RUNTIMES: _ANY,
    CLUSTER_TRAINING_RUNTIMES: _ANY,
    RAY_JOBS: _object(**_MANAGED, rayClusterSpec=_RAY, submissionMode=_TEXT),
    RAY_CLUSTERS: _RAY,
    RAY_SERVICES: _object(managedBy=_TEXT, rayClusterConfig=_RAY),
    APP_WRAPPERS: _object(**_MANAGED, components=_array(_object(template=_ANY))),
    LEADER_WORKER_SETS: _object(
        replicas=_COUNT, leaderWorkerTemplate=_object(size=_COUNT, leaderTemplate=_ANY, workerTemplate=_ANY)
    ),
    SPARK_APPLICATIONS: _object(suspend=_FLAG, driver=_ANY, executor=_object(instances=_COUNT)),
}
"""The schema of `spec` by kind."""

SCALED: Final = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def definition(resource: Resource, *, spec: JsonObject = _ANY) -> JsonObject:
    """The definition of a kind; `spec` is the schema of its spec, whose unknown fields are preserved by default."""
    schema = {"type": "object", "properties": {"spec": spec, "status": _ANY}}
    subresources: JsonObject = {"status": {}}
    if resource is LEADER_WORKER_SETS:
        subresources["scale"] = {**SCALED, "labelSelectorPath": ".status.hpaPodSelector"}
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {
            "name": resource.qualified,
            # A group below k8s.io is refused without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for local clusters"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "plural": resource.plural,
                "singular": resource.singular,
                "listKind": resource.list_kind,
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": subresources,
                }
            ],
        },
    }


def shipped_definition(resource: Resource) -> JsonObject:
    """The definition of one of these kinds."""
    return definition(resource, spec=SPECS.get(resource, _ANY))


async def install(client: KubeClient, *resources: Resource) -> None:
    """Create the definitions of these kinds, and wait until they are served. Existing ones stay."""
    for resource in resources:
        try:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, shipped_definition(resource))
        except AlreadyExists:
            continue
    deadline = anyio.current_time() + _SERVED_SECONDS
    for resource in resources:
        while not await _is_served(client, resource):
            if anyio.current_time() > deadline:
                raise TimedOut(f"the API server does not serve {resource.qualified} after {_SERVED_SECONDS:.0f} s")
            await anyio.sleep(_POLL_SECONDS)


async def _is_served(client: KubeClient, resource: Resource) -> bool:
    try:
        await client.list_page(resource)
    except NotFound:
        return False
    return True
