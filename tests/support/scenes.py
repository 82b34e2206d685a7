# SPDX-License-Identifier: Apache-2.0
"""A hub with its manager and two worker clusters, as a scenario of docs/spec/multikueue.md §2 has them.

Owns the stage, which many scenarios share (a hub of either provider, the manager as a process, two workers), and the
scene of one of them: a queue with a MultiKueue check over both workers, of one transport.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.providers.provider import ClusterSpec, Provider
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    Resource,
)
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.manager_process import INTERVALS, ManagerProcess
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    ensure,
    eventually,
    get,
    is_true,
    make_job,
    make_queue,
    wait_condition,
    webhooks_answer,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.sites import Server, Site, Transport, server, site
from tests.support.workers import check_of, make_check
from tests.support.workload_status import change_workload_status
from worker_agent.hub.heartbeat import AgentIntervals

LOST_SECONDS = 4


def settings(**more: str) -> str:
    """The Configuration of the manager, with other fields of `multiKueue`."""
    fields = {
        "workerLostTimeout": f"{LOST_SECONDS}s",
        "gcInterval": "2s",
        "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
        **more,
    }
    text = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [batch/job]}\n"
        f"multiKueue: {{{text}}}\n"
    )


@dataclass(frozen=True)
class Stage:
    """What scenarios share."""

    hub: Cluster
    manager: ManagerProcess
    servers: tuple[Server, Server]
    transport: Transport

    async def restart(self, configuration: str | None = None) -> None:
        """Start the manager anew, with other settings where given, until a scene asks for others."""
        await self.manager.stop()
        await self.manager.start(configuration)


@asynccontextmanager
async def stage(provider: Provider, transport: Transport, *, folder: Path) -> AsyncIterator[Stage]:
    """A hub made by that provider."""
    spec = ClusterSpec(scheduler=False, manifests=[*manifests(), enrolment.system_namespace()])
    async with AsyncExitStack() as stack:
        hub = await provider.create(f"hub-{transport}", folder=folder / "hub", spec=spec)
        await stack.enter_async_context(hub)
        first, second = [await stack.enter_async_context(server(number)) for number in (1, 2)]
        manager = await stack.enter_async_context(ManagerProcess(hub, folder=folder, settings=settings()))
        async with hub.client() as client:
            await webhooks_answer(client)
        yield Stage(hub, manager, (first, second), transport)


@dataclass(frozen=True)
class Scene:
    """What one scenario has of its own."""

    stage: Stage
    client: KubeClient
    name: str
    w1: Site
    w2: Site

    @property
    def namespace(self) -> str:
        """Where its jobs are."""
        return f"ns-{self.name}"

    async def submit(
        self, job: str = "j", *, cpu: str = "1", parallelism: int = 1, labels: dict[str, str] | None = None
    ) -> str:
        """A Job; gives the name of its Workload once it holds quota."""
        await make_job(
            self.client,
            job,
            namespace=self.namespace,
            queue=self.name,
            cpu=cpu,
            parallelism=parallelism,
            labels=labels,
        )
        workload = await wait_condition(self.client, job, "QuotaReserved", namespace=self.namespace)
        return str(workload["metadata"]["name"])

    async def workload(self, job: str = "j") -> Object | None:
        """The Workload of the Job."""
        return await workload_of(self.client, job, namespace=self.namespace)

    async def status(self, job: str = "j") -> Object:
        """The status of its Workload."""
        return ((await self.workload(job)) or {}).get("status") or {}

    async def job(self, job: str = "j") -> Object | None:
        """The Job on the hub."""
        return await get(self.client, JOBS, job, namespace=self.namespace)

    async def job_says(self, field: str, value: object, *, job: str = "j") -> Object:
        """The Job once its status says that."""
        found = await eventually(
            lambda: self.job(job),
            what=f"the status of {job} says {field}={value}",
            until=lambda seen: ((seen or {}).get("status") or {}).get(field) == value,
        )
        assert found is not None
        return found

    async def check(self, state: str, *, job: str = "j", message: str = "", retries: int | None = None) -> Object:
        """The Workload once its check says that."""

        def said(seen: Object | None) -> bool:
            check = check_of(seen, self.name)
            again = retries is None or check.get("retryCount", 0) == retries
            return check.get("state") == state and message in check["message"] and again

        found = await eventually(
            lambda: self.workload(job), what=f"the check says {state} {message} {retries}", until=said
        )
        assert found is not None
        return found

    async def say(self, change: Callable[[Object], Object], *, job: str = "j") -> None:
        """Change the status of its Workload as a program of the user's does."""
        found = await self.workload(job)
        assert found is not None
        await change_workload_status(self.client, found["metadata"]["name"], change, namespace=self.namespace)

    async def pass_check(self, check: str, *, state: str = "Ready", job: str = "j") -> None:
        """The controller of another check says that, once the Workload lists it."""
        name = check if check == self.name else f"{self.name}-{check}"
        await eventually(
            lambda: self.workload(job),
            what=f"{name} waits",
            # One that is asked for by a flavor is listed with the reservation, and not before.
            until=lambda it: is_true(it, "QuotaReserved") and not is_true(it, "Evicted") and bool(check_of(it, name)),
        )

        def passed(status: Object) -> Object:
            said = {"state": state, "message": "the test"}
            entries = status["admissionChecks"]
            return {"admissionChecks": [{**each, **said} if each["name"] == name else each for each in entries]}

        await self.say(passed, job=job)

    async def running(self, winner: Site, *, job: str = "j", epoch: int = 1, parallelism: int = 1) -> str:
        """A Job that runs on `winner`, whose status the hub has seen; the name of its Workload."""
        workload = await self.submit(job, parallelism=parallelism)
        await winner.admits(workload, epoch=epoch)
        await winner.starts(job, epoch=epoch)
        await self.job_says("ready", 1, job=job)
        return workload

    async def finished(self, job: str = "j") -> Object:
        """Its Workload once the Job has succeeded."""
        return await wait_condition(self.client, job, "Finished", namespace=self.namespace, reason="Succeeded")

    async def evictions(self, job: str = "j") -> int:
        """How often it was evicted."""
        stats = (await self.status(job)).get("schedulingStats") or {}
        return sum(int(entry["count"]) for entry in stats.get("evictions") or ())

    async def cluster_says(self, worker: Site, status: str, reason: str, *, part: str = "") -> Object:
        """The Active condition of the MultiKueueCluster once it is that."""
        return await self.active(MULTIKUEUE_CLUSTERS, worker.name, status, reason, part=part)

    async def check_says(self, status: str, reason: str, *, part: str = "") -> Object:
        """The Active condition of the AdmissionCheck once it is that."""
        return await self.active(ADMISSION_CHECKS, self.name, status, reason, part=part)

    async def active(self, resource: Resource, name: str, status: str, reason: str, *, part: str = "") -> Object:
        """The Active condition of an object once it is that."""
        found = await eventually(
            lambda: get(self.client, resource, name),
            what=f"{name} says Active={status} {reason} {part}",
            until=lambda seen: (
                (condition(seen, "Active").get("status"), condition(seen, "Active").get("reason")) == (status, reason)
                and part in condition(seen, "Active")["message"]
            ),
        )
        return condition(found, "Active")


@asynccontextmanager
async def scene(
    stage: Stage,
    title: str,
    *,
    clusters: tuple[int, ...] = (1, 2),
    checks: tuple[str, ...] = (),
    configuration: str | None = None,
    intervals: AgentIntervals = INTERVALS,
) -> AsyncIterator[Scene]:
    """A queue over both workers; `clusters` are those that the config names, `checks` further ones of its one flavor.

    The controller of those is the test. The manager has that Configuration, or the usual one. `intervals` are
    those of agents beside the workers.
    """
    await stage.manager.use(configuration or settings())
    name = unique_name(title)
    namespace = f"ns-{name}"
    async with connections_closed(), AsyncExitStack() as stack:
        client = await stack.enter_async_context(stage.hub.client())
        await ensure(client, NAMESPACES, enrolment.system_namespace())
        w1, w2 = [
            await stack.enter_async_context(
                site(
                    stage.hub,
                    client,
                    f"{name}-{number}",
                    served=served,
                    transport=stage.transport,
                    namespace=namespace,
                    queue=name,
                    intervals=intervals,
                )
            )
            for number, served in enumerate(stage.servers, start=1)
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for worker in (w1, w2):
            if worker.agent is not None:
                tasks.start_soon(worker.agent.run)
        stack.callback(tasks.cancel_scope.cancel)
        await make_check(client, name, tuple(f"{name}-{number}" for number in clusters))
        await make_queue(client, name, namespace=namespace, checks=(name,))
        for check in checks:
            await _make_other_check(client, f"{name}-{check}")
            rules = [{"name": name}, {"name": f"{name}-{check}", "onFlavors": ["default"]}]
            strategy = {"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}
            await client.patch(CLUSTER_QUEUES, name, strategy)
        made = Scene(stage, client, name, w1, w2)
        stack.push_async_callback(_strike, made)
        for worker in (w1, w2):
            await made.cluster_says(worker, "True", "Active")
        await made.active(CLUSTER_QUEUES, name, "True", "Ready")
        yield made


async def _make_other_check(client: KubeClient, name: str) -> None:
    body = {
        "apiVersion": ADMISSION_CHECKS.api_version,
        "kind": ADMISSION_CHECKS.kind,
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/other"},
    }
    await client.create(ADMISSION_CHECKS, body)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "the test"}
    now = format_time(SystemClock().now())
    status = {"conditions": [{**active, "lastTransitionTime": now}]}
    await client.patch(ADMISSION_CHECKS, name, {"status": status}, subresource="status")


async def _strike(made: Scene) -> None:
    """The manager also serves the next scenario, and must have nothing left to do for this one."""
    with anyio.CancelScope(shield=True):
        await made.client.delete_collection(JOBS, namespace=made.namespace, propagation="Background")
        for resource, namespace in (
            (MULTIKUEUE_CONFIGS, None),
            (ADMISSION_CHECKS, None),
            (LOCAL_QUEUES, made.namespace),
            (CLUSTER_QUEUES, None),
        ):
            try:
                await made.client.delete(resource, made.name, namespace=namespace)
            except NotFound:
                continue
