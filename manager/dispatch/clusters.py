# SPDX-License-Identifier: Apache-2.0
"""The reconciler of MultiKueueClusters: mailboxes, the Active condition, and the cluster facts of dispatch.

Owns the condition Active of MultiKueueClusters, the objects in a mailbox namespace that an agent needs, and the cluster
facts that every plan is made from. Promises that the facts are complete before the first workload is planned, and that
`changed` is called when the availability of a cluster changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from manager.context import ManagerContext
from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.condition_writes import active_condition, write_active
from manager.dispatch.reported.report_limits import ReportIntake
from manager.dispatch.transport.kubeconfigs import KubeconfigReader
from manager.dispatch.transport.mailboxes import Mailboxes
from manager.dispatch.transport.push_clusters import PushClusters
from multikueue.api.constants import CANNOT_STOP_ANNOTATION, MAILBOX_OBJECT_NAME, TRANSPORT_ANNOTATION, TransportType
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_REGISTRATIONS, CLUSTER_REPORTS, LEASES, MULTIKUEUE_CLUSTERS
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub.cluster_facts import cluster_facts, outside_config
from multikueue.dispatch.hub.facts import ClusterFacts
from multikueue.dispatch.hub.health import (
    ClusterHealth,
    ClusterHealthFacts,
    LeaseFacts,
    MailboxProblem,
    assumed_renewal,
    judge_cluster,
    lease_duration,
    with_policy,
)
from multikueue.dispatch.policy.dispatch_policy import cluster_rules
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem
from multikueue.dispatch.protocol.worker_rights import WorkerRight, missing_of, rights_of
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.runtime.controller import Result

_CONNECTING: Final = timedelta(seconds=1)  # how soon to check a first attempt again
_RIGHTS_SHOWN: Final = timedelta(seconds=3)  # how long a list of missing rights is shown at least
_LEAVING_SECONDS: Final = 1.0  # how often a deleted cluster is checked until it is empty


class Clusters:
    """The reconciler of MultiKueueClusters, and their facts."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        capacities: CapacityCache,
        changed: Callable[[str], None],
        push: PushClusters,
        reports_quotas: Callable[[str], bool],
    ) -> None:
        """`reports_quotas` returns whether the agent of a cluster is to report quotas."""
        self._context = context
        self._capacities = capacities
        self._changed = changed
        self._push = push
        self._reports_quotas = reports_quotas
        self._started = context.clock.now()
        self._reached: set[str] = set()
        self._kubeconfigs = KubeconfigReader(context)
        self._mailboxes = Mailboxes(context)
        self._facts: dict[str, ClusterFacts] = {}
        self._renewals: dict[str, tuple[str, datetime]] = {}
        self._gone: dict[str, datetime] = {}
        self._left: dict[tuple[str, str], datetime] = {}
        self._connecting: set[str] = set()
        self._notified: dict[str, object] = {}
        self._rights = rights_of(each.resource for each in JobRegistry.configured(context.configuration).dispatched)
        self._missing: dict[str, tuple[tuple[WorkerRight, ...], datetime]] = {}
        self._reports = ReportIntake()

    def get(self, name: str) -> ClusterFacts | None:
        """The facts of the cluster; None when there is no MultiKueueCluster of that name."""
        return self._facts.get(name)

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        """The facts of a cluster that is named by the workload but not in the config of `check`.

        The time when it left is when this process noticed it: the API keeps no trace of it. It is kept per check, as
        the config of another check may still list the cluster.
        """
        now = self._context.clock.now()
        known = self._facts.get(name)
        since = self._left.setdefault((name, check), now if known is not None else self._gone.get(name, now))
        if known is not None and known.lost_since is not None:
            return replace(known, lost_since=min(since, known.lost_since))
        return self._absent(name, since, now=now, why=why)

    def inside(self, name: str, *, check: str = "") -> ClusterFacts:
        """The facts of a cluster that the config of `check` lists, whether it exists or not."""
        self._left.pop((name, check), None)
        known = self._facts.get(name)
        if known is not None:
            return known
        now = self._context.clock.now()
        return self._absent(name, self._gone.setdefault(name, now), now=now, why="the MultiKueueCluster does not exist")

    def _absent(self, name: str, since: datetime, *, now: datetime, why: str) -> ClusterFacts:
        agent_lost_since = self._silent_since(name, now, otherwise=since)
        return outside_config(
            name,
            self._facts.get(name),
            lost_since=since,
            agent_lost_since=agent_lost_since,
            fences=not self._push.serves(name),
            why=why,
        )

    def report(self, name: str) -> JsonObject:
        """The status of the last accepted report of its agent; empty when there is none."""
        return self._reports.latest(name)

    def _written_report(self, name: str) -> JsonObject:
        if self._push.serves(name):
            return self._push.report(name)
        report = self._context.caches.view(CLUSTER_REPORTS).object(Key(mailbox_namespace(name), MAILBOX_OBJECT_NAME))
        return (report or {}).get("status") or {}

    def undecided(self, name: str) -> timedelta | None:
        """For how long an unavailable cluster may merely not have reported yet; None when it was lost.

        After a hub was down every Lease on it has expired, and each agent has one lease duration to report in.
        """
        if name in self._reached:
            return None
        left = self._started + self._lease(name).duration - self._context.clock.now()
        if name in self._connecting or name not in self._facts:
            left = max(left, _CONNECTING)
        return left if left > timedelta() else None

    @property
    def active(self) -> dict[str, bool]:
        """Of each existing MultiKueueCluster, whether it is Active; of one that is connecting, whether it was."""
        return {name: self._is_active(facts) for name, facts in self._facts.items()}

    def _is_active(self, facts: ClusterFacts) -> bool:
        return facts.available or facts.name in self._connecting

    async def reconcile(self, key: Key) -> Result | None:
        """Bring mailbox, condition and facts of one cluster up to date."""
        cluster = self._context.caches.view(MULTIKUEUE_CLUSTERS).object(key)
        now = self._context.clock.now()
        if cluster is None:
            left = self._push.removed(key.name)
            self._connecting.discard(key.name)
            self._notified.pop(key.name, None)
            self._missing.pop(key.name, None)
            self._reached.discard(key.name)
            self._reports.forget(key.name)
            if self._facts.pop(key.name, None) is not None:
                self._gone[key.name] = now
                self._changed(key.name)
            stays = await self._mailboxes.release(key.name)
            return Result(after=_LEAVING_SECONDS) if left or stays else None
        agent = (cluster["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) == TransportType.AGENT
        health = self._judge(cluster, agent=agent, now=now)
        before = active_condition(cluster)
        if health.reason is ClusterReason.CLIENT_CONNECTION_FAILED and self._push.connecting(key.name):
            # Until the first attempt of this process has ended the condition is kept.
            if before is not None and before.status == TRUE:
                self._connecting.add(key.name)
        else:
            self._connecting.discard(key.name)
            await write_active(
                self._context,
                MULTIKUEUE_CLUSTERS,
                cluster,
                active=health.active,
                reason=health.reason,
                message=with_policy(health.message, cluster_rules(_annotations(cluster))),
            )
        offered_again = self._reports.offer(
            key.name, self._written_report(key.name), now=self._context.clock.monotonic()
        )
        self._enter(cluster, health, now)
        # Last, so that a management cluster without our CRDs still shows why the cluster is not Active.
        wanted = self._reports_quotas(key.name)
        after = health.recheck_after
        if not agent:
            self._push.ask(key.name, quotas=wanted)
        elif await self._mailboxes.ensure(cluster):
            await self._mailboxes.ask(key.name, quotas=wanted)
        else:
            after = timedelta(seconds=_LEAVING_SECONDS)
        # A path is read again periodically: a file sends no events.
        again = self._kubeconfigs.recheck_after(cluster)
        waits = [each.total_seconds() for each in (after, again) if each is not None]
        waits += [offered_again] if offered_again is not None else []
        return Result(after=max(0.05, min(waits))) if waits else None

    def _judge(self, cluster: JsonObject, *, agent: bool, now: datetime) -> ClusterHealth:
        name = cluster["metadata"]["name"]
        found = self._kubeconfigs.read(cluster)
        problem: KubeconfigProblem | MailboxProblem | None
        if agent:
            self._push.replaced_by_agent(name)
            problem = found if isinstance(found, KubeconfigProblem) else self._mailboxes.problem(cluster)
        else:
            problem = self._push.serve(name, found)
        missing, again = self._missing_rights(name, now)
        facts = ClusterHealthFacts(
            missing_rights=missing,
            created=parse_time(cluster["metadata"]["creationTimestamp"]),
            problem=problem,
            lease=LeaseFacts() if not agent else self._lease(name),
            link=None if agent else self._push.link(name),
            active=active_condition(cluster),
        )
        health = judge_cluster(facts, now)
        if again is None or (health.recheck_after is not None and health.recheck_after < again):
            return health
        return replace(health, recheck_after=again)

    def _missing_rights(self, name: str, now: datetime) -> tuple[tuple[WorkerRight, ...], timedelta | None]:
        """The rights that the last report lists as missing, and when to check again a list that changes too often."""
        missing = missing_of(self.report(name), self._rights)
        known, until = self._missing.get(name, ((), now))
        if missing != known and now < until:
            return known, until - now
        if missing != known:
            self._missing[name] = (missing, now + _RIGHTS_SHOWN)
        return missing, None

    def _silent_since(self, name: str, now: datetime, *, otherwise: datetime) -> datetime | None:
        if self._push.serves(name):
            link = self._push.link(name)
            return None if link.connected else link.lost_since or otherwise
        lease = self._lease(name)
        return otherwise if lease.renewed is None else lease.expired_since(now)

    def _lease(self, cluster: str) -> LeaseFacts:
        key = Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME)
        lease = self._context.caches.view(LEASES).object(key)
        metadata: JsonObject = (lease or {}).get("metadata") or {}
        spec: JsonObject = (lease or {}).get("spec") or {}
        duration, warning = lease_duration(spec.get("leaseDurationSeconds"))
        renew_time = str(spec.get("renewTime") or "")
        warning = "; ".join(filter(None, (warning, _time_problem(renew_time))))
        return LeaseFacts(
            renewed=self._renewed(cluster, renew_time, duration),
            duration=duration,
            holder=str(spec.get("holderIdentity") or ""),
            cannot_stop=CANNOT_STOP_ANNOTATION in (metadata.get("annotations") or {}),
            warning=warning,
        )

    def _renewed(self, cluster: str, renew_time: str, duration: timedelta) -> datetime | None:
        """When the Lease was last renewed, by our clock.

        A renewal counts from when this process sees it: the agent's clock may be minutes off. For one from before this
        process started only the agent's time is known.
        """
        if not renew_time:
            return None
        now = self._context.clock.now()
        known = self._renewals.get(cluster)
        if known is not None and known[0] == renew_time:
            return known[1]
        moment = now
        if known is None:
            timeout = self._context.configuration.multikueue.worker_lost_timeout
            try:
                renewed = parse_time(renew_time)
            except BadInput:
                return None  # the condition reports it
            moment = assumed_renewal(renewed, duration=duration, lost_timeout=timeout, now=now)
        self._renewals[cluster] = (renew_time, moment)
        return moment

    def _enter(self, cluster: JsonObject, health: ClusterHealth, now: datetime) -> None:
        name: str = cluster["metadata"]["name"]
        if health.active:
            self._reached.add(name)
        self._gone.pop(name, None)
        registration = self._context.caches.view(CLUSTER_REGISTRATIONS).object(Key("", name))
        facts = self._facts[name] = cluster_facts(
            cluster,
            registration,
            lost_since=health.lost_since,
            agent_lost_since=self._silent_since(
                name, now, otherwise=now if health.lost_since is None else health.lost_since
            ),
            cannot_stop=self._lease(name).cannot_stop,
            fences=not self._push.serves(name),
            reason=health.reason,
            message=health.message,
            capacity=self._capacities.of(name),
            reported_at=self._reported_at(name, now),
        )
        state = self._is_active(facts), *_dispatch_state(facts), *_offers(self.report(name))
        if self._notified.get(name) != state:
            self._notified[name] = state
            self._changed(name)

    def _reported_at(self, name: str, now: datetime) -> datetime | None:
        status = self.report(name)
        version = f"{status.get('bootID')}/{status.get('sequence')}/{status.get('time')}"
        return self._capacities.take_report(name, status, version=version, now=now)


def _time_problem(renew_time: str) -> str:
    """Why the time of a renewal cannot be parsed; empty when it can, or when there is none."""
    try:
        if renew_time:
            parse_time(renew_time)
    except BadInput as error:
        return f"its Lease counts as never renewed: spec.renewTime: {error}"
    return ""


def _dispatch_state(facts: ClusterFacts) -> tuple[object, ...]:
    """What of a cluster matters to every workload; its labels are used by users to choose it."""
    labels = tuple(sorted(facts.labels.items()))
    return facts.available, facts.takes_new_work, facts.draining, facts.drain_deadline, labels, facts.rules


def _annotations(cluster: JsonObject) -> dict[str, str]:
    return cluster["metadata"].get("annotations") or {}


def _offers(report: JsonObject) -> tuple[object, ...]:
    """What a cluster accepts at all, regardless of capacity: a change wakes workloads that it excluded."""
    return tuple(
        report.get(field) for field in ("engine", "localQueues", "kinds", "namespaces", "quotas", "provisioning")
    )
