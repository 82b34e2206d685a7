# SPDX-License-Identifier: Apache-2.0
"""How long work stays on a cluster that cannot be reached.

Owns the one rule for every cause (`docs/spec/multikueue.md §1.7`, design §4): until the loss is older than the policy
allows, nothing happens; then the work goes elsewhere, or never does. The loss clock is durable (the renew time of the
agent's Lease, or the transition of the cluster's Active condition), so that a restart does not turn it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import PartitionPolicy
from multikueue.federation.facts import ClusterFacts, Settings

_FEW: Final = 3  # with fewer clusters one loss is already most of them


def gone_after(policy: PartitionPolicy, settings: Settings) -> timedelta | None:
    """How long after the loss the work counts as gone from there; None is never.

    Fenced work is gone when its agent has stopped it for want of a lease, which is not before lease and grace.
    """
    match policy:
        case PartitionPolicy.KEEP:
            return None
        case PartitionPolicy.FAILOVER:
            return settings.worker_lost_timeout
        case PartitionPolicy.FENCED:
            return max(settings.worker_lost_timeout, settings.lease + settings.fencing_grace)


def agreed(policy: PartitionPolicy, *, fences: bool, told: PartitionPolicy | None) -> PartitionPolicy:
    """The policy by which work is moved: what its user wants, as far as the other side of a cut link does its part.

    `fences` is false where nobody beside the cluster would stop it. `told` is what the agent of the granted cluster was
    told, which may have been before the last cluster that does not fence was out of the race.
    """
    if policy is PartitionPolicy.FENCED and not (fences and told in (None, PartitionPolicy.FENCED)):
        return PartitionPolicy.KEEP
    return policy


def remaining_grace(
    since: datetime | None, *, policy: PartitionPolicy, settings: Settings, now: datetime
) -> timedelta | None:
    """What is left of the time that work is waited for which is away since then; zero or less: it is gone.

    None: no end is set.
    """
    limit = gone_after(policy, settings)
    if limit is None:
        return None
    return (now if since is None else since) + limit - now


def mass_loss(clusters: Sequence[ClusterFacts], settings: Settings) -> str:
    """Why work stays where it is although its cluster is lost; empty when it need not.

    Clusters fail one by one. When most of them are lost within a moment, the hub's own network is the likelier cause,
    and to start all work anew would be the worst that could be done.
    """
    lost = sorted(cluster.lost_since for cluster in clusters if cluster.lost_since is not None)
    if len(clusters) < _FEW or not lost:
        return ""
    at_once = sum(lost[-1] - since <= settings.mass_loss_window for since in lost)
    if at_once <= settings.mass_loss_share * len(clusters):
        return ""
    return f"{at_once} of {len(clusters)} clusters were lost at once: their work is left where it is"


def describe_loss(cluster: ClusterFacts | None, name: str) -> str:
    """Why the cluster cannot be reached, for a person."""
    if cluster is None:
        return f'cluster "{name}" is not known'
    since = "" if cluster.lost_since is None else f" since {cluster.lost_since:%Y-%m-%dT%H:%M:%SZ}"
    return f'cluster "{name}" is not available{since}: {cluster.message or cluster.reason}'
