# SPDX-License-Identifier: Apache-2.0
"""A small API server with nodes and pods, and what the manager has that follows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import orjson
from aiohttp import web

from manager.cache.views import View
from manager.context import ManagerContext
from manager.metrics import ManagerMetrics
from manager.topology.objects import TopologyObjects
from multikueue.api.constants import POD_SET_LABEL, TOPOLOGY_SCHEDULING_GATE, WORKLOAD_ANNOTATION
from multikueue.api.resource import RESOURCE_FLAVORS, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.core.merge_patch import apply_merge_patch
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from tests.support.stub_api import StubApi, json_answer, listing, status_answer, stub_api

Object = dict[str, Any]
RACK: Final = "example.com/rack"
BLOCK: Final = "example.com/block"
GATE: Final = {"name": TOPOLOGY_SCHEDULING_GATE}


def node(name: str, *, ready: bool = True, **spec: Any) -> Object:
    """A node in a rack, with more in its status than is read."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {RACK: "r1"}},
        "spec": {"podCIDR": "10.0.0.0/24", **spec},
        "status": {
            "allocatable": {"cpu": "4"},
            "images": [{"names": ["large"]}],
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": str(ready), "lastHeartbeatTime": "2026-01-01T12:00:00Z"},
            ],
        },
    }


def pod(
    name: str,
    *,
    of: str = "w",
    pod_set: str = "main",
    started_in: Mapping[str, str] | None = None,
    version: str = "1",
    labels: Mapping[str, str] | None = None,
    gates: tuple[Object, ...] = (GATE,),
    **metadata: Any,
) -> Object:
    """A pod of a Workload that waits for its domain, or was started in one."""
    spec: Object = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    spec |= {"schedulingGates": list(gates)} if started_in is None else {"nodeSelector": dict(started_in)}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "labels": {POD_SET_LABEL: pod_set, **(labels or {})},
            "annotations": {WORKLOAD_ANNOTATION: of} if of else {},
            **metadata,
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def flavor(topology: str = "racks") -> Object:
    """A ResourceFlavor; empty for none of a topology."""
    spec = {"topologyName": topology} if topology else {}
    return {"metadata": {"name": "tas", "uid": "uid-tas", "resourceVersion": topology or "1"}, "spec": spec}


class Site:
    """The server's objects and answers, and the parts of the manager."""

    def __init__(self, api: StubApi, client: KubeClient, server: Server) -> None:
        self.api = api
        self.server = server
        self.clock = ManualClock()
        self.views: dict[Resource, View] = {}
        self.quarantine = Quarantine(clock=self.clock)
        caches = SimpleNamespace(
            view=self.view,
            subscribe=lambda resource, handler: self.view(resource).subscribe(handler),
            replay=lambda resource, handler, reader="": self.view(resource).replay(handler, reader=reader),
            quarantine=self.quarantine,
        )
        context = SimpleNamespace(
            client=client, clock=self.clock, random=Random(1), caches=caches, metrics=ManagerMetrics()
        )
        self.context = cast(ManagerContext, context)
        self.objects = TopologyObjects(self.context)

    def view(self, resource: Resource) -> View:
        """The cache of a kind."""
        return self.views.setdefault(resource, View(resource, clock=self.clock))

    def has_flavor(self, topology: str = "racks") -> None:
        """The cache shows such a flavor from now on."""
        self.view(RESOURCE_FLAVORS).on_write(orjson.dumps(flavor(topology)))

    def has_workload(self, workload: Object) -> None:
        """The cache shows that Workload from now on."""
        self.view(WORKLOADS).on_write(orjson.dumps(workload))

    async def has_pods(self, *pods: Object) -> None:
        """These are on the server, and were seen there."""
        self.server.pods = {each["metadata"]["name"]: each for each in pods}
        await self.objects.pods.relist()

    def asked(self) -> list[str]:
        """The lists and watches that were asked for so far."""
        found = [entry.partition("?") for entry in self.api.seen if entry.startswith("GET ")]
        return [f"{path.split('/')[-1]}{' watch' if 'watch=' in query else ''}" for path, _, query in found]


class Server:
    """Nodes and pods, and which of them the manager may have; a watch shows nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.forbidden: set[str] = set()
        self.refused: dict[str, web.Response] = {}
        self.patches: list[tuple[str, Object]] = []
        """The names of pods and what was patched, refusals left out."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """As an API server does."""
        kind, name = _asked(request.path)
        if kind in self.forbidden:
            return status_answer(403, "Forbidden")
        if request.method == "PATCH":
            return self._patch(name, orjson.loads(await request.read()))
        if request.method == "DELETE":
            return self._delete(name, orjson.loads(await request.read()))
        if "watch" in request.query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await anyio.sleep(60)
            return response
        return listing(*(self.nodes if kind == "nodes" else self.pods).values())

    def _delete(self, name: str, body: Object) -> web.Response:
        known = self.pods.get(name)
        if known is None:
            return status_answer(404, "NotFound")
        if name in self.refused:
            return self.refused.pop(name)
        if body["preconditions"] != {key: known["metadata"][key] for key in ("uid", "resourceVersion")}:
            return status_answer(409, "Conflict")
        return json_answer(self.pods.pop(name))

    def _patch(self, name: str, body: Object) -> web.Response:
        known = self.pods.get(name)
        if known is None:
            return status_answer(404, "NotFound")
        if name in self.refused:
            return self.refused.pop(name)
        version = known["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            return status_answer(409, "Conflict")
        self.patches.append((name, body))
        changed = apply_merge_patch(known, body)
        changed["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.pods[name] = changed
        return json_answer(changed)


def _asked(path: str) -> tuple[str, str]:
    """The plural, and the name if there is one: of a node, or of a pod in a namespace."""
    kind, name, *_ = [*path.removeprefix("/api/v1/").split("namespaces/team/")[-1].split("/"), ""]
    return kind, name


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A server without objects, and a manager that has read nothing."""
    server = Server()
    async with stub_api(server.answer) as api, api.client() as client:
        yield Site(api, client, server)


def names(pods: list[Object]) -> list[str]:
    """Of these pods."""
    return [each["metadata"]["name"] for each in pods]


KEY: Final = Key("team", "w")
