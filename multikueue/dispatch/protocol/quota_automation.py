# SPDX-License-Identifier: Apache-2.0
"""The quota of a ClusterQueue on the hub as the sum over its worker clusters (`docs/spec/multikueue.md §1.9`).

Owns which queues can follow their workers, the sum, and the condition's message. Quota shrinks only on known facts: a
worker that has not reported yet keeps the current amounts, while a lost one counts as zero. Cohorts and borrowing are
not considered: only nominal quotas are added up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.reasons import QuotaAutomationReason
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity

_ZERO: Final = Quantity.of(0)
_NO_QUEUE: Final = "no active ClusterQueue behind LocalQueues of the same names"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQueue:
    """A ClusterQueue of a worker, and the LocalQueues there that point to it."""

    name: str
    local_queues: frozenset[Key]
    nominal: Mapping[str, Quantity]
    """By resource, over all flavors."""
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQuotas:
    """The queues of a cluster of the config, or why it counts as zero, or why its quota is unknown yet."""

    cluster: str
    queues: tuple[WorkerQueue, ...] = ()
    lost: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckQuotas:
    """A MultiKueue check of the queue; `problem` is why its config is unknown."""

    name: str
    automated: bool = False
    problem: str = ""
    workers: tuple[WorkerQuotas, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedQueueFacts:
    """A ClusterQueue of the hub; `reported`: it has the condition already."""

    resource_groups: Sequence[JsonObject]
    local_queues: frozenset[Key] = frozenset()
    checks: tuple[CheckQuotas, ...] = ()
    reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaVerdict:
    """The desired condition of the queue."""

    reason: QuotaAutomationReason
    message: str

    @property
    def automated(self) -> bool:
        """Whether the quota follows the workers."""
        return self.reason is QuotaAutomationReason.QUOTA_AUTOMATED


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDecision:
    """The condition of the queue, if it needs one, and the amounts to change."""

    verdict: QuotaVerdict | None = None
    changes: Mapping[str, Quantity] = field(default_factory=dict)


def decide(facts: ManagedQueueFacts) -> QuotaDecision:
    """The quota and the condition of one queue."""
    asking = [check for check in facts.checks if check.automated]
    if not asking:
        return QuotaDecision(verdict=_not_requested(facts))
    if len(facts.checks) > 1:
        names = ", ".join(sorted(check.name for check in facts.checks))
        return _unsupported(f"the ClusterQueue has more than one MultiKueue check: {names}")
    flavors = [flavor for group in facts.resource_groups for flavor in group.get("flavors") or ()]
    if len(facts.resource_groups) != 1 or len(flavors) != 1:
        return _unsupported(
            "quota can follow the worker clusters only in one resource group with one flavor;"
            f" the ClusterQueue has {len(facts.resource_groups)} resource groups with {len(flavors)} flavors"
        )
    current = {entry["name"]: Quantity.parse(entry["nominalQuota"]) for entry in flavors[0].get("resources") or ()}
    workers = asking[0].workers
    counted = {worker.cluster: _counted(worker, facts.local_queues) for worker in workers}
    queues = [queue for found in counted.values() for queue in found]
    wanted = {resource: sum((it.nominal.get(resource, _ZERO) for it in queues), start=_ZERO) for resource in current}
    if any(worker.unknown for worker in workers):
        wanted = {resource: max(amount, current[resource]) for resource, amount in wanted.items()}
    message = _message(workers, {cluster for cluster, found in counted.items() if found})
    return QuotaDecision(
        verdict=QuotaVerdict(reason=QuotaAutomationReason.QUOTA_AUTOMATED, message=message),
        changes={resource: amount for resource, amount in wanted.items() if amount != current[resource]},
    )


def refused(why: str) -> QuotaVerdict:
    """The condition if the API server rejects the quota."""
    return QuotaVerdict(
        reason=QuotaAutomationReason.UNSUPPORTED_CONFIGURATION,
        message=f"the quota of the worker clusters cannot be set: {why}",
    )


def changed(resource_groups: Sequence[JsonObject], changes: Mapping[str, Quantity]) -> list[JsonObject]:
    """The resource groups with those nominal quotas changed."""
    return [
        {**group, "flavors": [_changed_flavor(flavor, changes) for flavor in group["flavors"]]}
        for group in resource_groups
    ]


def nominal_quotas(resource_groups: Iterable[JsonObject]) -> dict[str, Quantity]:
    """The nominal quota of each resource, over all flavors."""
    found: dict[str, Quantity] = {}
    for group in resource_groups:
        for flavor in group.get("flavors") or ():
            for entry in flavor.get("resources") or ():
                found[entry["name"]] = found.get(entry["name"], _ZERO) + Quantity.parse(entry["nominalQuota"])
    return found


def worker_queues(reported: JsonObject) -> tuple[WorkerQueue, ...]:
    """The queues in `status.quotas` of a ClusterReport. Raises `BadInput` for an invalid amount."""
    return tuple(
        WorkerQueue(
            name=queue["name"],
            local_queues=frozenset(Key(entry["namespace"], entry["name"]) for entry in queue.get("localQueues") or ()),
            nominal={entry["name"]: Quantity.parse(entry["nominal"]) for entry in queue.get("resources") or ()},
            active=bool(queue.get("active")),
        )
        for queue in reported.get("clusterQueues") or ()
    )


def _counted(worker: WorkerQuotas, local_queues: frozenset[Key]) -> list[WorkerQueue]:
    return [queue for queue in worker.queues if queue.active and queue.local_queues & local_queues]


def _message(workers: Sequence[WorkerQuotas], counted: Collection[str]) -> str:
    names = " ".join(worker.cluster for worker in workers if worker.cluster in counted)
    parts = [f"The quota is the sum over the worker clusters: [{names}]"]
    without = [
        f"{worker.cluster} ({worker.lost or _NO_QUEUE})"
        for worker in workers
        if worker.cluster not in counted and not worker.unknown
    ]
    if without:
        parts.append(f"without: {', '.join(without)}")
    waited = [f"{worker.cluster} ({worker.unknown})" for worker in workers if worker.unknown]
    if waited:
        parts.append(f"not reduced until these report their quota: {', '.join(waited)}")
    return "; ".join(parts)


def _not_requested(facts: ManagedQueueFacts) -> QuotaVerdict | None:
    """Only for a queue that has the condition: most queues never follow their workers."""
    if not facts.reported:
        return None
    problems = "; ".join(check.problem for check in facts.checks if check.problem)
    if problems:
        why = problems
    elif facts.checks:
        why = "the MultiKueueConfig does not ask for it"
    else:
        why = "the ClusterQueue has no MultiKueue check"
    return QuotaVerdict(reason=QuotaAutomationReason.NOT_REQUESTED, message=f"The quota is not changed: {why}")


def _unsupported(message: str) -> QuotaDecision:
    return QuotaDecision(verdict=QuotaVerdict(reason=QuotaAutomationReason.UNSUPPORTED_CONFIGURATION, message=message))


def _changed_flavor(flavor: JsonObject, changes: Mapping[str, Quantity]) -> JsonObject:
    resources = [
        {**entry, "nominalQuota": str(changes[entry["name"]])} if entry["name"] in changes else entry
        for entry in flavor["resources"]
    ]
    return {**flavor, "resources": resources}
