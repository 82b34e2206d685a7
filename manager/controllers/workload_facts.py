# SPDX-License-Identifier: Apache-2.0
"""The facts from which the lifecycle of a Workload is decided.

Frozen values made from API objects: the queue it names, the ClusterQueue it would enter or holds quota in, and its
time limits. The decision is that of `controllers.workload_decision`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from multikueue.api.constants import ADMISSION_GATED_BY_ANNOTATION, StopPolicy
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.engine.decisions import Bypassed
from multikueue.engine.settings import PodsReady
from multikueue.engine.values import CheckRule


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionQueueFacts:
    """A LocalQueue or ClusterQueue, as far as it decides whether work may enter and remain."""

    name: str
    stop_policy: StopPolicy = StopPolicy.NONE
    terminating: bool = False
    active: bool = True
    cluster_queue: str = ""
    checks: tuple[CheckRule, ...] = ()

    @classmethod
    def of(cls, queue: JsonObject, *, active: bool = True) -> Self:
        """The facts of a queue object."""
        spec: JsonObject = queue.get("spec") or {}
        strategy: JsonObject = spec.get("admissionChecksStrategy") or {}
        return cls(
            name=queue["metadata"]["name"],
            stop_policy=StopPolicy(spec.get("stopPolicy") or StopPolicy.NONE),
            terminating="deletionTimestamp" in queue["metadata"],
            active=active,
            cluster_queue=spec.get("clusterQueue") or "",
            checks=tuple(_rule(entry, _flavors(spec)) for entry in strategy.get("admissionChecks") or ()),
        )


def _flavors(spec: JsonObject) -> frozenset[str]:
    groups = spec.get("resourceGroups") or ()
    return frozenset(flavor["name"] for group in groups for flavor in group.get("flavors") or ())


def _rule(entry: JsonObject, every: frozenset[str]) -> CheckRule:
    """A check that names all flavors of its queue is one for all flavors."""
    named = frozenset(entry.get("onFlavors") or ())
    return CheckRule(entry["name"], frozenset() if every and every <= named else named)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """Everything but the status, which is passed separately, since a write may have to decide again on a newer one."""

    key: Key
    uid: str
    created: datetime | None = None
    active: bool = True
    deleting: bool = False
    owned: bool = False
    owner_gone: bool = False
    runs_on_workers_only: bool = False
    """Its job is of an external framework and managed by MultiKueue: no job reconciler completes its evictions."""
    may_run_elsewhere: bool = False
    """Whether a worker was to run it and has not reported yet that nothing runs there."""
    queue_name: str = ""
    gated_by: tuple[str, ...] = ()
    maximum_execution_seconds: int | None = None
    local_queue: AdmissionQueueFacts | None = None
    cluster_queue: AdmissionQueueFacts | None = None
    cluster_queue_name: str = ""
    pods_ready: PodsReady | None = None
    retention_seconds: float | None = None
    """How long it is kept after it has finished; None: for ever."""
    deactivated_retention_seconds: float | None = None
    """How long its job is kept after Kueue has deactivated it; None: for ever."""
    bypassed: Bypassed | None = None
    claims_problem: str = ""
    """Why the devices that it claims cannot be counted, so that it is in no queue."""
    claims_beyond: str = ""
    """Why its next pods would claim more devices than it was admitted with."""


def gates_of(workload: JsonObject) -> tuple[str, ...]:
    """The entries of the admission-gated-by annotation."""
    annotations: JsonObject = workload["metadata"].get("annotations") or {}
    return tuple(
        filter(None, (entry.strip() for entry in annotations.get(ADMISSION_GATED_BY_ANNOTATION, "").split(",")))
    )


def required_checks(rules: Iterable[CheckRule], flavors: frozenset[str] | None) -> tuple[str, ...]:
    """The checks a workload needs: before its reservation (None) those for all flavors, then those of its flavors."""
    return tuple(
        rule.name
        for rule in rules
        if not rule.on_flavors or (flavors is not None and not flavors.isdisjoint(rule.on_flavors))
    )


def assigned_flavors(admission: JsonObject | None) -> frozenset[str] | None:
    """The flavors of a reservation; None without one."""
    if admission is None:
        return None
    return frozenset(
        flavor
        for assignment in admission.get("podSetAssignments") or ()
        for flavor in (assignment.get("flavors") or {}).values()
    )
