# SPDX-License-Identifier: Apache-2.0
"""A hub that queues LeaderWorkerSets, with an operator that makes their pods, and short builders of these."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from devcluster.cluster import Cluster
from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.resource import LEADER_WORKER_SETS
from multikueue.kube.rest.client import KubeClient
from tests.support.app_sets import QUEUE, Object, app_client
from tests.support.crds import kinds
from tests.support.operators.operated_kinds import kind_of
from tests.support.operators.operator import operating
from tests.support.operators.templated import TemplatedOperator

LABELS: Final = "leaderworkerset.sigs.k8s.io"
NOT_OPERATED: Final = "example.com/other"
"""A controller with which the operator leaves one alone."""


@asynccontextmanager
async def leader_worker_client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The client of an administrator of such a hub."""
    async with hub.client() as client:
        await kinds.install(client, LEADER_WORKER_SETS)
        async with (
            app_client(
                hub, frameworks=(LEADER_WORKER_SET_FRAMEWORK,), role="kinds/leaderworkerset-manager.yaml"
            ) as made,
            operating(TemplatedOperator(client, kind_of(LEADER_WORKER_SETS))),
        ):
            yield made


def leader_worker_set(
    name: str,
    queue: str | None,
    *,
    replicas: int = 1,
    size: int = 2,
    leader: str | None = "100m",
    worker: str = "100m",
    labels: dict[str, str] | None = None,
    template: Object | None = None,
    **spec: Any,
) -> Object:
    """One whose leader and workers request so much cpu; without `leader` all pods have one template."""
    made: Object = {"size": size, "workerTemplate": pod_template(worker, **(template or {}))}
    if leader is not None:
        made["leaderTemplate"] = pod_template(leader)
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": {"name": name, "labels": {**({QUEUE: queue} if queue else {}), **(labels or {})}},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": made, **spec},
    }


def pod_template(cpu: str, *, image: str = "i", labels: dict[str, str] | None = None) -> Object:
    """The template of a pod that runs until it is deleted."""
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    metadata = {"labels": labels or {}}
    return {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}


def made_pod(stored: Object, name: str, *, cpu: str = "100m") -> Object:
    """A pod as its StatefulSets make it, which names the stored LeaderWorkerSet only by what the template gave it."""
    template = stored["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    _, group, *index = name.split("-")
    own = {
        f"{LABELS}/name": stored["metadata"]["name"],
        f"{LABELS}/group-index": group,
        f"{LABELS}/worker-index": index[0] if index else "0",
    }
    metadata = {
        "name": name,
        "labels": {**template["metadata"]["labels"], **own},
        "annotations": template["metadata"]["annotations"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_template(cpu)["spec"]}
