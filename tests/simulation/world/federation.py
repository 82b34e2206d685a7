# SPDX-License-Identifier: Apache-2.0
"""The federation that a seed plays in: API servers with what is in them, and the processes around them.

Owns the making of both. The API servers are built once and forked with the process for each seed, since installing
the definitions costs more than a whole run. Processes are the real `Manager` and `Agent`; killing one cuts its links
first, so that it cannot say goodbye.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cache
from random import Random
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from devcluster.apiserver.http.requests import LOOPBACK, MASTERS, Answer, Request, User
from devcluster.apiserver.server import ApiServer
from devcluster.federation import enrolment
from manager.app import Manager
from manager.context import ManagerContext
from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from manager.options import ManagerOptions
from multikueue.api import configuration, configuration_file
from multikueue.api.constants import AGENT_GROUP, BATCH_JOB_FRAMEWORK, TRANSPORT_ANNOTATION, TransportType
from multikueue.api.crds import manifests
from multikueue.core.errors import HubRestored
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from tests.simulation.world.network import Link, SimClient
from tests.simulation.world.virtual_time import SimClock, VirtualLoop
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals
from worker_agent.kinds import served_integrations

Object = dict[str, Any]

NAMESPACE: Final = "team"
ADMIN: Final = User("admin", (MASTERS, "system:authenticated"))
MOST_WORKERS: Final = 5
SPARE: Final = "spare"
"""The name of the server that comes in the place of a hub that is lost."""
PRIORITIES: Final = {"low": -10, "high": 10}
GROUP: Final = "/apis/kueue.x-k8s.io/v1beta2"
SECRETS: Final = "/api/v1/namespaces/kueue-system/secrets"
USER_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
INTERVALS: Final = AgentIntervals(report_seconds=20.0, rights_seconds=1200.0)
"""Of agents: changes are reported at once anyway, and unchanged reports are needed less often."""
_SETTINGS: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 30s, gcInterval: 20s, dispatcherName: %s}
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 8s}
integrations: {frameworks: [%s]}
featureGates: {ElasticJobsViaWorkloadSlices: %s}
"""
_WAITING: Final = """
waitForPodsReady:
  timeout: 15s
  recoveryTimeout: 10s
  blockAdmission: %s
  requeuingStrategy: {backoffBaseSeconds: 2, backoffMaxSeconds: 20}
"""


def build_servers(*, prepare: Callable[[str, ApiServer], None] | None = None) -> dict[str, ApiServer]:
    """A hub, another for when it is lost, and the most workers that a seed may have, with what administrators make.

    `prepare` is called with the name of each server, and makes what else there is.
    """

    async def build() -> dict[str, ApiServer]:
        made = _servers()
        for name, server in made.items():
            if prepare is not None:
                prepare(name, server)
        await asyncio.sleep(1.0)  # what they do in their own turn is done
        return made

    return VirtualLoop().run_until_complete(build())


def _servers() -> dict[str, ApiServer]:
    made = {name: _server(name) for name in ("hub", SPARE)}
    for hub in made.values():
        for definition in manifests():
            create(hub, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        _create_queue(hub)
        hub.authorizer.role_rules("", "view")  # has it read all roles, once for all seeds
    for number in range(1, MOST_WORKERS + 1):
        for pushed in (False, True):
            cluster_manifests(f"w{number}", pushed=pushed)  # kept for the seeds
        worker = made[f"w{number}"] = _server(f"w{number}")
        create(worker, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        _create_node(worker)
        create(worker, f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job("foreign", cpu=1))
    return made


def build_queued_worker(name: str) -> ApiServer:
    """A worker that has Kueue's kinds, and a queue of the hub's name for 4 cpu."""

    async def build() -> ApiServer:
        made = _server(name)
        create(made, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        _create_node(made)
        give_queue(made, cpu=4)
        await asyncio.sleep(1.0)
        return made

    return VirtualLoop().run_until_complete(build())


def give_queue(worker: ApiServer, *, cpu: int, **spec: object) -> None:
    """Install Kueue's kinds, and make a queue of the hub's name."""
    for definition in manifests():
        create(worker, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    create(worker, "/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    flavor = {"name": "local", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    create(worker, f"{GROUP}/resourceflavors", kueue("ResourceFlavor", "local", spec={}))
    create(worker, f"{GROUP}/clusterqueues", kueue("ClusterQueue", "queue", spec=queue))
    local = f"{GROUP}/namespaces/{NAMESPACE}/localqueues"
    create(worker, local, kueue("LocalQueue", "queue", spec={"clusterQueue": "queue"}))


def job(name: str, *, cpu: int, **metadata: object) -> Object:
    """An ordinary Job of one pod."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def call(server: ApiServer, method: str, path: str, body: object = None) -> Object:
    """One request of an administrator beside the network; fails on an error answer."""
    merge = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = Request(
        method=method,
        path=path,
        query_text="",
        headers={"content-type": merge},
        body=b"" if body is None else orjson.dumps(body),
        certificate=LOOPBACK,
    )
    answer = server.handle(request)
    assert isinstance(answer, Answer), answer
    if answer.status >= 400 and answer.status != 404:
        raise AssertionError(f"{method} {path}: {answer.status} {answer.body!r}")
    found: Object = orjson.loads(answer.body)
    return found


def create(server: ApiServer, path: str, body: Object) -> None:
    """Create an object beside the network."""
    call(server, "POST", path, body)


def _server(name: str) -> ApiServer:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    # The same identities and times in each run: what is drawn and ordered by them is to come out alike.
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "servers are built in virtual time"
    return ApiServer(signing_key=pem, clock=SimClock(loop), rng=Random(name))


def _create_node(worker: ApiServer) -> None:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    node = {"metadata": {"name": "node"}, "spec": {}}
    create(worker, "/api/v1/nodes", node)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    call(worker, "PATCH", "/api/v1/nodes/node/status", {"status": status})
    call(worker, "PATCH", "/api/v1/nodes/node", {"spec": {"taints": None}})  # what the node controller takes away


def _create_queue(hub: ApiServer) -> None:
    for namespace in (NAMESPACE, "kueue-system"):
        create(hub, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "6"}]}
    queue = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
    }
    for path, kind, name, spec in (
        ("resourceflavors", "ResourceFlavor", "default", {}),
        ("admissionchecks", "AdmissionCheck", "mk", check),
        ("clusterqueues", "ClusterQueue", "queue", queue),
        (f"namespaces/{NAMESPACE}/localqueues", "LocalQueue", "queue", {"clusterQueue": "queue"}),
    ):
        create(hub, f"{GROUP}/{path}", kueue(kind, name, spec=spec))
    for name, value in PRIORITIES.items():
        create(hub, f"{GROUP}/workloadpriorityclasses", kueue("WorkloadPriorityClass", name, value=value))


def create_clusters(hub: ApiServer, names: tuple[str, ...], *, pushed: Iterable[str]) -> None:
    """The clusters of one seed, and the config that lists them."""
    for name in names:
        create_cluster(hub, name, pushed=name in pushed)
    create(hub, f"{GROUP}/multikueueconfigs", kueue("MultiKueueConfig", "all", spec={"clusters": list(names)}))


def create_cluster(hub: ApiServer, name: str, *, pushed: bool) -> None:
    """What an administrator makes for one cluster."""
    secret, cluster = cluster_manifests(name, pushed=pushed)
    create(hub, SECRETS, secret)
    create(hub, f"{GROUP}/multikueueclusters", cluster)


@cache
def cluster_manifests(name: str, *, pushed: bool) -> list[Object]:
    """The Secret and the MultiKueueCluster of a worker; cached, so callers must not change them."""
    secret, cluster = enrolment.manifests(name)
    if pushed:
        # A server without TLS: preparing certificate checks costs as much as the seed.
        plain = base64.b64decode(secret["data"]["kubeconfig"]).replace(b"https:", b"http:")
        secret["data"]["kubeconfig"] = base64.b64encode(plain).decode()
        cluster["metadata"]["annotations"][TRANSPORT_ANNOTATION] = TransportType.PUSH.value
    return [secret, cluster]


@cache
def settings(
    dispatcher: str,
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,),
    *,
    elastic: bool = False,
    one_starts: bool | None = None,
) -> configuration.Configuration:
    """What managers read, with that dispatcher, and those kinds of jobs.

    Pods have a short time until they are ready unless `one_starts` is None, and others wait meanwhile if it is true.
    """
    text = _SETTINGS % (dispatcher, ", ".join(frameworks), str(elastic).lower())
    waiting = "" if one_starts is None else _WAITING % str(one_starts).lower()
    return configuration_file.load(text + waiting)


def registration(name: str) -> Object:
    """What lets a cluster in, and takes its work away."""
    return {
        "apiVersion": "multikueue.io/v1alpha1",
        "kind": "ClusterRegistration",
        "metadata": {"name": name},
        "spec": {"accepted": True},
    }


def delete_cluster(hub: ApiServer, name: str) -> None:
    """Take all of that away."""
    call(hub, "DELETE", f"{GROUP}/multikueueclusters/{name}")
    call(hub, "DELETE", f"{SECRETS}/{name}-kubeconfig")


def kueue(kind: str, name: str, **content: object) -> Object:
    """An object of Kueue's group."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **content}


class Process:
    """One process on one machine: started, killed, and started again as another."""

    def __init__(self, name: str, links: list[Link], body: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        """`body` runs the process; it is given how often it was started before."""
        self.name = name
        self.links = links
        self._body = body
        self._starts = 0
        self._task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._task is not None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._task is None:
            for link in self.links:
                link.dead = False
            self._task = asyncio.get_running_loop().create_task(self._body(self._starts), name=self.name)
            self._task.add_done_callback(self._ended)
            self._starts += 1

    async def kill(self) -> None:
        """End it as `kill -9` does: nothing that it sends from now on arrives."""
        task, self._task = self._task, None
        if task is None:
            return
        for link in self.links:
            link.dead = True
            link.reset()
        task.remove_done_callback(self._ended)
        task.cancel()
        await asyncio.wait([task])
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, BaseExceptionGroup):
            # One that is still ending when the hub is back, restored, notices that.
            _, failure = failure.split(HubRestored)
        if failure is not None and not isinstance(failure, HubRestored):
            raise failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self.failure = task.exception() or RuntimeError(f"{self.name} ended by itself")


def manager(
    name: str,
    hub: Link,
    clock: SimClock,
    random: Random,
    *,
    dispatcher: str,
    pushes: Mapping[str, Link],
    own: configuration.Configuration | None = None,
    webhook_url: str | None = None,
) -> Process:
    """A manager; several may compete for the lease. It reaches the clusters of `pushes` itself."""
    wanted = own or settings(dispatcher)

    def connect(config: ClusterConfig, context: ManagerContext) -> KubeClient:
        return SimClient(pushes[config.name], ADMIN, clock=context.clock, random=context.random)

    def dispatch(context: ManagerContext) -> DispatchController:
        return DispatchController(context, push=PushSettings(connect=connect))

    async def body(number: int) -> None:
        options = ManagerOptions(
            webhooks=webhook_url is not None,
            webhook_url=webhook_url,
            visibility_bind="0",
            metrics_bind="0",
            health_bind="0",
            identity=f"{name}-{number}",
            leader_election=True,
        )
        async with SimClient(hub, ADMIN, clock=clock, random=random) as client:
            made = Manager(wanted, client, options=options, clock=clock, random=random, dispatch=dispatch)
            await made.run()

    return Process(name, [hub, *pushes.values()], body)


def local_kueue(
    cluster: Link, clock: SimClock, random: Random, *, own: configuration.Configuration | None = None
) -> Process:
    """The Kueue that a worker has of its own: a manager there that sends nothing elsewhere."""

    async def body(number: int) -> None:
        options = ManagerOptions(
            webhooks=False, metrics_bind="0", health_bind="0", identity="local", leader_election=False
        )
        async with SimClient(cluster, ADMIN, clock=clock, random=random) as client:
            wanted = own or configuration_file.load("")
            await Manager(wanted, client, options=options, clock=clock, random=random).run()

    return Process(f"kueue of {cluster.server.name}", [cluster], body)


def agent_of(
    hub: SimClient,
    worker: SimClient,
    name: str,
    *,
    number: int,
    clock: SimClock,
    random: Random,
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,),
) -> Agent:
    """The real agent of a worker, in its process of that number."""
    return Agent(
        hub,
        worker,
        cluster=name,
        intervals=INTERVALS,
        integrations=served_integrations(frameworks),
        clock=clock,
        random=random,
        boot_id=f"{name}-{number}",
    )


def agent(
    name: str,
    hub: Link,
    worker: Link,
    clock: SimClock,
    random: Random,
    *,
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,),
) -> Process:
    """The agent of a worker cluster, with the identity that it has on the hub."""

    async def body(number: int) -> None:
        identity = User(enrolment.agent_user(name), (AGENT_GROUP, "system:authenticated"))
        async with (
            SimClient(hub, identity, clock=clock, random=random) as hub_client,
            SimClient(worker, ADMIN, clock=clock, random=random) as worker_client,
        ):
            made = agent_of(
                hub_client, worker_client, name, number=number, clock=clock, random=random, frameworks=frameworks
            )
            await made.run()

    return Process(name, [hub, worker], body)
