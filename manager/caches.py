# SPDX-License-Identifier: Apache-2.0
"""The shared informers of the manager: one per kind, for every reconciler, on leaders and followers alike.

Owns which kinds are followed and with which indexes, and what happens when a CRD is not installed: one line that
names it, an empty view that counts as synced, and a look from time to time whether it has appeared. Promises that
subscriptions end with `unsubscribe_all`, so that a follower keeps its caches warm and tells nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

import anyio
import orjson

from manager.views import Handler, View
from multikueue.api.constants import MAILBOX_OBJECT_NAME, PREBUILT_WORKLOAD_LABEL, WORKLOAD_PRIORITY_CLASS_KIND
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    COHORTS,
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
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.clock import Clock
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.informer import Informer
from multikueue.kube.store import Indexer, packed

_log = logging.getLogger(__name__)

OWNER_INDEX: Final = "owner"
"""Workloads by `Kind.group/namespace/name` of each of their owners."""
PREBUILT_INDEX: Final = "prebuilt"
"""Jobs by `namespace/name` of the prebuilt Workload they name."""
QUEUE_INDEX: Final = "queue"
"""Workloads by `namespace/LocalQueue`."""
PRIORITY_CLASS_INDEX: Final = "priorityClass"
"""Workloads by the name of their WorkloadPriorityClass."""
CLUSTER_QUEUE_INDEX: Final = "clusterQueue"
"""Workloads by the ClusterQueue they hold quota in; LocalQueues by the one they point to."""
DISPATCH_INDEX: Final = "dispatch"
"""Workloads that are not finished by the cluster they were granted to, `""` while they hold quota and have none."""
_MISSING_SECONDS: Final = 10.0

Shrink: TypeAlias = Callable[[bytes], bytes]
"""Cuts an object down to what is worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A kind and how it is followed."""

    resource: Resource
    namespace: str | None = None
    field_selector: str | None = None
    indexers: Mapping[str, Indexer] = field(default_factory=dict)
    shrink: Shrink | None = None
    """What is kept of a kind of which there is one object or more for each workload."""


_SENT: Final = ("workloadSpec", "workloadLabels", "workloadAnnotations", "podSetAssignments")


def without_owners_of_fields(raw: bytes) -> bytes:
    """The object without `metadata.managedFields`, a third of it or more, which nobody here reads; packed."""
    obj: JsonObject = orjson.loads(raw)
    obj["metadata"].pop("managedFields", None)
    return packed(orjson.dumps(obj))


def without_what_was_sent(raw: bytes) -> bytes:
    """An assignment without what its cluster makes the job of: the larger part, read live when it matters; packed."""
    obj: JsonObject = orjson.loads(raw)
    obj["metadata"].pop("managedFields", None)
    spec: JsonObject = obj.get("spec") or {}
    for name in _SENT:
        spec.pop(name, None)
    spec.get("job", {}).pop("manifest", None)
    return packed(orjson.dumps(obj))


def owner_term(*, api_version: str, kind: str, namespace: str, name: str) -> str:
    """What `OWNER_INDEX` holds the objects of that owner under."""
    group, _, _ = api_version.rpartition("/")
    return f"{kind}.{group}/{namespace}/{name}"


def _owners(obj: JsonObject) -> Iterable[str]:
    metadata = obj["metadata"]
    return [
        owner_term(
            api_version=owner["apiVersion"], kind=owner["kind"], namespace=metadata["namespace"], name=owner["name"]
        )
        for owner in metadata.get("ownerReferences") or ()
    ]


def prebuilt_name(job: JsonObject) -> str:
    """The prebuilt Workload that a job names; empty without one."""
    metadata = job["metadata"]
    for texts in (metadata.get("labels"), metadata.get("annotations")):
        if texts and texts.get(PREBUILT_WORKLOAD_LABEL):
            return str(texts[PREBUILT_WORKLOAD_LABEL])
    return ""


def _prebuilt(job: JsonObject) -> Iterable[str]:
    name = prebuilt_name(job)
    return [str(Key(job["metadata"]["namespace"], name))] if name else ()


def _queue(obj: JsonObject) -> Iterable[str]:
    name = (obj.get("spec") or {}).get("queueName")
    return [str(Key(obj["metadata"]["namespace"], name))] if name else ()


def _reserved_in(obj: JsonObject) -> Iterable[str]:
    name = ((obj.get("status") or {}).get("admission") or {}).get("clusterQueue")
    return [name] if name else ()


def _dispatched_to(obj: JsonObject) -> Iterable[str]:
    status: JsonObject = obj.get("status") or {}
    ended = any(
        item["type"] == WorkloadCondition.FINISHED and item["status"] == TRUE for item in status.get("conditions") or ()
    )
    waits = status.get("clusterName") or status.get("admission")
    return [status.get("clusterName") or ""] if waits and not ended else ()


def _priority_class(obj: JsonObject) -> Iterable[str]:
    reference: JsonObject = (obj.get("spec") or {}).get("priorityClassRef") or {}
    return [reference["name"]] if reference.get("kind") == WORKLOAD_PRIORITY_CLASS_KIND else ()


def _points_to(obj: JsonObject) -> Iterable[str]:
    name = (obj.get("spec") or {}).get("clusterQueue")
    return [name] if name else ()


def followed(
    *, namespace: str, jobs: Iterable[Resource], cluster_profiles: Sequence[Resource] = ()
) -> tuple[Followed, ...]:
    """What a manager follows; `jobs` are the kinds of the enabled integrations.

    `cluster_profiles` is empty while no worker can be named by a ClusterProfile: their CRD is seldom installed.
    """
    plain = (
        CLUSTER_QUEUES,
        COHORTS,
        RESOURCE_FLAVORS,
        ADMISSION_CHECKS,
        MULTIKUEUE_CLUSTERS,
        MULTIKUEUE_CONFIGS,
        WORKLOAD_PRIORITY_CLASSES,
        PRIORITY_CLASSES,
        NAMESPACES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        CLUSTER_REPORTS,
        CLUSTER_REGISTRATIONS,
    )
    return (
        *(Followed(resource=resource) for resource in plain),
        Followed(resource=LOCAL_QUEUES, indexers={CLUSTER_QUEUE_INDEX: _points_to}),
        Followed(
            resource=WORKLOADS,
            indexers={
                OWNER_INDEX: _owners,
                QUEUE_INDEX: _queue,
                CLUSTER_QUEUE_INDEX: _reserved_in,
                DISPATCH_INDEX: _dispatched_to,
                PRIORITY_CLASS_INDEX: _priority_class,
            },
            shrink=without_owners_of_fields,
        ),
        Followed(resource=REMOTE_ASSIGNMENTS, shrink=without_what_was_sent),
        Followed(resource=SECRETS, namespace=namespace),
        *(Followed(resource=resource, namespace=namespace) for resource in cluster_profiles),
        Followed(resource=LEASES, field_selector=f"metadata.name={MAILBOX_OBJECT_NAME}"),
        *(
            Followed(resource=resource, indexers={PREBUILT_INDEX: _prebuilt}, shrink=without_owners_of_fields)
            for resource in jobs
        ),
    )


class Caches:
    """One view per kind."""

    def __init__(
        self, client: KubeClient, kinds: Iterable[Followed], *, clock: Clock, random: Random | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._kinds = tuple(kinds)
        self._views = {kind.resource: View(kind.resource, clock=clock) for kind in self._kinds}
        self._informers: dict[Resource, Informer] = {}
        self.put_back = anyio.Event()
        """Set when the management cluster turns out to have been restored from a backup."""
        self._settled: dict[Resource, anyio.Event] = {kind.resource: anyio.Event() for kind in self._kinds}

    def view(self, resource: Resource) -> View:
        """The view of a kind; of one that is not followed, an empty one that stays so."""
        found = self._views.get(resource)
        if found is None:
            found = self._views[resource] = View(resource, clock=self._clock)
        return found

    def subscribe(self, resource: Resource, handler: Handler) -> None:
        """Tell `handler` of each change of that kind until leadership ends, beginning with what is there."""
        self.view(resource).subscribe(handler)

    async def replay(self, resource: Resource, handler: Handler) -> None:
        """As `subscribe`, giving way to others while many objects are told of."""
        await self.view(resource).replay(handler)

    def unsubscribe_all(self) -> None:
        """End all subscriptions."""
        for view in self._views.values():
            view.unsubscribe_all()

    def informer(self, resource: Resource) -> Informer | None:
        """The informer of a kind; None while its CRD is not installed."""
        return self._informers.get(resource)

    def workload(self, key: Key) -> JsonObject | None:
        """The newest Workload known of that key."""
        return self.view(WORKLOADS).object(key)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Kinds whose first list has not come yet."""
        return tuple(kind.qualified for kind, event in self._settled.items() if not event.is_set())

    async def synced(self) -> None:
        """Wait until every kind was listed once, or is known not to be installed."""
        for event in self._settled.values():
            await event.wait()

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with anyio.create_task_group() as tasks:
            for kind in self._kinds:
                tasks.start_soon(self._follow, kind, name=f"informer-{kind.resource.plural}")

    async def _follow(self, kind: Followed) -> None:
        resource = kind.resource
        settled = self._settled[resource]
        reported = False
        while not await self._installed(resource):
            if not reported:
                _log.error(
                    "%s is not installed on %s: the CustomResourceDefinition %s is missing; what needs it waits,"
                    " apply crds/ to install it",
                    resource.kind,
                    self._client.config.name,
                    resource.qualified,
                )
                reported = True
            settled.set()
            await anyio.sleep(_MISSING_SECONDS)
        if reported:
            _log.info("%s is installed now", resource.qualified)
        informer = Informer(
            self._client,
            resource,
            namespace=kind.namespace,
            field_selector=kind.field_selector,
            indexers=kind.indexers,
            shrink=kind.shrink,
            clock=self._clock,
            random=self._random,
        )
        informer.was_put_back = self.put_back.set
        self._informers[resource] = informer
        self._views[resource].follow(informer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run, name=f"follow-{resource.plural}")
            await informer.synced.wait()
            settled.set()

    async def _installed(self, resource: Resource) -> bool:
        """Whether the server knows the kind; a server that cannot say is left to the informer's back-off."""
        try:
            await self._client.list_page(resource, limit=1, metadata_only=True)
        except NotFound:
            return False
        except KubeError:
            return True
        return True
