# SPDX-License-Identifier: Apache-2.0
"""The facts that dispatch decides on, listed once from the objects of a hub.

Owns the listing and the state of each cluster as the hub's objects show it. The facts are gathered with the manager's
code, so an explanation always matches the manager's decision. Three facts are known to the manager only: when it
received a Lease or a report (the time of the write on the hub is used instead), the observations of push clusters, and
since when a cluster is out of the config or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio

from manager.cache.caches import Caches
from manager.cache.followed_kind import FollowedKind
from manager.cache.indexes import REPLICA_INDEX, replicas_by_owner
from manager.cache.views import View
from manager.dispatch.checks import CheckSource, source_of
from manager.dispatch.condition_writes import active_condition
from manager.dispatch.gather import Gathered, Gatherer
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    ADOPTS_SEAL_ANNOTATION,
    CANNOT_STOP_ANNOTATION,
    MAILBOX_OBJECT_NAME,
    MULTIKUEUE_CONTROLLER,
    TRANSPORT_ANNOTATION,
    TransportType,
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
    DEVICE_CLASSES,
    LEASES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    PRIORITY_CLASSES,
    PROVISIONING_REQUEST_CONFIGS,
    REMOTE_ASSIGNMENTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.clock import SystemClock
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, report_of
from multikueue.dispatch.hub.cluster_facts import cluster_facts, outside_config
from multikueue.dispatch.hub.facts import Adoption, ClusterFacts, DispatchedWorkload, DispatchFacts, Observation
from multikueue.dispatch.protocol import wire
from multikueue.dispatch.protocol.annotations import adoption_of
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.store import read_row
from multikueue.kube.errors import Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_ENGINE_KINDS: Final = (
    NAMESPACES,
    LIMIT_RANGES,
    RUNTIME_CLASSES,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    TOPOLOGIES,
    RESOURCE_FLAVORS,
    ADMISSION_CHECKS,
    COHORTS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    WORKLOADS,
)
_DEVICE_KINDS: Final = (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES)
DISPATCH_KINDS: Final = (
    MULTIKUEUE_CONFIGS,
    MULTIKUEUE_CLUSTERS,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    REMOTE_ASSIGNMENTS,
)


class UnverifiedSeals:
    """Seals of adoptions without verification, which needs the manager's key."""

    def adoption_of(self, obj: JsonObject | None) -> Adoption | None:
        """The remote job that an object with a seal adopts."""
        annotations: dict[str, str] = ((obj or {}).get("metadata") or {}).get("annotations") or {}
        return adoption_of(annotations) if ADOPTS_SEAL_ANNOTATION in annotations else None


@dataclass(frozen=True, slots=True)
class HubObjects:
    """The objects of the hub at the time of listing.

    `forbidden` are the kinds that the user may not list in the whole cluster. Objects of namespaced kinds among them
    are listed in the workload's namespace if that is allowed.
    """

    configuration: Configuration
    caches: Caches
    forbidden: set[Resource] = field(default_factory=set)

    @property
    def seals(self) -> UnverifiedSeals:
        """Seals are assumed to be valid: only the manager has the key."""
        return UnverifiedSeals()

    def all(self, resource: Resource) -> list[JsonObject]:
        """All listed objects of a kind."""
        return list(self.caches.view(resource).objects())


def engine_kinds(configuration: Configuration) -> tuple[Resource, ...]:
    """What admission depends on; classes of devices and claim templates only where devices count."""
    return (*_ENGINE_KINDS, *(_DEVICE_KINDS if configuration.counts_devices else ()))


async def listed(hub: KubeClient, configuration: Configuration, *, namespace: str = "") -> HubObjects:
    """List all kinds; a kind that is not installed has no objects. Raises `KubeError`.

    With a namespace, kinds that may not be listed in the whole cluster are listed there if allowed, else left out.
    """
    workloads = FollowedKind(resource=WORKLOADS, indexers={REPLICA_INDEX: replicas_by_owner})
    found = HubObjects(configuration, Caches(hub, (workloads,), clock=SystemClock()))
    failures: list[KubeError] = []

    async def list_all(view: View, field_selector: str | None = None) -> None:
        try:
            try:
                page = await hub.list_all(view.resource, field_selector=field_selector)
            except Forbidden:
                if not namespace:
                    raise
                found.forbidden.add(view.resource)
                if not view.resource.namespaced:
                    return
                page = await hub.list_all(view.resource, namespace=namespace, field_selector=field_selector)
        except NotFound:
            return
        except KubeError as error:
            if isinstance(error, Forbidden) and namespace and view.resource != WORKLOADS:
                return
            failures.append(error)  # raised below: the task group would wrap it in an ExceptionGroup
            tasks.cancel_scope.cancel()
            return
        for raw in page.items:
            view.store.put(read_row(raw))

    async with anyio.create_task_group() as tasks:
        # Not one of DISPATCH_KINDS: who may not list it is shown the clusters all the same.
        for resource in (*engine_kinds(configuration), *DISPATCH_KINDS, PROVISIONING_REQUEST_CONFIGS):
            tasks.start_soon(list_all, found.caches.view(resource))
        tasks.start_soon(list_all, found.caches.view(LEASES), f"metadata.name={MAILBOX_OBJECT_NAME}")
    if failures:
        raise failures[0]
    return found


async def add_job(hub: KubeClient, objects: HubObjects, workload: JsonObject) -> None:
    """Add the job of a Workload; its annotations apply if the Workload has none. Raises `KubeError`."""
    registry = JobRegistry.configured(objects.configuration)
    namespace = workload["metadata"]["namespace"]
    for owner in workload["metadata"].get("ownerReferences") or ():
        integration = registry.sent_kind(owner["apiVersion"], owner["kind"])
        if integration is None:
            continue
        try:
            raw = await hub.get(integration.resource, owner["name"], namespace=namespace)
        except NotFound:
            continue
        except Forbidden:
            objects.forbidden.add(integration.resource)
            continue
        objects.caches.view(integration.resource).store.put(read_row(raw))


class HubFacts:
    """Dispatch facts of all workloads of one hub."""

    def __init__(self, objects: HubObjects, now: datetime) -> None:
        """Raises `BadInput`."""
        self._now = now
        self._clusters = _Clusters(objects, now)
        self._observations = _observations(objects)
        self._gatherer = Gatherer(
            objects,
            checks=_Checks(objects),
            clusters=self._clusters,
            registry=JobRegistry.configured(objects.configuration),
        )
        for workload in objects.all(WORKLOADS):
            facts = self._gather(workload)
            if facts is not None and facts.workload is not None:
                for name in facts.occupied_clusters():
                    self._clusters.capacity(name).hold(
                        facts.workload.key, facts.workload.demands, queue=facts.workload.queue
                    )

    @property
    def hosted(self) -> frozenset[str]:
        """The push clusters; their mailboxes are in the manager's memory."""
        return self._clusters.hosted

    def of(self, workload: JsonObject) -> DispatchFacts | None:
        """The facts of one workload; None if it is not dispatched."""
        return self._gather(workload)

    def _gather(self, workload: JsonObject) -> DispatchFacts | None:
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        observations = self._observations.get(key, {})
        found: Gathered | None = self._gatherer.gather(key, workload, observations, now=self._now, explains=True)
        if found is None or found.facts.workload is None:
            return None
        facts, chosen = found.facts, found.facts.workload.cluster_name
        if chosen in self.hosted and chosen not in facts.observations:
            facts = replace(
                facts, observations={**facts.observations, chosen: _assumed_observation(found.facts.workload)}
            )
        # Only the manager, which has seen the assignment, can know that it was deleted by someone else.
        return facts if chosen in facts.observations else replace(facts, delivered=False)


def _assumed_observation(workload: DispatchedWorkload) -> Observation:
    """The observation that a manager assumes for a granted workload before the cluster reports."""
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
    """Cluster facts from MultiKueueClusters, their conditions, and the Leases and reports in the mailboxes."""

    def __init__(self, objects: HubObjects, now: datetime) -> None:
        self._objects = objects
        self._now = now
        self._capacities: dict[str, ClusterCapacity] = {}
        self._known: dict[str, ClusterFacts] = {}
        clusters = {each["metadata"]["name"]: each for each in objects.all(MULTIKUEUE_CLUSTERS)}
        self.hosted = frozenset(
            name
            for name, cluster in clusters.items()
            if (cluster["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != TransportType.AGENT
        )
        for name, cluster in clusters.items():
            self._known[name] = self._facts(name, cluster)

    def capacity(self, name: str) -> ClusterCapacity:
        return self._capacities.setdefault(name, ClusterCapacity())

    def inside(self, name: str, *, check: str) -> ClusterFacts:
        why = "the MultiKueueCluster does not exist"
        return self._known.get(name) or self.outside(name, check=check, why=why)

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        known = self._known.get(name)
        if known is not None and known.lost_since is not None:
            return known
        fences = name not in self.hosted
        # The time at which the manager noticed it is in its memory; the explanation shows none.
        return outside_config(name, known, lost_since=self._now, agent_lost_since=None, fences=fences, why=why)

    def _facts(self, name: str, cluster: JsonObject) -> ClusterFacts:
        metadata: JsonObject = cluster["metadata"]
        active = active_condition(cluster)
        available = active is not None and active.status == TRUE
        registration = self._objects.caches.view(CLUSTER_REGISTRATIONS).object(Key("", name))
        mailbox = Key(mailbox_namespace(name), MAILBOX_OBJECT_NAME)
        report = self._objects.caches.view(CLUSTER_REPORTS).object(mailbox) or {}
        capacity = self.capacity(name)
        try:
            capacity.replace(report_of(report.get("status") or {}))
        except BadInput:
            capacity.replace(None)  # as the manager does, which also logs the error
        since = parse_time(metadata["creationTimestamp"]) if active is None else active.last_transition_time
        if not available and active is not None and active.reason == ClusterReason.CLIENT_CONNECTION_FAILED:
            since = self._last_contact(mailbox) or since
        return cluster_facts(
            cluster,
            registration,
            lost_since=None if available else since,
            agent_lost_since=None if available else since,
            cannot_stop=self._cannot_stop(mailbox),
            fences=name not in self.hosted,
            reason="" if active is None else active.reason,
            message="not processed by the manager yet" if active is None else active.message,
            capacity=capacity,
            reported_at=None if capacity.report is None else self._write_time(report, report["status"].get("time")),
        )

    def _cannot_stop(self, mailbox: Key) -> bool:
        lease = self._objects.caches.view(LEASES).object(mailbox) or {}
        return CANNOT_STOP_ANNOTATION in ((lease.get("metadata") or {}).get("annotations") or {})

    def _last_contact(self, mailbox: Key) -> datetime | None:
        lease = self._objects.caches.view(LEASES).object(mailbox) or {}
        renewed: str | None = (lease.get("spec") or {}).get("renewTime")
        return self._write_time(lease, renewed) if renewed else None

    def _write_time(self, obj: JsonObject, reported: str | None) -> datetime | None:
        """The later of the agent's time and the server's time of the write: the agent's clock may be minutes off."""
        fields: list[JsonObject] = obj["metadata"].get("managedFields") or []
        times = [parse_time(text) for text in (reported, *(entry.get("time") for entry in fields)) if text]
        return min(self._now, max(times)) if times else None
