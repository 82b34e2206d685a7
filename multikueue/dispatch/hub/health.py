# SPDX-License-Identifier: Apache-2.0
"""Whether a MultiKueueCluster, or an AdmissionCheck of the MultiKueue controller, is Active.

Reasons are those of `docs/spec/kueue-api.md §2.5` and `docs/spec/multikueue.md §1.3`. A configuration problem takes
precedence over the connection, since a person can fix it. The moment of loss is durable: for a lost connection it is
the last renewal of the agent's Lease, for a bad configuration the transition of the stored Active condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import MAILBOX_NAMESPACE_UID_ANNOTATION
from multikueue.api.reasons import AdmissionCheckReason, ClusterReason
from multikueue.core.conditions import FALSE, Condition
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.facts import ClusterFacts
from multikueue.dispatch.policy.dispatch_policy import PolicyRules
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem
from multikueue.dispatch.protocol.worker_rights import WorkerRight, describe_missing

DEFAULT_LEASE: Final = timedelta(seconds=40)
MAX_LEASE: Final = timedelta(minutes=10)
"""The maximum for any agent: a lost cluster counts as connected for that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """The Lease of an agent; without a renew time no agent has connected yet.

    `cannot_stop`: the agent is connected, and reported that its own API server does not answer. `warning` names an
    invalid value that was replaced.
    """

    renewed: datetime | None = None
    duration: timedelta = DEFAULT_LEASE
    holder: str = ""
    cannot_stop: bool = False
    warning: str = ""

    def expired_since(self, now: datetime) -> datetime | None:
        """The last renewal of an expired Lease; None if it is valid or was never renewed."""
        return self.renewed if self.renewed is not None and now >= self.renewed + self.duration else None


@dataclass(frozen=True, slots=True)
class MailboxProblem:
    """The mailbox namespace was created by another user, who could read and write everything in it."""

    namespace: str
    uid: str
    cluster: str

    @property
    def reason(self) -> ClusterReason:
        """The reason of the condition."""
        return ClusterReason.MAILBOX_NAMESPACE_TAKEN

    @property
    def message(self) -> str:
        """The message of the condition."""
        hand_over = f"kubectl annotate multikueuecluster {self.cluster} {MAILBOX_NAMESPACE_UID_ANNOTATION}={self.uid}"
        return (
            f"namespace {self.namespace} was not created by this manager, so nothing is written there: delete it, or"
            f" hand it over with `{hand_over}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """The manager's connection to a worker by kubeconfig: not tried yet, connected, or lost since."""

    connected: bool = False
    lost_since: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealthFacts:
    """What the health of a MultiKueueCluster depends on; `active` is its stored Active condition.

    With a `link` the manager hosts the agent and the link counts; otherwise the agent's Lease does.
    """

    created: datetime
    problem: KubeconfigProblem | MailboxProblem | None = None
    link: LinkFacts | None = None
    lease: LeaseFacts = LeaseFacts()
    active: Condition | None = None
    missing_rights: tuple[WorkerRight, ...] = ()
    """The rights that its agent reported as missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """The health of a cluster; `lost_since` is None while it is Active."""

    reason: ClusterReason
    message: str
    lost_since: datetime | None = None
    recheck_after: timedelta | None = None

    @property
    def active(self) -> bool:
        """Whether the cluster can take work and its reported status is current."""
        return self.lost_since is None


def lease_duration(value: object) -> tuple[timedelta, str]:
    """The duration of a Lease, from the untrusted value `value`, and what is wrong with that value.

    From one second to `MAX_LEASE`, to which a higher value is limited; 40 s without a valid value.
    """
    if value is None:
        return DEFAULT_LEASE, ""
    most = int(MAX_LEASE.total_seconds())
    wrong = f"the agent's lease: leaseDurationSeconds: expected from 1 to {most}, found {excerpt(value)}"
    try:
        seconds = parse_unsigned(value, field="leaseDurationSeconds")
    except BadInput:
        seconds = 0
    if seconds > most:
        return MAX_LEASE, f"{wrong}; {most} is used"
    if seconds < 1:
        return DEFAULT_LEASE, f"{wrong}; {DEFAULT_LEASE.total_seconds():.0f} is used"
    return timedelta(seconds=seconds), ""


def assumed_renewal(value: datetime, *, duration: timedelta, lost_timeout: timedelta, now: datetime) -> datetime:
    """The renewal to assume for a Lease of which only the agent's own time is known.

    Not in the future, and not so long ago that a connected agent with a late clock would have less than one lease to
    renew before its work is moved.
    """
    earliest = now - max(lost_timeout - duration, duration)
    return max(min(value, now), earliest)


def judge_cluster(facts: ClusterHealthFacts, now: datetime) -> ClusterHealth:
    """The health of one cluster now."""
    if facts.problem is not None:
        return ClusterHealth(
            reason=facts.problem.reason, message=facts.problem.message, lost_since=_inactive_since(facts, now)
        )
    if facts.link is not None:
        return _by_link(facts, facts.link, now)
    if any(right.required for right in facts.missing_rights):
        return _without_required(facts, now)
    renewed = facts.lease.renewed
    if renewed is None:
        return ClusterHealth(
            reason=ClusterReason.CLIENT_CONNECTION_FAILED,
            message=_joined("the agent has not connected yet", facts.lease.warning),
            lost_since=facts.created,
        )
    if facts.lease.expired_since(now) is not None:
        why = ": it cannot reach its own API server" if facts.lease.cannot_stop else ""
        return ClusterHealth(
            reason=ClusterReason.CLIENT_CONNECTION_FAILED,
            message=_joined(
                f"the agent has not renewed its lease since {renewed:%Y-%m-%dT%H:%M:%SZ}{why}", facts.lease.warning
            ),
            lost_since=renewed,
        )
    return ClusterHealth(
        reason=ClusterReason.ACTIVE,
        message=_joined(messages.CONNECTED, facts.lease.warning, describe_missing(facts.missing_rights)),
        recheck_after=renewed + facts.lease.duration - now,
    )


def with_policy(message: str, rules: PolicyRules) -> str:
    """The message of a cluster's condition, with the problem of its dispatch policy, if any."""
    return f"{message}; it takes no new work: {rules.problem}" if rules.problem else message


def _without_required(facts: ClusterHealthFacts, now: datetime) -> ClusterHealth:
    """The health without a required right. An agent that may not read Jobs cannot renew its Lease."""
    renewed, silence = facts.lease.renewed, ""
    since, again = _inactive_since(facts, now), None
    if facts.link is None and renewed is not None:
        if facts.lease.expired_since(now) is None:
            again = renewed + facts.lease.duration - now
        else:
            since = min(since, renewed)
            silence = f"the agent has not renewed its lease since {renewed:%Y-%m-%dT%H:%M:%SZ}"
    return ClusterHealth(
        reason=ClusterReason.MISSING_RIGHTS,
        message=_joined(silence, describe_missing(facts.missing_rights)),
        lost_since=since,
        recheck_after=again,
    )


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _by_link(facts: ClusterHealthFacts, link: LinkFacts, now: datetime) -> ClusterHealth:
    # What was reported over a lost link does not apply to the next connection.
    if link.lost_since is None and any(right.required for right in facts.missing_rights):
        return _without_required(facts, now)
    if link.connected:
        message = _joined(messages.CONNECTED, describe_missing(facts.missing_rights))
        return ClusterHealth(reason=ClusterReason.ACTIVE, message=message)
    return ClusterHealth(
        reason=ClusterReason.CLIENT_CONNECTION_FAILED,
        message=link.message or messages.CONNECTING,
        lost_since=_inactive_since(facts, link.lost_since or now),
    )


def _inactive_since(facts: ClusterHealthFacts, now: datetime) -> datetime:
    if facts.active is not None and facts.active.status == FALSE:
        return facts.active.last_transition_time
    return now


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """The desired Active condition of a check."""

    active: bool
    reason: AdmissionCheckReason
    message: str


def judge_check(
    clusters: Sequence[str] | None, active: Mapping[str, bool], *, problem: str = "", held: str = ""
) -> CheckHealth:
    """The health of a check.

    `clusters` are those of its MultiKueueConfig; None if that cannot be read, because of `problem`. `active`: whether
    each existing MultiKueueCluster is Active. `held` is why lost clusters keep their work.
    """
    if clusters is None:
        return CheckHealth(False, AdmissionCheckReason.BAD_CONFIG, problem)
    if not clusters:
        return CheckHealth(False, AdmissionCheckReason.NO_USABLE_CLUSTERS, messages.NO_CLUSTERS)
    missing = [name for name in clusters if name not in active]
    inactive = [name for name in clusters if active.get(name) is False]
    if not missing and not inactive:
        return CheckHealth(True, AdmissionCheckReason.ACTIVE, messages.CHECK_ACTIVE)
    parts = [
        f"{kind} clusters: [{' '.join(names)}]"
        for kind, names in (("Missing", missing), ("Inactive", inactive))
        if names
    ]
    message = "; ".join(filter(None, (", ".join(parts), held)))
    if len(missing) + len(inactive) == len(clusters):
        return CheckHealth(False, AdmissionCheckReason.NO_USABLE_CLUSTERS, message)
    return CheckHealth(True, AdmissionCheckReason.SOME_ACTIVE_CLUSTERS, message)


def judge_ability(clusters: Iterable[ClusterFacts]) -> CheckHealth | None:
    """Whether the clusters of a check can provision capacity (ADR 0018); None if none of them is known well enough.

    A cluster that is not connected does not decide, nor one whose agent has not reported yet.
    """
    known = [
        cluster
        for cluster in clusters
        if cluster.available and cluster.capacity is not None and cluster.capacity.report is not None
    ]
    if not known:
        return None
    problems = [f"{cluster.name}: {why}" for cluster in known if (why := cluster.provisioning_problem)]
    if problems:
        return CheckHealth(False, AdmissionCheckReason.CLUSTERS_CANNOT_PROVISION, "; ".join(problems))
    return CheckHealth(True, AdmissionCheckReason.ACTIVE, messages.CAN_PROVISION)
