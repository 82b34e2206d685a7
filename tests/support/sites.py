# SPDX-License-Identifier: Apache-2.0
"""Worker clusters of either transport, whose queues and job controller the test simulates.

Owns two embedded API servers for many tests, a namespace and a LocalQueue there for each test, the agent or the
kubeconfig by which the hub reaches them, and a link that can be cut. What a worker's own Kueue and Kubernetes do (admit
a clone, start a job, let it end, evict) is done by methods, so that a test says in what order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import anyio

from devcluster.apiserver.auth.authentication import Authentication
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.server import ApiServer
from devcluster.cluster import Cluster
from multikueue.api.constants import MULTIKUEUE_PREEMPTION_GATE
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    NODES,
    SECRETS,
    WORKLOADS,
)
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client, make_node
from tests.support.embedded import signing_key
from tests.support.faulty_proxy import TcpProxy, tcp_proxy
from tests.support.manager_process import INTERVALS
from tests.support.managers import Object, eventually, get, make_queue
from tests.support.push_workers import ADMIN, SYSTEM, PushWorker, kubeconfigs_of
from tests.support.workers import FakeWorker
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

OWN = "own"


class Transport(StrEnum):
    """Who opens the connection."""

    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True)
class Server:
    """A worker's API server with Kueue's kinds, for many tests."""

    api: ApiServer
    url: str
    client: KubeClient


@asynccontextmanager
async def server(number: int) -> AsyncIterator[Server]:
    """One of them."""
    api = ApiServer(signing_key=signing_key(), static_tokens={OWN: ADMIN})
    async with Listener(api) as listener, own_client(listener.url) as client:
        for definition in manifests():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await make_node(client, f"node-{number}", cpu="1000")
        # No node controller takes away what a new node is tainted with.
        await client.patch(NODES, f"node-{number}", {"spec": {"taints": None}})
        yield Server(api, listener.url, client)


def own_client(url: str) -> KubeClient:
    """The administrator of a worker."""
    own = {**kubeconfigs_of(url), "users": [{"name": OWN, "user": {"token": OWN}}]}
    return KubeClient(credentials.from_dict(own))


class Site(PushWorker):
    """One worker cluster as one test has it."""

    def __init__(
        self, hub: KubeClient, name: str, proxy: TcpProxy, served: Server, client: KubeClient, *, namespace: str
    ) -> None:
        super().__init__(hub, name, client, proxy, served.api)
        self.namespace = namespace
        self.url = served.url
        """That of its API server, past the link."""
        self.agent: Agent | None = None
        """What dials out from it, to be run; None where the manager dials in."""

    async def cut(self) -> None:
        """The link is gone: connections are reset and refused."""
        await self.proxy.refuse()

    async def mend(self) -> None:
        """It is back."""
        await self.proxy.start()

    # What its Kueue does

    async def clone(self, workload: str) -> Object | None:
        """The clone of the Workload there."""
        return await get(self.client, WORKLOADS, workload, namespace=self.namespace)

    async def asked(self, workload: str, *, epoch: int = 1) -> Object:
        """Wait for the clone of that epoch."""
        found = await eventually(
            lambda: self.clone(workload),
            what=f"{self.name} has a clone of {workload} in epoch {epoch}",
            until=lambda seen: (
                seen is not None and seen["metadata"]["annotations"]["multikueue.io/epoch"] == str(epoch)
            ),
        )
        assert found is not None
        return found

    async def relieved(self, workload: str) -> None:
        """Wait until there is no clone."""
        await eventually(
            lambda: self.clone(workload),
            what=f"the clone of {workload} is gone from {self.name}",
            until=lambda seen: seen is None,
        )

    async def reserves(self, workload: str) -> None:
        """Quota is reserved for it, and its checks are not ready yet."""
        await self._says(workload, ("QuotaReserved", "True", "QuotaReserved", "reserved"))

    async def admits(self, workload: str, *, epoch: int = 1) -> None:
        """It is admitted."""
        await self.asked(workload, epoch=epoch)
        await self._says(
            workload,
            ("QuotaReserved", "True", "QuotaReserved", "reserved"),
            ("Admitted", "True", "Admitted", "admitted"),
        )

    async def must_preempt(self, workload: str, *, message: str) -> None:
        """Quota is free only by preemption, and the clone's preemption gate is closed."""
        await self._says(
            workload,
            ("QuotaReserved", "False", "AdmissionGated", message),
            ("BlockedOnPreemptionGates", "True", "PreemptionGated", message),
        )

    async def may_preempt(self, workload: str) -> Object:
        """Wait until the gate of the clone is open."""
        found = await eventually(
            lambda: self.clone(workload),
            what=f"the preemption gate of {workload} is open on {self.name}",
            until=lambda seen: gates_of(seen).get(MULTIKUEUE_PREEMPTION_GATE) == "Open",
        )
        assert found is not None
        return found

    async def told_to_evict(self, workload: str) -> None:
        """Wait until the clone is deactivated."""
        await eventually(
            lambda: self.clone(workload),
            what=f"{workload} is deactivated on {self.name}",
            until=lambda seen: seen is not None and seen["spec"].get("active") is False,
        )

    async def evicts(self, workload: str, job: str, *, reason: str = "Preempted", message: str = "preempted") -> None:
        """It stops, for a cause of the worker's own."""
        await self._says(
            workload,
            ("Evicted", "True", reason, message),
            ("QuotaReserved", "False", "Pending", message),
            ("Admitted", "False", "NoReservation", message),
        )
        await self.stops(job)

    async def says_out_of_sync(self, workload: str) -> None:
        """Its job is not what the Workload says."""
        await self._says(workload, ("Finished", "True", "OutOfSync", "edited"))

    # What its Kubernetes does

    async def starts(self, job: str, *, epoch: int = 1) -> Object:
        """Wait for the remote job, resume it as the queue does, and let its pod run."""
        found = await eventually(
            lambda: self.job(job, namespace=self.namespace),
            what=f"{job} of epoch {epoch} is made on {self.name}",
            until=lambda seen: (
                seen is not None and seen["metadata"]["annotations"]["multikueue.io/epoch"] == str(epoch)
            ),
        )
        assert found is not None
        await self.client.patch(JOBS, job, {"spec": {"suspend": False}}, namespace=self.namespace)
        await self.runs(job, namespace=self.namespace)
        return found

    async def stops(self, job: str) -> None:
        """The queue suspends the job, and its pod ends."""
        await self.client.patch(JOBS, job, {"spec": {"suspend": True}}, namespace=self.namespace)
        now = format_time(SystemClock().now())
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": now}
        status = {"active": 0, "ready": 0, "startTime": None, "conditions": [suspended]}
        await self.client.patch(JOBS, job, {"status": status}, namespace=self.namespace, subresource="status")

    async def told_to_stop(self, job: str) -> None:
        """Wait until the job is suspended by the agent."""
        await eventually(
            lambda: self.job(job, namespace=self.namespace),
            what=f"{job} is suspended on {self.name}",
            until=lambda seen: seen is not None and seen["spec"]["suspend"] is True,
        )

    async def ends(self, job: str) -> None:
        """The job succeeds."""
        await self.finish(job, namespace=self.namespace)

    async def cleaned(self, job: str) -> None:
        """Wait until the remote job is gone."""
        await self.gone(job, namespace=self.namespace)

    async def _says(self, workload: str, *said: tuple[str, str, str, str]) -> None:
        found = await self.client.get_object(WORKLOADS, workload, namespace=self.namespace)
        entries = {entry["type"]: entry for entry in (found.get("status") or {}).get("conditions") or ()}
        now = format_time(SystemClock().now())
        for kind, status, reason, message in said:
            entries[kind] = {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
        body = {"status": {"conditions": list(entries.values())}}
        await self.client.patch(WORKLOADS, workload, body, namespace=self.namespace, subresource="status")


def gates_of(workload: Object | None) -> dict[str, str]:
    """The preemption gates of a Workload, each with its position; one without a status is closed."""
    if workload is None:
        return {}
    stated = (workload.get("status") or {}).get("preemptionGates") or ()
    positions = {entry["name"]: entry["position"] for entry in stated}
    return {**{entry["name"]: "Closed" for entry in workload["spec"].get("preemptionGates") or ()}, **positions}


@asynccontextmanager
async def site(
    hub: Cluster,
    admin: KubeClient,
    name: str,
    *,
    served: Server,
    transport: Transport,
    namespace: str,
    queue: str,
    intervals: AgentIntervals = INTERVALS,
) -> AsyncIterator[Site]:
    """A worker with a LocalQueue of that name, enrolled on the hub; `rhythm` is that of an agent beside it."""
    pull = transport is Transport.PULL
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(hub.server if pull else served.url))
        client = await stack.enter_async_context(own_client(served.url))
        await make_queue(client, queue, namespace=namespace)
        made = Site(admin, name, proxy, served, client, namespace=namespace)
        # What the tests before have set is nothing to this one.
        served.api.authentication = Authentication(
            tokens=served.api.tokens, authorizer=served.api.authorizer, static=dict.fromkeys((OWN, "first"), ADMIN)
        )
        if pull:
            await FakeWorker(admin, name).enrol()
            to_hub = await stack.enter_async_context(agent_client(hub, name, through=proxy.url))
            to_worker = await stack.enter_async_context(own_client(served.url))
            made.agent = Agent(to_hub, to_worker, cluster=name, intervals=intervals, random=Random(1))
        else:
            await made.enrol()
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await _withdraw(made, queue)


async def _withdraw(made: Site, queue: str) -> None:
    for resource, name, namespace in (
        (MULTIKUEUE_CLUSTERS, made.name, None),
        (SECRETS, made.name, SYSTEM),
        (SECRETS, f"{made.name}-kubeconfig", SYSTEM),
    ):
        try:
            await made.hub.delete(resource, name, namespace=namespace)
        except NotFound:
            continue
    for resource in (JOBS, WORKLOADS, LOCAL_QUEUES):
        await made.client.delete_collection(resource, namespace=made.namespace)
    try:
        await made.client.delete(CLUSTER_QUEUES, queue)
    except NotFound:
        return
