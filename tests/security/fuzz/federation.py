# SPDX-License-Identifier: Apache-2.0
"""The federation that is fuzzed: a hub with a manager, one worker that is pulled and one that is pushed to.

Owns its servers, identities and queues, the objects of a write's path, the Jobs of the other tenant, and the removal of
what the fuzz left. The pull worker admits by its agent's ledger, the push worker by a manager of its own, so that both
ways of admission are there. Servers, controllers and nodes run in this event loop; `members.py` has the tested parts.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import orjson
from anyio.abc import TaskGroup

from devcluster import kubeconfigs
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.controllers.app import ControllerOptions, Controllers
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.manifests import create_all
from devcluster.ports import PortRegistry
from manager.app import Manager
from manager.options import ManagerOptions as ManagerOptions
from multikueue.api import constants, crds
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    JOBS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    NODES,
    PODS,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import Conflict, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import InProcessCluster
from tests.security.fuzz import catalogue, members, rights
from tests.security.fuzz.catalogue import HUB, NAMESPACE, PULL, PUSH, SPARE_NODE, TENANT, WORKER_USER
from tests.security.fuzz.members import AGENT_PART, AGENT_USER, MANAGER_USER
from tests.security.fuzz.parts import Part
from tests.security.fuzz.writes import Write, WriteAnswer, sent
from tests.support.agents import make_node
from tests.support.managers import get, job_manifest, make_queue
from tests.support.workers import make_check

OTHER: Final = "zoe"
OTHER_NAMESPACE: Final = "team-zoe"
"""Lists have it behind that of the tenant that attacks."""
_POLL_SECONDS: Final = 0.1
_NODES: Final = {"cpu": "1000", "memory": "4000Gi", "pods": "10000"}


class Fuzzed:
    """What runs, and what can be asked of it."""

    def __init__(
        self,
        tasks: TaskGroup,
        clusters: dict[str, InProcessCluster],
        clients: dict[str, KubeClient],
        session: aiohttp.ClientSession,
    ) -> None:
        self.tasks = tasks
        self.clusters = clusters
        self.clients = clients
        """An administrator of each cluster."""
        self.parts: list[Part] = []
        self.manager: Manager | None = None
        self.webhooks = 0
        self._session = session
        self._targets = catalogue.targets()
        self._names: dict[str, list[str]] = {}
        self._submitted = 0

    @property
    def hub(self) -> InProcessCluster:
        """The management cluster."""
        return self.clusters[HUB]

    @property
    def agent(self) -> Part:
        """The agent of the worker whose agent's identity is fuzzed."""
        return next(part for part in self.parts if part.name == AGENT_PART)

    # What is written

    async def send(self, write: Write) -> WriteAnswer | None:
        """What the server answers; None where there is nothing that the write could be about."""
        target = self._targets[write.target]
        path = target.path
        if "{" in path:
            kind = path[path.index("{") + 1 : path.index("}")]
            names = self._names.get(f"{target.cluster}/{kind}") or ()
            if not names:
                return None
            path = path.replace(f"{{{kind}}}", names[write.slot % len(names)])
        config = self.clusters[target.cluster].kubeconfig(target.user)
        headers = {"Content-Type": target.media, "Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        body = sent(write.body(target.body(write.slot)))
        url = f"{self.clusters[target.cluster].server}{path}"
        async with self._session.request(target.method, url, data=body, headers=headers) as answer:
            return WriteAnswer(answer.status, await answer.text(errors="replace"))

    async def look(self) -> None:
        """Learn the names of what is there, for writes about it."""
        for cluster, kind, resource, namespace in (
            (HUB, "job", JOBS, NAMESPACE),
            (HUB, "workload", WORKLOADS, NAMESPACE),
            (HUB, "assignment", REMOTE_ASSIGNMENTS, mailbox_namespace(PULL)),
            (PULL, "copy", JOBS, NAMESPACE),
            (PUSH, "copy", JOBS, NAMESPACE),
            (PULL, "pod", PODS, NAMESPACE),
            (PUSH, "pod", PODS, NAMESPACE),
            (PUSH, "clone", WORKLOADS, NAMESPACE),
        ):
            page = await self.clients[cluster].list_all(resource, namespace=namespace)
            found = [orjson.loads(raw) for raw in page.items]
            if kind == "assignment":
                found = [obj for obj in found if obj["spec"]["workload"]["namespace"] == NAMESPACE]
            self._names[f"{cluster}/{kind}"] = sorted(obj["metadata"]["name"] for obj in found)

    async def busy(self, *, within: float = 5.0) -> None:
        """Wait until the agent has assignments of the tenant and both workers its remote jobs, or a while."""
        with anyio.move_on_after(within):
            wanted = (f"{HUB}/assignment", f"{PULL}/copy", f"{PUSH}/copy", f"{PUSH}/clone")
            while True:
                await self.look()
                if all(self._names[each] for each in wanted):
                    return
                await anyio.sleep(0.05)

    # What must keep working

    async def submit(self) -> list[str]:
        """A Job of the other tenant for each of the clusters; their names."""
        names = []
        client = self.clients[HUB]
        for cluster in (PULL, PUSH):
            name = f"good-{self._submitted}"
            self._submitted += 1
            manifest = job_manifest(name, namespace=OTHER_NAMESPACE, queue=OTHER, cpu="10m", suspend=True)
            manifest["metadata"]["annotations"] = {constants.CLUSTERS_ANNOTATION: cluster}
            manifest["spec"]["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
            manifest["spec"]["template"]["metadata"] = {"annotations": {constants.RUN_FOR_ANNOTATION: "0s"}}
            await client.create(JOBS, manifest, namespace=OTHER_NAMESPACE)
            names.append(name)
        return names

    async def unfinished(self, names: Sequence[str]) -> list[str]:
        """Those of the other tenant's Jobs that are not complete yet, each with what is known of it."""
        left = []
        client = self.clients[HUB]
        for name in names:
            job = await get(client, JOBS, name, namespace=OTHER_NAMESPACE)
            if job is None or not (job.get("status") or {}).get("completionTime"):
                left.append(f"{name}: {(job or {}).get('status')}")
        return left

    async def explain(self, name: str) -> str:
        """Where one of them is held up: its Workload's conditions and checks."""
        client = self.clients[HUB]
        for raw in (await client.list_all(WORKLOADS, namespace=OTHER_NAMESPACE)).items:
            found = orjson.loads(raw)
            if any(owner["name"] == name for owner in found["metadata"].get("ownerReferences") or ()):
                return orjson.dumps(found.get("status") or {}).decode()
        return "it has no Workload"

    async def events(self) -> list[dict[str, Any]]:
        """The warnings about objects of the tenant that attacks, on the hub."""
        client = self.clients[HUB]
        page = await client.request("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
        return [event for event in orjson.loads(page.body)["items"] if event["type"] == "Warning"]

    # What is cleared

    async def clear(self) -> None:
        """Remove what the fuzz wrote, by force."""
        for client in self.clients.values():
            for resource in (JOBS, WORKLOADS, PODS):
                await _remove_all(client, resource, NAMESPACE)
        client = self.clients[HUB]
        await _remove_all(client, REMOTE_ASSIGNMENTS, mailbox_namespace(PULL), of=NAMESPACE)
        body = {"metadata": {"finalizers": None, "annotations": None}, "spec": None}
        await client.patch(LEASES, "agent", body, namespace=mailbox_namespace(PULL))

    @contextmanager
    def partitioned(self, *users: str) -> Iterator[None]:
        """Requests of those users get nowhere."""
        faults = [Fault(user=user, drop=True) for user in users]
        for cluster in self.clusters.values():
            cluster.api.faults.rules = faults
        try:
            yield
        finally:
            for cluster in self.clusters.values():
                cluster.api.faults.rules = ()

    @staticmethod
    def settle_memory() -> None:
        """Collect what a former manager froze, so that memory shows what is kept."""
        gc.unfreeze()
        gc.collect()


@asynccontextmanager
async def fuzzed_federation(*, webhooks: bool = True, processes: Path | None = None) -> AsyncIterator[Fuzzed]:
    """All of it, with its parts started and both workers connected; with a folder they are processes."""
    clusters = {
        HUB: InProcessCluster(
            HUB,
            users=[
                User(MANAGER_USER, groups=(MASTERS,)),
                User(TENANT, groups=("system:authenticated",)),
                User(enrolment.agent_user(PULL), groups=(constants.AGENT_GROUP, "system:authenticated")),
            ],
        )
    }
    for name in (PULL, PUSH):
        users = [User(WORKER_USER, groups=("system:authenticated",)), User(AGENT_USER, groups=(MASTERS,))]
        clusters[name] = InProcessCluster(name, users=users)
    async with AsyncExitStack() as stack:
        for cluster in clusters.values():
            await stack.enter_async_context(cluster.listener)
        ports = stack.enter_context(PortRegistry())
        session = await stack.enter_async_context(aiohttp.ClientSession(max_line_size=2**20, max_field_size=2**20))
        clients = {name: await stack.enter_async_context(cluster.client()) for name, cluster in clusters.items()}
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            made = Fuzzed(tasks, clusters, clients, session)
            made.webhooks = ports.take() if webhooks else 0
            await _set_up(made)
            made.parts = members.tasks(made) if processes is None else members.processes(made, ports, processes)
            for part in made.parts:
                await part.start()
            await connected(made)
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                for part in made.parts:
                    await part.stop(abruptly=True)
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)


async def connected(made: Fuzzed, *, within: float = 60.0) -> None:
    """Wait until every part is ready and both clusters are active. Raises `AssertionError` with what is not."""
    found: list[str] = []
    with anyio.move_on_after(within):
        while True:
            found = [f"{part.name}: {problem}" for part in made.parts if (problem := await part.problem())]
            for name in (PULL, PUSH):
                cluster = await get(made.clients[HUB], MULTIKUEUE_CLUSTERS, name)
                conditions = ((cluster or {}).get("status") or {}).get("conditions") or ()
                active = next((entry for entry in conditions if entry["type"] == "Active"), None)
                if active is None or active["status"] != "True":
                    found.append(f"{name}: {active}")
            if not found:
                return
            await anyio.sleep(_POLL_SECONDS)
    raise AssertionError(f"not ready within {within:.0f} s: {'; '.join(found)}")


async def _set_up(made: Fuzzed) -> None:
    for name, cluster in made.clusters.items():
        made.tasks.start_soon(
            _control, cluster, ControllerOptions(scheduler=name != HUB), name=f"controllers of {name}"
        )
    client = made.clients[HUB]
    await create_all(client, [*crds.manifests(), enrolment.system_namespace(), *enrolment.manifests(PULL)])
    await create_all(client, _pushed(made.clusters[PUSH]))
    for tenant, namespace in ((OTHER, OTHER_NAMESPACE), (TENANT, NAMESPACE)):
        await make_check(client, tenant, (PULL, PUSH))
        await make_queue(client, tenant, namespace=namespace, cpu="50", checks=(tenant,))
    await client.patch(CLUSTER_QUEUES, catalogue.QUEUE, bounded())
    await create_all(client, rights.hub_rights())
    for name in (PULL, PUSH):
        client = made.clients[name]
        if name == PUSH:
            await create_all(client, [*crds.manifests(), enrolment.system_namespace()])
            for tenant, namespace in ((OTHER, OTHER_NAMESPACE), (TENANT, NAMESPACE)):
                await make_queue(client, tenant, namespace=namespace, cpu="50")
            await client.patch(CLUSTER_QUEUES, catalogue.QUEUE, bounded())
        await create_all(
            client,
            [_namespace(each) for each in (OTHER_NAMESPACE, NAMESPACE, "spare") if name == PULL or each == "spare"],
        )
        await create_all(client, rights.worker_rights())
        await make_node(client, SPARE_NODE, cpu="1")
        taint = {"key": "spare", "value": "true", "effect": "NoSchedule"}
        await client.patch(NODES, SPARE_NODE, {"spec": {"taints": [taint]}})
        made.tasks.start_soon(_run_nodes, made.clusters[name], name=f"nodes of {name}")


def bounded(*, pods: int = 50, cpu: int = 50) -> dict[str, Any]:
    """A quota of pods as well, so that a Job of a thousand million pods is not the fuzz's own undoing."""
    amounts = {"cpu": str(cpu), "memory": "100Gi", "pods": str(pods)}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": "default", "resources": resources}]}
    return {"spec": {"resourceGroups": [group]}}


def _pushed(cluster: InProcessCluster) -> list[dict[str, Any]]:
    content = base64.b64encode(kubeconfigs.dump(cluster.kubeconfig(AGENT_USER))).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": SECRETS.kind,
            "metadata": {"name": PUSH, "namespace": constants.DEFAULT_NAMESPACE},
            "data": {"kubeconfig": content},
        },
        {
            "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
            "kind": MULTIKUEUE_CLUSTERS.kind,
            "metadata": {"name": PUSH},
            "spec": {"clusterSource": {"kubeConfig": {"location": PUSH, "locationType": "Secret"}}},
        },
    ]


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": name}}


async def _control(cluster: InProcessCluster, options: ControllerOptions) -> None:
    async with cluster.client("system:kube-controller-manager") as client:
        await Controllers(client, options).run()


async def _run_nodes(cluster: InProcessCluster) -> None:
    async with cluster.client() as client:
        await VirtualNodes(client, nodes=several(2, allocatable=_NODES), cluster=cluster.name).run()


async def _remove_all(client: KubeClient, resource: Resource, namespace: str, *, of: str = "") -> None:
    try:
        page = await client.list_all(resource, namespace=namespace)
    except NotFound:
        return  # the kind is not served there
    for raw in page.items:
        found = orjson.loads(raw)
        if of and found["spec"]["workload"]["namespace"] != of:
            continue
        name = found["metadata"]["name"]
        try:
            if found["metadata"].get("finalizers"):
                await client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            # No kubelet ends a pod of the spare node.
            await client.delete(resource, name, namespace=namespace, propagation="Background", grace_seconds=0)
        except (NotFound, Conflict):
            continue
        except KubeError:
            continue  # what a webhook refuses now is removed with the next batch
