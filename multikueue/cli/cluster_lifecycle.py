# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster cordon`, `uncordon`, `drain` and `remove`.

Owns the writes to ClusterRegistrations and MultiKueueConfigs, and the wait until nothing of ours is left on a cluster.
What a drain does is the manager's: it moves what waits at once and what runs by the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio
import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REGISTRATIONS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    WORKLOADS,
)
from multikueue.cli.registering import withdraw
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import NotFound

_LOOK_SECONDS: Final = 1.0


async def set_standing(hub: KubeClient, cluster: str, spec: JsonObject) -> None:
    """Change cordoned, drain and deadline of a cluster, registered or not. Raises `BadInput` for no such cluster."""
    try:
        await hub.get(MULTIKUEUE_CLUSTERS, cluster)
    except NotFound as error:
        raise BadInput(f"there is no MultiKueueCluster {cluster}") from error
    try:
        await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"spec": spec})
    except NotFound:
        # A cluster that the manager reaches by a kubeconfig was never registered.
        body = {
            "apiVersion": CLUSTER_REGISTRATIONS.api_version,
            "kind": CLUSTER_REGISTRATIONS.kind,
            "metadata": {"name": cluster},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
        await hub.create(CLUSTER_REGISTRATIONS, body)


async def drain(hub: KubeClient, cluster: str, *, deadline: timedelta | None, clock: Clock) -> None:
    """No new work, what waits moves at once, what runs by the deadline."""
    moment = None if deadline is None else format_time(clock.now() + deadline)
    await set_standing(hub, cluster, {"cordoned": True, "drain": True, "drainDeadline": moment})


async def workloads_on(hub: KubeClient, cluster: str) -> list[str]:
    """The Workloads that were granted to the cluster and have not ended, and those that are to stop there."""
    found = []
    assigned = await _assigned(hub, cluster)
    page = await hub.list_all(WORKLOADS)
    for raw in page.items:
        workload = orjson.loads(raw)
        status: JsonObject = workload.get("status") or {}
        ended = any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ())
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        # Eviction clears the name of the cluster before the pods there have ended.
        if (status.get("clusterName") == cluster and not ended) or assignment_name(key) in assigned:
            found.append(str(key))
    return found


async def _assigned(hub: KubeClient, cluster: str) -> frozenset[str]:
    """The names in the mailbox of the cluster; none for one that the manager reaches itself, and serves until then."""
    try:
        page = await hub.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(cluster), metadata_only=True)
    except NotFound:
        return frozenset()
    return frozenset(orjson.loads(raw)["metadata"]["name"] for raw in page.items)


async def wait_until_empty(
    hub: KubeClient, cluster: str, *, timeout: timedelta, tell: Callable[[int], None] = lambda count: None
) -> list[str]:
    """Wait until nothing is on the cluster; gives what is when the time is over."""
    left = await workloads_on(hub, cluster)
    with anyio.move_on_after(timeout.total_seconds()):
        while left:
            tell(len(left))
            await anyio.sleep(_LOOK_SECONDS)
            left = await workloads_on(hub, cluster)
    return left


async def remove(hub: KubeClient, cluster: str, *, namespace: str) -> list[str]:
    """Take the cluster out of every config and remove what was made for it; gives the configs that it was in.

    Raises `BadInput` for a config that would be left without any cluster: that has to be removed, or given another.
    """
    page = await hub.list_all(MULTIKUEUE_CONFIGS)
    configs = [orjson.loads(raw) for raw in page.items]
    listing = [config for config in configs if cluster in ((config.get("spec") or {}).get("clusters") or ())]
    for config in listing:
        if len(config["spec"]["clusters"]) == 1:
            name = config["metadata"]["name"]
            raise BadInput(f"{cluster} is the only cluster of MultiKueueConfig {name}; give it another one first")
    for config in listing:
        rest = [name for name in config["spec"]["clusters"] if name != cluster]
        await hub.patch(
            MULTIKUEUE_CONFIGS,
            config["metadata"]["name"],
            {"spec": {"clusters": rest}},
            resource_version=config["metadata"]["resourceVersion"],
        )
    await withdraw(hub, cluster, namespace=namespace)
    return [config["metadata"]["name"] for config in listing]
