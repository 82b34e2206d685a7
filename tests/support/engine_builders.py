# SPDX-License-Identifier: Apache-2.0
"""Builders of engine values for tests: short to write, with one namespace, one local queue for each queue.

Amounts are written as people write them: `cpu="3"`. Times are seconds from `START`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from multikueue.api.constants import FungibilityPolicy, FungibilityPreference, QueueingStrategy, StopPolicy
from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector
from multikueue.core.taints import Taint, Toleration
from multikueue.engine import Cycle, Decision, Engine, Outcome, Settings, lifecycle, resources
from multikueue.engine.values import (
    CheckRule,
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Namespace,
    PreemptionRules,
    Quota,
    ResourceGroup,
)
from multikueue.engine.workloads import Admission, ContainerRequests, PodSet, PodSetAdmission, PodShape, Workload

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "default"


def at(seconds: float) -> datetime:
    """A moment of a test."""
    return START + timedelta(seconds=seconds)


def key(name: str) -> Key:
    """A workload or local queue of the tests' namespace."""
    return Key(NAMESPACE, name)


def quota(text: str, resource: str = "cpu") -> Quota:
    """`nominal[/borrowing limit[/lending limit]]`, an empty part for no limit."""
    parts = [*text.split("/"), "", ""]
    limits = [resources.quota_of(resource, part) if part else None for part in parts[1:3]]
    return Quota(resources.quota_of(resource, parts[0]), *limits)


def group(**flavors: str | Mapping[str, str]) -> ResourceGroup:
    """A resource group: `group(spot="4/2", reserved={"cpu": "4", "memory": "4Gi"})`; a text is for cpu."""
    listed = []
    covered: tuple[str, ...] = ()
    for name, quotas in flavors.items():
        amounts = {"cpu": quotas} if isinstance(quotas, str) else dict(quotas)
        covered = tuple(amounts)
        listed.append(FlavorQuotas(name.replace("_", "-"), {r: quota(text, r) for r, text in amounts.items()}))
    return ResourceGroup(covered, tuple(listed))


def queue(name: str, *groups: ResourceGroup, cohort: str = "", **changes: object) -> ClusterQueue:
    """A ClusterQueue that every namespace may use."""
    base = ClusterQueue(name=name, cohort=cohort, resource_groups=groups, namespace_selector=LabelSelector())
    return replace(base, **changes)  # type: ignore[arg-type]


def preemption(
    within: str = "Never", reclaim: str = "Never", borrow: str | None = None, threshold: int | None = None
) -> PreemptionRules:
    """Policies by their names in the API."""
    return PreemptionRules(
        within_cluster_queue=within,
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=borrow,
        max_priority_threshold=threshold,
    )


def fungibility(borrow: str = "MayStopSearch", preempt: str = "TryNextFlavor", preference: str = "") -> Fungibility:
    """Policies by their names in the API."""
    return Fungibility(
        when_can_borrow=FungibilityPolicy(borrow),
        when_can_preempt=FungibilityPolicy(preempt),
        preference=FungibilityPreference(preference or FungibilityPreference.BORROWING_OVER_PREEMPTION),
    )


def shape(
    tolerations: Iterable[Toleration] = (), selector: Mapping[str, str] | None = None, **amounts: str
) -> PodShape:
    """A pod of one container."""
    requests = {name.replace("_", "/"): Quantity.parse(text) for name, text in amounts.items()}
    tolerated = tuple(tolerations)
    chosen = dict(selector or {})
    return PodShape(
        containers=(ContainerRequests(requests=requests),),
        tolerations=tolerated,
        node_selector=chosen,
        fingerprint=f"{sorted(amounts.items())}{tolerated}{sorted(chosen.items())}",
    )


def pods(count: int = 1, name: str = "main", minimum: int | None = None, **amounts: str) -> PodSet:
    """A pod set: `pods(3, cpu="1")`."""
    return PodSet(name=name, count=count, min_count=minimum, shape=shape((), None, **amounts))


def workload(
    name: str, queue_name: str, *pod_sets: PodSet, priority: int = 0, created: float = 0, **changes: object
) -> Workload:
    """A pending workload, created that many seconds after the start; `cpu` is short for one pod."""
    base = Workload(
        key=key(name),
        uid=f"uid-{name}",
        created=at(created),
        queue_name=queue_name,
        pod_sets=pod_sets,
        priority=priority,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def holding(value: Workload, cluster_queue: str, since: float = 0, flavor: str = "default") -> Workload:
    """The workload with a reservation of all its requests, in one flavor."""
    decision = Decision(
        workload=value.key,
        uid=value.uid,
        cluster_queue=cluster_queue,
        outcome=Outcome.RESERVED,
        reason=None,
        message="",
    )
    held = lifecycle.reserved(value, decision, at(since))
    admitted = []
    for pod_set in value.pod_sets:
        usage: dict[str, int] = {}
        for container in pod_set.shape.containers:
            for name, amount in container.requests.items():
                usage[name] = usage.get(name, 0) + resources.amount(name, amount) * pod_set.count
        flavors = dict.fromkeys(usage, flavor)
        admitted.append(PodSetAdmission(name=pod_set.name, flavors=flavors, usage=usage, count=pod_set.count))
    return replace(held, admission=Admission(cluster_queue, tuple(admitted)))


class Bench:
    """An engine on the table: queues with local queues of their names, workloads, cycles, evictions at once."""

    def __init__(
        self,
        *queues: ClusterQueue,
        settings: Settings | None = None,
        flavors: Iterable[Flavor] = (),
        engine: Engine | None = None,
    ) -> None:
        self.engine = engine or Engine(settings or Settings(pods_ready=None))
        self.now = START
        self.engine.upsert_namespace(Namespace(NAMESPACE), START)
        known = {flavor.name for flavor in flavors}
        for flavor in flavors:
            self.engine.upsert_flavor(flavor, START)
        for item in queues:
            for name in [flavor.name for part in item.resource_groups for flavor in part.flavors]:
                if name not in known:
                    known.add(name)
                    self.engine.upsert_flavor(Flavor(name=name), START)
        for item in queues:
            self.add_queue(item)
        self.engine.flush(self.now)

    def add_queue(self, item: ClusterQueue) -> None:
        """A queue and its local queue."""
        self.engine.upsert_cluster_queue(item, self.now)
        self.engine.upsert_local_queue(LocalQueue(key=key(item.name), cluster_queue=item.name), self.now)

    def add_cohort(self, name: str, *groups: ResourceGroup, parent: str = "", weight: float = 1.0) -> None:
        """A Cohort object."""
        self.engine.upsert_cohort(Cohort(name=name, parent=parent, resource_groups=groups, weight=weight), self.now)

    def add(self, *workloads: Workload) -> Bench:
        """Workloads come or change."""
        for item in workloads:
            self.engine.upsert_workload(item, self.now)
        return self

    def cycle(self) -> Cycle:
        """One cycle."""
        return self.engine.cycle(self.now)

    def settle(self) -> None:
        """Cycles until none has anything to decide at this time."""
        while self.engine.has_heads(self.now, repeat=False):
            self.engine.cycle(self.now, repeat=False)

    def settle_after(self, seconds: float) -> None:
        """Let time pass, and run the cycles that follow."""
        self.pass_time(seconds)
        self.settle()

    def decide(self, name: str) -> Decision:
        """One cycle, and what it decided about a workload."""
        found = {str(decision.workload.name): decision for decision in self.cycle().decisions}
        return found[name]

    def carry_out(self, cycles: int = 20) -> list[str]:
        """Cycles whose reservations are written and whose victims are evicted at once; those that were evicted."""
        evicted = []
        for _ in range(cycles):
            for decision in self.cycle().decisions:
                if decision.outcome is Outcome.RESERVED:
                    value = self.engine.workload(decision.workload)
                    assert value is not None
                    self.engine.admission_written(decision.workload, self.now)
                    self.add(lifecycle.reserved(value, decision, self.now))
                for victim in decision.victims:
                    evicted.append(victim.workload.name)
                    self.evict(victim.workload.name, victim.reason)
            self.pass_time(2)
        return evicted

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def evict(self, name: str, reason: PreemptedReason = PreemptedReason.IN_CLUSTER_QUEUE) -> None:
        """The job of a workload is stopped for another, and it waits again."""
        value = self.engine.workload(key(name))
        assert value is not None, name
        self.engine.admission_written(key(name), self.now)
        evicted = lifecycle.evicted(value, "Preempted", "", self.now, preempted=reason)
        self.engine.upsert_workload(lifecycle.released(evicted, self.now), self.now)

    def finish(self, name: str) -> None:
        """The job of a workload ends."""
        value = self.engine.workload(key(name))
        assert value is not None, name
        self.engine.upsert_workload(lifecycle.finished(value, "Succeeded", "", self.now), self.now)

    def has_quota(self, name: str) -> bool:
        """Whether quota is reserved for a workload."""
        return self.engine.workload(key(name)) is not None and not self.engine.is_pending(key(name))

    def mean_run(self, name: str) -> float | None:
        """How long workloads of a queue run, in seconds."""
        (run,) = self.engine.mean_runs([name])
        return run

    def waits(self, name: str) -> list[str]:
        """The pending workloads of a queue, in order; inadmissible ones in brackets."""
        return [
            f"[{position.workload.name}]" if position.inadmissible else position.workload.name
            for position in self.engine.pending(name)
        ]


def tainted(name: str, taint: str = "spot", **labels: str) -> Flavor:
    """A flavor that only pods with a toleration run on."""
    return Flavor(name=name, taints=(Taint(taint, "true", "NoSchedule"),), node_labels=labels)


def tolerates(taint: str = "spot") -> Toleration:
    """The toleration of `tainted`."""
    return Toleration(key=taint, operator="Exists", effect="NoSchedule")


def checks(*names: str) -> tuple[CheckRule, ...]:
    """Admission checks for all flavors."""
    return tuple(CheckRule(name) for name in names)


STRICT = QueueingStrategy.STRICT_FIFO
HOLD = StopPolicy.HOLD
