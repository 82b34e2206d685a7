# SPDX-License-Identifier: Apache-2.0
"""Queues, cohorts, flavors and everything else but workloads, from API objects of v1beta2.

Objects of v1beta1 are converted by `api.conversion` first. Raises `BadInput` naming the field.
"""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.api.constants import (
    POD_PRIORITY_CLASS_GROUP,
    WORKLOAD_PRIORITY_CLASS_GROUP,
    WORKLOAD_PRIORITY_CLASS_KIND,
    AdmissionMode,
    FungibilityPolicy,
    FungibilityPreference,
    PreemptionPolicy,
    QueueingStrategy,
    StopPolicy,
)
from multikueue.api.reasons import CAN_PROVISION_CONDITION
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.core.taints import Taint
from multikueue.engine import resources
from multikueue.engine.decode import fields
from multikueue.engine.decode.check_health import check_health
from multikueue.engine.decode.fields import Json, Source
from multikueue.engine.values import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LimitRange,
    LimitRangeItem,
    LocalQueue,
    Namespace,
    PreemptionRules,
    PriorityClass,
    Quota,
    ResourceGroup,
    RuntimeClass,
    TopologyLevels,
)

_FUNGIBILITY_V1BETA1 = {"Borrow": FungibilityPolicy.MAY_STOP_SEARCH, "Preempt": FungibilityPolicy.MAY_STOP_SEARCH}


def flavor(source: Source) -> Flavor:
    """A ResourceFlavor."""
    data = fields.read(source)
    spec = fields.mapping(data, "spec")
    return Flavor(
        name=fields.name_of(data),
        node_labels=fields.labels(spec, "nodeLabels"),
        taints=tuple(
            Taint(fields.text(item, "key"), fields.text(item, "value"), fields.text(item, "effect"))
            for item in fields.items(spec, "nodeTaints")
        ),
        tolerations=fields.tolerations(spec),
        topology=fields.text(spec, "topologyName"),
    )


def topology(source: Source) -> TopologyLevels:
    """A Topology."""
    data = fields.read(source)
    levels = fields.items(fields.mapping(data, "spec"), "levels")
    return TopologyLevels(fields.name_of(data), tuple(fields.text(level, "nodeLabel") for level in levels))


def cluster_queue(source: Source) -> ClusterQueue:
    """A ClusterQueue."""
    data = fields.read(source)
    spec = fields.mapping(data, "spec")
    mode = fields.text(fields.mapping(spec, "admissionScope"), "admissionMode")
    return ClusterQueue(
        name=fields.name_of(data),
        cohort=fields.text(spec, "cohortName"),
        resource_groups=_resource_groups(spec),
        strategy=QueueingStrategy(fields.text(spec, "queueingStrategy") or QueueingStrategy.BEST_EFFORT_FIFO),
        namespace_selector=fields.selector(spec, "namespaceSelector"),
        preemption=_preemption(fields.mapping(spec, "preemption")),
        fungibility=_fungibility(fields.mapping(spec, "flavorFungibility")),
        checks=tuple(
            CheckRule(fields.text(item, "name"), frozenset(fields.strings(item, "onFlavors")))
            for item in fields.items(fields.mapping(spec, "admissionChecksStrategy"), "admissionChecks")
        ),
        stop_policy=_stop_policy(spec),
        weight=fields.weight(spec),
        admission_mode=AdmissionMode(mode) if mode else None,
        terminating=fields.deleting(data),
    )


def cohort(source: Source) -> Cohort:
    """A Cohort."""
    data = fields.read(source)
    spec = fields.mapping(data, "spec")
    return Cohort(
        name=fields.name_of(data),
        parent=fields.text(spec, "parentName"),
        resource_groups=_resource_groups(spec),
        weight=fields.weight(spec),
    )


def local_queue(source: Source) -> LocalQueue:
    """A LocalQueue."""
    data = fields.read(source)
    spec = fields.mapping(data, "spec")
    sampled = fields.mapping(
        fields.mapping(fields.mapping(data, "status"), "fairSharing"), "admissionFairSharingStatus"
    )
    return LocalQueue(
        key=fields.key_of(data),
        cluster_queue=fields.text(spec, "clusterQueue"),
        stop_policy=_stop_policy(spec),
        weight=fields.weight(spec),
        terminating=fields.deleting(data),
        consumed={name: float(amount) for name, amount in fields.quantities(sampled, "consumedResources").items()},
        sampled_at=fields.moment(sampled, "lastUpdate"),
    )


def admission_check(source: Source) -> AdmissionCheck:
    """An AdmissionCheck; active if its controller says so, of its current spec."""
    health = check_health(source)
    conditions = fields.items(fields.mapping(fields.read(source), "status"), "conditions")
    ability = next((item for item in conditions if fields.text(item, "type") == CAN_PROVISION_CONDITION), None)
    can_provision = ability is not None and fields.text(ability, "status") == TRUE
    return AdmissionCheck(
        name=health.name,
        controller=health.controller,
        active=health.active,
        can_provision=can_provision,
        cannot_provision="" if ability is None or can_provision else fields.text(ability, "message"),
    )


def namespace(source: Source) -> Namespace:
    """A Namespace."""
    data = fields.read(source)
    return Namespace(fields.name_of(data), fields.labels(fields.mapping(data, "metadata"), "labels"))


def limit_range(source: Source) -> LimitRange:
    """A LimitRange; types other than Container and Pod do not affect workloads and are omitted."""
    data = fields.read(source)
    limits = fields.items(fields.mapping(data, "spec"), "limits")
    return LimitRange(
        fields.key_of(data),
        tuple(
            LimitRangeItem(
                type=fields.text(item, "type"),
                default=fields.quantities(item, "default"),
                default_request=fields.quantities(item, "defaultRequest"),
                max=fields.quantities(item, "max"),
                min=fields.quantities(item, "min"),
            )
            for item in limits
            if fields.text(item, "type") in ("Container", "Pod")
        ),
    )


def runtime_class(source: Source) -> RuntimeClass:
    """A RuntimeClass; its overhead is a top-level field."""
    data = fields.read(source)
    return RuntimeClass(fields.name_of(data), fields.quantities(fields.mapping(data, "overhead"), "podFixed"))


def priority_class(source: Source) -> PriorityClass:
    """A WorkloadPriorityClass or a PriorityClass."""
    data = fields.read(source)
    ours = fields.text(data, "kind") == WORKLOAD_PRIORITY_CLASS_KIND
    return PriorityClass(
        WORKLOAD_PRIORITY_CLASS_GROUP if ours else POD_PRIORITY_CLASS_GROUP,
        fields.name_of(data),
        fields.whole(data, "value", 0),
    )


def _stop_policy(spec: Json) -> StopPolicy:
    return StopPolicy(fields.text(spec, "stopPolicy") or StopPolicy.NONE)


def _preemption(spec: Json) -> PreemptionRules:
    borrow = fields.mapping(spec, "borrowWithinCohort")
    return PreemptionRules(
        within_cluster_queue=fields.text(spec, "withinClusterQueue") or PreemptionPolicy.NEVER,
        reclaim_within_cohort=fields.text(spec, "reclaimWithinCohort") or PreemptionPolicy.NEVER,
        borrow_within_cohort=(fields.text(borrow, "policy") or PreemptionPolicy.NEVER) if borrow else None,
        max_priority_threshold=fields.integer(borrow, "maxPriorityThreshold"),
    )


def _fungibility(spec: Json) -> Fungibility:
    def policy(name: str, default: FungibilityPolicy) -> FungibilityPolicy:
        value = fields.text(spec, name)
        return _FUNGIBILITY_V1BETA1.get(value) or (FungibilityPolicy(value) if value else default)

    preference = fields.text(spec, "preference") or FungibilityPreference.BORROWING_OVER_PREEMPTION
    return Fungibility(
        when_can_borrow=policy("whenCanBorrow", FungibilityPolicy.MAY_STOP_SEARCH),
        when_can_preempt=policy("whenCanPreempt", FungibilityPolicy.TRY_NEXT_FLAVOR),
        preference=FungibilityPreference(preference),
    )


def _resource_groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(_resource_group(item) for item in fields.items(spec, "resourceGroups"))


def _resource_group(group: Json) -> ResourceGroup:
    flavors = tuple(
        FlavorQuotas(fields.text(item, "name"), _quotas(fields.items(item, "resources")))
        for item in fields.items(group, "flavors")
    )
    return ResourceGroup(fields.strings(group, "coveredResources"), flavors)


def _quotas(listed: Iterable[Json]) -> dict[str, Quota]:
    def limit(item: Json, name: str, resource: str) -> int | None:
        return None if item.get(name) is None else resources.quota_of(resource, str(item[name]))

    quotas = {}
    for item in listed:
        resource = fields.text(item, "name")
        try:
            quotas[resource] = Quota(
                nominal=limit(item, "nominalQuota", resource) or 0,
                borrowing_limit=limit(item, "borrowingLimit", resource),
                lending_limit=limit(item, "lendingLimit", resource),
            )
        except BadInput as error:
            raise BadInput(f"resources[{resource}]: {error}") from error
    return quotas
