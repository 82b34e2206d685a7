# SPDX-License-Identifier: Apache-2.0
"""ClusterQueues whose quota follows their worker clusters (gate `MultiKueueManagerQuotaAutomation`).

Owns the nominal quotas and the condition `MultiKueueManagerQuotaAutomation` of the ClusterQueues whose MultiKueueConfig
enables it, and which agents report quotas. Promises that nothing is requested or written while the gate is off, that a
write changes amounts of exactly the object that was read, and that a restart reduces no quota before the workers have
reported. The amounts are computed by `multikueue.dispatch.protocol.quota_automation`.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.context import ManagerContext
from manager.dispatch.checks import Checks, CheckSource
from manager.dispatch.clusters import Clusters
from manager.dispatch.condition_writes import write_condition
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import QUOTA_AUTOMATION_CONDITION
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, MULTIKUEUE_CLUSTERS
from multikueue.core.conditions import find_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub.availability import mass_loss
from multikueue.dispatch.hub.facts import DispatchSettings
from multikueue.dispatch.protocol import quota_automation
from multikueue.dispatch.protocol.quota_automation import (
    CheckQuotas,
    ManagedQueueFacts,
    QuotaDecision,
    QuotaVerdict,
    WorkerQuotas,
)
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

QUOTA_GATE: Final = "MultiKueueManagerQuotaAutomation"
_REFUSED_SECONDS: Final = 60.0  # the cause of a refusal, such as a webhook, may change without an event


class QuotaAutomation:
    """The reconciler of such ClusterQueues."""

    def __init__(self, context: ManagerContext, *, checks: Checks, clusters: Clusters) -> None:
        self._context = context
        self._checks = checks
        self._clusters = clusters
        self._enabled = context.configuration.gate(QUOTA_GATE)
        self._queues = context.caches.view(CLUSTER_QUEUES)
        self._local_queues = context.caches.view(LOCAL_QUEUES)
        self._controller = Controller[Key](
            "multikueue_quota",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=CLUSTER_QUEUES,
        )

    def uses(self, cluster: str) -> bool:
        """Whether the agent of the cluster is to report its quotas."""
        if not self._enabled:
            return False
        sources = (self._checks.source(name) for name in self._checks.names)
        return any(each is not None and each.automated and cluster in (each.clusters or ()) for each in sources)

    async def run(self) -> None:
        """Reconcile until cancelled; with the gate off there is nothing to do."""
        if not self._enabled:
            return
        self._context.caches.subscribe(CLUSTER_QUEUES, self._on_queue)
        self._context.caches.subscribe(LOCAL_QUEUES, self._on_local_queue)
        await self._controller.run()

    def touched(self) -> None:
        """Enqueue all queues: a cluster, a check or a config changed."""
        if self._enabled:
            for key in self._queues.keys():  # noqa: SIM118  (a view is no mapping)
                self._controller.enqueue(key)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring quota and condition of one queue up to date."""
        queue = self._queues.object(key)
        if queue is None or queue["metadata"].get("deletionTimestamp"):
            return None
        checks, again = self._read_checks(queue)
        groups: list[JsonObject] = queue["spec"].get("resourceGroups") or []
        facts = ManagedQueueFacts(
            resource_groups=groups,
            local_queues=frozenset(self._local_queues.indexed(CLUSTER_QUEUE_INDEX, key.name)),
            checks=checks,
            reported=_has_condition(queue),
        )
        decision = quota_automation.decide(facts)
        verdict = decision.verdict
        try:
            if decision.changes:
                refusal = await self._set(queue, groups, decision)
                if refusal is not None:
                    verdict, again = refusal, min(again or _REFUSED_SECONDS, _REFUSED_SECONDS)
            if verdict is not None:
                await self._write_verdict(key, verdict)
        except NotFound:
            return None  # deleted meanwhile, and still in the cache
        return None if again is None else Result(after=again)

    async def _write_verdict(self, key: Key, verdict: QuotaVerdict) -> None:
        queue = self._queues.object(key)  # again: its amounts may just have been set
        if queue is not None:
            await write_condition(
                self._context,
                CLUSTER_QUEUES,
                queue,
                QUOTA_AUTOMATION_CONDITION,
                value=verdict.automated,
                reason=verdict.reason,
                message=verdict.message,
            )

    async def _set(self, queue: JsonObject, groups: list[JsonObject], decision: QuotaDecision) -> QuotaVerdict | None:
        """Set the amounts; returns the verdict if they are refused. Raises `Conflict` for a queue that has changed."""
        name = queue["metadata"]["name"]
        body = {"spec": {"resourceGroups": quota_automation.changed(groups, decision.changes)}}
        try:
            answer = await self._context.client.patch(
                CLUSTER_QUEUES, name, body, resource_version=queue["metadata"]["resourceVersion"]
            )
        except (Invalid, Forbidden, BadRequest) as error:
            return quota_automation.refused(error.message)
        self._queues.on_write(answer)
        amounts = ", ".join(f"{resource}={amount}" for resource, amount in sorted(decision.changes.items()))
        _log.info("quota set from workers cluster_queue=%s amounts=%s", name, amounts)
        return None

    def _read_checks(self, queue: JsonObject) -> tuple[tuple[CheckQuotas, ...], float | None]:
        """The MultiKueue checks of the queue, and the seconds after which to read them again without an event."""
        found: list[CheckQuotas] = []
        waits: list[timedelta] = []
        strategy: JsonObject = queue["spec"].get("admissionChecksStrategy") or {}
        for entry in strategy.get("admissionChecks") or ():
            source = self._checks.source(entry["name"])
            if source is not None:
                found.append(self._read_check(entry["name"], source, waits))
        return tuple(found), min(wait.total_seconds() for wait in waits) if waits else None

    def _read_check(self, name: str, source: CheckSource, waits: list[timedelta]) -> CheckQuotas:
        workers: tuple[WorkerQuotas, ...] = ()
        if source.automated:
            listed = source.clusters or ()
            held = mass_loss([self._clusters.inside(each) for each in listed], DispatchSettings())
            workers = tuple(self._read_worker(each, held=held, waits=waits) for each in listed)
        return CheckQuotas(name=name, automated=source.automated, problem=source.problem, workers=workers)

    def _read_worker(self, cluster: str, *, held: str, waits: list[timedelta]) -> WorkerQuotas:
        if self._context.caches.view(MULTIKUEUE_CLUSTERS).get(Key("", cluster)) is None:
            return WorkerQuotas(cluster=cluster, lost="there is no such MultiKueueCluster")
        facts = self._clusters.get(cluster)
        if facts is None or not facts.available:
            wait = self._clusters.undecided(cluster)
            if wait is not None:
                waits.append(wait)
                return WorkerQuotas(cluster=cluster, unknown="no report yet since the manager started")
            if held:
                return WorkerQuotas(cluster=cluster, unknown=held)
            return WorkerQuotas(cluster=cluster, lost="not connected")
        reported: JsonObject | None = self._clusters.report(cluster).get("quotas")
        if reported is None:
            return WorkerQuotas(cluster=cluster, unknown="its agent has not reported quotas yet")
        if reported.get("problem"):
            return WorkerQuotas(cluster=cluster, unknown=str(reported["problem"]))
        try:
            return WorkerQuotas(cluster=cluster, queues=quota_automation.worker_queues(reported))
        except BadInput as error:
            return WorkerQuotas(cluster=cluster, unknown=f"its report cannot be read: {error}")

    def _on_queue(self, change: Change) -> None:
        if change.new is not None and (change.old is None or change.old.generation != change.new.generation):
            self._controller.enqueue(change.key)

    def _on_local_queue(self, change: Change) -> None:
        if change.old is None or change.new is None or change.old.generation != change.new.generation:
            for row in (change.old, change.new):
                if row is not None:
                    self._controller.enqueue(Key("", _target(row)))


def _target(row: Row) -> str:
    return str((row.object().get("spec") or {}).get("clusterQueue") or "")


def _has_condition(queue: JsonObject) -> bool:
    return find_in(queue.get("status"), QUOTA_AUTOMATION_CONDITION) is not None
