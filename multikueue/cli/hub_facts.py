# SPDX-License-Identifier: Apache-2.0
"""What dispatch decides on, read once from the objects of a hub.

Owns the listing and the book of clusters as the hub's objects show them. The facts are gathered by the manager's own
code from these, so that an explanation cannot drift from what the manager does. Two things only the manager knows:
when it heard of a Lease or a report itself (here the hub's own time of the write stands in), and what the clusters that
it reaches by kubeconfig hold; those are `unseen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import anyio

from manager.caches import Caches
from manager.dispatch.checks import CheckSource, source_of
from manager.dispatch.condition_writes import active_condition
from manager.dispatch.gather import Gathered, Gatherer
from manager.views import View
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    CANNOT_STOP_ANNOTATION,
    MAILBOX_OBJECT_NAME,
    MULTIKUEUE_CONTROLLER,
    TRANSPORT_ANNOTATION,
    Transport,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.api.remoteassignment import Intent, mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    COHORTS,
    CONFIG_MAPS,
    LEASES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    PRIORITY_CLASSES,
    REMOTE_ASSIGNMENTS,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.clock import SystemClock
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.federation import wire
from multikueue.federation.annotations import weight_of
from multikueue.federation.facts import ClusterFacts, Facts, Observation, WorkloadFacts
from multikueue.federation.occupancy import occupied
from multikueue.federation.standing_room import StandingRoom, report_of
from multikueue.integrations.registry import Registry
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.header import read_row

ENGINE_KINDS: Final = (
    NAMESPACES,
    LIMIT_RANGES,
    RUNTIME_CLASSES,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    ADMISSION_CHECKS,
    COHORTS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    WORKLOADS,
)
_CONFIG_MAP: Final = "kueue-manager-config"
_CONFIG_KEY: Final = "controller_manager_config.yaml"
_DISPATCH_KINDS: Final = (
    MULTIKUEUE_CONFIGS,
    MULTIKUEUE_CLUSTERS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    REMOTE_ASSIGNMENTS,
)


@dataclass(frozen=True, slots=True)
class HubObjects:
    """The objects that were there when they were listed."""

    configuration: Configuration
    caches: Caches

    def all(self, resource: Resource) -> list[JsonObject]:
        """The objects of a kind."""
        return list(self.caches.view(resource).objects())


async def listed(hub: KubeClient, configuration: Configuration) -> HubObjects:
    """List everything; a kind that is not installed has no objects. Raises `KubeError`."""
    found = HubObjects(configuration, Caches(hub, (), clock=SystemClock()))
    failures: list[KubeError] = []

    async def list_all(view: View, field_selector: str | None = None) -> None:
        try:
            page = await hub.list_all(view.resource, field_selector=field_selector)
        except NotFound:
            return
        except KubeError as error:
            failures.append(error)  # one of them says it all; out of the task group they would come as a group
            tasks.cancel_scope.cancel()
            return
        for raw in page.items:
            view.store.put(read_row(raw))

    async with anyio.create_task_group() as tasks:
        for resource in (*ENGINE_KINDS, *_DISPATCH_KINDS):
            tasks.start_soon(list_all, found.caches.view(resource))
        tasks.start_soon(list_all, found.caches.view(LEASES), f"metadata.name={MAILBOX_OBJECT_NAME}")
    if failures:
        raise failures[0]
    return found


async def add_job(hub: KubeClient, objects: HubObjects, workload: JsonObject) -> None:
    """Fetch the job of a Workload too: its annotations count where the Workload has none. Raises `KubeError`."""
    registry = Registry(objects.configuration.integrations.frameworks)
    namespace = workload["metadata"]["namespace"]
    for owner in workload["metadata"].get("ownerReferences") or ():
        integration = registry.for_kind(owner["apiVersion"], owner["kind"])
        if integration is None:
            continue
        try:
            raw = await hub.get(integration.resource, owner["name"], namespace=namespace)
        except NotFound:
            continue
        objects.caches.view(integration.resource).store.put(read_row(raw))


class HubFacts:
    """The facts of every workload of one hub."""

    def __init__(self, objects: HubObjects, now: datetime) -> None:
        """Raises `BadInput`."""
        self._now = now
        self._clusters = _Clusters(objects, now)
        self._observations = _observations(objects)
        self._gatherer = Gatherer(
            objects,
            checks=_Checks(objects),
            clusters=self._clusters,
            registry=Registry(objects.configuration.integrations.frameworks),
        )
        for workload in objects.all(WORKLOADS):
            facts = self._gather(workload)
            if facts is not None and facts.workload is not None:
                for name in occupied(facts):
                    self._clusters.room(name).hold(facts.workload.key, facts.workload.demands)

    @property
    def hosted(self) -> frozenset[str]:
        """The clusters that the manager reaches itself: their mailboxes are in its memory."""
        return self._clusters.hosted

    def of(self, workload: JsonObject) -> Facts | None:
        """The facts about one workload; None when it is none of dispatch's business."""
        return self._gather(workload)

    def _gather(self, workload: JsonObject) -> Facts | None:
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        found: Gathered | None = self._gatherer.gather(key, workload, self._observations.get(key, {}), now=self._now)
        if found is None or found.facts.workload is None:
            return None
        facts, chosen = found.facts, found.facts.workload.cluster_name
        if chosen in self.hosted and chosen not in facts.observations:
            facts = replace(facts, observations={**facts.observations, chosen: _belief(found.facts.workload)})
        # That a copy was removed by somebody only the manager can know, who saw it there before.
        return facts if chosen in facts.observations else replace(facts, delivered=False)


def _belief(workload: WorkloadFacts) -> Observation:
    """What a manager believes of work that it granted to a cluster it has not asked yet."""
    return Observation(
        cluster=workload.cluster_name,
        workload_uid=workload.uid,
        epoch=workload.epoch,
        intent=Intent.RUN,
        fingerprint=workload.fingerprint,
    )


def _observations(objects: HubObjects) -> Mapping[Key, Mapping[str, Observation]]:
    found: dict[Key, dict[str, Observation]] = {}
    for obj in objects.all(REMOTE_ASSIGNMENTS):
        seen = wire.observation_of(obj)
        found.setdefault(wire.workload_of(obj), {})[seen.cluster] = seen
    return found


class _Checks:
    def __init__(self, objects: HubObjects) -> None:
        configs = objects.caches.view(MULTIKUEUE_CONFIGS)
        self._sources = {
            check["metadata"]["name"]: source_of(check, configs)
            for check in objects.all(ADMISSION_CHECKS)
            if check["spec"].get("controllerName") == MULTIKUEUE_CONTROLLER
        }

    def source(self, name: str) -> CheckSource | None:
        return self._sources.get(name)


class _Clusters:
    """The book of clusters, from MultiKueueClusters, their conditions, and what stands in the mailboxes."""

    def __init__(self, objects: HubObjects, now: datetime) -> None:
        self._objects = objects
        self._now = now
        self._rooms: dict[str, StandingRoom] = {}
        self._known: dict[str, ClusterFacts] = {}
        hosted = set()
        for cluster in objects.all(MULTIKUEUE_CLUSTERS):
            name: str = cluster["metadata"]["name"]
            if (cluster["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != Transport.AGENT:
                hosted.add(name)
            self._known[name] = self._facts(name, cluster)
        self.hosted = frozenset(hosted)

    def room(self, name: str) -> StandingRoom:
        return self._rooms.setdefault(name, StandingRoom())

    def inside(self, name: str, *, check: str) -> ClusterFacts:
        why = "the MultiKueueCluster does not exist"
        return self._known.get(name) or self.outside(name, check=check, why=why)

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        known = self._known.get(name)
        if known is not None and known.lost_since is not None:
            return known
        return ClusterFacts(
            name=name,
            exists=known is not None,
            lost_since=self._now,
            reason="NotInConfig",
            message=why,
            takes_new_work=False,
        )

    def fences(self, name: str) -> bool:
        return name not in self.hosted

    def _facts(self, name: str, cluster: JsonObject) -> ClusterFacts:
        metadata: JsonObject = cluster["metadata"]
        active = active_condition(cluster)
        available = active is not None and active.status == TRUE
        registration = self._objects.caches.view(CLUSTER_REGISTRATIONS).object(Key("", name))
        spec: JsonObject = (registration or {}).get("spec") or {}
        mailbox = Key(mailbox_namespace(name), MAILBOX_OBJECT_NAME)
        report = self._objects.caches.view(CLUSTER_REPORTS).object(mailbox) or {}
        room = self.room(name)
        try:
            room.replace(report_of(report.get("status") or {}))
        except BadInput:
            room.replace(None)  # as the manager, which says in its log what is wrong with it
        since = parse_time(metadata["creationTimestamp"]) if active is None else active.last_transition_time
        if not available and active is not None and active.reason == ClusterReason.CLIENT_CONNECTION_FAILED:
            since = self._heard_last(mailbox) or since
        return ClusterFacts(
            name=name,
            lost_since=None if available else since,
            silent_since=None if available else since,
            cannot_stop=self._cannot_stop(mailbox),
            reason="" if active is None else active.reason,
            message="the manager has not looked at it yet" if active is None else active.message,
            takes_new_work=not (spec.get("cordoned") or spec.get("drain")),
            draining=bool(spec.get("drain")),
            drain_deadline=parse_time(spec["drainDeadline"]) if spec.get("drainDeadline") else None,
            labels=metadata.get("labels") or {},
            weight=weight_of(metadata.get("annotations") or {}),
            room=room,
            reported_at=None if room.report is None else self._written(report, report["status"].get("time")),
        )

    def _cannot_stop(self, mailbox: Key) -> bool:
        lease = self._objects.caches.view(LEASES).object(mailbox) or {}
        return CANNOT_STOP_ANNOTATION in ((lease.get("metadata") or {}).get("annotations") or {})

    def _heard_last(self, mailbox: Key) -> datetime | None:
        lease = self._objects.caches.view(LEASES).object(mailbox) or {}
        renewed: str | None = (lease.get("spec") or {}).get("renewTime")
        return self._written(lease, renewed) if renewed else None

    def _written(self, obj: JsonObject, said: str | None) -> datetime | None:
        """When the agent wrote it, by the server's clock where that is later: the agent's may be minutes off."""
        fields: list[JsonObject] = obj["metadata"].get("managedFields") or []
        times = [parse_time(text) for text in (said, *(entry.get("time") for entry in fields)) if text]
        return min(self._now, max(times)) if times else None


async def configuration_text(hub: KubeClient, namespace: str) -> str:
    """The manager's Configuration as its ConfigMap holds it; empty where there is none. Raises `KubeError`."""
    try:
        found = await hub.get_object(CONFIG_MAPS, _CONFIG_MAP, namespace=namespace)
    except NotFound:
        return ""
    return str((found.get("data") or {}).get(_CONFIG_KEY) or "")
