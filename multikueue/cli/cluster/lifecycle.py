# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster cordon`, `uncordon` and `drain`, and the last step of `remove`.

Owns the writes to ClusterRegistrations and MultiKueueConfigs, and the wait until a cluster has no workloads left. The
manager does the drain itself: it moves waiting workloads at once and running workloads at the deadline.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio
import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REGISTRATIONS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    WORKLOADS,
)
from multikueue.cli.cluster.registering import withdraw
from multikueue.cli.conditions import has_condition
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.jobs.framework.slices import assigned_as
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_POLL_SECONDS: Final = 1.0


class PartlyRemoved(MultikueueError):
    """Only some objects of a cluster were removed; the message has the next step."""


async def set_availability(hub: KubeClient, cluster: str, spec: JsonObject) -> None:
    """Set cordoned, drain and drainDeadline of a cluster, registered or not. Raises `BadInput` if it does not exist."""
    try:
        await hub.get(MULTIKUEUE_CLUSTERS, cluster)
    except NotFound as error:
        raise BadInput(f"MultiKueueCluster {cluster} not found; list them with `mkctl cluster list`") from error
    try:
        await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"spec": spec})
    except NotFound:
        # A push cluster has no ClusterRegistration.
        body = {
            "apiVersion": CLUSTER_REGISTRATIONS.api_version,
            "kind": CLUSTER_REGISTRATIONS.kind,
            "metadata": {"name": cluster},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
        await hub.create(CLUSTER_REGISTRATIONS, body)


async def drain(hub: KubeClient, cluster: str, *, deadline: timedelta | None, clock: Clock) -> None:
    """Drain the cluster: no new workloads, waiting ones move at once, running ones at the deadline."""
    moment = None if deadline is None else format_time(clock.now() + deadline)
    await set_availability(hub, cluster, {"cordoned": True, "drain": True, "drainDeadline": moment})


async def workloads_on(hub: KubeClient, cluster: str) -> list[str]:
    """The Workloads granted to the cluster that have not finished, and those still stopping there."""
    found = []
    assigned = await _assigned(hub, cluster)
    page = await hub.list_all(WORKLOADS)
    for raw in page.items:
        workload = orjson.loads(raw)
        status: JsonObject = workload.get("status") or {}
        ended = has_condition(workload, WorkloadCondition.FINISHED)
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        # Eviction clears clusterName before the pods on the worker have ended.
        granted = status.get("clusterName") == cluster and not ended
        if granted or assignment_name(assigned_as(workload)[0]) in assigned:
            found.append(str(key))
    return found


async def _assigned(hub: KubeClient, cluster: str) -> frozenset[str]:
    """The names of the assignments in the mailbox of the cluster; none for a push cluster, which has no mailbox."""
    try:
        page = await hub.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(cluster), metadata_only=True)
    except NotFound:
        return frozenset()
    return frozenset(orjson.loads(raw)["metadata"]["name"] for raw in page.items)


async def wait_until_empty(hub: KubeClient, cluster: str, *, timeout: timedelta) -> list[str]:
    """Wait until the cluster has no workloads; returns those left at the timeout."""
    left = await workloads_on(hub, cluster)
    with anyio.move_on_after(timeout.total_seconds()):
        while left:
            await anyio.sleep(_POLL_SECONDS)
            left = await workloads_on(hub, cluster)
    return left


async def configs_listing(hub: KubeClient, cluster: str) -> list[JsonObject]:
    """The MultiKueueConfigs that list the cluster. Raises `BadInput` if it is the only cluster of one of them."""
    page = await hub.list_all(MULTIKUEUE_CONFIGS)
    configs = [orjson.loads(raw) for raw in page.items]
    listing = [config for config in configs if cluster in ((config.get("spec") or {}).get("clusters") or ())]
    alone = [config["metadata"]["name"] for config in listing if set(config["spec"]["clusters"]) == {cluster}]
    if alone:
        raise BadInput(
            f"{cluster} is the only cluster of MultiKueueConfig {', '.join(alone)}, which needs at least one. Nothing"
            " was changed. Add another cluster to the config first, or delete the config and its AdmissionCheck:\n"
            f"kubectl edit multikueueconfig {alone[0]}"
        )
    return listing


async def remove(hub: KubeClient, cluster: str, *, namespace: str) -> list[str]:
    """Remove the cluster from every config and delete its objects; returns the names of the configs.

    Raises `BadInput` before the first write if a config would be left without clusters. If the write of a config fails,
    the configs written before it are reverted.
    """
    listing = await configs_listing(hub, cluster)
    written: list[tuple[JsonObject, bytes]] = []
    try:
        for config in listing:
            rest = [name for name in config["spec"]["clusters"] if name != cluster]
            written.append((config, await _write_clusters(hub, config, rest)))
    except KubeError:
        for config, answer in written:
            await _write_clusters(hub, orjson.loads(answer), config["spec"]["clusters"])
        raise
    try:
        await withdraw(hub, cluster, namespace=namespace)
    except KubeError as error:
        raise PartlyRemoved(
            f"{error}. {cluster} is only partly removed: it is in no MultiKueueConfig, but some of its objects are"
            f" left. To remove the rest:\nmkctl cluster remove {cluster} --force"
        ) from error
    return [config["metadata"]["name"] for config in listing]


async def _write_clusters(hub: KubeClient, config: JsonObject, clusters: list[str]) -> bytes:
    metadata = config["metadata"]
    return await hub.patch(
        MULTIKUEUE_CONFIGS,
        metadata["name"],
        {"spec": {"clusters": clusters}},
        resource_version=metadata["resourceVersion"],
    )
