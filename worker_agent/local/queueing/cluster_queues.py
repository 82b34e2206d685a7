# SPDX-License-Identifier: Apache-2.0
"""The ClusterQueues of the worker cluster, followed for their quota in a ClusterReport.

Owns the informers of ClusterQueues, Cohorts and ResourceFlavors, as far as the cluster has them and the agent may read
them. Promises that nothing is reported before all ClusterQueues were read, and that the report says why if the agent
may not read them: the hub must not take an incomplete report for missing quota.

Quota has two forms: for dispatch, free quota by flavor of as many queues as the report can hold, which is always
reported and computed by `queue_quotas`; for quota automation, the nominal quota of all queues, or why it is unknown, if
the hub requests it. The hub evaluates the latter in `multikueue.dispatch.protocol.quota_automation`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, TypeVar

import anyio

from multikueue.api.clusterreport import MAX_FLAVORS, MAX_QUEUES
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS, Resource
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.dispatch.protocol.queue_quota import FlavorReport, cluster_queue_wire, flavor_wire
from multikueue.dispatch.protocol.quota_automation import nominal_quotas
from multikueue.engine import decode
from multikueue.engine.resources import FlavorResource
from multikueue.engine.values import ClusterQueue, Cohort
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.queueing.queue_quotas import QueueUsage, held_by, queue_quotas, used_of
from worker_agent.local.queueing.queues import Queues, why_inactive
from worker_agent.reconnect import RECONNECT, reconnecting

_log = logging.getLogger(__name__)
_FIRST_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 60.0  # until the agent checks again whether it may read them
_MAX_PROBLEM: Final = 1024
_Read = TypeVar("_Read")


class ClusterQueues:
    """The ClusterQueues of the LocalQueues of this cluster."""

    def __init__(
        self,
        client: KubeClient,
        queues: Queues,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called when the report changed."""
        self._client = client
        self._queues = queues
        self._clock = clock
        self._random = random
        self._changed = changed
        self._quarantine = quarantine
        self._problem = ""
        self._absent = False
        self._decided = anyio.Event()
        """Set once it is known whether they can be read, or if that takes too long."""
        self._optional = {COHORTS: anyio.Event(), RESOURCE_FLAVORS: anyio.Event()}
        """Set likewise, once those that can be read were read."""
        self._informer: Informer | None = None
        self._usage = QueueUsage()
        self._known: dict[str, ClusterQueue] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._flavors: dict[str, FlavorReport] = {}
        queues.clones.informer.add_handler(self._on_clone)

    @property
    def problem(self) -> str:
        """Why they are not reported; empty if they are, or will be once they were read."""
        if self._informer is not None and isinstance(self._informer.last_error, Forbidden):
            # The right was revoked, and the store is no longer up to date.
            return _refused(self._informer.last_error)
        return self._problem

    def rows(self) -> list[Row] | None:
        """All ClusterQueues, sorted by name; empty if the cluster has no such kind. None while they are unknown."""
        if self._absent:
            return []
        if self._problem or self._informer is None or not self._informer.synced.is_set():
            return None
        return sorted(self._informer.store.list(), key=lambda row: row.key)

    async def report(self) -> JsonObject:
        """Their quota in a ClusterReport; nothing while it is unknown.

        The first one waits a moment for it: a hub that knows the nodes alone sends what the queues have no quota for.
        """
        undecided = [each for each in (self._decided, *self._optional.values()) if not each.is_set()]
        if undecided:
            with anyio.move_on_after(_FIRST_SECONDS):
                for each in undecided:
                    await each.wait()
            for each in undecided:
                each.set()
        if self.problem or self._absent or self.rows() is None:
            return {}
        self._usage.settle(now=self._clock.monotonic())
        found = queue_quotas(
            self._known, self._cohorts.values(), self._usage, reported=self._queues.by_cluster_queue().keys()
        )
        wire: JsonObject = {"clusterQueues": [cluster_queue_wire(queue) for queue in found]}
        named = sorted({name for queue in found for name in queue.flavors if name in self._flavors})
        if named:
            wire["flavors"] = [flavor_wire(name, self._flavors[name]) for name in named[:MAX_FLAVORS]]
        return wire

    def why_inactive(self, name: str) -> str:
        """Why the ClusterQueue is not active; empty if it is, or if that is unknown."""
        if self.problem or self._informer is None or not self._informer.synced.is_set():
            return ""
        queue = self._informer.store.object(Key("", name))
        if queue is None:
            return f"ClusterQueue {name} does not exist"
        why = why_inactive(queue)
        return f"ClusterQueue {name}: {why}" if why else ""

    async def run(self) -> None:
        """Follow them until cancelled."""
        while not self._queues.present:
            refused = self._queues.refused
            problem = f"it may not read the queues: {refused}"[:_MAX_PROBLEM] if refused else ""
            self._set_state(problem=problem, absent=not refused)
            await anyio.sleep(_RETRY_SECONDS)
        await self._readable(CLUSTER_QUEUES)
        informer = self._make(CLUSTER_QUEUES)
        informer.add_handler(self._on_queue)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(informer.run, name="informer-clusterqueues")
                tasks.start_soon(self._follow, COHORTS, self._on_cohort, name="cohorts")
                tasks.start_soon(self._follow, RESOURCE_FLAVORS, self._on_flavor, name="resourceflavors")
                await informer.synced.wait()
                self._set_state(informer=informer)
        finally:
            self._informer = None

    async def _follow(self, resource: Resource, handler: Callable[[Change], None]) -> None:
        """Follow an optional kind: the report is made without it while the agent may not read it."""
        await self._readable(resource)
        informer = self._make(resource)
        informer.add_handler(handler)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run, name=f"informer-{resource.plural}")
            await informer.synced.wait()
            self._optional[resource].set()

    async def _readable(self, resource: Resource) -> None:
        """Wait until the cluster has the kind and the agent may read it."""

        async def attempt() -> bool:
            try:
                await self._client.list_page(resource, limit=1, metadata_only=True)
            except NotFound:
                if resource is CLUSTER_QUEUES:
                    self._set_state(absent=True)
            except Forbidden as error:
                if resource is CLUSTER_QUEUES:
                    self._set_state(problem=_refused(error))
            else:
                return True
            if resource in self._optional:
                self._optional[resource].set()
            return False

        while True:
            if await reconnecting(attempt, what=f"list of {resource.plural}", random=self._random):
                return
            await anyio.sleep(_RETRY_SECONDS)

    def _make(self, resource: Resource) -> Informer:
        return Informer(
            self._client,
            resource,
            clock=self._clock,
            random=self._random,
            backoff=RECONNECT,
            quarantine=self._quarantine,
        )

    def _set_state(self, *, informer: Informer | None = None, problem: str = "", absent: bool = False) -> None:
        if problem and problem != self._problem:
            _log.warning("quota of the worker cluster not reported reason=%s", problem)
        if (informer, problem, absent) == (self._informer, self._problem, self._absent):
            return
        self._informer, self._problem, self._absent = informer, problem, absent
        self._decided.set()
        if problem or absent:  # then neither of the others is followed
            for each in self._optional.values():
                each.set()
        self._changed()

    def _on_queue(self, change: Change) -> None:
        name, now = change.key.name, self._clock.monotonic()
        if change.new is None:
            self._known.pop(name, None)
            self._usage.forget(name)
            self._changed()
            return
        queue = change.new.object()
        before = self._known.pop(name, None)
        try:
            known = self._known[name] = _read(decode.cluster_queue, queue)
            others = self._usage.set_status(name, used_of(queue.get("status") or {}), now=now)
        except BadInput:
            self._changed()  # until it can be read its quota is unknown
            raise
        # Its status changes with every admission; the hub knows the usage of its own assignments.
        turned = change.old is None or why_inactive(change.old.object()) != why_inactive(queue)
        if others or turned or before != known:
            self._changed()

    def _on_cohort(self, change: Change) -> None:
        before = self._cohorts.pop(change.key.name, None)
        known = None
        if change.new is not None:
            known = self._cohorts[change.key.name] = _read(decode.cohort, change.new.object())
        if before != known:
            self._changed()

    def _on_flavor(self, change: Change) -> None:
        before = self._flavors.pop(change.key.name, None)
        if change.new is not None:
            read = _read(decode.flavor, change.new.object())
            self._flavors[change.key.name] = FlavorReport(
                labels=read.node_labels,
                taints=read.taints,
                tolerations=read.tolerations,
                topology=bool(read.topology),
            )
        if before != self._flavors.get(change.key.name):
            self._changed()

    def _on_clone(self, change: Change) -> None:
        queue, used = "", dict[FlavorResource, int]()
        try:
            if change.new is not None and self._queues.clones.is_clone(change.new.object()):
                queue, used = held_by(change.new.object())
        finally:
            # A Workload that cannot be read counts as work of others.
            self._usage.set_own(change.key, queue, used, now=self._clock.monotonic())


def _read(parse: Callable[[JsonObject], _Read], obj: JsonObject) -> _Read:
    """Parse the object. Raises `BadInput` naming it, whatever is wrong with it."""
    try:
        return parse(obj)
    except ValueError as error:
        raise BadInput(f"{obj.get('kind')} {excerpt(str(obj['metadata']['name']))}: {error}") from error


def _refused(error: Forbidden) -> str:
    return f"it may not read the ClusterQueues: {error.message}"[:_MAX_PROBLEM]


class Quotas:
    """The quota of the ClusterQueues of this cluster."""

    def __init__(
        self,
        client: KubeClient,
        queues: Queues,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called when the report changed."""
        self._queues = queues
        self._changed = changed
        self._nominal_requested = False
        self._followed = ClusterQueues(
            client, queues, clock=clock, random=random, changed=changed, quarantine=quarantine
        )

    def request_nominal(self, requested: bool) -> None:
        """Set whether the hub requests all nominal quotas; called after each report."""
        if requested is not self._nominal_requested:
            self._nominal_requested = requested
            self._changed()

    def why_inactive(self, cluster_queue: str) -> str:
        """Why the ClusterQueue is not active; empty if it is, or if that is unknown."""
        return self._followed.why_inactive(cluster_queue)

    async def run(self) -> None:
        """Follow the ClusterQueues until cancelled."""
        await self._followed.run()

    async def report(self) -> JsonObject:
        """The quota in a ClusterReport; nothing while the queues are being read."""
        return await self._followed.report() | self._nominal()

    def _nominal(self) -> JsonObject:
        if not self._nominal_requested:
            return {}
        if self._followed.problem:
            return {"quotas": {"problem": self._followed.problem}}
        rows = self._followed.rows()
        if rows is None:
            return {}
        behind = self._queues.by_cluster_queue()
        if sum(map(len, behind.values())) > MAX_QUEUES:
            return {"quotas": {"problem": f"there are more than {MAX_QUEUES} LocalQueues"}}
        try:
            queues = [_queue_wire(row, behind[row.key.name]) for row in rows if row.key.name in behind]
        except BadInput as error:
            return {"quotas": {"problem": f"a quota cannot be read: {error}"[:_MAX_PROBLEM]}}
        return {"quotas": {"clusterQueues": queues}}


def _queue_wire(row: Row, local_queues: Iterable[Key]) -> JsonObject:
    """One ClusterQueue in the report. Raises `BadInput` for an amount that is no quantity."""
    active, groups = _admission(row)
    nominal = nominal_quotas(groups)
    return {
        "name": row.key.name,
        "active": active,
        "localQueues": [{"namespace": key.namespace, "name": key.name} for key in local_queues],
        "resources": [{"name": name, "nominal": str(nominal[name])} for name in sorted(nominal)],
    }


def _admission(row: Row) -> tuple[bool, list[JsonObject]]:
    """Whether the queue is active, and its resource groups."""
    queue = row.object()
    active = is_true_in(queue.get("status"), ACTIVE_CONDITION)
    return active, (queue.get("spec") or {}).get("resourceGroups") or []
