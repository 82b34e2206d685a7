# SPDX-License-Identifier: Apache-2.0
"""The network of virtual pods: resolves a name or an address to the program that listens there.

No connection is opened: an address that no virtual pod of the cluster has is refused. Users with exec, port-forward or
proxy permissions can therefore not reach other processes of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from itertools import count
from typing import Final

import anyio

from devcluster.kubelet.containers.netexec import ExitRequest, HttpAnswer, HttpRequest, respond
from devcluster.kubelet.containers.programs import Program, http_program
from devcluster.kubelet.lifecycle import PodLifecycle
from devcluster.resources import ENDPOINT_SLICES, SERVICE_NAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.resource import SERVICES
from multikueue.core.clock import Clock
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

_DOMAIN: Final = "cluster.local"
_ANSWER_SECONDS: Final = 0.5
"""How long a program that answers the exit request runs after its answer."""


class UnknownHost(MultikueueError):
    """A name that does not resolve to a service or pod."""


class ConnectionRefused(MultikueueError):
    """No program listens there."""


class RunningPods:
    """The interface of the network to the pods; implemented by the kubelet."""

    def __init__(
        self,
        *,
        find_pod: Callable[[Key], tuple[JsonObject, PodLifecycle] | None],
        by_address: Callable[[str], Iterable[Key]],
        ask_to_exit: Callable[[Key, str, ExitRequest], None],
    ) -> None:
        self.find_pod = find_pod
        self.by_address = by_address
        self.ask_to_exit = ask_to_exit


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningProgram:
    """A program that listens in a virtual pod."""

    key: Key
    pod: JsonObject
    program: Program
    port: int


class PodNetwork:
    """The network of the virtual pods of one cluster."""

    def __init__(self, client: KubeClient, pods: RunningPods, *, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._turns = count()

    def listener(self, key: Key, port: int) -> ListeningProgram:
        """The program on a port of a pod. Raises `ConnectionRefused`."""
        found = self._pods.find_pod(key)
        if found is None or not found[1].running:
            raise ConnectionRefused(f"pod {key} is not running")
        program = http_program(found[0], port)
        if program is None:
            raise ConnectionRefused(f"nothing in pod {key} listens on port {port}")
        return ListeningProgram(key=key, pod=found[0], program=program, port=port)

    async def resolve(self, host: str, port: int, *, inside: Key) -> ListeningProgram:
        """The program on a port of a host, as seen from inside a pod. Raises `UnknownHost` and `ConnectionRefused`."""
        host = host.rstrip(".").lower()
        try:
            address = ip_address(host)
        except ValueError:
            if host == "localhost":
                return self.listener(inside, port)
            return await self._by_name(host, port, inside=inside)
        if address.is_loopback:
            return self.listener(inside, port)
        for key in self._pods.by_address(str(address)):
            found = self._pods.find_pod(key)
            if found is not None and found[1].running:  # an ended pod keeps its address
                return self.listener(key, port)
        return await self._by_cluster_address(str(address), port)

    async def ask(self, listener: ListeningProgram, request: HttpRequest) -> HttpAnswer | None:
        """The program's answer; None if it ends without an answer."""
        found = respond(request, listener.pod, port=listener.port, now=self._clock.now())
        if isinstance(found, HttpAnswer):
            return found
        self._pods.ask_to_exit(listener.key, listener.pod["metadata"]["uid"], found)
        await anyio.sleep(found.wait)
        return HttpAnswer(200) if found.answers else None

    async def _by_name(self, host: str, port: int, *, inside: Key) -> ListeningProgram:
        parts = host.removesuffix(f".{_DOMAIN}").split(".")
        name = parts[0]
        namespace = parts[1] if len(parts) > 1 else inside.namespace
        if len(parts) <= 2 or (len(parts) == 3 and parts[2] == "svc"):
            service = await self._service(namespace, name)
            if service is not None:
                return await self._of_service(service, port)
        raise UnknownHost(f"no service of this cluster has the name {host}")

    async def _service(self, namespace: str, name: str) -> JsonObject | None:
        try:
            return await self._client.get_object(SERVICES, name, namespace=namespace)
        except NotFound:
            return None

    async def _by_cluster_address(self, address: str, port: int) -> ListeningProgram:
        listed = (await self._client.request("GET", SERVICES.path())).json()["items"]
        for service in listed:
            if address in (service["spec"].get("clusterIPs") or ()):
                return await self._of_service(service, port)
        raise ConnectionRefused(f"no virtual pod and no service of this cluster has the address {address}")

    async def _of_service(self, service: JsonObject, port: int) -> ListeningProgram:
        """One of the ready pods behind a service."""
        metadata, spec = service["metadata"], service["spec"]
        headless = spec.get("clusterIP") == "None"
        entry = next((entry for entry in spec.get("ports") or () if entry["port"] == port), None)
        if entry is None and not headless:
            raise ConnectionRefused(f"service {metadata['name']} has no port {port}")
        path = f"{ENDPOINT_SLICES.path(metadata['namespace'])}?labelSelector={SERVICE_NAME_LABEL}%3D{metadata['name']}"
        slices = (await self._client.request("GET", path)).json()["items"]
        found: list[tuple[Key, int]] = []
        for each in slices:
            numbers = [
                one["port"]
                for one in each.get("ports") or ()
                if entry is not None and one.get("name", "") == entry.get("name", "")
            ]
            for endpoint in each.get("endpoints") or ():
                target = endpoint.get("targetRef") or {}
                if target.get("kind") == "Pod" and (endpoint.get("conditions") or {}).get("ready") is not False:
                    key = Key(metadata["namespace"], target.get("name", ""))
                    found += [(key, number) for number in ([port] if headless else numbers)]
        if not found:
            raise ConnectionRefused(f"service {metadata['name']} has no ready pod for port {port}")
        key, number = found[next(self._turns) % len(found)]
        return self.listener(key, number)


def exit_moment(request: ExitRequest) -> timedelta:
    """The delay until the program ends; it answers first if it does."""
    return timedelta(seconds=request.wait + (_ANSWER_SECONDS if request.answers else 0.0))
