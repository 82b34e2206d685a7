# SPDX-License-Identifier: Apache-2.0
"""Plays the cluster autoscaler for ProvisioningRequests on a local cluster of any provider.

Owns the nodes that it adds: each belongs to one request by its label, and is deleted with it. The rules are those of
`answers` and `fitting`; the settings are read from a ConfigMap before each answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio
import orjson

from devcluster.controllers.caches import BACKOFF
from devcluster.controllers.placement import NodeInfo
from devcluster.controllers.pod_info import requests_of
from devcluster.kubelet.node import NodeSpec
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.provisioner.answers import CAPACITY_DETAIL, CAPACITY_LABEL, adds_nodes, answer, capacity_of
from devcluster.provisioner.definition import definition
from devcluster.provisioner.fitting import MOST_PODS, PodGroup, lack_on, new_nodes, selected_labels
from devcluster.provisioner.removed_nodes import RemovedNodes
from devcluster.provisioner.settings import NAME, NAMESPACE, ProvisionerSettings
from multikueue.api.objects import JsonObject
from multikueue.api.resource import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
)
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Informer
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

_DEFINED_SECONDS: Final = 0.2  # between looks whether a definition is served, or a template is there
NODES_SECONDS: Final = 0.1  # between looks whether the added nodes exist
_SERVED_SECONDS: Final = 30.0


class Provisioner:
    """The autoscaler of one cluster; `client` needs administrator rights."""

    def __init__(self, client: KubeClient, *, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._requests = Informer(client, PROVISIONING_REQUESTS, clock=self._clock, backoff=BACKOFF)
        self._config = Informer(
            client,
            CONFIG_MAPS,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={NAME}",
            clock=self._clock,
            backoff=BACKOFF,
        )
        self._controller: Controller[Key] = Controller(
            "provisioner",
            self.reconcile,
            queue=WorkQueue(clock=self._clock, backoff=BACKOFF),
            clock=self._clock,
        )
        self._running: dict[Key, tuple[str, tuple[str, ...], anyio.CancelScope]] = {}
        """By request: its UID, its nodes, and what ends them."""
        self._removed = RemovedNodes(client, clock=self._clock)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._requests.add_handler(lambda change: self._controller.enqueue(change.key))
        self._config.add_handler(lambda change: self._enqueue_all())

    async def run(self) -> None:
        """Install the definition if there is none, and provision until cancelled."""
        try:
            await self._client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        except AlreadyExists:
            log.debug("the definition of ProvisioningRequest is installed already")
        # The informers retry too, but log each failure.
        with anyio.move_on_after(_SERVED_SECONDS):
            await self._served()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._requests.run)
            tasks.start_soon(self._config.run)
            await self._requests.synced.wait()
            await self._config.synced.wait()
            tasks.start_soon(self._removed.controller.run)
            tasks.start_soon(self._controller.run)

    async def _served(self) -> None:
        while True:
            try:
                await self._client.list_page(PROVISIONING_REQUESTS, limit=1)
            except NotFound:
                await anyio.sleep(_DEFINED_SECONDS)
            else:
                return

    def _enqueue_all(self) -> None:
        for row in self._requests.store.list():
            self._controller.enqueue(row.key)

    def _settings(self) -> ProvisionerSettings:
        """The settings now; the defaults without a ConfigMap, or with one that cannot be used."""
        found = self._config.store.object(Key(NAMESPACE, NAME)) or {}
        try:
            return ProvisionerSettings.of(found.get("data") or {})
        except BadInput as error:
            log.error("the settings cannot be used, using the defaults error=%s", error)
            return ProvisionerSettings()

    async def reconcile(self, key: Key) -> Result | None:
        """Answer one request."""
        request = self._requests.store.object(key)
        running = self._running.get(key)
        if running is not None and (request is None or request["metadata"]["uid"] != running[0]):
            self._remove_nodes(key)
        if request is None:
            return None
        settings = self._settings()
        groups = await self._groups(request)
        if groups is None:
            return Result(after=_DEFINED_SECONDS)  # its templates are created after it
        nodes, lack = await self._fit(request, groups, settings)
        found = answer(request, settings, lack=lack, now=self._clock.now())
        if found.nodes and adds_nodes(request):
            await self._add_nodes(key, request, nodes, labels=selected_labels(groups))
            if not is_true_in(request.get("status"), "Provisioned") and not await self._are_there(key):
                return Result(after=NODES_SECONDS)
        elif key in self._running:
            self._remove_nodes(key)
        if found.conditions:
            await self._write(request, found.conditions)
        return None if found.after is None else Result(after=found.after)

    async def _groups(self, request: JsonObject) -> list[PodGroup] | None:
        """The pods of a request; None while a template is missing."""
        found: list[PodGroup] = []
        for pod_set in request["spec"]["podSets"]:
            try:
                template = await self._client.get_object(
                    POD_TEMPLATES, pod_set["podTemplateRef"]["name"], namespace=request["metadata"]["namespace"]
                )
            except NotFound:
                return None
            found.append((template["template"]["spec"], int(pod_set["count"])))
        return found

    async def _fit(
        self, request: JsonObject, groups: Sequence[PodGroup], settings: ProvisionerSettings
    ) -> tuple[int, str]:
        """How many nodes its pods need, and why they do not fit."""
        if is_true_in(request.get("status"), "Provisioned") and not adds_nodes(request):
            return 0, ""  # its pods are there by now
        pods = sum(count for _, count in groups)
        if pods > MOST_PODS:
            return 0, f"{pods} pods are more than the {MOST_PODS} that this provisioner counts"
        try:
            if not adds_nodes(request):
                return 0, lack_on(groups, await self._node_infos())
            key = Key(request["metadata"]["namespace"], request["metadata"]["name"])
            taken = sum(len(names) for each, (_, names, _) in self._running.items() if each != key)
            return new_nodes(groups, labels=selected_labels(groups), most=max(0, settings.nodes - taken))
        except BadInput as error:
            return 0, str(error)

    async def _node_infos(self) -> list[NodeInfo]:
        nodes = [NodeInfo.of(orjson.loads(raw)) for raw in (await self._client.list_all(NODES)).items]
        by_name = {node.name: node for node in nodes}
        for raw in (await self._client.list_all(PODS)).items:
            pod: JsonObject = orjson.loads(raw)
            node = by_name.get(pod["spec"].get("nodeName", ""))
            if node is not None and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                node.add_pod(requests_of(pod["spec"]))
        return nodes

    async def _add_nodes(self, key: Key, request: JsonObject, count: int, *, labels: dict[str, str]) -> None:
        if key in self._running:
            return
        capacity = capacity_of(request)
        names = tuple(f"{capacity}-{number}" for number in range(1, count + 1))
        specs = [NodeSpec(name=name, labels={**labels, CAPACITY_LABEL: capacity}) for name in names]
        scope = anyio.CancelScope()
        self._running[key] = (request["metadata"]["uid"], names, scope)
        self._removed.discard(names)
        log.info("adding nodes request=%s nodes=%s", key, len(names))
        assert self._tasks is not None, "it runs"
        self._tasks.start_soon(self._serve, specs, scope)

    async def _serve(self, specs: Sequence[NodeSpec], scope: anyio.CancelScope) -> None:
        with scope:
            await VirtualNodes(self._client, nodes=specs, clock=self._clock).run()

    async def _are_there(self, key: Key) -> bool:
        """Whether the nodes of the request have been created."""
        _, names, _ = self._running[key]
        found = (await self._client.list_all(NODES, label_selector=CAPACITY_LABEL)).items
        return set(names) <= {orjson.loads(raw)["metadata"]["name"] for raw in found}

    def _remove_nodes(self, key: Key) -> None:
        _, names, scope = self._running.pop(key)
        scope.cancel()
        log.info("removing nodes request=%s nodes=%s", key, len(names))
        self._removed.add(names)

    async def _write(self, request: JsonObject, conditions: Sequence[JsonObject]) -> None:
        kept = {each["type"]: each for each in (request.get("status") or {}).get("conditions") or ()}
        kept |= {each["type"]: each for each in conditions}
        metadata = request["metadata"]
        status: JsonObject = {"conditions": list(kept.values())}
        if adds_nodes(request):
            status["provisioningClassDetails"] = {CAPACITY_DETAIL: capacity_of(request)}
        await self._client.patch(
            PROVISIONING_REQUESTS,
            metadata["name"],
            {"status": status},
            namespace=metadata["namespace"],
            subresource="status",
            resource_version=metadata["resourceVersion"],
        )
        for each in conditions:
            log.info(
                "condition written request=%s/%s condition=%s status=%s message=%s",
                metadata["namespace"],
                metadata["name"],
                each["type"],
                each["status"],
                each["message"],
            )
