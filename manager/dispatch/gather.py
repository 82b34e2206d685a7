# SPDX-License-Identifier: Apache-2.0
"""From caches to facts.

Owns how a Workload, its job and the books of checks and clusters become the `Facts` of one plan. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from manager.caches import Caches
from manager.dispatch.assignments import fingerprint
from manager.dispatch.checks import CheckSource
from manager.dispatch.wanted import Wanted
from manager.workload_status import Check, Status
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    MULTIKUEUE_MANAGED_BY,
    PARTITION_POLICY_ANNOTATION,
    CheckState,
    PartitionPolicy,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import RESOURCE_FLAVORS
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.federation import messages
from multikueue.federation.annotations import adoption_of, avoided_of, gate_opening_of, preferences_of, round_of
from multikueue.federation.availability import agreed
from multikueue.federation.epochs import epoch_of
from multikueue.federation.facts import (
    Adoption,
    CheckFacts,
    ClusterFacts,
    Facts,
    Observation,
    OwnerFacts,
    Preferences,
    Settings,
    WorkloadFacts,
)
from multikueue.integrations.protocol import JobIntegration
from multikueue.integrations.registry import Registry

ORCHESTRATED_PREEMPTION: Final = "MultiKueueOrchestratedPreemption"
"""The feature gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts, and the objects they were read from."""

    facts: Facts
    workload: JsonObject | None = None
    status: Status | None = None
    integration: JobIntegration | None = None
    job: Key | None = None


class Hub(Protocol):
    """The part of a manager that facts are read from."""

    @property
    def configuration(self) -> Configuration:
        """What was configured."""

    @property
    def caches(self) -> Caches:
        """The objects of the management cluster."""


class ClusterBook(Protocol):
    """What is known of the worker clusters."""

    def inside(self, name: str, *, check: str) -> ClusterFacts:
        """The facts of a cluster that the config of the check lists, whether it is there or not."""

    def outside(self, name: str, *, check: str, why: str) -> ClusterFacts:
        """The facts of a cluster that is named somewhere but not in the config of the check."""

    def fences(self, name: str) -> bool:
        """Whether fenced work there is stopped by somebody who is on its side of a cut link."""


class CheckBook(Protocol):
    """Which clusters each check stands for."""

    def source(self, name: str) -> CheckSource | None:
        """What the check stands for; None when it is not one of ours."""


def load_job(context: Hub, gathered: Gathered) -> JsonObject | None:
    """The user's job, if it is still there."""
    if gathered.integration is None or gathered.job is None:
        return None
    return context.caches.view(gathered.integration.resource).object(gathered.job)


def adoption_for(job: JsonObject | None, annotations: Mapping[str, str], *, epoch: int) -> Adoption | None:
    """The copy that the dispatch of that epoch is to go on with, as a job or its Workload says."""
    of_job: dict[str, str] = {} if job is None else job["metadata"].get("annotations") or {}
    found = adoption_of({**of_job, **annotations})
    return found if found is not None and found.epoch == epoch else None


class Gatherer:
    """Reads the caches for one plan at a time."""

    def __init__(self, context: Hub, *, checks: CheckBook, clusters: ClusterBook, registry: Registry) -> None:
        self._context = context
        self._checks = checks
        self._clusters = clusters
        self._registry = registry
        self.wanted = Wanted(context.caches.view(RESOURCE_FLAVORS))
        configuration, federation = context.configuration, context.configuration.multikueue
        self._settings = Settings(
            worker_lost_timeout=federation.worker_lost_timeout,
            dispatcher=federation.dispatcher_name,
            step_size=federation.step_size,
            orchestrated_preemption=configuration.gate(ORCHESTRATED_PREEMPTION),
        )

    @property
    def settings(self) -> Settings:
        """What the Configuration says about dispatch."""
        return self._settings

    def gather(
        self,
        key: Key,
        workload: JsonObject | None,
        observations: Mapping[str, Observation],
        *,
        now: datetime,
        status: Status | None = None,
    ) -> Gathered | None:
        """The facts about one workload, as it is or is about to be; None when it is none of dispatch's business."""
        if workload is None:
            facts_of_nobody = Facts(workload=None, observations=observations, settings=self._settings)
            return Gathered(facts=facts_of_nobody) if observations else None
        status = Status.of(workload) if status is None else status
        annotations: dict[str, str] = workload["metadata"].get("annotations") or {}
        avoided = avoided_of(annotations, now)
        check = next((entry for entry in status.checks if self._checks.source(entry.name) is not None), None)
        if check is None and not observations:
            return None
        owner = _controller(workload)
        integration = None if owner is None else self._registry.for_kind(owner["apiVersion"], owner["kind"])
        job = None if owner is None else Key(key.namespace, str(owner["name"]))
        gathered = Gathered(
            facts=Facts(workload=None),
            workload=workload,
            status=status,
            integration=integration,
            job=job,
        )
        waits = check is not None and check.state is CheckState.PENDING and not status.cluster_name
        facts = WorkloadFacts(
            key=key,
            uid=workload["metadata"]["uid"],
            epoch=epoch_of((e.count for e in status.evictions), annotations),
            check=None if check is None else CheckFacts(name=check.name, state=check.state, message=check.message),
            owner=self._owner(owner, gathered, pending=check is not None and check.state is CheckState.PENDING),
            quota_reserved=status.is_true(WorkloadCondition.QUOTA_RESERVED),
            others_ready=all(other.state is CheckState.READY for other in status.checks if other is not check),
            stopping=_holds_quota(status) and (_to_stop(workload, status) or self._goes_before_its_job(gathered)),
            finished=status.is_true(WorkloadCondition.FINISHED),
            deleting=bool(workload["metadata"].get("deletionTimestamp")),
            cluster_name=status.cluster_name,
            nominated=status.nominated,
            fingerprint=fingerprint(workload),
            partition_policy=self._policy(workload, status.cluster_name, observations),
            queue=Key(key.namespace, str(workload["spec"].get("queueName") or "")),
            demands=self.wanted.by(workload),
            flavors=_flavors(status) if waits else {},
            preferences=self._preferences(annotations, gathered) if waits else Preferences(),
            waits_since=_waits_since(status, check) if waits else None,
            round=round_of(annotations) if waits else None,
            gate_opening=gate_opening_of(annotations),
            adopts=self._adopts(annotations, status, gathered) if waits else None,
        )
        listed: tuple[str, ...] = ()
        if check is not None:
            source = self._checks.source(check.name)
            listed = (source.clusters if source is not None else None) or ()
        return Gathered(
            facts=self._facts(facts, listed, observations, avoided),
            workload=workload,
            status=status,
            integration=integration,
            job=job,
        )

    def _facts(
        self,
        workload: WorkloadFacts,
        listed: tuple[str, ...],
        observations: Mapping[str, Observation],
        avoided: Mapping[str, datetime],
    ) -> Facts:
        named = {*observations, *((workload.cluster_name,) if workload.cluster_name else ())}
        check = "" if workload.check is None else workload.check.name
        others: dict[str, ClusterFacts] = {
            name: self._clusters.outside(name, check=check, why="the cluster is not in the config")
            for name in sorted(named.difference(listed))
        }
        return Facts(
            workload=workload,
            clusters=tuple(self._clusters.inside(name, check=check) for name in listed),
            others=others,
            observations=observations,
            avoided=avoided,
            settings=self._settings,
        )

    def _policy(
        self, workload: JsonObject, cluster_name: str, observations: Mapping[str, Observation]
    ) -> PartitionPolicy:
        granted = observations.get(cluster_name)
        return agreed(
            _policy(workload),
            fences=all(map(self._clusters.fences, {cluster_name, *observations})),
            told=None if granted is None else granted.policy,
        )

    def _preferences(self, annotations: dict[str, str], gathered: Gathered) -> Preferences:
        """Of the Workload, or else of its job, where users write them."""
        job = load_job(self._context, gathered)
        of_job: dict[str, str] = {} if job is None else job["metadata"].get("annotations") or {}
        return preferences_of({**of_job, **annotations})

    def _adopts(self, annotations: Mapping[str, str], status: Status, gathered: Gathered) -> Adoption | None:
        """The copy that this very dispatch is to go on with."""
        return adoption_for(
            load_job(self._context, gathered),
            annotations,
            epoch=epoch_of((e.count for e in status.evictions), annotations),
        )

    def _owner(self, owner: JsonObject | None, gathered: Gathered, *, pending: bool) -> OwnerFacts:
        if owner is None:
            return OwnerFacts(problem=messages.no_adapter(""))
        problem = ""
        if gathered.integration is None:
            problem = messages.no_adapter(owner["kind"])
        elif pending:
            # Once granted, an edit of managedBy must not reject what runs; the field is immutable on a Job anyway.
            job = load_job(self._context, gathered)
            managed_by = MULTIKUEUE_MANAGED_BY if job is None else gathered.integration.managed_by(job)
            problem = "" if managed_by == MULTIKUEUE_MANAGED_BY else messages.not_managed(managed_by)
        return OwnerFacts(api_version=owner["apiVersion"], kind=owner["kind"], name=owner["name"], problem=problem)

    def _goes_before_its_job(self, gathered: Gathered) -> bool:
        """Whether it is deleted and its job is not: the job gets another one, which may be sent elsewhere."""
        if gathered.workload is None or "deletionTimestamp" not in gathered.workload["metadata"]:
            return False
        job = load_job(self._context, gathered)
        return job is not None and "deletionTimestamp" not in job["metadata"]


def _controller(workload: JsonObject) -> JsonObject | None:
    for reference in workload["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: JsonObject = reference
            return found
    return None


def _holds_quota(status: Status) -> bool:
    return status.is_true(WorkloadCondition.QUOTA_RESERVED) and not status.is_true(WorkloadCondition.FINISHED)


def _to_stop(workload: JsonObject, status: Status) -> bool:
    inactive = (workload.get("spec") or {}).get("active") is False
    rejected = any(check.state is CheckState.REJECTED for check in status.checks)
    return inactive or rejected or status.is_true(WorkloadCondition.EVICTED)


def _waits_since(status: Status, check: Check | None) -> datetime | None:
    """When the last of the other things happened that it waited for."""
    reserved = status.condition(WorkloadCondition.QUOTA_RESERVED)
    moments = [other.last_transition_time for other in status.checks if other is not check]
    if reserved is not None and reserved.status == TRUE:
        moments.append(reserved.last_transition_time)
    return max(moments, default=None)


def _flavors(status: Status) -> dict[str, str]:
    """By resource, what was reserved of it; of a job with several pod sets that may be more than one flavor."""
    found: dict[str, dict[str, None]] = {}
    for pod_set in (status.admission or {}).get("podSetAssignments") or ():
        for resource, flavor in (pod_set.get("flavors") or {}).items():
            found.setdefault(resource, {})[flavor] = None
    return {resource: " or ".join(flavors) for resource, flavors in found.items()}


def _policy(workload: JsonObject) -> PartitionPolicy:
    text = (workload["metadata"].get("annotations") or {}).get(PARTITION_POLICY_ANNOTATION)
    # A word that nobody knows must not stop the workload; the webhook tells its author.
    return PartitionPolicy(text) if text in set(PartitionPolicy) else PartitionPolicy.FAILOVER
