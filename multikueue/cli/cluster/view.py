# SPDX-License-Identifier: Apache-2.0
"""The document of `mkctl cluster list` and `describe`: the state of each worker on the hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

import orjson

from multikueue.api.constants import MAILBOX_OBJECT_NAME, TRANSPORT_ANNOTATION, TransportType
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION, WorkloadCondition
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
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
from multikueue.cli.conditions import condition_of, has_condition
from multikueue.cli.hub_configuration import manager_configuration
from multikueue.cli.hub_options import HubOptions
from multikueue.core.errors import BadInput
from multikueue.dispatch.policy.dispatch_policy import DispatchPolicy, PolicyRules, cluster_rules, hub_rules
from multikueue.dispatch.protocol.worker_rights import WorkerRight, missing_of, read_missing, rights_of
from multikueue.jobs.framework.registry import dispatched_integrations
from multikueue.jobs.framework.slices import assigned_as, was_replaced
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient


@cache
def _rights() -> tuple[WorkerRight, ...]:
    """Push clusters have no ClusterReport on the hub: their missing rights are only in the message of Active."""
    return rights_of(integration.resource for integration in dispatched_integrations().values())


async def clusters(hub: KubeClient) -> list[JsonObject]:
    """All clusters, by name. Raises `KubeError`."""
    registrations = await _by_name(hub, CLUSTER_REGISTRATIONS)
    reports = await _by_mailbox(hub, CLUSTER_REPORTS)
    configs = await _by_name(hub, MULTIKUEUE_CONFIGS)
    running: Counter[str] = Counter()
    ended: set[tuple[str, str]] = set()
    page = await hub.list_all(WORKLOADS)
    for raw in page.items:
        workload = orjson.loads(raw)
        status: JsonObject = workload.get("status") or {}
        if status.get("clusterName") and not has_condition(workload, WorkloadCondition.FINISHED):
            running[status["clusterName"]] += 1
        elif status.get("clusterName") and not was_replaced(workload):
            # The assignment of a slice is that of its job, which runs on by the slice that has replaced it.
            ended.add((mailbox_namespace(status["clusterName"]), assignment_name(assigned_as(workload)[0])))
    # Eviction clears clusterName before the pods have ended; the assignments stay longer. That of a failed Job is kept
    # after its end, with nothing that runs.
    page = await hub.list_all(REMOTE_ASSIGNMENTS, metadata_only=True)
    found_there = (orjson.loads(raw)["metadata"] for raw in page.items)
    assignments = Counter(
        str(each["namespace"]) for each in found_there if (each["namespace"], each["name"]) not in ended
    )
    found = await _by_name(hub, MULTIKUEUE_CLUSTERS)
    return [
        _document(
            cluster,
            registration=registrations.get(name, {}),
            report=reports.get(mailbox_namespace(name), {}),
            configs=[key for key, config in configs.items() if name in _listed(config)],
            workloads=running[name],
            assignments=assignments[mailbox_namespace(name)],
        )
        for name, cluster in sorted(found.items())
    ]


async def cluster(hub: KubeClient, name: str) -> JsonObject:
    """One cluster, with its conditions and its agent's last report. Raises `BadInput` if it does not exist."""
    found = next((each for each in await clusters(hub) if each["name"] == name), None)
    if found is None:
        raise BadInput(f"MultiKueueCluster {name} not found; list them with `mkctl cluster list`")
    try:
        lease = await hub.get_object(LEASES, MAILBOX_OBJECT_NAME, namespace=mailbox_namespace(name))
    except NotFound:
        lease = {}
    spec: JsonObject = lease.get("spec") or {}
    return {**found, "lease": {"holder": spec.get("holderIdentity"), "renewed": spec.get("renewTime")}}


async def dispatch_policy(hub: KubeClient, cluster: str, *, options: HubOptions) -> JsonObject:
    """The dispatch policy of the hub and the cluster together. Raises `KubeError`."""
    found = await hub.get_object(MULTIKUEUE_CLUSTERS, cluster)
    own = cluster_rules(found["metadata"].get("annotations") or {})
    return DispatchPolicy((await _hub_rules(hub, options), own)).document()


async def _hub_rules(hub: KubeClient, options: HubOptions) -> PolicyRules:
    """The rules of the Configuration; with `problem` set if it cannot be read."""
    try:
        return hub_rules(await manager_configuration(hub, options))
    except (BadInput, KubeError) as error:
        return PolicyRules(author="the hub's dispatch policy", problem=f"the Configuration cannot be read: {error}")


def policy_text(document: JsonObject) -> str:
    """The dispatch policy on one line."""
    namespaces = _all_of(document["allowedNamespaces"]) or "any"
    parts = [
        f"namespaces {namespaces} except {', '.join(document['deniedNamespaces'])}",
        f"service accounts {_all_of(document['serviceAccounts']) or 'any'}",
        f"Pod Security level {document['podSecurity']}",
        *document["problems"],
    ]
    return "; ".join(parts)


def _all_of(lists: list[list[str]]) -> str:
    return " and also ".join(", ".join(names) for names in lists)


def _document(
    cluster: JsonObject,
    *,
    registration: JsonObject,
    report: JsonObject,
    configs: list[str],
    workloads: int,
    assignments: int,
) -> JsonObject:
    metadata: JsonObject = cluster["metadata"]
    active = condition_of(cluster, ACTIVE_CONDITION)
    spec: JsonObject = registration.get("spec") or {}
    status: JsonObject = registration.get("status") or {}
    reported: JsonObject = report.get("status") or {}
    has_agent = (metadata.get("annotations") or {}).get(TRANSPORT_ANNOTATION) == TransportType.AGENT
    registered = condition_of(registration, "Registered")
    return {
        "name": metadata["name"],
        "transport": str(TransportType.AGENT if has_agent else TransportType.PUSH),
        "active": active.get("status") == "True",
        "reason": active.get("reason", ""),
        "message": active.get("message", ""),
        "since": active.get("lastTransitionTime"),
        "accepted": bool(spec.get("accepted")) if registration else None,
        "registration": _registration(metadata["name"], registration),
        "cordoned": bool(spec.get("cordoned")),
        "drain": bool(spec.get("drain")),
        "drainDeadline": spec.get("drainDeadline"),
        "registered": {"reason": registered.get("reason", ""), "message": registered.get("message", "")},
        "clusterUID": status.get("clusterUID") or reported.get("clusterUID"),
        "certificateExpirationTime": status.get("certificateExpirationTime"),
        "configs": configs,
        "workloads": workloads,
        "copies": assignments,
        "agentVersion": reported.get("agentVersion"),
        "kubernetesVersion": reported.get("kubernetesVersion"),
        "nodes": reported.get("nodes"),
        "capacity": reported.get("capacity") or [],
        "reported": reported.get("time"),
        "missingRights": [
            {"verb": right.verb, "resource": right.resource, "required": right.required, "gives": right.gives}
            for right in (missing_of(reported, _rights()) if has_agent else read_missing(active.get("message", "")))
        ],
    }


def availability(document: Mapping[str, object]) -> str:
    """Whether the cluster accepts new workloads: schedulable, cordoned, draining or drained."""
    if document["drain"]:
        return "draining" if document["workloads"] or document["copies"] else "drained"
    return "cordoned" if document["cordoned"] else "schedulable"


def _registration(name: str, registration: JsonObject) -> str:
    """Whether the agent may join, as text."""
    spec: JsonObject = registration.get("spec") or {}
    if spec.get("accepted"):
        return "approved"
    if not spec.get("bootstrap") and not (registration.get("status") or {}).get("clusterUID"):
        return "not needed: set up by an administrator"  # only cordon and drain are stored in it, if it exists
    return f"waiting for approval: mkctl cluster approve {name}"


def _listed(config: JsonObject) -> list[str]:
    found: list[str] = (config.get("spec") or {}).get("clusters") or []
    return found


async def _by_name(hub: KubeClient, resource: Resource) -> dict[str, JsonObject]:
    page = await hub.list_all(resource)
    objects = [orjson.loads(raw) for raw in page.items]
    return {obj["metadata"]["name"]: obj for obj in objects}


async def _by_mailbox(hub: KubeClient, resource: Resource) -> dict[str, JsonObject]:
    page = await hub.list_all(resource)
    objects = [orjson.loads(raw) for raw in page.items]
    return {obj["metadata"]["namespace"]: obj for obj in objects if obj["metadata"]["name"] == MAILBOX_OBJECT_NAME}
