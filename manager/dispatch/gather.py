# SPDX-License-Identifier: Apache-2.0
"""The facts of one plan, from the caches.

Turns a Workload, its job and the state of checks and clusters into `DispatchFacts`. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from manager.cache.caches import Caches
from manager.cache.indexes import GROUP_INDEX, OWNER_INDEX, owner_term
from manager.controllers.held_pods import HeldPods
from manager.dispatch.assignments import fingerprint, forwarded_digest, forwards
from manager.dispatch.checks import CheckSource
from manager.dispatch.replicas import ReplicaWorkloads
from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.workload_requests import WorkloadRequests
from manager.dispatch.workload_status import (
    failed_at,
    finished_at,
    flavors,
    holds_quota,
    if_false,
    others_ready,
    to_stop,
    waits_since,
)
from manager.provisioning.checks import DelegatedChecks
from manager.workload.status import Check, Status
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    MULTIKUEUE_MANAGED_BY,
    PARTITION_POLICY_ANNOTATION,
    CheckState,
    PartitionPolicy,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import RESOURCE_FLAVORS, WORKLOADS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.facts import (
    Adoption,
    CheckFacts,
    ClusterFacts,
    DispatchedWorkload,
    DispatchFacts,
    DispatchSettings,
    Observation,
    OwnerFacts,
    Preferences,
)
from multikueue.dispatch.policy.dispatch_policy import DispatchSubject, PolicyVerdict, hub_rules, verdict
from multikueue.dispatch.protocol.annotations import avoided_of, gate_opening_of, preferences_of, round_of
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.capabilities import GroupedKind, PodHoldingKind, PodSetsKind, ReplicatedKind, SentGroups
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.slices import is_elastic, waits_for_checks
from multikueue.jobs.framework.workloads import is_of_group, replica_of_workload

ORCHESTRATED_PREEMPTION: Final = "MultiKueueOrchestratedPreemption"
"""The feature gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts, and the objects they were read from."""

    facts: DispatchFacts
    workload: JsonObject | None = None
    status: Status | None = None
    integration: JobIntegration | None = None
    job: Key | None = None

    @property
    def job_key(self) -> tuple[Resource, Key] | None:
        """The job and its kind: jobs of two kinds may have one name."""
        return None if self.integration is None or self.job is None else (self.integration.resource, self.job)


class Adoptions(Protocol):
    """Proves that an adoption was requested by a user with that right."""

    def adoption_of(self, obj: JsonObject | None) -> Adoption | None:
        """The remote job that a job or Workload is to adopt; None if that is not confirmed."""


class Hub(Protocol):
    """The part of a manager that facts are read from."""

    @property
    def configuration(self) -> Configuration:
        """The Configuration."""

    @property
    def caches(self) -> Caches:
        """The objects of the management cluster."""

    @property
    def seals(self) -> Adoptions:
        """Proves adoption requests."""


class ClusterFactsSource(Protocol):
    """The facts of the worker clusters."""

    def inside(self, name: str, *, check: str) -> ClusterFacts:
        """The facts of a cluster that the config of the check lists, whether it exists or not."""

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        """The facts of a cluster that is named by the workload but not in the config of the check."""


class CheckSources(Protocol):
    """The clusters of each check."""

    def source(self, name: str) -> CheckSource | None:
        """The clusters of the check; None when it is not one of our controller."""


def load_job(context: Hub, gathered: Gathered) -> JsonObject | None:
    """The user's job, if it exists and is not a new one of the same name."""
    if gathered.integration is None or gathered.job is None:
        return None
    if gathered.workload is not None and is_of_group(gathered.workload):
        return _group(context, gathered.integration, gathered.job, gathered.workload)
    owner = None if gathered.workload is None else _controller(gathered.workload)
    job: JsonObject | None = context.caches.view(gathered.integration.resource).object(gathered.job)
    if job is None or owner is None or job["metadata"]["uid"] != owner["uid"]:
        return None
    kind = gathered.integration
    if isinstance(kind, ReplicatedKind) and gathered.workload is not None:
        job = kind.replica(job, replica_of_workload(gathered.workload, kind.resource, job))
    if isinstance(kind, PodSetsKind) and gathered.workload is not None:
        job = kind.with_pod_sets(job, gathered.workload["spec"].get("podSets") or ())
    return HeldPods(context.caches).added_to(job, kind) if isinstance(kind, PodHoldingKind) else job


def owner_of(workload: JsonObject) -> JsonObject | None:
    """The owner reference of its job; of a group one of its members', with the name of the group."""
    owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
    if is_of_group(workload) and owners:
        return {**owners[0], "name": workload["metadata"]["name"]}
    return _controller(workload)


def owners_of(workload: JsonObject) -> list[JsonObject]:
    """The owner references of its job, or of the members of its group."""
    owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
    return owners if is_of_group(workload) else [owner for owner in owners if owner.get("controller")][:1]


def sent_kind(owner: JsonObject, integration: JobIntegration | None) -> tuple[str, str]:
    """The apiVersion and kind of the remote job of that owner."""
    sent = None if integration is None else integration.traits.sent_as
    if sent is None:
        return str(owner.get("apiVersion", "")), str(owner.get("kind", ""))
    return sent.api_version, sent.kind


def _group(context: Hub, integration: JobIntegration, key: Key, workload: JsonObject) -> JsonObject | None:
    """The members that own the Workload, as one object."""
    if not isinstance(integration, GroupedKind):
        return None
    owners = {owner.get("uid") for owner in workload["metadata"].get("ownerReferences") or ()}
    found = context.caches.view(integration.resource).objects(GROUP_INDEX, str(key))
    members = [each for each in found if each["metadata"]["uid"] in owners and integration.group_of(each) == key.name]
    group = integration.composed(members) if members else None
    if group is None or not isinstance(integration, PodSetsKind):
        return group
    return integration.with_pod_sets(group, workload["spec"].get("podSets") or ())


def adoption_for(seals: Adoptions, workload: JsonObject, job: JsonObject | None, *, epoch: int) -> Adoption | None:
    """The remote job that the dispatch of that epoch is to adopt, as requested in the Workload or its job.

    Only if the user who requested it had the right to.
    """
    found = (seals.adoption_of(obj) for obj in (workload, job))
    return next((each for each in found if each is not None and each.epoch == epoch), None)


class Gatherer:
    """Reads the caches for one plan at a time."""

    def __init__(
        self,
        context: Hub,
        *,
        checks: CheckSources,
        clusters: ClusterFactsSource,
        registry: JobRegistry,
        namespace: str = "",
    ) -> None:
        """`namespace` is the manager's, if it is not that of the Configuration."""
        self._context = context
        self._checks = checks
        self._clusters = clusters
        self._registry = registry
        self.requests = WorkloadRequests(context.caches.view(RESOURCE_FLAVORS))
        configuration, federation = context.configuration, context.configuration.multikueue
        self._settings = DispatchSettings(
            worker_lost_timeout=federation.worker_lost_timeout,
            dispatcher=federation.dispatcher_name,
            step_size=federation.step_size,
            keep_failed_jobs=federation.keep_failed_jobs,
            orchestrated_preemption=configuration.gate(ORCHESTRATED_PREEMPTION),
            pods_start_timeout=federation.pods_start_timeout,
            provisioning_clusters=federation.provisioning_clusters,
        )
        self._delegated = DelegatedChecks(context.caches)
        self._rules = hub_rules(configuration, namespace=namespace)
        self._slices = JobSlices(context.caches)
        self.replicas = ReplicaWorkloads(context.caches, registry, can_be_sent=self._can_be_sent)

    @property
    def settings(self) -> DispatchSettings:
        """The settings of dispatch in the Configuration."""
        return self._settings

    def gather(
        self,
        key: Key,
        workload: JsonObject | None,
        observations: Mapping[str, Observation],
        *,
        now: datetime,
        status: Status | None = None,
        explains: bool = False,
    ) -> Gathered | None:
        """The facts about one workload, as it is or is about to be; None when dispatch has nothing to do with it.

        With `explains` also those that no plan needs, of a workload that has finished or waits for quota.
        """
        if workload is None:
            facts_without_workload = DispatchFacts(workload=None, observations=observations, settings=self._settings)
            return Gathered(facts=facts_without_workload) if observations else None
        if self._slices.is_superseded(workload):
            return None
        status = Status.of(workload) if status is None else status
        annotations: dict[str, str] = workload["metadata"].get("annotations") or {}
        avoided = avoided_of(annotations, now - self._settings.asks_for)
        check = self._check(status)
        if not observations and (check is None or (status.is_true(WorkloadCondition.FINISHED) and not explains)):
            return None
        # Most of a large hub: nothing of it is anywhere, and without quota it is sent nowhere.
        rests = not (
            observations or status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.cluster_name or explains
        )
        owner = owner_of(workload)
        integration = None if owner is None else self._registry.sent_kind(owner["apiVersion"], owner["kind"])
        job = None if owner is None else Key(key.namespace, str(owner["name"]))
        gathered = Gathered(
            facts=DispatchFacts(workload=None),
            workload=workload,
            status=status,
            integration=integration,
            job=job,
        )
        waits = check is not None and check.state is CheckState.PENDING and not status.cluster_name and not rests
        delegation = (
            self._delegated.delegation(workload, status, besides=check.name) if check is not None and waits else None
        )
        decided_elsewhere = () if delegation is None else delegation.checks
        facts = DispatchedWorkload(
            key=key,
            uid=workload["metadata"]["uid"],
            epoch=epoch_of((e.count for e in status.evictions), annotations),
            check=None if check is None else CheckFacts(name=check.name, state=check.state, message=check.message),
            owner=self._owner(owner, gathered, pending=check is not None and check.state is CheckState.PENDING),
            quota_reserved=status.is_true(WorkloadCondition.QUOTA_RESERVED),
            others_ready=others_ready(status, check, decided_elsewhere),
            delegation=delegation,
            stopping=holds_quota(status) and (to_stop(workload, status) or self._goes_before_its_job(gathered)),
            finished=status.is_true(WorkloadCondition.FINISHED),
            failed_at=failed_at(status),
            finished_at=finished_at(status),
            deleting=bool(workload["metadata"].get("deletionTimestamp")),
            cluster_name=status.cluster_name,
            elastic=is_elastic(workload),
            runs_on=self._slices.runs_on(workload, observations.values()) if waits else "",
            nominated=status.nominated,
            fingerprint="" if rests else self._fingerprint(gathered, observations.get(status.cluster_name)),
            partition_policy=_policy(workload),
            queue=Key(key.namespace, str(workload["spec"].get("queueName") or "")),
            demands=self.requests.by(workload),
            dependency_kinds=self.requests.dependency_kinds(workload) if waits else frozenset(),
            flavors=flavors(status) if waits else {},
            preferences=self._preferences(annotations, gathered) if waits else Preferences(),
            waits_since=waits_since(status, check, decided_elsewhere) if waits else None,
            round=round_of(annotations) if waits else None,
            gate_opening=gate_opening_of(annotations),
            adopts=self._adopts(workload, status, gathered) if waits else None,
            replica=self.replicas.of(workload) if waits and holds_quota(status) else None,
            ends_of_former_pods=self._ends_of_former_pods(gathered, observations),
            members_follow=isinstance(integration, PodHoldingKind),
            not_started=if_false(status, WorkloadCondition.PODS_STARTED),
            not_forwarded=if_false(status, WorkloadCondition.CHANGE_FORWARDED),
        )
        listed: tuple[str, ...] = ()
        if check is not None and not rests:
            source = self._checks.source(check.name)
            listed = (source.clusters if source is not None else None) or ()
        made = self._facts(facts, listed, observations, avoided)
        if waits or _not_delivered(facts, observations):
            made = replace(made, policy=self._verdict(made, gathered))
        elif forwards(integration):
            made = with_forwarding(made, lambda: self._verdict(made, gathered))
        return replace(gathered, facts=made)

    def _check(self, status: Status) -> Check | None:
        return next((entry for entry in status.checks if self._checks.source(entry.name) is not None), None)

    def _can_be_sent(self, workload: JsonObject, status: Status) -> bool:
        """Whether a Workload waits for nothing but a cluster."""
        check = self._check(status)
        if check is None or check.state is not CheckState.PENDING or not holds_quota(status):
            return False
        if status.cluster_name or to_stop(workload, status):
            return False
        delegation = self._delegated.delegation(workload, status, besides=check.name)
        return others_ready(status, check, () if delegation is None else delegation.checks)

    def _facts(
        self,
        workload: DispatchedWorkload,
        listed: tuple[str, ...],
        observations: Mapping[str, Observation],
        avoided: Mapping[str, datetime],
    ) -> DispatchFacts:
        named = {*observations, *((workload.cluster_name,) if workload.cluster_name else ())}
        check = "" if workload.check is None else workload.check.name
        others: dict[str, ClusterFacts] = {
            name: self._clusters.outside(name, check=check, why="the cluster is not in the config")
            for name in sorted(named.difference(listed))
        }
        return DispatchFacts(
            workload=workload,
            clusters=tuple(self._clusters.inside(name, check=check) for name in listed),
            others=others,
            observations=observations,
            avoided=avoided,
            settings=self._settings,
        )

    def _verdict(self, facts: DispatchFacts, gathered: Gathered) -> PolicyVerdict:
        """The verdict of the dispatch policies on each cluster; a running workload is not judged."""
        assert gathered.workload is not None
        job = load_job(self._context, gathered) or {}
        namespace: str = gathered.workload["metadata"]["namespace"]
        subject = DispatchSubject.of(namespace, job, workload_spec=gathered.workload["spec"])
        clusters = (*facts.clusters, *facts.others.values())
        return verdict(subject, self._rules, {cluster.name: cluster.rules for cluster in clusters})

    def _preferences(self, annotations: dict[str, str], gathered: Gathered) -> Preferences:
        """Those of the Workload, else those of its job, where users write them."""
        job = load_job(self._context, gathered)
        of_job: dict[str, str] = {} if job is None else job["metadata"].get("annotations") or {}
        return preferences_of({**of_job, **annotations})

    def _adopts(self, workload: JsonObject, status: Status, gathered: Gathered) -> Adoption | None:
        """The remote job that this dispatch is to adopt."""
        annotations: dict[str, str] = workload["metadata"].get("annotations") or {}
        epoch = epoch_of((e.count for e in status.evictions), annotations)
        return adoption_for(self._context.seals, workload, load_job(self._context, gathered), epoch=epoch)

    def _owner(self, owner: JsonObject | None, gathered: Gathered, *, pending: bool) -> OwnerFacts:
        if owner is None:
            return OwnerFacts(problem=messages.no_adapter(""))
        problem = ""
        if gathered.integration is None or not gathered.integration.traits.dispatched:
            problem = messages.no_adapter(owner["kind"])
        elif pending and isinstance(gathered.integration, SentGroups):
            problem = self._not_sent(gathered)
        elif pending and gathered.integration.traits.has_managed_by:
            # A job of a kind without that field is held here for as long as its remote job runs.
            # Once granted, an edit of managedBy must not reject what runs; the field is immutable on a Job anyway.
            job = load_job(self._context, gathered)
            managed_by = MULTIKUEUE_MANAGED_BY if job is None else gathered.integration.managed_by(job)
            problem = messages.not_managed(managed_by) if managed_by != MULTIKUEUE_MANAGED_BY else ""
            if not problem and gathered.integration in self._registry.external:
                problem = self._sent_already(gathered, owner)
        api_version, kind = sent_kind(owner, gathered.integration)
        return OwnerFacts(api_version=api_version, kind=kind, name=owner["name"], problem=problem)

    def _sent_already(self, gathered: Gathered, owner: JsonObject) -> str:
        """Why a job of an external framework is not sent by this Workload; empty if it is.

        Of a kind that is queued here, the job reconciler makes one Workload; of these, users can make several.
        """
        assert gathered.workload is not None
        own: JsonObject = gathered.workload["metadata"]
        term = owner_term(
            api_version=owner["apiVersion"], kind=owner["kind"], namespace=own["namespace"], name=owner["name"]
        )
        for other in self._context.caches.view(WORKLOADS).objects(OWNER_INDEX, term):
            metadata, reference = other["metadata"], _controller(other)
            of_job = reference is not None and reference.get("uid") == owner.get("uid")
            if not of_job or metadata["uid"] == own["uid"] or "deletionTimestamp" in metadata:
                continue
            status = Status.of(other)
            if to_stop(other, status) or status.is_true(WorkloadCondition.FINISHED):
                continue
            if status.cluster_name or _age(metadata) < _age(own):
                return messages.sent_already(owner["kind"], owner["name"], metadata["name"])
        return ""

    def _fingerprint(self, gathered: Gathered, granted: Observation | None) -> str:
        """What is sent; of a group that cannot be sent any more, what was sent: what runs is not touched."""
        assert gathered.workload is not None
        kind, job = gathered.integration, load_job(self._context, gathered)
        if granted is not None and waits_for_checks(gathered.workload):
            return granted.fingerprint  # the job keeps the size of the slice before it
        if kind is None or job is None or not isinstance(kind, SentGroups):
            return fingerprint(gathered.workload, forwarded=forwarded_digest(kind, job))
        if granted is not None and self._not_sent(gathered):
            return granted.fingerprint
        return fingerprint(gathered.workload, members=kind.sent_digest(job))

    def _not_sent(self, gathered: Gathered) -> str:
        """Why the job cannot be sent to a worker; empty if it can."""
        kind, job = gathered.integration, load_job(self._context, gathered)
        if kind is None or job is None or not isinstance(kind, SentGroups):
            return ""
        try:
            return kind.not_sent(job)
        except BadInput as error:
            return str(error)

    def _ends_of_former_pods(self, gathered: Gathered, observations: Mapping[str, Observation]) -> frozenset[str]:
        """The clusters that report an end of a group that lacks pods which it has now."""
        kind = gathered.integration
        ended = {name: seen.job_status for name, seen in observations.items() if seen.end and seen.job_status}
        job = load_job(self._context, gathered) if ended else None
        if kind is None or job is None or not isinstance(kind, SentGroups):
            return frozenset()
        return frozenset(name for name, status in ended.items() if kind.has_other_members(job, status))

    def _goes_before_its_job(self, gathered: Gathered) -> bool:
        """Whether it is deleted and its job is not: the job gets a new Workload, which may be sent elsewhere."""
        if gathered.workload is None or "deletionTimestamp" not in gathered.workload["metadata"]:
            return False
        job = load_job(self._context, gathered)
        return job is not None and "deletionTimestamp" not in job["metadata"]


def with_forwarding(facts: DispatchFacts, verdict: Callable[[], PolicyVerdict]) -> DispatchFacts:
    """The facts of a workload that runs, whose job may have changed in fields that are forwarded.

    A change passes the dispatch policies first: without that the facts are those of what was sent, which runs on, with
    the reason.
    """
    workload = facts.workload
    granted = None if workload is None else facts.observations.get(workload.cluster_name)
    if workload is None or granted is None or granted.fingerprint == workload.fingerprint:
        return facts
    why = verdict().on(workload.cluster_name)
    if not why:
        return facts
    return replace(facts, workload=replace(workload, fingerprint=granted.fingerprint, withheld=why))


def _controller(workload: JsonObject) -> JsonObject | None:
    for reference in workload["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: JsonObject = reference
            return found
    return None


def _age(metadata: JsonObject) -> tuple[str, str]:
    """Less for an older object; the clock of an API server counts seconds."""
    return str(metadata.get("creationTimestamp") or ""), str(metadata["uid"])


def _not_delivered(workload: DispatchedWorkload, observations: Mapping[str, Observation]) -> bool:
    """Whether a cluster was chosen that has no assignment of this dispatch yet."""
    seen = observations.get(workload.cluster_name)
    return bool(workload.cluster_name) and (seen is None or seen.epoch < workload.epoch)


def _policy(workload: JsonObject) -> PartitionPolicy:
    text = (workload["metadata"].get("annotations") or {}).get(PARTITION_POLICY_ANNOTATION)
    # An unknown value must not stop the workload; the webhook warns its author.
    return PartitionPolicy(text) if text in set(PartitionPolicy) else PartitionPolicy.FAILOVER
