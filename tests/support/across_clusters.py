# SPDX-License-Identifier: Apache-2.0
"""A hub and two worker clusters with ProvisioningRequests, by pull or push; the test plays the autoscaler on each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import orjson

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    job_manifest,
    make_queue,
    running_manager,
    workload_of,
)
from tests.support.provisioning import make_provisioning_check
from tests.support.provisioning_sites import NAMESPACE, ProvisioningSite, RealServers, Servers, leave_nothing
from tests.support.workers import SCALED_DOWN, make_check

PROVISIONING_CHECK = "scale-up"


@dataclass(frozen=True, slots=True)
class Where:
    """The transport, and the API servers."""

    transport: str
    servers: Servers


@dataclass
class ManagerRuns:
    """The manager of a scene, which can be restarted."""

    hub: Cluster
    settings: str
    push: PushSettings
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _stopped: anyio.Event = field(default_factory=anyio.Event)
    _wanted: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        """Run one after the other."""
        controller = partial(DispatchController, push=self.push)
        while True:
            self._scope, self._stopped, self._wanted = anyio.CancelScope(), anyio.Event(), anyio.Event()
            with self._scope:
                async with running_manager(
                    self.hub, webhooks=False, settings=self.settings, dispatch=controller, identity="manager"
                ):
                    await anyio.sleep_forever()
            self._stopped.set()
            await self._wanted.wait()

    async def stop(self) -> None:
        """End it."""
        self._scope.cancel()
        await self._stopped.wait()

    def start(self) -> None:
        """Start another one."""
        self._wanted.set()


@dataclass(frozen=True)
class AcrossClusters:
    """The queue, its checks and its clusters."""

    client: KubeClient
    w1: ProvisioningSite
    w2: ProvisioningSite
    manager: ManagerRuns

    async def submit(self, *, cpu: str = "2", annotations: dict[str, str] | None = None) -> None:
        """A Job that no cluster has free capacity for."""
        manifest = job_manifest("j", namespace=NAMESPACE, queue=NAMESPACE, cpu=cpu, suspend=True)
        manifest["metadata"]["annotations"] = annotations or {}
        manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
        await self.client.create(JOBS, manifest, namespace=NAMESPACE)

    async def workload(self) -> Object:
        """The Workload of the Job; empty before there is one."""
        return await workload_of(self.client, "j", namespace=NAMESPACE) or {}

    async def check(self, state: str, *, name: str = PROVISIONING_CHECK, message: str = "") -> Object:
        """A check of the Workload once it is in that state with that part in its message."""

        async def probe() -> Object:
            status = (await self.workload()).get("status") or {}
            return next((each for each in status.get("admissionChecks") or () if each["name"] == name), {})

        return await eventually(
            probe,
            what=f"check {name} is {state} {message}",
            until=lambda found: found.get("state") == state and message in found.get("message", ""),
        )

    async def asked(self, *, without: ProvisioningSite | None = None, epoch: int = 1) -> ProvisioningSite:
        """The cluster that has a request of that epoch."""

        async def probe() -> ProvisioningSite | None:
            for each in (self.w1, self.w2):
                names = [request["metadata"]["name"] for request in await each.autoscaler.requests()]
                if each is not without and any(name.endswith(f"-{PROVISIONING_CHECK}-{epoch}") for name in names):
                    return each
            return None

        try:
            found = await eventually(probe, what="a cluster is asked to provision")
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self._state()}") from error
        assert found is not None
        return found

    async def _state(self) -> str:
        """The statuses of the Workload, of its assignments and of all requests, for the message of a failure."""
        found = [("workload", (await self.workload()).get("status"))]
        for raw in (await self.client.list_all(REMOTE_ASSIGNMENTS)).items:
            assignment = orjson.loads(raw)
            found.append((assignment["metadata"]["namespace"], [assignment["spec"], assignment.get("status")]))
        for each in (self.w1, self.w2):
            requests = await each.autoscaler.requests()
            found.append((each.name, [(request["metadata"]["name"], request.get("status")) for request in requests]))
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()

    def other(self, site: ProvisioningSite) -> ProvisioningSite:
        """The one that is not `site`."""
        return self.w2 if site is self.w1 else self.w1

    async def answer(self, site: ProvisioningSite, *kinds: str, epoch: int = 1, **more: Any) -> None:
        """Let the autoscaler of that cluster answer."""
        request = await site.autoscaler.request(attempt=epoch)
        await site.autoscaler.answer(request, *kinds, **more)

    async def runs_on(self, site: ProvisioningSite) -> Object:
        """The remote job once it is there."""
        found = await eventually(site.job, what=f"the job is on {site.name}")
        assert found is not None
        return found

    async def nothing_left(self, *sites: ProvisioningSite) -> None:
        """Wait until these clusters, or both, have no request."""
        for each in sites or (self.w1, self.w2):
            await each.autoscaler.no_request()

    async def remove_job(self) -> None:
        """Delete the Job and, as no garbage collector runs, its Workload."""
        await self.client.delete(JOBS, "j", namespace=NAMESPACE, propagation="Background")
        for raw in (await self.client.list_all(WORKLOADS, namespace=NAMESPACE)).items:
            name = orjson.loads(raw)["metadata"]["name"]
            with suppress(NotFound):  # the manager was faster
                await self.client.delete(WORKLOADS, name, namespace=NAMESPACE)


@asynccontextmanager
async def across_clusters(
    where: Where, *, dispatcher: str = "", able: bool = True, **config: Any
) -> AsyncIterator[AcrossClusters]:
    """A running federation; `config` are fields of the ProvisioningRequestConfig."""
    names = where.servers.names()
    async with where.servers.hub() as hub, hub.client() as client, AsyncExitStack() as stack:
        await make_provisioning_check(client, PROVISIONING_CHECK, **config)
        await make_check(client, "mk", names)
        await make_queue(client, NAMESPACE, namespace=NAMESPACE, checks=(PROVISIONING_CHECK, "mk"))
        # Entered before the manager: their servers end after it.
        sites = [
            await stack.enter_async_context(
                where.servers.site(hub, client, name, where.transport, able=able or name != "w2")
            )
            for name in names
        ]
        settings = SCALED_DOWN
        if dispatcher:
            settings = settings.replace("gcInterval: 2s", f"gcInterval: 2s, dispatcherName: {dispatcher}")
        push = PushSettings(
            intervals=where.servers.intervals, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0
        )
        manager = ManagerRuns(hub, settings, push)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            first, second = sites
            scene = AcrossClusters(client, first, second, manager)
            if able:
                await queue_is(client, "True", "Ready")
            try:
                yield scene
            finally:
                if isinstance(where.servers, RealServers):  # also after a failure: the next test makes the same
                    with anyio.CancelScope(shield=True):
                        await leave_nothing(client)
            tasks.cancel_scope.cancel()


async def queue_is(client: KubeClient, status: str, reason: str, *, message: str = "") -> Object:
    """The Active condition of the queue once it is that, with `message` in its message."""

    def is_so(seen: Object) -> bool:
        found = condition(seen, "Active")
        return (found.get("status"), found.get("reason")) == (status, reason) and message in found.get("message", "")

    async def probe() -> Object:
        return await get(client, CLUSTER_QUEUES, NAMESPACE) or {}

    found = await eventually(
        probe,
        what=f"the queue is Active={status} {reason}: {message}",
        until=is_so,
    )
    return condition(found, "Active")
