# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster list` and `describe`: what the hub knows of each worker.

Owns the document that is printed, as JSON or as tables; both show the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import orjson

from multikueue.api.constants import MAILBOX_OBJECT_NAME, TRANSPORT_ANNOTATION, Transport
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    WORKLOADS,
    Resource,
)
from multikueue.core.errors import BadInput
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import NotFound


async def clusters(hub: KubeClient) -> list[JsonObject]:
    """All clusters, by name. Raises `KubeError`."""
    registrations = await _by_name(hub, CLUSTER_REGISTRATIONS)
    reports = await _by_mailbox(hub, CLUSTER_REPORTS)
    configs = await _by_name(hub, MULTIKUEUE_CONFIGS)
    running: Counter[str] = Counter()
    page = await hub.list_all(WORKLOADS)
    for raw in page.items:
        status: JsonObject = orjson.loads(raw).get("status") or {}
        ended = any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ())
        if status.get("clusterName") and not ended:
            running[status["clusterName"]] += 1
    # Eviction clears the name of the cluster before the pods there have ended; the mailbox knows longer.
    page = await hub.list_all(REMOTE_ASSIGNMENTS, metadata_only=True)
    copies = Counter(str(orjson.loads(raw)["metadata"]["namespace"]) for raw in page.items)
    found = await _by_name(hub, MULTIKUEUE_CLUSTERS)
    return [
        _document(
            cluster,
            registration=registrations.get(name, {}),
            report=reports.get(mailbox_namespace(name), {}),
            configs=[key for key, config in configs.items() if name in _listed(config)],
            workloads=running[name],
            copies=copies[mailbox_namespace(name)],
        )
        for name, cluster in sorted(found.items())
    ]


async def cluster(hub: KubeClient, name: str) -> JsonObject:
    """One cluster, with its conditions and what its agent said last. Raises `BadInput` for no such cluster."""
    found = next((each for each in await clusters(hub) if each["name"] == name), None)
    if found is None:
        raise BadInput(f"there is no MultiKueueCluster {name}")
    try:
        lease = await hub.get_object(LEASES, MAILBOX_OBJECT_NAME, namespace=mailbox_namespace(name))
    except NotFound:
        lease = {}
    spec: JsonObject = lease.get("spec") or {}
    return {**found, "lease": {"holder": spec.get("holderIdentity"), "renewed": spec.get("renewTime")}}


def _document(
    cluster: JsonObject,
    *,
    registration: JsonObject,
    report: JsonObject,
    configs: list[str],
    workloads: int,
    copies: int,
) -> JsonObject:
    metadata: JsonObject = cluster["metadata"]
    active = _condition(cluster, "Active")
    spec: JsonObject = registration.get("spec") or {}
    status: JsonObject = registration.get("status") or {}
    said: JsonObject = report.get("status") or {}
    agent = (metadata.get("annotations") or {}).get(TRANSPORT_ANNOTATION) == Transport.AGENT
    registered = _condition(registration, "Registered")
    return {
        "name": metadata["name"],
        "transport": str(Transport.AGENT if agent else Transport.PUSH),
        "active": active.get("status") == "True",
        "reason": active.get("reason", ""),
        "message": active.get("message", ""),
        "since": active.get("lastTransitionTime"),
        "accepted": bool(spec.get("accepted")),
        "cordoned": bool(spec.get("cordoned")),
        "drain": bool(spec.get("drain")),
        "drainDeadline": spec.get("drainDeadline"),
        "registered": {"reason": registered.get("reason", ""), "message": registered.get("message", "")},
        "clusterUID": status.get("clusterUID") or said.get("clusterUID"),
        "certificateExpirationTime": status.get("certificateExpirationTime"),
        "configs": configs,
        "workloads": workloads,
        "copies": copies,
        "agentVersion": said.get("agentVersion"),
        "kubernetesVersion": said.get("kubernetesVersion"),
        "nodes": said.get("nodes"),
        "capacity": said.get("capacity") or [],
        "reported": said.get("time"),
    }


def standing(document: Mapping[str, object]) -> str:
    """Whether it takes work, in a word or two."""
    if document["drain"]:
        return "draining" if document["workloads"] or document["copies"] else "drained"
    return "cordoned" if document["cordoned"] else "schedulable"


def _listed(config: JsonObject) -> list[str]:
    found: list[str] = (config.get("spec") or {}).get("clusters") or []
    return found


def _condition(obj: JsonObject, kind: str) -> JsonObject:
    entries: list[JsonObject] = (obj.get("status") or {}).get("conditions") or []
    return next((entry for entry in entries if entry["type"] == kind), {})


async def _by_name(hub: KubeClient, resource: Resource) -> dict[str, JsonObject]:
    page = await hub.list_all(resource)
    objects = [orjson.loads(raw) for raw in page.items]
    return {obj["metadata"]["name"]: obj for obj in objects}


async def _by_mailbox(hub: KubeClient, resource: Resource) -> dict[str, JsonObject]:
    page = await hub.list_all(resource)
    objects = [orjson.loads(raw) for raw in page.items]
    return {obj["metadata"]["namespace"]: obj for obj in objects if obj["metadata"]["name"] == MAILBOX_OBJECT_NAME}
