# SPDX-License-Identifier: Apache-2.0
"""ClusterQueue, Cohort and ResourceFlavor (`docs/spec/kueue-api.md §3.2`, `§3.3`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from multikueue.api import featuregates, names
from multikueue.api.clusterqueue import ClusterQueue, ConcurrentAdmissionPolicy
from multikueue.api.cohort import Cohort
from multikueue.api.constants import FungibilityPolicy, PreemptionPolicy, QueueingStrategy
from multikueue.api.featuregates import Gate
from multikueue.api.meta import FairSharing
from multikueue.api.quota import FlavorQuotas, ResourceGroup, ResourceQuota
from multikueue.api.resourceflavor import ResourceFlavor
from multikueue.api.validation import metadata
from multikueue.api.validation.errors import FieldError, duplicate, forbidden, invalid, not_found, too_many

MAX_RESOURCES: Final = 256
MAX_FLAVORS: Final = 256
MAX_COMBINATIONS: Final = 512
MAX_CONCURRENT_FLAVORS: Final = 16
_LEAST_WEIGHT: Final = Fraction(1, 10**9)

LENDS_BEYOND_NOMINAL: Final = "must be less than or equal to the nominalQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What a queue or cohort may set for borrowing and lending."""

    has_parent: bool
    parent: str
    """What the field of the parent is called in messages."""
    lends_beyond_nominal: bool


def validate_cluster_queue(
    new: ClusterQueue, old: ClusterQueue | None = None, *, gate: Gate = featuregates.default
) -> list[FieldError]:
    """Everything that is wrong with `new`; `old` is what it replaces."""
    return list(_cluster_queue(new, old, gate))


def validate_cohort(new: Cohort, old: Cohort | None = None) -> list[FieldError]:
    """Everything that is wrong with `new`; nothing of a cohort is immutable."""
    del old
    limits = _Limits(has_parent=bool(new.spec.parent_name), parent="parent", lends_beyond_nominal=True)
    return [
        *_resource_groups(new.spec.resource_groups, "spec.resourceGroups", limits),
        *_fair_sharing(new.spec.fair_sharing),
    ]


def validate_resource_flavor(new: ResourceFlavor, old: ResourceFlavor | None = None) -> list[FieldError]:
    """Everything that is wrong with `new`; the schema keeps its topology immutable."""
    del old
    return [
        *metadata.labels(new.spec.node_labels, "spec.nodeLabels"),
        *metadata.taints(new.spec.node_taints, "spec.nodeTaints"),
        *metadata.tolerations(new.spec.tolerations, "spec.tolerations"),
    ]


def _cluster_queue(new: ClusterQueue, old: ClusterQueue | None, gate: Gate) -> Iterator[FieldError]:
    spec = new.spec
    limits = _Limits(has_parent=bool(spec.cohort_name), parent="cohort", lends_beyond_nominal=False)
    yield from _resource_groups(spec.resource_groups, "spec.resourceGroups", limits)
    if spec.namespace_selector is not None:
        yield from metadata.selector(spec.namespace_selector, "spec.namespaceSelector")
    yield from _fair_sharing(spec.fair_sharing)
    preemption = spec.preemption
    if (
        preemption.reclaim_within_cohort == PreemptionPolicy.NEVER
        and preemption.borrow_within_cohort.policy != PreemptionPolicy.NEVER
    ):
        yield invalid(
            "spec.preemption",
            str(preemption.borrow_within_cohort.policy),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        )
    fungibility = spec.flavor_fungibility
    policies = {fungibility.when_can_borrow, fungibility.when_can_preempt}
    if fungibility.preference is not None and policies != {FungibilityPolicy.TRY_NEXT_FLAVOR}:
        yield invalid(
            "spec.flavorFungibility.preference",
            fungibility.preference,
            "can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        )
    yield from _on_flavors(new, old, gate)
    yield from _concurrent_admission(new, old)


def _resource_groups(groups: Sequence[ResourceGroup], path: str, limits: _Limits) -> Iterator[FieldError]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        where = f"{path}[{index}]"
        for position, resource in enumerate(group.covered_resources):
            here = f"{where}.coveredResources[{position}]"
            for problem in names.label_key(resource):
                yield invalid(here, resource, problem)
            if resource in resources:
                yield duplicate(here, resource)
            resources.add(resource)
        for position, flavor in enumerate(group.flavors):
            here = f"{where}.flavors[{position}]"
            yield from _flavor(flavor, here, group=group, limits=limits)
            if flavor.name in flavors:
                yield duplicate(f"{here}.name", flavor.name)
            flavors.add(flavor.name)
        combinations = len(group.covered_resources) * len(group.flavors)
        if combinations > MAX_COMBINATIONS:
            yield invalid(where, combinations, f"must have at most {MAX_COMBINATIONS} flavors times coveredResources")
    if len(resources) > MAX_RESOURCES:
        yield too_many(f"{path}.coveredResources", count=len(resources), limit=MAX_RESOURCES)
    if len(flavors) > MAX_FLAVORS:
        yield too_many(f"{path}.flavors", count=len(flavors), limit=MAX_FLAVORS)


def _flavor(flavor: FlavorQuotas, path: str, *, group: ResourceGroup, limits: _Limits) -> Iterator[FieldError]:
    if len(flavor.resources) != len(group.covered_resources):
        yield invalid(
            f"{path}.resources", len(flavor.resources), "must have the same number of resources as the coveredResources"
        )
    for index, quota in enumerate(flavor.resources):
        where = f"{path}.resources[{index}]"
        if index < len(group.covered_resources) and quota.name != group.covered_resources[index]:
            yield invalid(f"{where}.name", quota.name, "must match the name in coveredResources")
        yield from _quota(quota, where, limits)


def _quota(quota: ResourceQuota, path: str, limits: _Limits) -> Iterator[FieldError]:
    for name, amount in (
        ("nominalQuota", quota.nominal_quota),
        ("borrowingLimit", quota.borrowing_limit),
        ("lendingLimit", quota.lending_limit),
    ):
        if amount is None:
            continue
        if amount.exact() < 0:
            yield invalid(f"{path}.{name}", str(amount), "must be greater than or equal to 0")
        if name != "nominalQuota" and not limits.has_parent:
            yield invalid(f"{path}.{name}", str(amount), f"must be nil when {limits.parent} is empty")
    lending = quota.lending_limit
    if lending is not None and not limits.lends_beyond_nominal and lending > quota.nominal_quota:
        yield invalid(f"{path}.lendingLimit", str(lending), LENDS_BEYOND_NOMINAL)


def _fair_sharing(sharing: FairSharing | None) -> Iterator[FieldError]:
    if sharing is None:
        return
    weight = sharing.weight.exact()
    if weight < 0:
        yield invalid("spec.fairSharing.weight", str(sharing.weight), "must be greater than or equal to 0")
    elif 0 < weight <= _LEAST_WEIGHT:
        yield invalid("spec.fairSharing.weight", str(sharing.weight), "must be 0 or greater than 10^-9")


def _on_flavors(new: ClusterQueue, old: ClusterQueue | None, gate: Gate) -> Iterator[FieldError]:
    strategy = new.spec.admission_checks_strategy
    if strategy is None:
        return
    tolerated: set[tuple[str, str]] = set()
    if old is not None and not gate("RejectUpdatesToCQWithInvalidOnFlavors"):
        tolerated = _missing_flavors(old)
    missing = _missing_flavors(new) - tolerated
    for index, check in enumerate(strategy.admission_checks):
        for position, flavor in enumerate(check.on_flavors):
            if (check.name, flavor) in missing:
                path = f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{position}]"
                yield not_found(path, flavor)


def _missing_flavors(queue: ClusterQueue) -> set[tuple[str, str]]:
    strategy = queue.spec.admission_checks_strategy
    known = {flavor.name for group in queue.spec.resource_groups for flavor in group.flavors}
    checks = () if strategy is None else strategy.admission_checks
    return {(check.name, flavor) for check in checks for flavor in check.on_flavors if flavor not in known}


def _concurrent_admission(new: ClusterQueue, old: ClusterQueue | None) -> Iterator[FieldError]:
    path = "spec.concurrentAdmissionPolicy"
    policy = new.spec.concurrent_admission_policy
    if old is not None and policy != old.spec.concurrent_admission_policy:
        yield forbidden(path, "field is immutable")
    if policy is not None:
        yield from _policy(new, policy, path)


def _policy(queue: ClusterQueue, policy: ConcurrentAdmissionPolicy, path: str) -> Iterator[FieldError]:
    groups = queue.spec.resource_groups
    if len(groups) != 1:
        yield invalid("spec.resourceGroups", len(groups), "must be exactly one with a concurrentAdmissionPolicy")
    flavors = [flavor.name for group in groups for flavor in group.flavors]
    if len(flavors) > MAX_CONCURRENT_FLAVORS:
        yield too_many("spec.resourceGroups[0].flavors", count=len(flavors), limit=MAX_CONCURRENT_FLAVORS)
    if queue.spec.queueing_strategy == QueueingStrategy.STRICT_FIFO:
        yield invalid("spec.queueingStrategy", "StrictFIFO", "may not be combined with a concurrentAdmissionPolicy")
    constraints = policy.migration.constraints
    if constraints is None:
        return
    if policy.migration.mode != "TryPreferredFlavors":
        yield forbidden(f"{path}.migration.constraints", "may be set only with the mode TryPreferredFlavors")
    last = constraints.last_acceptable_flavor_name
    if last is not None and last not in flavors:
        yield not_found(f"{path}.migration.constraints.lastAcceptableFlavorName", last)
