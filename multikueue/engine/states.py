# SPDX-License-Identifier: Apache-2.0
"""The figures in the statuses of queues and cohorts (`docs/spec/engine.md §2.9` and §8).

Owns whether a queue is active, and why not. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLERS, StopPolicy
from multikueue.api.reasons import ClusterQueueReason, CohortReason, LocalQueueReason
from multikueue.engine.cache import shares
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.referenced_objects import ReferencedObjects
from multikueue.engine.cache.reservations import Holdings
from multikueue.engine.cache.tree import MAX_LEVELS, QuotaNode, in_cycle
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.queue.usage_order import Consumption
from multikueue.engine.resources import MAX_INT64, FlavorResource
from multikueue.engine.values import ClusterQueue, LocalQueue

READY_MESSAGE = "Can admit new workloads"
COHORT_READY_MESSAGE = "Belongs to its tree of cohorts"
TERMINATING_MESSAGE = "Can't admit new workloads; clusterQueue is terminating"


class Activity(NamedTuple):
    """Whether a queue admits, and its Active condition."""

    active: bool
    reason: ClusterQueueReason
    message: str


def activity(value: ClusterQueue, referenced: ReferencedObjects, *, node: QuotaNode | None = None) -> Activity:
    """The Active condition of a queue; without a node, the tree of cohorts is not considered."""
    if value.terminating:
        return Activity(False, ClusterQueueReason.TERMINATING, TERMINATING_MESSAGE)
    problems = list(_problems(value, referenced))
    if node is not None and node.cut_off:
        problems.append((ClusterQueueReason.COHORT_INVALID, f"Cohort {value.cohort}: {_cut_off(node)[1]}"))
    if not problems:
        return Activity(True, ClusterQueueReason.READY, READY_MESSAGE)
    listed = ", ".join(message for _, message in problems)
    return Activity(False, problems[0][0], f"Can't admit new workloads: {listed}.")


def _problems(value: ClusterQueue, referenced: ReferencedObjects) -> Iterable[tuple[ClusterQueueReason, str]]:
    if value.stop_policy != StopPolicy.NONE:
        yield ClusterQueueReason.STOPPED, "is stopped"
    flavors = [flavor.name for group in value.resource_groups for flavor in group.flavors]
    missing = sorted({name for name in flavors if name not in referenced.flavors})
    if missing:
        yield ClusterQueueReason.FLAVOR_NOT_FOUND, f"references missing ResourceFlavor(s): {','.join(missing)}"
    missing = sorted(rule.name for rule in value.checks if rule.name not in referenced.checks)
    if missing:
        yield ClusterQueueReason.ADMISSION_CHECK_NOT_FOUND, f"references missing AdmissionCheck(s): {','.join(missing)}"
    checks = [(rule, referenced.checks[rule.name]) for rule in value.checks if rule.name in referenced.checks]
    inactive = sorted(rule.name for rule, check in checks if not check.active)
    if inactive:
        yield (
            ClusterQueueReason.ADMISSION_CHECK_INACTIVE,
            f"references inactive AdmissionCheck(s): {','.join(inactive)}",
        )
    remote = sorted((rule for rule, check in checks if check.controller == MULTIKUEUE_CONTROLLER), key=lambda r: r.name)
    if len(remote) > 1:
        names = ",".join(rule.name for rule in remote)
        yield (
            ClusterQueueReason.MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS,
            f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {names}",
        )
    limited = [rule.name for rule in remote if rule.on_flavors]
    if limited:
        yield (
            ClusterQueueReason.MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR,
            f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(limited)}",
        )
    provisioning = sorted(rule.name for rule, check in checks if check.controller in PROVISIONING_CONTROLLERS)
    unable = [referenced.checks[rule.name] for rule in remote if not referenced.checks[rule.name].can_provision]
    if provisioning and unable:
        names = ",".join(provisioning)
        why = f" ({unable[0].cannot_provision})" if unable[0].cannot_provision else ""
        yield (
            ClusterQueueReason.MULTIKUEUE_WITH_PROVISIONING_REQUEST,
            f"Cannot use ProvisioningRequest AdmissionChecks together with MultiKueue, found: {names}{why}",
        )
    if not remote:
        for name in flavors:
            flavor = referenced.flavors.get(name)
            if flavor is not None and flavor.topology and flavor.topology not in referenced.topologies:
                yield (
                    ClusterQueueReason.TOPOLOGY_NOT_FOUND,
                    f'there is no Topology "{flavor.topology}" for TAS flavor "{name}"',
                )


def cluster_queue(
    cluster_queue: CachedClusterQueue, referenced: ReferencedObjects, *, fair_sharing: bool
) -> ClusterQueueState:
    """The figures of a queue; includes flavors and resources without usage."""
    if cluster_queue.value is None:
        return ClusterQueueState(
            name=cluster_queue.name,
            active=False,
            reason="NotFound",
            message=f"Can't admit new workloads: ClusterQueue {cluster_queue.name} not found.",
        )
    status = activity(cluster_queue.value, referenced, node=cluster_queue.node)
    listed = [
        option.cells[name].key for group in cluster_queue.groups for option in group.options for name in option.cells
    ]
    reservation = {key: cluster_queue.node.cell(key).usage for key in listed}
    usage = {key: cluster_queue.reserved.admitted.get(key, 0) for key in listed}
    return ClusterQueueState(
        name=cluster_queue.name,
        active=status.active,
        reason=status.reason,
        message=status.message,
        reservation=reservation,
        usage=usage,
        borrowed_reservation=_borrowed(cluster_queue.node, reservation),
        borrowed=_borrowed(cluster_queue.node, usage),
        pending=len(cluster_queue.queue.entries),
        inadmissible=cluster_queue.queue.inadmissible_count,
        reserving=len(cluster_queue.reserved.records),
        admitted=cluster_queue.reserved.admitted_count,
        weighted_share=shares.share(cluster_queue.node).status() if fair_sharing else None,
    )


def local_queue(
    value: LocalQueue,
    cluster_queue: CachedClusterQueue | None,
    referenced: ReferencedObjects,
    *,
    holdings: Holdings | None,
    pending: int,
    consumption: Consumption | None,
    usage: float | None,
) -> LocalQueueState:
    """The figures of a local queue."""
    if value.stop_policy != StopPolicy.NONE:
        active, reason, message = False, LocalQueueReason.STOPPED, "LocalQueue is stopped"
    elif cluster_queue is None or cluster_queue.value is None:
        active, reason = False, LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST
        message = "Can't submit new workloads to clusterQueue"
    elif not activity(cluster_queue.value, referenced, node=cluster_queue.node).active:
        active, reason = False, LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE
        message = "Can't submit new workloads to clusterQueue"
    else:
        active, reason, message = True, LocalQueueReason.READY, "Can submit new workloads to localQueue"
    if cluster_queue is None or cluster_queue.value is None:
        return LocalQueueState(key=value.key, active=active, reason=reason, message=message, pending=pending)
    listed = [
        option.cells[name].key for group in cluster_queue.groups for option in group.options for name in option.cells
    ]
    held = holdings or Holdings()
    return LocalQueueState(
        key=value.key,
        active=active,
        reason=reason,
        message=message,
        reservation={key: held.reserved.get(key, 0) for key in listed},
        usage={key: held.admitted.get(key, 0) for key in listed},
        pending=pending,
        reserving=held.count,
        admitted=held.admitted_count,
        consumed=dict(consumption.consumed) if consumption is not None else None,
        consumed_at=consumption.sampled_at if consumption is not None else None,
        weighted_share=usage,
    )


def cohort(node: QuotaNode, *, fair_sharing: bool) -> CohortState:
    """The figures of a cohort."""
    reason, message = _cut_off(node) if node.cut_off else (CohortReason.READY, COHORT_READY_MESSAGE)
    return CohortState(
        name=node.name,
        subtree_quota={key: min(cell.quota, MAX_INT64) for key, cell in sorted(node.cells.items()) if cell.declared},
        usage={key: cell.usage for key, cell in sorted(node.cells.items())},
        weighted_share=shares.share(node).status() if fair_sharing else None,
        active=not node.cut_off,
        reason=reason,
        message=message,
    )


def _cut_off(node: QuotaNode) -> tuple[CohortReason, str]:
    """Why a node is cut off from its tree."""
    if in_cycle(node):
        return CohortReason.CYCLE, "its parents form a cycle; change spec.parentName of one of them"
    return (
        CohortReason.TOO_DEEP,
        f"its tree has more than {MAX_LEVELS} levels of cohorts; change spec.parentName of this cohort or of one above",
    )


def _borrowed(node: QuotaNode, usage: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
    if node.parent is None:
        return dict.fromkeys(usage, 0)
    return {key: max(0, amount - node.cell(key).nominal) for key, amount in usage.items()}
