# SPDX-License-Identifier: Apache-2.0
"""The keys that jobs of one kind are reconciled by, and what belongs to a key.

An object has a key of its own; the members of a group share one, and a replicated job has one for each replica, since
each of these has a Workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from manager.cache.caches import Caches
from manager.cache.indexes import GROUP_INDEX, OWNER_INDEX, owner_term
from manager.controllers.held_pods import HeldPods, owner_key
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import GroupedKind, HeldPod, PodHoldingKind, ReplicatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.workloads import is_of_group, replica_of_workload
from multikueue.jobs.kinds import pod_group
from multikueue.kube.cache.store import Row

# No name of an object has a slash.
_GROUP_PREFIX: Final = "group/"
_REPLICA_PREFIX: Final = "replica/"


class JobKeys:
    """The keys of one kind."""

    def __init__(self, caches: Caches, integration: JobIntegration) -> None:
        self._integration = integration
        self._jobs = caches.view(integration.resource)
        self._workloads = caches.view(WORKLOADS)
        self._held = HeldPods(caches)
        self._is_replicated = isinstance(integration, ReplicatedKind)

    def of_object(self, row: Row) -> Iterable[Key]:
        """Those that an object of the kind is reconciled by."""
        kind = self._integration
        if isinstance(kind, ReplicatedKind):
            return self._of_replicas(row.key, row.object(), kind)
        group = kind.group_of(row.object()) if isinstance(kind, GroupedKind) else ""
        return (Key(row.key.namespace, _GROUP_PREFIX + group) if group else row.key,)

    def of_pod(self, pod: JsonObject) -> Key | None:
        """That of the job whose pods it is one of; None if it is of no job of the kind."""
        found = owner_key(pod, self._integration)
        if found is None or not isinstance(self._integration, ReplicatedKind):
            return found
        return _of_replica(found, self._integration.replica_of_pod(pod, owner=found.name))

    def of_workload(self, workload: JsonObject) -> Iterable[Key]:
        """Those of the owners of a Workload."""
        metadata, resource = workload["metadata"], self._integration.resource
        for owner in metadata.get("ownerReferences") or ():
            group, _, _ = owner["apiVersion"].rpartition("/")
            if (group, owner["kind"]) != (resource.group, resource.kind):
                continue
            key = Key(metadata["namespace"], owner["name"])
            if self._is_replicated:
                yield _of_replica(key, replica_of_workload(workload, resource, self._jobs.object(key)))
            elif isinstance(self._integration, GroupedKind) and is_of_group(workload):
                yield Key(metadata["namespace"], _GROUP_PREFIX + metadata["name"])
            else:
                yield key

    def of_job(self, key: Key) -> Key:
        """The name of the object that is reconciled by a key, of a group that of the group."""
        return Key(key.namespace, key.name.removeprefix(_GROUP_PREFIX)) if _is_group(key) else _split(key)[0]

    def job(self, key: Key) -> JsonObject | None:
        """The job, the replica or the group of a key; with its pods if it holds them."""
        kind = self._integration
        if isinstance(kind, GroupedKind) and _is_group(key):
            group = key.name.removeprefix(_GROUP_PREFIX)
            found = self._jobs.objects(GROUP_INDEX, str(Key(key.namespace, group)))
            # The index still has an object that one of our writes has taken out of the group.
            members = [each for each in found if kind.group_of(each) == group]
            return kind.composed(members) if members else None
        own, index = _split(key)
        job: JsonObject | None = self._jobs.object(own)
        if job is None:
            return None
        if isinstance(kind, ReplicatedKind):
            return self._held.added_to(kind.replica(job, index), kind)
        return self._held.added_to(job, kind) if isinstance(kind, PodHoldingKind) else job

    def workloads(self, key: Key) -> list[JsonObject]:
        """The Workloads whose owner is the job of a key, whether it exists or not."""
        resource = self._integration.resource
        if _is_group(key):
            found = self._workloads.object(self.of_job(key))
            return [found] if found is not None and is_of_group(found) else []
        own, index = _split(key)
        owned = self._owned(own)
        if self._is_replicated:
            job = self._jobs.object(own)
            named = (each for each in owned if replica_of_workload(each, resource, job) == index)
            return [each for each in named if not _is_of_another(each, resource, own)]
        grouped = isinstance(self._integration, GroupedKind)
        return [each for each in owned if not grouped or not is_of_group(each)]

    def running_pods(self, key: Key, owners: Iterable[str]) -> list[JsonObject]:
        """The pods of a job with one of these uids, which may be gone, that use the quota of its Workload."""
        if not isinstance(self._integration, PodHoldingKind):
            return []
        own, index = _split(key)
        return self._held.running(own, self._integration, uids=owners, index=index)

    def left_behind(self, key: Key) -> JsonObject | None:
        """The pods that run and name a job that is gone, which nothing else stops, as pods of that job."""
        found = [pod for pod in self.running_pods(key, ()) if not pod_group.is_deleting(pod)]
        if not found or not isinstance(self._integration, PodHoldingKind):
            return None
        own, _ = _split(key)
        gone: JsonObject = {"metadata": {"namespace": own.namespace, "name": own.name}}
        return self._integration.with_pods(gone, [HeldPod(pod=pod) for pod in found])

    def _owned(self, key: Key) -> list[JsonObject]:
        resource = self._integration.resource
        term = owner_term(api_version=resource.api_version, kind=resource.kind, namespace=key.namespace, name=key.name)
        return list(self._workloads.objects(OWNER_INDEX, term))

    def _of_replicas(self, key: Key, job: JsonObject, kind: ReplicatedKind) -> Iterable[Key]:
        """Of the replicas that it is to have, and of those that have a Workload; at least of one."""
        try:
            count = kind.replicas(job)
        except BadInput:  # it is reported when the first one is reconciled
            count = 0
        indices = {0, *range(count)}
        indices.update(replica_of_workload(each, self._integration.resource, job) for each in self._owned(key))
        return [_of_replica(key, index) for index in sorted(indices)]


def _is_of_another(workload: JsonObject, resource: Resource, key: Key) -> bool:
    """Whether another object controls the Workload: a further owner that a tenant adds does not make it that one's."""
    owner = controller_of(workload)
    return owner is not None and (owner["kind"], owner["name"]) != (resource.kind, key.name)


def _is_group(key: Key) -> bool:
    return key.name.startswith(_GROUP_PREFIX)


def _of_replica(key: Key, index: int) -> Key:
    return Key(key.namespace, f"{_REPLICA_PREFIX}{index}/{key.name}")


def _split(key: Key) -> tuple[Key, int]:
    """The key of the object, and the index of the replica."""
    if not key.name.startswith(_REPLICA_PREFIX):
        return key, 0
    index, _, name = key.name.removeprefix(_REPLICA_PREFIX).partition("/")
    return Key(key.namespace, name), int(index)
