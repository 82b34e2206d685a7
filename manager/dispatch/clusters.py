# SPDX-License-Identifier: Apache-2.0
"""MultiKueueClusters: their mailboxes, their Active condition, and what dispatch knows of each.

Owns the condition Active of MultiKueueClusters, the objects in a mailbox namespace that an agent needs, and the book
of cluster facts that every plan is made from. Promises that the book is right before the first workload is planned,
and that a cluster whose availability changes is told to those who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from manager.context import ManagerContext
from manager.dispatch.condition_writes import active_condition, write_active
from manager.dispatch.kubeconfigs import KubeconfigReader
from manager.dispatch.mailboxes import Mailboxes
from manager.dispatch.push_clusters import PushClusters
from manager.dispatch.rooms import Rooms
from multikueue.api.constants import CANNOT_STOP_ANNOTATION, MAILBOX_OBJECT_NAME, TRANSPORT_ANNOTATION, Transport
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_REGISTRATIONS, CLUSTER_REPORTS, LEASES, MULTIKUEUE_CLUSTERS
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.federation import cluster_health
from multikueue.federation.annotations import weight_of
from multikueue.federation.cluster_health import ClusterHealth, ClusterHealthFacts, LeaseFacts
from multikueue.federation.facts import ClusterFacts
from multikueue.federation.kubeconfigs import KubeconfigProblem
from multikueue.kube.controller import Result

_CONNECTING: Final = timedelta(seconds=1)  # how soon to look again at a first attempt
_LEAVING_SECONDS: Final = 1.0  # how often a deleted cluster is looked at while something of ours is left on it


class Clusters:
    """The reconciler of MultiKueueClusters, and the book of their facts."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        rooms: Rooms,
        changed: Callable[[str], None],
        push: PushClusters,
        quotas_wanted: Callable[[str], bool],
    ) -> None:
        """`quotas_wanted` tells of a cluster whether its agent is to tell of the quotas there."""
        self._context = context
        self._rooms = rooms
        self._changed = changed
        self._push = push
        self._quotas_wanted = quotas_wanted
        self._began = context.clock.now()
        self._heard: set[str] = set()
        self._kubeconfigs = KubeconfigReader(context)
        self._mailboxes = Mailboxes(context)
        self._facts: dict[str, ClusterFacts] = {}
        self._renewals: dict[str, tuple[str, datetime]] = {}
        self._gone: dict[str, datetime] = {}
        self._left: dict[tuple[str, str], datetime] = {}
        self._connecting: set[str] = set()
        self._told: dict[str, object] = {}

    def get(self, name: str) -> ClusterFacts | None:
        """What is known of the cluster; None when there is no MultiKueueCluster of that name."""
        return self._facts.get(name)

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        """The facts of a cluster that is named somewhere but not in the config of `check`.

        The moment when it left is when that was noticed here first: the API keeps no trace of it. It is one for each
        check, as the config of another one may list the cluster still.
        """
        now = self._context.clock.now()
        known = self._facts.get(name)
        since = self._left.setdefault((name, check), now if known is not None else self._gone.get(name, now))
        if known is not None and known.lost_since is not None:
            return replace(known, lost_since=min(since, known.lost_since))
        return self._absent(name, since, now=now, why=why)

    def inside(self, name: str, *, check: str = "") -> ClusterFacts:
        """The facts of a cluster that the config of `check` lists, whether it is there or not."""
        self._left.pop((name, check), None)
        known = self._facts.get(name)
        if known is not None:
            return known
        now = self._context.clock.now()
        return self._absent(name, self._gone.setdefault(name, now), now=now, why="the MultiKueueCluster does not exist")

    def _absent(self, name: str, since: datetime, *, now: datetime, why: str) -> ClusterFacts:
        known = self._facts.get(name)
        return ClusterFacts(
            name=name,
            exists=known is not None,
            lost_since=since,
            silent_since=self._silent_since(name, now, otherwise=since),
            cannot_stop=known is not None and known.cannot_stop,
            reason="NotInConfig",
            message=why,
            takes_new_work=False,
        )

    def fences(self, name: str) -> bool:
        """Whether fenced work there is stopped by somebody who is on its side of a cut link."""
        return not self._push.serves(name)

    def report(self, name: str) -> JsonObject:
        """The status of the last report of its agent; empty when there is none."""
        if self._push.serves(name):
            return self._push.report(name)
        report = self._context.caches.view(CLUSTER_REPORTS).object(Key(mailbox_namespace(name), MAILBOX_OBJECT_NAME))
        return (report or {}).get("status") or {}

    def undecided(self, name: str) -> timedelta | None:
        """For how long a cluster that is not available may merely not have been heard yet; None when it was lost.

        After a hub was away every Lease on it is over, and each agent has one lease to be heard in.
        """
        if name in self._heard:
            return None
        left = self._began + self._lease(name).duration - self._context.clock.now()
        if name in self._connecting or name not in self._facts:
            left = max(left, _CONNECTING)
        return left if left > timedelta() else None

    @property
    def active(self) -> dict[str, bool]:
        """Of each MultiKueueCluster that exists, whether it is Active; of one being connected, whether it was."""
        return {name: self._is_active(facts) for name, facts in self._facts.items()}

    def _is_active(self, facts: ClusterFacts) -> bool:
        return facts.available or facts.name in self._connecting

    async def reconcile(self, key: Key) -> Result | None:
        """Bring mailbox, condition and book of one cluster up to date."""
        cluster = self._context.caches.view(MULTIKUEUE_CLUSTERS).object(key)
        now = self._context.clock.now()
        if cluster is None:
            left = self._push.removed(key.name)
            self._connecting.discard(key.name)
            self._told.pop(key.name, None)
            self._heard.discard(key.name)
            if self._facts.pop(key.name, None) is not None:
                self._gone[key.name] = now
                self._changed(key.name)
            return Result(after=_LEAVING_SECONDS) if left else None
        agent = (cluster["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) == Transport.AGENT
        health = self._judge(cluster, agent=agent, now=now)
        before = active_condition(cluster)
        if health.reason is ClusterReason.CLIENT_CONNECTION_FAILED and self._push.connecting(key.name):
            # What was said before the manager was restarted holds until the first attempt has ended.
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
                message=health.message,
            )
        self._enter(cluster, health, now)
        # Last, so that a management cluster without our CRDs still shows why the cluster is not Active.
        wanted = self._quotas_wanted(key.name)
        if agent:
            await self._mailboxes.ensure(key.name)
            await self._mailboxes.ask(key.name, quotas=wanted)
        else:
            self._push.ask(key.name, quotas=wanted)
        after = health.recheck_after
        # A path is read again now and then: there is no event for a file.
        again = self._kubeconfigs.recheck_after(cluster)
        if after is None or (again is not None and again < after):
            after = again
        return None if after is None else Result(after=max(0.05, after.total_seconds()))

    def _judge(self, cluster: JsonObject, *, agent: bool, now: datetime) -> ClusterHealth:
        name = cluster["metadata"]["name"]
        found = self._kubeconfigs.read(cluster)
        if agent:
            self._push.replaced_by_agent(name)
            problem = found if isinstance(found, KubeconfigProblem) else None
        else:
            problem = self._push.serve(name, found)
        facts = ClusterHealthFacts(
            created=parse_time(cluster["metadata"]["creationTimestamp"]),
            problem=problem,
            lease=LeaseFacts() if not agent else self._lease(name),
            link=None if agent else self._push.link(name),
            active=active_condition(cluster),
        )
        return cluster_health.judge(facts, now)

    def _silent_since(self, name: str, now: datetime, *, otherwise: datetime) -> datetime | None:
        if self._push.serves(name):
            link = self._push.link(name)
            return None if link.connected else link.lost_since or otherwise
        lease = self._lease(name)
        return otherwise if lease.renewed is None else lease.silent_since(now)

    def _lease(self, cluster: str) -> LeaseFacts:
        key = Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME)
        lease = self._context.caches.view(LEASES).object(key)
        metadata: JsonObject = (lease or {}).get("metadata") or {}
        spec: JsonObject = (lease or {}).get("spec") or {}
        duration = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 40))
        return LeaseFacts(
            renewed=self._renewed(cluster, str(spec.get("renewTime") or ""), duration),
            duration=duration,
            holder=str(spec.get("holderIdentity") or ""),
            cannot_stop=CANNOT_STOP_ANNOTATION in (metadata.get("annotations") or {}),
        )

    def _renewed(self, cluster: str, said: str, duration: timedelta) -> datetime | None:
        """When the Lease was renewed last, by our clock.

        A renewal that is seen happening counts from when it is seen: the agent's clock may be minutes off. Of one that
        was there when this process began, only the agent's word is known.
        """
        if not said:
            return None
        now = self._context.clock.now()
        known = self._renewals.get(cluster)
        if known is not None and known[0] == said:
            return known[1]
        moment = now
        if known is None:
            timeout = self._context.configuration.multikueue.worker_lost_timeout
            moment = cluster_health.believed_renewal(parse_time(said), duration=duration, lost_timeout=timeout, now=now)
        self._renewals[cluster] = (said, moment)
        return moment

    def _enter(self, cluster: JsonObject, health: ClusterHealth, now: datetime) -> None:
        name: str = cluster["metadata"]["name"]
        if health.active:
            self._heard.add(name)
        self._gone.pop(name, None)
        registration = self._context.caches.view(CLUSTER_REGISTRATIONS).object(Key("", name))
        spec: JsonObject = (registration or {}).get("spec") or {}
        facts = self._facts[name] = ClusterFacts(
            name=name,
            lost_since=health.lost_since,
            silent_since=self._silent_since(
                name, now, otherwise=now if health.lost_since is None else health.lost_since
            ),
            cannot_stop=self._lease(name).cannot_stop,
            reason=health.reason,
            message=health.message,
            takes_new_work=not (spec.get("cordoned") or spec.get("drain")),
            draining=bool(spec.get("drain")),
            drain_deadline=parse_time(spec["drainDeadline"]) if spec.get("drainDeadline") else None,
            labels=cluster["metadata"].get("labels") or {},
            weight=weight_of(cluster["metadata"].get("annotations") or {}),
            room=self._rooms.of(name),
            reported_at=self._reported_at(name, now),
        )
        standing = self._is_active(facts), *_standing(facts), *_offers(self.report(name))
        if self._told.get(name) != standing:
            self._told[name] = standing
            self._changed(name)

    def _reported_at(self, name: str, now: datetime) -> datetime | None:
        status = self.report(name)
        version = f"{status.get('bootID')}/{status.get('sequence')}/{status.get('time')}"
        return self._rooms.take_report(name, status, version=version, now=now)


def _standing(facts: ClusterFacts) -> tuple[object, ...]:
    """What of a cluster every workload has to hear of; by its labels users choose it."""
    labels = tuple(sorted(facts.labels.items()))
    return facts.available, facts.takes_new_work, facts.draining, facts.drain_deadline, labels


def _offers(report: JsonObject) -> tuple[object, ...]:
    """What a cluster takes at all, room or no room: whoever was turned away for it is looked at again."""
    return tuple(report.get(field) for field in ("engine", "localQueues", "kinds", "namespaces", "quotas"))
