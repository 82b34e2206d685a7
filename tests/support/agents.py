# SPDX-License-Identifier: Apache-2.0
"""An agent inside the test, its mailbox, and assignments as a manager would write them.

The mailbox is made by `manager.dispatch.transport.mailboxes`, so that a test of the agent's rights tests the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import anyio

from devcluster.cluster import Cluster
from devcluster.federation.enrolment import agent_user
from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.transport.mailboxes import Mailboxes
from manager.seals import Seals
from multikueue.api.constants import AGENT_GROUP, CLUSTER_LABEL
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import NODES, REMOTE_ASSIGNMENTS, Resource
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.jobs.framework.protocol import JobIntegration, RemoteIdentity
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, ensure, eventually, get, job_manifest
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

QUICK = AgentIntervals(renew_seconds=0.2, lease_seconds=2, report_seconds=1.0, status_window_seconds=0.1)
MANAGER_UID = "the-manager"


async def make_mailbox(
    client: KubeClient, cluster: str, *, manager_uid: str = MANAGER_UID, annotations: dict[str, str] | None = None
) -> str:
    """The mailbox namespace of a cluster with these annotations, and the rights of its agent."""
    views: dict[Resource, View] = {}

    def view(resource: Resource) -> View:
        return views.setdefault(resource, View(resource, clock=SystemClock()))

    context = SimpleNamespace(
        client=client,
        manager_uid=manager_uid,
        caches=SimpleNamespace(view=view),
        seals=Seals.drawn(SystemClock()),
    )
    await Mailboxes(cast(ManagerContext, context)).ensure(
        {"metadata": {"name": cluster, "annotations": annotations or {}}}
    )
    return mailbox_namespace(cluster)


def agent_client(cluster: Cluster, name: str, *, through: str = "") -> KubeClient:
    """The hub as the agent of `name` may see it, where given by way of a proxy at that address."""
    kubeconfig = cluster.issue_client_certificate(agent_user(name), [AGENT_GROUP])
    if through:
        kubeconfig["clusters"][0]["cluster"]["server"] = through
    return KubeClient(credentials.from_dict(kubeconfig))


@asynccontextmanager
async def running_agent(
    cluster: Cluster,
    name: str,
    *,
    intervals: AgentIntervals = QUICK,
    ready: bool = True,
    integrations: Sequence[JobIntegration] = (BATCH_JOB,),
) -> AsyncIterator[Agent]:
    """An agent of `name` beside `cluster`, whose hub is the same API server."""
    async with agent_client(cluster, name) as hub, cluster.client() as worker, anyio.create_task_group() as tasks:
        agent = Agent(hub, worker, cluster=name, intervals=intervals, integrations=integrations, random=Random(1))
        tasks.start_soon(agent.run)

        async def problem() -> str | None:
            return agent.problem

        if ready:
            await eventually(problem, what=f"the agent of {name} is ready", until=lambda seen: seen is None)
        yield agent
        tasks.cancel_scope.cancel()


async def make_node(client: KubeClient, name: str, *, cpu: str = "4", labels: dict[str, str] | None = None) -> None:
    """A node that is ready."""
    await ensure(
        client, NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
    )
    status = {
        "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
        "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
    }
    await client.patch(NODES, name, {"status": status}, subresource="status")


def assignment_manifest(
    name: str,
    *,
    cluster: str,
    namespace: str,
    epoch: int = 1,
    intent: str = "Reserve",
    manager_uid: str = MANAGER_UID,
    cpu: str = "1",
    parallelism: int = 1,
    policy: str = "failover",
) -> Object:
    """What the manager writes into a mailbox for the Job `name`."""
    key = Key(namespace, f"job-{name}")
    job = job_manifest(name, namespace=namespace, queue="q", cpu=cpu, parallelism=parallelism)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"for": cluster}
    identity = RemoteIdentity(
        workload_name=key.name,
        origin="multikueue",
        epoch=epoch,
        manager_uid=manager_uid,
        cluster=cluster,
        assignment=assignment_name(key),
    )
    return {
        "apiVersion": REMOTE_ASSIGNMENTS.api_version,
        "kind": REMOTE_ASSIGNMENTS.kind,
        "metadata": {
            "name": assignment_name(key),
            "namespace": mailbox_namespace(cluster),
            "labels": {CLUSTER_LABEL: cluster},
        },
        "spec": {
            "workload": {"namespace": namespace, "name": key.name, "uid": "w"},
            "origin": "multikueue",
            "managerUID": manager_uid,
            "epoch": epoch,
            "intent": intent,
            "job": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "manifest": BATCH_JOB.remote_manifest(job, (), identity=identity),
            },
            "partitionPolicy": policy,
        },
    }


class Mailbox:
    """The manager's hand in one mailbox."""

    def __init__(self, client: KubeClient, cluster: str, namespace: str) -> None:
        self.client = client
        self.cluster = cluster
        self.namespace = namespace

    async def assign(self, job: str, /, **more: Any) -> None:
        """Create the assignment of a Job."""
        body = assignment_manifest(job, cluster=self.cluster, namespace=self.namespace, **more)
        await self.client.create(REMOTE_ASSIGNMENTS, body, namespace=body["metadata"]["namespace"])

    async def change(self, job: str, /, **spec: Any) -> None:
        """Change its spec."""
        await self.client.patch(
            REMOTE_ASSIGNMENTS, self.name(job), {"spec": spec}, namespace=mailbox_namespace(self.cluster)
        )

    async def remove(self, job: str) -> None:
        """Delete it."""
        await self.client.delete(REMOTE_ASSIGNMENTS, self.name(job), namespace=mailbox_namespace(self.cluster))

    async def status(self, job: str) -> Object:
        """What the agent reported."""
        found = await get(self.client, REMOTE_ASSIGNMENTS, self.name(job), namespace=mailbox_namespace(self.cluster))
        return (found or {}).get("status") or {}

    async def says(self, job: str, phase: str, *, reason: str | None = None) -> Object:
        """Wait until the agent says that."""
        return await eventually(
            lambda: self.status(job),
            what=f"{self.cluster} says {phase} of {job}",
            until=lambda seen: seen.get("phase") == phase and (reason is None or seen.get("reason") == reason),
        )

    def name(self, job: str) -> str:
        """The name of the assignment."""
        return assignment_name(Key(self.namespace, f"job-{job}"))
