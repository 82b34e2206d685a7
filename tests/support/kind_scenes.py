# SPDX-License-Identifier: Apache-2.0
"""A hub and a worker on which jobs of a declared kind run, with the operator that plays the kind's controller.

Owns the manager of the hub, the worker's agent or kubeconfig, its virtual nodes and operator, a queue with a MultiKueue
check and one without, both of a flavor with node labels.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

import anyio
import orjson

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from multikueue.api.resource import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.core.conditions import is_true_in
from multikueue.jobs.declared.roles import agent_roles
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client
from tests.support.crds.kinds import JOB_SETS
from tests.support.faulty_proxy import TcpProxy, tcp_proxy
from tests.support.limited_workers import ALL, INTERVALS, PUSH, enrol_by_kubeconfig, give_rights, rules_of
from tests.support.managers import (
    Object,
    ensure,
    eventually,
    get,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.operators.job_sets import JobSetOperator
from tests.support.operators.operator import operating
from tests.support.operators.samples import job_set, pod_template
from tests.support.push_workers import SYSTEM
from tests.support.sites import Transport
from tests.support.virtual_pods import log_serving
from tests.support.workers import FakeWorker, make_check
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals
from worker_agent.kinds import served_integrations

FRAMEWORKS: Final = ("batch/job", "jobset.x-k8s.io/jobset")
LABELS: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
"""The node labels of the flavor, which every virtual node has."""
QUICKLY: Final = replace(INTERVALS, kind_seconds=0.5)  # each time asks for some thirty rights
RIGHTS_TO_JOBS: Final = rules_of(ALL)
RIGHTS_TO_JOB_SETS: Final[tuple[Object, ...]] = tuple(agent_roles(JOB_SETS)[0]["rules"])
QUICK: Final = "200ms"
SETTINGS: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {{frameworks: [{}]}}
multiKueue: {{workerLostTimeout: 60s, gcInterval: 2s, externalFrameworks: [{}]}}
"""


@dataclass(frozen=True)
class KindScene:
    """What one test has of its own; objects on the hub and the worker are in one namespace of its name."""

    hub: KubeClient
    worker: KubeClient
    name: str
    link: TcpProxy
    """Between the hub and the worker."""
    restart: Callable[..., Awaitable[None]]
    """Start the agent anew, or the manager that hosts its code; what is passed is awaited while it is away."""

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    @property
    def local_queue(self) -> str:
        """The queue whose jobs run on the hub."""
        return f"{self.name}-local"

    async def submit(
        self,
        name: str,
        *,
        run_for: str = QUICK,
        fails: bool = False,
        priority: str = "",
        local: bool = False,
        annotations: Object | None = None,
    ) -> Object:
        """A JobSet of a leader and two Jobs of two pods, as the server stored it."""
        marks = {"multikueue.io/run-for": run_for, **({"multikueue.io/exit-code": "1"} if fails else {})}
        body = job_set(name, pod_template(marks, terminationGracePeriodSeconds=0))
        labels = {QUEUE_NAME_LABEL: self.local_queue if local else self.name}
        labels |= {PRIORITY_CLASS_LABEL: priority} if priority else {}
        body["metadata"] |= {"namespace": self.namespace, "labels": labels, "annotations": annotations or {}}
        stored: Object = orjson.loads(await self.hub.create(JOB_SETS, body, namespace=self.namespace))
        return stored

    async def grant(self, *rules: Object) -> None:
        """Give the agent, or the hub, these rights on the worker and no others."""
        await self.worker.patch(CLUSTER_ROLES, self.name, {"rules": list(rules)})

    async def shown(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The JobSet on the hub once that holds."""
        return await self._until(self.hub, name, f"on the hub {what}", holds)

    async def remote(self, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        """The JobSet on the worker once that holds."""
        return await self._until(self.worker, name, f"on the worker {what}", holds)

    async def runs(self, name: str, *, epoch: int = 1) -> Object:
        """The remote JobSet of that epoch once all of its Jobs are ready, and the hub shows it."""
        found = await self.remote(
            name, f"ready in epoch {epoch}", lambda seen: is_ready(seen) and epoch_of(seen) == epoch
        )
        await self.shown(name, "ready", is_ready)
        return found

    async def workload(self, name: str) -> Object | None:
        return await workload_of(self.hub, name, namespace=self.namespace)

    async def deactivate(self, workload: Object) -> None:
        """As a user does."""
        name = workload["metadata"]["name"]
        await self.hub.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=self.namespace)

    async def finished(self, name: str, *, reason: str = "Succeeded") -> Object:
        """Its Workload once it has finished so."""
        return await wait_condition(self.hub, name, "Finished", namespace=self.namespace, reason=reason)

    async def kept_failures(self, name: str) -> list[Object]:
        """What the hub keeps of the failed pods of the JobSet."""
        page = await self.hub.list_all(CONFIG_MAPS, namespace=self.namespace)
        found = [orjson.loads(raw) for raw in page.items]
        owned = {"kind": "JobSet", "name": name}
        return [
            each
            for each in found
            if any(owned.items() <= owner.items() for owner in each["metadata"].get("ownerReferences") or ())
        ]

    async def gone(self, name: str) -> None:
        """Wait until nothing of the JobSet is left on the worker."""
        await eventually(lambda: self.left(name), what=f"{name} is gone from the worker", until=lambda seen: not seen)

    async def left(self, name: str) -> list[str]:
        """What is left of the JobSet on the worker."""
        found = []
        for resource in (JOB_SETS, JOBS, PODS):
            for raw in (await self.worker.list_all(resource, namespace=self.namespace)).items:
                each = orjson.loads(raw)["metadata"]["name"]
                if each == name or each.startswith(f"{name}-"):
                    found.append(f"{resource.kind} {each}")
        return found

    async def pods(self, client: KubeClient, name: str) -> list[Object]:
        """Its pods that have not ended."""
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"
        page = await client.list_all(PODS, namespace=self.namespace, label_selector=selector)
        found = [orjson.loads(raw) for raw in page.items]
        return [each for each in found if each.get("status", {}).get("phase") not in ("Succeeded", "Failed")]

    async def _until(self, client: KubeClient, name: str, what: str, holds: Callable[[Object], bool]) -> Object:
        found = await eventually(
            lambda: get(client, JOB_SETS, name, namespace=self.namespace),
            what=f"{name} {what}",
            until=lambda seen: seen is not None and holds(seen),
        )
        assert found is not None
        return found


def counts(job: Object, name: str) -> list[int]:
    """That count of each replicated job."""
    return [each[name] for each in (job.get("status") or {}).get("replicatedJobsStatus") or ()]


def is_ready(job: Object) -> bool:
    """Whether all of its Jobs are ready."""
    return counts(job, "ready") == [1, 2]


def has(condition: str) -> Callable[[Object], bool]:
    """Whether an object has that condition."""
    return lambda seen: is_true_in(seen.get("status"), condition)


def epoch_of(job: Object) -> int:
    """The epoch of a remote job."""
    return int(job["metadata"]["annotations"]["multikueue.io/epoch"])


def selectors(job: Object) -> list[Object]:
    """The node selectors of its replicated jobs."""
    return [
        each["template"]["spec"]["template"]["spec"].get("nodeSelector", {}) for each in job["spec"]["replicatedJobs"]
    ]


@asynccontextmanager
async def kind_scene(
    hub_cluster: Cluster,
    worker_cluster: Cluster,
    title: str,
    *,
    transport: Transport,
    cpu: str = "10",
    operator: bool = True,
    local: bool = False,
    frameworks: Sequence[str] = FRAMEWORKS,
    external: Sequence[str] = (),
    rights: Sequence[Object] = RIGHTS_TO_JOB_SETS,
    lease_seconds: int = INTERVALS.lease_seconds,
    has_logs: bool = False,
) -> AsyncIterator[KindScene]:
    """The scene; `cpu` is the quota. Without `operator` no operator plays the controller of the kind.

    `local`: the hub has nodes and the operator as well. `external` are kinds that another controller queues.
    `rights` are those of the agent besides the rights to Jobs. `has_logs`: the nodes serve the logs of their pods.
    """
    name = unique_name(title)
    namespace = f"ns-{name}"
    pull = transport is Transport.PULL
    async with AsyncExitStack() as stack:
        hub, worker = [await stack.enter_async_context(each.client()) for each in (hub_cluster, worker_cluster)]
        link = await stack.enter_async_context(tcp_proxy((hub_cluster if pull else worker_cluster).server))
        for client in (hub, worker):
            await ensure(client, NAMESPACES, enrolment.system_namespace())
            await make_namespace(client, namespace)
        played = (worker_cluster, *([hub_cluster] if local else ()))
        clients = [[await stack.enter_async_context(each.client()) for _ in range(2)] for each in played]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        for cluster, (nodes, plays) in zip(played, clients, strict=True):
            logs = log_serving(cluster) if has_logs else None
            tasks.start_soon(VirtualNodes(nodes, nodes=several(2), logs=logs).run)
            if operator:
                await stack.enter_async_context(operating(JobSetOperator(plays)))
        await give_rights(worker, name, [*RIGHTS_TO_JOBS, *rights])
        kubeconfig = worker_cluster.issue_client_certificate(name)
        dispatch = partial(DispatchController, push=replace(PUSH, intervals=QUICKLY))
        named = ", ".join(f"{{name: {each}}}" for each in external)
        settings = SETTINGS.format(", ".join(frameworks), named)
        host: Callable[[], AbstractAsyncContextManager[object]] = partial(
            running_manager, hub_cluster, settings=settings, dispatch=dispatch
        )
        if pull:
            await FakeWorker(hub, name).enrol()
            await stack.enter_async_context(host())
            served = served_integrations(frameworks, external=external)
            intervals = replace(QUICKLY, lease_seconds=lease_seconds)
            host = partial(_agent, hub_cluster, kubeconfig, name=name, link=link, served=served, intervals=intervals)
        else:
            kubeconfig["clusters"][0]["cluster"]["server"] = link.url
            await enrol_by_kubeconfig(hub, name, kubeconfig)
        hosted = await stack.enter_async_context(AsyncExitStack())

        async def restart(meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
            await hosted.aclose()
            if meanwhile is not None:
                await meanwhile()
            await hosted.enter_async_context(host())

        await restart()
        await _make_flavor(hub, name)
        await make_check(hub, name, (name,))
        preemption = {"withinClusterQueue": "LowerPriority"}
        await make_queue(hub, name, namespace=namespace, cpu=cpu, checks=(name,), flavor=name, preemption=preemption)
        await make_queue(hub, f"{name}-local", namespace=namespace, cpu=cpu, flavor=name, preemption=preemption)
        try:
            yield KindScene(hub, worker, name, link, restart)
        finally:
            with anyio.CancelScope(shield=True):
                await _clean(hub, worker, name, namespace)


@asynccontextmanager
async def _agent(
    hub: Cluster,
    kubeconfig: Object,
    *,
    name: str,
    link: TcpProxy,
    served: Sequence[JobIntegration],
    intervals: AgentIntervals,
) -> AsyncIterator[None]:
    async with (
        agent_client(hub, name, through=link.url) as to_hub,
        KubeClient(credentials.from_dict(kubeconfig)) as to_worker,
        anyio.create_task_group() as tasks,
    ):
        agent = Agent(to_hub, to_worker, cluster=name, intervals=intervals, random=Random(1), integrations=served)
        tasks.start_soon(agent.run)
        yield
        tasks.cancel_scope.cancel()


async def _make_flavor(hub: KubeClient, name: str) -> None:
    api = "kueue.x-k8s.io/v1beta2"
    flavor = {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": LABELS}}
    await hub.create(RESOURCE_FLAVORS, flavor)
    high = {"apiVersion": api, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await ensure(hub, WORKLOAD_PRIORITY_CLASSES, high)


async def _clean(hub: KubeClient, worker: KubeClient, name: str, namespace: str) -> None:
    """What the manager of the next scene would otherwise serve as well."""
    for client in (hub, worker):
        with suppress(NotFound):  # the kind may not be installed
            await client.delete_collection(JOB_SETS, namespace=namespace)
        await client.delete_collection(JOBS, namespace=namespace, propagation="Background")
    for resource, at in ((MULTIKUEUE_CLUSTERS, None), (SECRETS, SYSTEM)):
        for each in (name, f"{name}-kubeconfig"):
            if await get(hub, resource, each, namespace=at) is not None:
                await hub.delete(resource, each, namespace=at)
