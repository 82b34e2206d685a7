# SPDX-License-Identifier: Apache-2.0
"""When, and how fast, work leaves a cluster that cannot be reached (`docs/spec/multikueue.md §1.7`).

One rule for every cause: nothing happens until the cluster has been lost for longer than the partition policy allows;
then the work is dispatched elsewhere, or never. The moment of loss is durable (the renew time of the agent's Lease, or
the transition of the cluster's Active condition), so a restart does not reset it; only that of a cluster that was
deleted or removed from the config is kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import PartitionPolicy
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchFacts, DispatchSettings

_FEW: Final = 3  # with fewer clusters, one loss is already a majority


def gone_after(policy: PartitionPolicy, settings: DispatchSettings) -> timedelta | None:
    """How long after the loss the work may be started elsewhere; None for never.

    Fenced work needs at least the lease and the grace period, in which its agent stops it.
    """
    match policy:
        case PartitionPolicy.KEEP:
            return None
        case PartitionPolicy.FAILOVER:
            return settings.worker_lost_timeout
        case PartitionPolicy.FENCED:
            return max(settings.worker_lost_timeout, settings.lease + settings.fencing_grace)


def policy_on(facts: DispatchFacts, cluster: str) -> PartitionPolicy:
    """The policy that applies to the work on a cluster: the one that the user asked for, if it is enforced there.

    Fenced work counts as kept where no agent stops it while the link is cut, and where the agent was told another
    policy with the assignment, whether the cluster is still the chosen one or not.
    """
    policy = PartitionPolicy.FAILOVER if facts.workload is None else facts.workload.partition_policy
    if policy is not PartitionPolicy.FENCED:
        return policy
    known, observation = facts.cluster(cluster), facts.observations.get(cluster)
    fences = known is None or known.fences
    told = None if observation is None else observation.policy
    return policy if fences and told in (None, PartitionPolicy.FENCED) else PartitionPolicy.KEEP


def remaining_grace(
    since: datetime | None, *, policy: PartitionPolicy, settings: DispatchSettings, now: datetime
) -> timedelta | None:
    """The remaining time before work that was lost at `since` may be started elsewhere; zero or less if it may now.

    None if it never may.
    """
    limit = gone_after(policy, settings)
    if limit is None:
        return None
    return (now if since is None else since) + limit - now


def mass_loss(clusters: Sequence[ClusterFacts], settings: DispatchSettings) -> str:
    """Why work stays on a lost cluster although its time is over; empty if it does not.

    If most clusters are lost within a short window, the network of the hub is the likely cause, and all work must not
    be restarted.
    """
    lost = sorted(cluster.lost_since for cluster in clusters if cluster.lost_since is not None)
    if len(clusters) < _FEW or not lost:
        return ""
    at_once = sum(lost[-1] - since <= settings.mass_loss_window for since in lost)
    if at_once <= settings.mass_loss_share * len(clusters):
        return ""
    return f"{at_once} of {len(clusters)} clusters were lost at once: their workloads are not moved"


def describe_loss(cluster: ClusterFacts | None, name: str) -> str:
    """Why the cluster cannot be reached, as text."""
    if cluster is None:
        return f'cluster "{name}" not found'
    since = "" if cluster.lost_since is None else f" since {cluster.lost_since:%Y-%m-%dT%H:%M:%SZ}"
    return f'cluster "{name}" is not available{since}: {cluster.message or cluster.reason}'


class Pacer:
    """Limits how fast workloads leave one lost cluster.

    The first ones leave at once, the others one after another, so that the loss of a cluster with a thousand workloads
    does not overload the hub or the other clusters. The state is in memory: a new leader starts again.
    """

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._between = timedelta(seconds=1.0 / per_second)
        self._ahead = self._between * (burst - 1)
        self._next: dict[str, datetime] = {}
        self._turns: dict[Key, tuple[str, datetime]] = {}

    def turn(self, cluster: str, workload: Key, now: datetime) -> float:
        """The seconds until the workload may leave `cluster`; 0 if it may now."""
        known = self._turns.get(workload)
        if known is None or known[0] != cluster:
            at = max(now - self._ahead, self._next.get(cluster, now - self._ahead))
            self._next[cluster] = at + self._between
            known = self._turns[workload] = (cluster, at)
        left = (known[1] - now).total_seconds()
        if left <= 0:
            del self._turns[workload]
        return max(0.0, left)

    def leave(self, workload: Key) -> None:
        """Forget the workload: it stays, or was deleted."""
        self._turns.pop(workload, None)
