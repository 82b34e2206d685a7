# SPDX-License-Identifier: Apache-2.0
"""The other replicas of a Workload's owner, for a kind with a Workload for each of its replicas.

Reads the caches, in which each write of this process is seen once it was answered. Of the writes that are under way it
remembers one for each owner: that of the replica that chooses the cluster, so that no other one chooses meanwhile. A
manager that has just started finds everything in the status of the Workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from manager.cache.caches import Caches
from manager.cache.indexes import PLACED, READY, REPLICA_INDEX, replica_term
from manager.workload.status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.dispatch.hub.replicas import Replica, ReplicaFacts, name_rank
from multikueue.jobs.framework.capabilities import ReplicatedKind
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.workloads import stated_replica

CanBeSent = Callable[[JsonObject, Status], bool]
"""Whether a Workload with quota waits for nothing but a cluster."""

Owner = tuple[str, str]
"""The namespace and the uid of an owner."""


class ReplicaWorkloads:
    """The Workloads of owners that have one for each replica."""

    def __init__(self, caches: Caches, registry: JobRegistry, *, can_be_sent: CanBeSent) -> None:
        self._caches = caches
        self._workloads = caches.view(WORKLOADS)
        self._registry = registry
        self._can_be_sent = can_be_sent
        self._choosing: dict[Owner, str] = {}
        self._leaders: dict[Owner, Replica] = {}
        self._owners: dict[Key, Owner] = {}

    def of(self, workload: JsonObject) -> ReplicaFacts | None:
        """The facts of a Workload that could be sent now; None if it is no replica."""
        index, owner = self._index(workload), _owner(workload)
        reference = controller_of(workload)
        if index is None or owner is None or reference is None:
            return None
        name = workload["metadata"]["name"]
        # The first in each state decides, so that the others of a large owner need not be read.
        found = (next(self._in_state(owner, state, besides=name), None) for state in (PLACED, READY))
        return ReplicaFacts(
            owner=f"{reference['kind']} {excerpt(reference['name'])}",
            own=Replica(name=name, index=index, chooses=self._choosing.get(owner) == workload["metadata"]["uid"]),
            others=tuple(each for each in found if each is not None),
        )

    def choose(self, workload: JsonObject) -> None:
        """It is about to be sent to a cluster that it chooses for all; called before that is written."""
        owner = _owner(workload)
        if owner is not None:
            self._choosing[owner] = workload["metadata"]["uid"]

    def changed(self, key: Key, workload: JsonObject | None) -> tuple[Key, ...]:
        """The replicas that wait for a cluster, if another one leads than at the last call.

        `workload` is that of `key`, None if it is gone.
        """
        if workload is not None and self._index(workload) is not None:
            owner = _owner(workload)
            assert owner is not None, "a replica has an owner that controls it"
            self._owners[key] = owner
        else:
            owner = self._owners.pop(key, None)
        if owner is None:
            return ()
        leader = next(
            (each for state in (PLACED, READY) for each in self._in_state(owner, state)),
            None,
        )
        if leader is None or leader.cluster_name:
            # No write of a choice is under way, or it can be seen.
            self._choosing.pop(owner, None)
        if leader == self._leaders.get(owner):
            return ()
        if leader is None:
            del self._leaders[owner]
            return ()
        self._leaders[owner] = leader
        return self._workloads.indexed(REPLICA_INDEX, replica_term(*owner, READY))

    def _in_state(self, owner: Owner, state: str, *, besides: str = "") -> Iterator[Replica]:
        """Those in that state, the first one first; each is read when it is asked for."""
        chooser = self._choosing.get(owner)

        def rank(key: Key) -> tuple[bool, tuple[int, str]]:
            row = self._workloads.get(key)
            return row is None or row.uid != chooser, name_rank(key.name)

        for key in sorted(self._workloads.indexed(REPLICA_INDEX, replica_term(*owner, state)), key=rank):
            workload = self._workloads.object(key)
            if key.name == besides or workload is None or _owner(workload) != owner:
                continue
            index, status = self._index(workload), Status.of(workload)
            if index is None or "deletionTimestamp" in workload["metadata"]:
                continue
            if status.cluster_name if state == PLACED else self._can_be_sent(workload, status):
                yield Replica(
                    name=key.name,
                    index=index,
                    cluster_name=status.cluster_name,
                    chooses=workload["metadata"]["uid"] == chooser,
                )

    def _index(self, workload: JsonObject) -> int | None:
        """Which replica of its owner it is; None if it is none, or one that the owner is not to have."""
        owner = controller_of(workload)
        if owner is None:
            return None
        kind = self._registry.sent_kind(owner["apiVersion"], owner["kind"])
        return self._index_of(workload, owner, kind) if isinstance(kind, ReplicatedKind) else None

    def _index_of(self, workload: JsonObject, owner: JsonObject, kind: ReplicatedKind) -> int | None:
        job = self._caches.view(kind.resource).object(Key(workload["metadata"]["namespace"], owner["name"]))
        index = stated_replica(workload, kind.resource, job)
        if index is None or job is None or job["metadata"]["uid"] != owner["uid"]:
            return index
        try:
            return index if index < kind.replicas(job) else None
        except BadInput:
            return index


def _owner(workload: JsonObject) -> Owner | None:
    owner = controller_of(workload)
    return None if owner is None else (workload["metadata"]["namespace"], str(owner["uid"]))
