# SPDX-License-Identifier: Apache-2.0
"""Virtual nodes in the API: Node objects, their status and leases.

Owns registration and heartbeats. One task serves all nodes of a cluster; a deleted node is registered again with the
next status update.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import anyio

from devcluster.kubelet.node_groups import VirtualNodeGroup
from devcluster.kubelet.pod_status import LOOPBACK
from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.resource import LEASES, NODES
from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.kube.errors import AlreadyExists, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind

log = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
_HEARTBEAT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_STATUS_EVERY: Final = 6  # heartbeats; like a kubelet, which writes the status less often than the lease
_MANAGER: Final = "virtual-kubelet"
DEFAULT_ALLOCATABLE: Final[Mapping[str, str]] = {
    "cpu": "8",
    "memory": "32Gi",
    "ephemeral-storage": "100Gi",
    "pods": "250",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A virtual node."""

    name: str
    allocatable: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ALLOCATABLE))
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def several(count: int, *, prefix: str = "node", allocatable: Mapping[str, str] | None = None) -> list[NodeSpec]:
    """`count` equal nodes, named `prefix-1` and so on; `allocatable` overrides the default."""
    amounts = {**DEFAULT_ALLOCATABLE, **(allocatable or {})}
    return [NodeSpec(name=f"{prefix}-{number}", allocatable=amounts) for number in range(1, count + 1)]


def of_groups(groups: Iterable[VirtualNodeGroup]) -> list[NodeSpec]:
    """The nodes of one cluster; groups with the same prefix are numbered consecutively."""
    found: list[NodeSpec] = []
    counted: dict[str, int] = {}
    for group in groups:
        first = counted.get(group.prefix, 0) + 1
        counted[group.prefix] = first + group.count - 1
        found += [
            NodeSpec(
                name=f"{group.prefix}-{number}",
                allocatable={**DEFAULT_ALLOCATABLE, **group.traits.resources},
                labels=dict(group.traits.labels),
                taints=[asdict(taint) for taint in group.traits.taints],
            )
            for number in range(first, first + group.count)
        ]
    return found


class NodeKeeper:
    """Registers nodes and renews their leases."""

    def __init__(
        self, client: KubeClient, nodes: Sequence[NodeSpec], *, clock: Clock, kubelet_port: int, version: str
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._clock = clock
        self._since = format_time(clock.now())
        self._port = kubelet_port
        self._version = version

    async def run(self) -> None:
        """Register the nodes, then renew their leases until cancelled; failures are retried."""
        beat = 0
        while True:
            # A failed beat is repeated unchanged, so that a failed registration is retried.
            if await self._beat(status=beat % _STATUS_EVERY == 0):
                beat += 1
                await anyio.sleep(_HEARTBEAT_SECONDS)
            else:
                await anyio.sleep(_RETRY_SECONDS)

    async def _beat(self, *, status: bool) -> bool:
        failed: list[BaseException] = []
        try:
            async with anyio.create_task_group() as tasks:
                for node in self._nodes:
                    if status:
                        tasks.start_soon(self._register, node)
                    tasks.start_soon(self._renew, node)
        except* KubeError as failures:
            failed.extend(failures.exceptions)
            log.warning("node heartbeat failed error=%s", failed[0])
        return not failed

    async def _register(self, node: NodeSpec) -> None:
        try:
            await self._client.patch(
                NODES, node.name, self._status(node), kind=PatchKind.STRATEGIC, subresource="status"
            )
        except NotFound:
            try:
                await self._client.create(NODES, _manifest(node))
            except AlreadyExists:
                log.debug("node already exists name=%s", node.name)
            await self._client.patch(
                NODES, node.name, self._status(node), kind=PatchKind.STRATEGIC, subresource="status"
            )

    async def _renew(self, node: NodeSpec) -> None:
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": node.name, "namespace": LEASE_NAMESPACE},
            "spec": {
                "holderIdentity": node.name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": format_micro_time(self._clock.now()),
            },
        }
        await self._client.apply(LEASES, node.name, lease, namespace=LEASE_NAMESPACE, manager=_MANAGER)

    def _status(self, node: NodeSpec) -> JsonObject:
        now = format_time(self._clock.now())
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a virtual node is always ready"},
            *({"type": name, "status": "False", "reason": "KubeletHasNoPressure"} for name in pressures),
        ]
        return {
            "status": {
                "capacity": dict(node.allocatable),
                "allocatable": dict(node.allocatable),
                "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": node.name}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                "conditions": [
                    {**condition, "lastHeartbeatTime": now, "lastTransitionTime": self._since}
                    for condition in conditions
                ],
                "nodeInfo": {
                    "kubeletVersion": self._version,
                    "kubeProxyVersion": self._version,
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                    "osImage": "virtual",
                    "kernelVersion": "virtual",
                    "containerRuntimeVersion": "virtual://1",
                    "machineID": node.name,
                    "systemUUID": node.name,
                    "bootID": node.name,
                },
            }
        }


def _manifest(node: NodeSpec) -> JsonObject:
    labels = {
        constants.HOSTNAME_LABEL: node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **node.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": [dict(taint) for taint in node.taints]},
    }
