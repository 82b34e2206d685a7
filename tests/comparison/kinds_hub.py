# SPDX-License-Identifier: Apache-2.0
"""A hub that runs jobs of every kind itself: with controllers, nodes, and what plays the operators of the kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import NodeSpec, several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.operators.templated import TemplatedOperator
from devcluster.ports import PortRegistry
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api import crds
from multikueue.api.resource import DEPLOYMENTS, JOBS, LEADER_WORKER_SETS, STATEFUL_SETS, Resource
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_manager
from tests.bench.queueing.kueue import running_kueue
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.support.crds.kinds import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, install
from tests.support.managers import make_namespace
from tests.support.operators.operated_kinds import kind_of
from tests.support.operators.operator import operating
from tests.support.operators.played_kinds import PLAYED_KINDS, PlayedKind

_UNKNOWN: Final = frozenset({"SparkApplication"})
"""Kueue 0.17.0 has them behind a feature gate."""
KINDS: Final[tuple[PlayedKind, ...]] = tuple(each for each in PLAYED_KINDS if each.kind not in _UNKNOWN)
FRAMEWORKS: Final = (
    "batch/job",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    *(each.framework for each in KINDS),
)
RESOURCES: Final[tuple[Resource, ...]] = (
    JOBS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    LEADER_WORKER_SETS,
    *(each.resource for each in KINDS),
)
_DEFINED: Final = (LEADER_WORKER_SETS, CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, *(each.resource for each in KINDS))
_NODES: Final = 4


async def define_kinds(client: KubeClient) -> None:
    """Install the definitions of all kinds, and the runtime of TrainJobs: an initializer, and nodes with a sidecar."""
    await install(client, *_DEFINED)
    jobs = [
        _replicated_job("dataset-initializer", "dataset-initializer", "dataset-initializer"),
        _replicated_job("node", "trainer", "node", "sidecar"),
    ]
    body = {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    await client.create(CLUSTER_TRAINING_RUNTIMES, body)


def _replicated_job(name: str, step: str, *containers: str) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": each, "image": "x"} for each in containers]}}
    labels = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}
    return {"name": name, "replicas": 1, "template": {"metadata": labels, "spec": {"template": pod}}}


@asynccontextmanager
async def kinds_cluster(
    stack: AsyncExitStack, provider: EmbeddedProvider, folder: Path, *, nodes: Sequence[NodeSpec] = ()
) -> AsyncIterator[Cluster]:
    """A cluster on which jobs of every kind run, with these nodes, or some without labels of their own."""
    spec = ClusterSpec(manifests=[*crds.manifests(), enrolment.system_namespace()])
    made = await provider.create(folder.name, folder=folder, spec=spec)
    cluster = await stack.enter_async_context(made)
    kubelets, plays = [await stack.enter_async_context(cluster.client()) for _ in range(2)]
    await define_kinds(plays)
    await make_namespace(plays, NAMESPACE)
    operators = [each.operator(plays) for each in KINDS]
    operators.append(TemplatedOperator(plays, kind_of(LEADER_WORKER_SETS)))
    async with anyio.create_task_group() as tasks, operating(*operators):
        tasks.start_soon(VirtualNodes(kubelets, nodes=nodes or several(_NODES)).run)
        yield cluster
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def running_kinds_hub(
    folder: Path, *, kueue: Path | None, configuration: Mapping[str, Any], nodes: Sequence[NodeSpec] = ()
) -> AsyncIterator[ComparedHub]:
    """The hub with this project's manager, or with `kueue` that binary of Kueue's."""
    kept = list(nodes)
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(PortRegistry())
        provider = await stack.enter_async_context(EmbeddedProvider(folder=folder))
        cluster = await stack.enter_async_context(kinds_cluster(stack, provider, folder / "hub", nodes=kept))
        own = {**configuration, "integrations": {"frameworks": list(FRAMEWORKS)}}
        managers = folder / "manager"
        managers.mkdir()
        if kueue is None:
            manager = await running_manager(cluster, managers, own, ports=ports, extra=())
            stack.push_async_callback(manager.process.stop)
        else:
            started = running_kueue(cluster, kueue, folder=managers, ports=ports, configuration=own)
            await stack.enter_async_context(started)
        yield ComparedHub(await stack.enter_async_context(cluster.client()), nodes=kept)
