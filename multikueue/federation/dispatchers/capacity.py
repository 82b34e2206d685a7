# SPDX-License-Identifier: Apache-2.0
"""To the one cluster that can run it now, as far as the clusters' reports tell.

Owns the order of preference: a cluster with room now, the best by score, which is granted without being asked; if the
reports of some are too old to be believed, a race among those and the ones that could; and where nobody has room, the
workload is kept back here, where it costs nothing and goes to the first cluster that has room again. When nothing has
ended anywhere for a while it also waits at one cluster after another, in case the reports are wrong; and after long at
one in any case, where it then claims room before smaller ones that come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from multikueue.federation.actions import Waiting
from multikueue.federation.dispatchers.all_at_once import MAX_NOMINATED
from multikueue.federation.dispatchers.filters import objection
from multikueue.federation.dispatchers.protocol import Nomination, Verdict
from multikueue.federation.dispatchers.scores import NO_SCORE, Scored, scored, share
from multikueue.federation.facts import ClusterFacts, Settings, WorkloadFacts
from multikueue.federation.standing_room import Fit, Level
from multikueue.federation.waits import shortage

Judged = tuple[ClusterFacts, Fit, float]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of one cluster: filtered out, unknown for want of a fresh report, or a fit with its score."""

    says: str
    suitable: bool = True
    fit: Fit | None = None
    score: Scored = NO_SCORE

    @property
    def has_room(self) -> bool:
        """Whether it could run the workload now."""
        return self.fit is not None and self.fit.level is Level.NOW


def judge(workload: WorkloadFacts, cluster: ClusterFacts, *, settings: Settings, now: datetime) -> Judgement:
    """The judgement of a cluster that may be nominated."""
    against = objection(workload, cluster)
    if against:
        return Judgement(against, suitable=False)
    if cluster.room is None or cluster.room.report is None or not _fresh(cluster, settings, now):
        return Judgement("no fresh report")
    fit = cluster.room.fit(workload.key, workload.demands)
    score = scored(workload, cluster, fit)
    return Judgement(shortage(workload, fit) or str(score), fit=fit, score=score)


def capacity(
    workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
) -> Nomination:
    """One cluster with room; else a race where reports are old; else nobody, and one more after each while."""
    verdicts: list[Verdict] = []
    waiting: list[Waiting] = []
    judged: list[Judged] = []
    unknown: list[ClusterFacts] = []
    for cluster in candidates:
        judgement = judge(workload, cluster, settings=settings, now=now)
        verdicts.append(Verdict(cluster.name, judgement.says, judgement.score.total if judgement.has_room else None))
        if judgement.fit is not None:
            judged.append((cluster, judgement.fit, judgement.score.total))
            if not judgement.has_room:
                waiting.append(Waiting(cluster.name, judgement.says))
        elif judgement.suitable:
            unknown.append(cluster)
        else:
            waiting.append(Waiting(cluster.name, judgement.says))
    judged.sort(key=lambda entry: (-entry[1].level, -entry[2], share(workload, entry[0]), entry[0].name))
    if judged and judged[0][1].level is Level.NOW:
        best = judged[0][0].name
        return Nomination(clusters=(best,), grant=best, verdicts=tuple(verdicts))
    # Who waits somewhere already goes on waiting there.
    eligible = {cluster.name for cluster in unknown} | {cluster.name for cluster, _, _ in judged}
    kept = [name for name in workload.nominated if name in eligible]
    if unknown:
        could = sorted(c.name for c in (*unknown, *(cluster for cluster, fit, _ in judged if fit.level is Level.LATER)))
        return Nomination(clusters=_first((*kept, *could)), waiting=tuple(waiting), verdicts=tuple(verdicts))
    turns, left = _turns(workload, [cluster for cluster, _, _ in judged], settings=settings, now=now)
    ranked = [*kept, *(cluster.name for cluster, _, _ in judged if cluster.name not in kept)]
    count = max(len(kept), turns)
    return Nomination(
        clusters=_first(tuple(ranked[:count])),
        waiting=tuple(waiting),
        requeue_after=left if count < min(len(ranked), MAX_NOMINATED) else None,
        held_back=bool(ranked),
        verdicts=tuple(verdicts),
    )


def _fresh(cluster: ClusterFacts, settings: Settings, now: datetime) -> bool:
    return cluster.reported_at is not None and now - cluster.reported_at <= settings.report_max_age


def _turns(
    workload: WorkloadFacts, clusters: list[ClusterFacts], *, settings: Settings, now: datetime
) -> tuple[int, float]:
    """How many clusters have had their turn by now, and the seconds to the next."""
    since = now if workload.waits_since is None else min(workload.waits_since, now)
    moved = [cluster.room.moved_at for cluster in clusters if cluster.room is not None and cluster.room.moved_at]
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
