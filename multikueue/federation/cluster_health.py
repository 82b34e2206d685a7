# SPDX-License-Identifier: Apache-2.0
"""Whether a MultiKueueCluster is Active, since when it is not, and when to look again.

Owns the reasons of `docs/spec/kueue-api.md §2.5` and the loss clock. A problem of the configuration comes before the
link, since it is what a person can mend. The clock is durable in both cases: a lost link counts from the last renewal
of the agent's Lease, a bad configuration from the transition of the Active condition that stands in the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from multikueue.api.reasons import ClusterReason
from multikueue.core.conditions import FALSE, Condition
from multikueue.federation import messages
from multikueue.federation.kubeconfigs import KubeconfigProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """The Lease of an agent; without a renew time no agent has come yet.

    With `cannot_stop` the agent is heard, and has said that its own API server does not answer.
    """

    renewed: datetime | None = None
    duration: timedelta = timedelta(seconds=40)
    holder: str = ""
    cannot_stop: bool = False

    def silent_since(self, now: datetime) -> datetime | None:
        """The last renewal of a Lease that is over; None while it holds, and when there was never a renewal."""
        return self.renewed if self.renewed is not None and now >= self.renewed + self.duration else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """The manager's own way to a worker that it holds a kubeconfig of: never tried, connected, or lost since."""

    connected: bool = False
    lost_since: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealthFacts:
    """What a MultiKueueCluster is judged by; `active` is its Active condition as it stands.

    With a `link` the manager hosts the agent, and the link is what counts; without one the agent's Lease does.
    """

    created: datetime
    problem: KubeconfigProblem | None = None
    link: LinkFacts | None = None
    lease: LeaseFacts = LeaseFacts()
    active: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """The judgement; `lost_since` is None while the cluster is Active."""

    reason: ClusterReason
    message: str
    lost_since: datetime | None = None
    recheck_after: timedelta | None = None

    @property
    def active(self) -> bool:
        """Whether the cluster can take work and its word is fresh."""
        return self.lost_since is None


def believed_renewal(said: datetime, *, duration: timedelta, lost_timeout: timedelta, now: datetime) -> datetime:
    """When to take a Lease for renewed of which nothing is known but what an agent's clock wrote into it.

    Not in the future; and not so long ago that an agent that is there has less than one lease left to be seen before
    its work is given up, however late its clock is.
    """
    earliest = now - max(lost_timeout - duration, duration)
    return max(min(said, now), earliest)


def judge(facts: ClusterHealthFacts, now: datetime) -> ClusterHealth:
    """The health of one cluster now."""
    if facts.problem is not None:
        return ClusterHealth(
            reason=facts.problem.reason, message=facts.problem.message, lost_since=_inactive_since(facts, now)
        )
    if facts.link is not None:
        return _by_link(facts, facts.link, now)
    renewed = facts.lease.renewed
    if renewed is None:
        return ClusterHealth(
            reason=ClusterReason.CLIENT_CONNECTION_FAILED,
            message="the agent has not connected yet",
            lost_since=facts.created,
        )
    if facts.lease.silent_since(now) is not None:
        why = ": it cannot reach its own API server" if facts.lease.cannot_stop else ""
        return ClusterHealth(
            reason=ClusterReason.CLIENT_CONNECTION_FAILED,
            message=f"the agent has not renewed its lease since {renewed:%Y-%m-%dT%H:%M:%SZ}{why}",
            lost_since=renewed,
        )
    return ClusterHealth(
        reason=ClusterReason.ACTIVE, message=messages.CONNECTED, recheck_after=renewed + facts.lease.duration - now
    )


def _by_link(facts: ClusterHealthFacts, link: LinkFacts, now: datetime) -> ClusterHealth:
    if link.connected:
        return ClusterHealth(reason=ClusterReason.ACTIVE, message=messages.CONNECTED)
    return ClusterHealth(
        reason=ClusterReason.CLIENT_CONNECTION_FAILED,
        message=link.message or messages.CONNECTING,
        lost_since=_inactive_since(facts, link.lost_since or now),
    )


def _inactive_since(facts: ClusterHealthFacts, now: datetime) -> datetime:
    if facts.active is not None and facts.active.status == FALSE:
        return facts.active.last_transition_time
    return now
