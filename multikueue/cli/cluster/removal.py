# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster remove`: checks, then the drain, then the removal.

Configs and permissions are checked before the first write, so a refused removal changes nothing. If a write fails, the
earlier writes are reverted, or the error lists what is left and the command that continues.
"""

from __future__ import annotations

from datetime import timedelta

from multikueue.api.constants import CLUSTER_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from multikueue.cli.cluster import lifecycle
from multikueue.cli.cluster.lifecycle import PartlyRemoved
from multikueue.cli.cluster.permissions import UserPermission, require
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient


async def remove_cluster(
    hub: KubeClient,
    cluster: str,
    *,
    deadline: timedelta,
    timeout: timedelta,
    force: bool,
    namespace: str,
    clock: Clock,
) -> list[str]:
    """Drain the cluster, wait unless `force`, and remove it; returns the configs that listed it.

    Raises `BadInput` before the first write if it cannot be removed, and if it has workloads left after `timeout`.
    """
    listing = await lifecycle.configs_listing(hub, cluster)
    known = await _found(hub, MULTIKUEUE_CLUSTERS, cluster) is not None
    registration = await _found(hub, CLUSTER_REGISTRATIONS, cluster)
    if not known and registration is None and not listing and not await _leftovers(hub, cluster, namespace):
        raise BadInput(f"MultiKueueCluster {cluster} not found; list them with `mkctl cluster list`")
    await require(hub, _needed(namespace, listed=bool(listing)), to=f"remove {cluster}")
    if known:
        await lifecycle.drain(hub, cluster, deadline=deadline, clock=clock)
    if known and not force:
        left = await lifecycle.wait_until_empty(hub, cluster, timeout=timeout)
        if left:
            raise BadInput(
                f"{len(left)} workloads are left on {cluster}, such as {left[0]}. It was not removed and is still"
                f" draining. To keep waiting, to remove it with its workloads, or to keep it:\nmkctl cluster remove"
                f" {cluster}\nmkctl cluster remove {cluster} --force\nmkctl cluster uncordon {cluster}"
            )
    try:
        return await lifecycle.remove(hub, cluster, namespace=namespace)
    except (BadInput, KubeError) as error:
        # A config changed meanwhile or cannot be written; no object of the cluster was deleted yet.
        if known:
            await _undo_drain(hub, cluster, registration, after=error)
        raise


def _needed(namespace: str, *, listed: bool) -> list[UserPermission]:
    rights = [
        UserPermission(verb="patch", resource=CLUSTER_REGISTRATIONS),
        UserPermission(verb="create", resource=CLUSTER_REGISTRATIONS),
        UserPermission(verb="deletecollection", resource=SECRETS, namespace=namespace),
        UserPermission(verb="delete", resource=SECRETS, namespace=namespace),
        UserPermission(verb="delete", resource=SERVICE_ACCOUNTS, namespace=namespace),
        UserPermission(verb="deletecollection", resource=CERTIFICATE_SIGNING_REQUESTS),
        *(
            UserPermission(verb="delete", resource=resource)
            for resource in (
                CLUSTER_ROLE_BINDINGS,
                CLUSTER_ROLES,
                CLUSTER_REGISTRATIONS,
                MULTIKUEUE_CLUSTERS,
                NAMESPACES,
            )
        ),
    ]
    return [*rights, UserPermission(verb="patch", resource=MULTIKUEUE_CONFIGS)] if listed else rights


async def _found(hub: KubeClient, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject | None:
    try:
        return await hub.get_object(resource, name, namespace=namespace)
    except NotFound:
        return None


async def _leftovers(hub: KubeClient, cluster: str, namespace: str) -> bool:
    """Whether an interrupted removal left objects behind; these two are deleted last."""
    if await _found(hub, SECRETS, f"{cluster}-kubeconfig", namespace=namespace) is not None:
        return True
    mailbox = await _found(hub, NAMESPACES, mailbox_namespace(cluster)) or {}
    return ((mailbox.get("metadata") or {}).get("annotations") or {}).get(CLUSTER_LABEL) == cluster


async def _undo_drain(hub: KubeClient, cluster: str, before: JsonObject | None, *, after: MultikueueError) -> None:
    try:
        if before is None:
            await hub.delete(CLUSTER_REGISTRATIONS, cluster)
            return
        spec: JsonObject = before.get("spec") or {}
        old = {field: spec.get(field) for field in ("cordoned", "drain", "drainDeadline")}
        await hub.patch(CLUSTER_REGISTRATIONS, cluster, {"spec": old})
    except KubeError as error:
        raise PartlyRemoved(
            f"{after}. {cluster} was not removed, but it is draining and this could not be undone: {error}. To use the"
            f" cluster again:\nmkctl cluster uncordon {cluster}"
        ) from after
