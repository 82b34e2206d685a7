# SPDX-License-Identifier: Apache-2.0
"""The federation that a seed plays in: API servers with what is in them, and the processes around them.

Owns the making of both. The API servers are built once and forked with the process for each seed, since installing
the definitions costs more than a whole run. Processes are the real `Manager` and `Agent`; killing one cuts its links
first, so that it cannot say goodbye.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from manager.app import Manager
from manager.dispatch.controller import DispatchController
from manager.options import Options
from multikueue.api import configuration
from multikueue.api.constants import AGENT_GROUP
from multikueue.api.crds import manifests
from multikueue.devcluster import enrolment
from multikueue.devcluster.apiserver.requests import LOOPBACK, MASTERS, Answer, Request, User
from multikueue.devcluster.apiserver.server import ApiServer
from tests.simulation.network import Link, SimClient
from tests.simulation.virtual_time import SimClock
from worker_agent.app import Agent

Object = dict[str, Any]

NAMESPACE: Final = "team"
ADMIN: Final = User("admin", (MASTERS, "system:authenticated"))
MOST_WORKERS: Final = 5
_SETTINGS: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 30s, gcInterval: 20s, dispatcherName: %s}
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s}
"""


def build_servers() -> dict[str, ApiServer]:
    """A hub and the most workers that a seed may have, with definitions and what administrators make."""
    made = {"hub": _server()}
    for definition in manifests():
        create(made["hub"], "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    _create_queue(made["hub"])
    for number in range(1, MOST_WORKERS + 1):
        worker = made[f"w{number}"] = _server()
        create(worker, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        _create_node(worker)
        create(worker, f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job("foreign", cpu=1))
    return made


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
    """One request of an administrator who stands beside the server; fails on an error answer."""
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


def _server() -> ApiServer:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ApiServer(signing_key=pem)


def _create_node(worker: ApiServer) -> None:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    node = {"metadata": {"name": "node"}, "spec": {}}
    create(worker, "/api/v1/nodes", node)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    call(worker, "PATCH", "/api/v1/nodes/node/status", {"status": status})
    call(worker, "PATCH", "/api/v1/nodes/node", {"spec": {"taints": None}})  # what the node controller takes away


def _create_queue(hub: ApiServer) -> None:
    group = "/apis/kueue.x-k8s.io/v1beta2"
    for namespace in (NAMESPACE, "kueue-system"):
        create(hub, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "6"}]}
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
    }
    for path, name, spec in (
        ("resourceflavors", "default", {}),
        ("admissionchecks", "mk", check),
        ("clusterqueues", "queue", queue),
        (f"namespaces/{NAMESPACE}/localqueues", "queue", {"clusterQueue": "queue"}),
    ):
        create(hub, f"{group}/{path}", _kueue(path.rpartition("/")[2], name, spec))


def create_clusters(hub: ApiServer, names: tuple[str, ...]) -> None:
    """The clusters of one seed, and the config that lists them."""
    group = "/apis/kueue.x-k8s.io/v1beta2"
    for name in names:
        secret, cluster = enrolment.manifests(name)
        create(hub, "/api/v1/namespaces/kueue-system/secrets", secret)
        create(hub, f"{group}/multikueueclusters", cluster)
    create(hub, f"{group}/multikueueconfigs", _kueue("multikueueconfigs", "all", {"clusters": list(names)}))


_KINDS: Final = {
    "resourceflavors": "ResourceFlavor",
    "admissionchecks": "AdmissionCheck",
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "multikueueconfigs": "MultiKueueConfig",
}


def _kueue(plural: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": _KINDS[plural], "metadata": {"name": name}, "spec": spec}


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
        with suppress(asyncio.CancelledError):
            await task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self.failure = task.exception() or RuntimeError(f"{self.name} ended by itself")


def manager(name: str, hub: Link, clock: SimClock, random: Random, *, dispatcher: str) -> Process:
    """A manager; several may compete for the lease."""

    async def body(number: int) -> None:
        options = Options(
            webhooks=False, metrics_bind="0", health_bind="0", identity=f"{name}-{number}", leader_election=True
        )
        async with SimClient(hub, ADMIN, clock=clock, random=random) as client:
            settings = configuration.load(_SETTINGS % dispatcher)
            await Manager(
                settings, client, options=options, clock=clock, random=random, dispatch=DispatchController
            ).run()

    return Process(name, [hub], body)


def agent(name: str, hub: Link, worker: Link, clock: SimClock, random: Random) -> Process:
    """The agent of a worker cluster, with the identity that it has on the hub."""

    async def body(number: int) -> None:
        identity = User(enrolment.agent_user(name), (AGENT_GROUP, "system:authenticated"))
        async with (
            SimClient(hub, identity, clock=clock, random=random) as hub_client,
            SimClient(worker, ADMIN, clock=clock, random=random) as worker_client,
        ):
            made = Agent(
                hub_client, worker_client, cluster=name, clock=clock, random=random, boot_id=f"{name}-{number}"
            )
            await made.run()

    return Process(name, [hub, worker], body)
