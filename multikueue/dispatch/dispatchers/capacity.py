# SPDX-License-Identifier: Apache-2.0
"""The capacity dispatcher: to the one cluster that can run the workload now, according to the clusters' reports.

Owns the filters, the scores and the order of preference:

1. the cluster with free capacity and the best score, granted without a reservation;
2. if the capacity of some is unknown, a race between those and the ones that may fit later;
3. else the workload is held back on the hub and goes to the first cluster that has free capacity again.

The score of a cluster is a sum of functions with a value between 0 and 1, times the weight that its administrator set.
Equal clusters are ordered by a hash of workload and cluster, so that no state is needed.

If nothing ended anywhere for a while, clusters are nominated one after another, in case the reports are wrong; after a
longer time one is nominated in any case, so that smaller workloads do not overtake it there.

A cluster that failed the workload before is asked instead of granted, after those that did not: the reason may be one
that no report has, and a refused grant costs an eviction.

If the pods need objects that an agent looks for (ADR 0020), the cluster is asked instead of granted, and the next best
one as soon as it has answered that one of them is missing.

Capacity is quota if the cluster has the LocalQueue (ADR 0014), else that of its nodes. A cluster with free quota is
asked first if its queue has admission checks of its own or places the pods by a topology, and so is, if no quota is
free anywhere, the best one whose queue may preempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.api.clusterreport import MAX_QUEUES
from multikueue.dispatch.dispatchers.cluster_capacity import Fit, Level
from multikueue.dispatch.dispatchers.protocol import MAX_NOMINATED, ClusterVerdict, Nomination
from multikueue.dispatch.dispatchers.queue_fit import fit_quota
from multikueue.dispatch.hub.actions import WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchSettings, Placement
from multikueue.dispatch.hub.waits import kind_served, queues_admit, shortage

Score = Callable[[DispatchedWorkload, ClusterFacts, Fit], float]
Judged = tuple[ClusterFacts, Fit, float]


def free_capacity(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """How much of the scarcest resource stays free or, with placement pack, how little.

    0 for quota whose nodes are full or do not exist yet.
    """
    if not fit.nodes_now:
        return 0.0
    return fit.free_after if workload.preferences.placement is Placement.SPREAD else 1.0 - fit.free_after


def preferred(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """Whether the cluster has the labels that the user prefers."""
    preferred_clusters = workload.preferences.preferred
    return 1.0 if preferred_clusters is not None and preferred_clusters.matches(cluster.labels) else 0.0


def short_queue(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """How few workloads wait for capacity there."""
    report = cluster.capacity.report if cluster.capacity is not None else None
    return 0.0 if report is None else 1.0 / (1.0 + report.pending)


FREE_CAPACITY: Final = "freeCapacity"
SCORES: Final[Mapping[str, Score]] = {FREE_CAPACITY: free_capacity, "preferred": preferred, "shortQueue": short_queue}


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of a cluster with its parts."""

    parts: Mapping[str, float]
    weight: float

    @property
    def total(self) -> float:
        """The sum of the parts times the weight."""
        return sum(self.parts.values()) * self.weight

    def __str__(self) -> str:
        text = ", ".join(f"{name} {value:.2f}" for name, value in self.parts.items())
        return f"score {self.total:.2f} ({text}, weight {self.weight:g})"


NO_SCORE: Final = Scored({}, 1.0)


def scored(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> Scored:
    """The score of a cluster that the workload fits."""
    return Scored({name: score(workload, cluster, fit) for name, score in SCORES.items()}, cluster.weight)


def share(workload: DispatchedWorkload, cluster: ClusterFacts) -> bytes:
    """The hash by which equal clusters are ordered."""
    return hashlib.blake2b(f"{workload.uid}/{cluster.name}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for one cluster: filtered out, of unknown capacity, or a fit with its score."""

    reason: str
    suitable: bool = True
    fit: Fit | None = None
    score: Scored = NO_SCORE

    @property
    def has_capacity(self) -> bool:
        """Whether it could run the workload now."""
        return self.fit is not None and self.fit.level is Level.NOW


def judge(
    workload: DispatchedWorkload, cluster: ClusterFacts, *, settings: DispatchSettings, now: datetime
) -> Judgement:
    """The judgement of a usable cluster."""
    against = objection(workload, cluster)
    if against:
        return Judgement(against, suitable=False)
    if cluster.capacity is None or cluster.capacity.report is None or not _fresh(cluster, settings, now):
        return Judgement("no fresh report")
    capacity, report = cluster.capacity, cluster.capacity.report
    local = report.local_queues.get(workload.queue) if report.engine and workload.queue is not None else None
    if local is None or workload.queue is None:
        if not report.shows_nodes:
            return Judgement("its report has no nodes")
        return _judgement(workload, cluster, capacity.fit(workload.key, workload.demands))
    queue = report.cluster_queues.get(local.cluster_queue)
    if queue is None:
        fit = capacity.fit(workload.key, workload.demands)
        # Its agent is of an older version or may not read the quota: fall back to the nodes.
        if fit.level is Level.NOW:
            return _judgement(workload, cluster, fit)
        return Judgement(f"LocalQueue {workload.queue}: its quota is unknown")
    fit = fit_quota(
        capacity,
        workload.key,
        workload.demands,
        local_queue=workload.queue,
        queue=queue,
        flavors=report.flavors,
        counted=workload.flavors,
    )
    return _judgement(workload, cluster, fit)


def _judgement(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> Judgement:
    score = scored(workload, cluster, fit)
    reason = shortage(fit) or (f"{fit.queue}; {score}" if fit.queue else str(score))
    return Judgement(reason, fit=fit, score=score)


def capacity(
    workload: DispatchedWorkload, candidates: tuple[ClusterFacts, ...], *, settings: DispatchSettings, now: datetime
) -> Nomination:
    """One cluster with free capacity, else all of unknown capacity, and one more after each `patience`."""
    verdicts: list[ClusterVerdict] = []
    waiting: list[WaitingReason] = []
    judged: list[Judged] = []
    unknown: list[ClusterFacts] = []
    for cluster in candidates:
        judgement = judge(workload, cluster, settings=settings, now=now)
        verdicts.append(
            ClusterVerdict(cluster.name, judgement.reason, judgement.score.total if judgement.has_capacity else None)
        )
        if judgement.fit is not None:
            judged.append((cluster, judgement.fit, judgement.score.total))
            if not judgement.has_capacity:
                waiting.append(WaitingReason(cluster.name, judgement.reason))
        elif judgement.suitable:
            unknown.append(cluster)
        else:
            waiting.append(WaitingReason(cluster.name, judgement.reason))
    judged.sort(key=lambda entry: (*_rank(entry[1]), -entry[2], share(workload, entry[0]), entry[0].name))
    free = [cluster for cluster, fit, _ in judged if fit.level is Level.NOW and not fit.asks_first]
    able = [cluster for cluster in free if cluster.name not in workload.lacking]
    best = next((cluster for cluster in able if cluster.name not in workload.failed_on), able[0] if able else None)
    if best is not None and best.name not in workload.failed_on and not _looks_first(workload, best):
        return Nomination(clusters=(best.name,), grant=best.name, verdicts=tuple(verdicts))
    # A cluster where it waits already stays nominated.
    eligible = {cluster.name for cluster in unknown} | {cluster.name for cluster, _, _ in judged}
    kept = [name for name in workload.nominated if name in eligible]
    at_once = _asked_at_once(unknown, judged) if best is None else [best.name]
    turns, left = _turns(workload, [cluster for cluster, _, _ in judged], settings=settings, now=now)
    ranked = list(dict.fromkeys((*kept, *at_once, *(cluster.name for cluster, _, _ in judged))))
    count = max(len({*kept, *at_once}), turns)
    return Nomination(
        clusters=_first(tuple(ranked[:count])),
        waiting=tuple(waiting),
        requeue_after=left if count < min(len(ranked), MAX_NOMINATED) else None,
        held_back=bool(judged),
        verdicts=tuple(verdicts),
    )


def _rank(fit: Fit) -> tuple[int, bool]:
    """Free capacity first, of clusters that need not be asked before others; then queues that may preempt."""
    return -fit.level, fit.asks_first if fit.level is Level.NOW else not fit.preempts


def _looks_first(workload: DispatchedWorkload, cluster: ClusterFacts) -> bool:
    """Whether the cluster is asked, since its agent looks for objects that the pods of the workload need."""
    report = None if cluster.capacity is None else cluster.capacity.report
    return report is not None and not workload.dependency_kinds.isdisjoint(report.dependency_kinds)


def _asked_at_once(unknown: list[ClusterFacts], judged: list[Judged]) -> list[str]:
    """The clusters to ask before any capacity becomes free."""
    if unknown:
        return sorted(c.name for c in (*unknown, *(cluster for cluster, fit, _ in judged if fit.level >= Level.LATER)))
    with_quota = sorted(cluster.name for cluster, fit, _ in judged if fit.level is Level.NOW)
    if with_quota:
        return with_quota  # their own admission checks and topologies decide
    return [cluster.name for cluster, fit, _ in judged[:1] if fit.preempts and fit.level is Level.LATER]


def _fresh(cluster: ClusterFacts, settings: DispatchSettings, now: datetime) -> bool:
    return cluster.reported_at is not None and now - cluster.reported_at <= settings.report_max_age


def _turns(
    workload: DispatchedWorkload, clusters: list[ClusterFacts], *, settings: DispatchSettings, now: datetime
) -> tuple[int, float]:
    """How many clusters are due by now, and the seconds until the next."""
    since = now if workload.waits_since is None else min(workload.waits_since, now)
    moved = [
        cluster.capacity.freed_at for cluster in clusters if cluster.capacity is not None and cluster.capacity.freed_at
    ]
    still = max(0.0, (now - max([since, *moved])).total_seconds())
    patience = settings.patience.total_seconds()
    turns = int(still // patience)
    left = (turns + 1) * patience - still
    until_claim = (since + settings.longest_wait - now).total_seconds()
    if until_claim <= 0:
        return max(1, turns), left
    return turns, min(left, until_claim)


def _first(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MAX_NOMINATED]


Filter = Callable[[DispatchedWorkload, ClusterFacts], str]


def readable(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """An invalid annotation for clusters excludes every cluster."""
    return workload.preferences.problem


def pinned(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """The user listed the clusters that may run it."""
    pins = workload.preferences.pinned
    return "" if not pins or cluster.name in pins else f"pinned to {', '.join(sorted(pins))}"


def selected(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """The user selected clusters by label."""
    selector = workload.preferences.selector
    return "" if selector.matches(cluster.labels) else f"its labels do not match {selector}"


def namespace_there(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """The namespace of the job exists on the cluster."""
    report = cluster.capacity.report if cluster.capacity is not None else None
    if report is None or not report.namespaces:
        return ""
    return "" if workload.key.namespace in report.namespaces else f'no namespace "{workload.key.namespace}"'


def queue_served(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """A queueing engine on the cluster needs an active LocalQueue of that name."""
    report = cluster.capacity.report if cluster.capacity is not None else None
    if report is None or not report.engine or workload.queue is None:
        return ""
    found = report.local_queues.get(workload.queue)
    if found is None:
        # A full report may omit this one; the cluster decides.
        full = len(report.local_queues) >= MAX_QUEUES
        return "" if full else f"LocalQueue {workload.queue} does not exist on {cluster.name}"
    if found.active:
        return ""
    why = f": {found.reason}" if found.reason else ""
    return f"LocalQueue {workload.queue} is not active on {cluster.name}{why}"


FILTERS: Final[tuple[Filter, ...]] = (
    readable,
    pinned,
    selected,
    kind_served,
    namespace_there,
    queues_admit,
    queue_served,
)


def objection(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """The first objection; empty when there is none."""
    return next((text for each in FILTERS if (text := each(workload, cluster))), "")
