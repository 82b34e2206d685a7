# SPDX-License-Identifier: Apache-2.0
"""What the statuses of queues and cohorts show (`docs/spec/engine.md §2.9` and §8).

Owns whether a queue is active, why not, and its figures. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER, StopPolicy
from multikueue.api.reasons import ClusterQueueReason, LocalQueueReason
from multikueue.engine import shares
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.knowledge import Knowledge
from multikueue.engine.live import LiveQueue
from multikueue.engine.reservations import Holdings
from multikueue.engine.resources import MAX_INT64, FlavorResource
from multikueue.engine.tree import Node
from multikueue.engine.usage_order import Consumption
from multikueue.engine.values import ClusterQueue, LocalQueue

READY_MESSAGE = "Can admit new workloads"
TERMINATING_MESSAGE = "Can't admit new workloads; clusterQueue is terminating"


class Activity(NamedTuple):
    """Whether a queue admits, and the Active condition that says so."""

    active: bool
    reason: ClusterQueueReason
    message: str


def activity(value: ClusterQueue, knowledge: Knowledge) -> Activity:
    """The Active condition of a queue."""
    if value.terminating:
        return Activity(False, ClusterQueueReason.TERMINATING, TERMINATING_MESSAGE)
    problems = list(_problems(value, knowledge))
    if not problems:
        return Activity(True, ClusterQueueReason.READY, READY_MESSAGE)
    listed = ", ".join(message for _, message in problems)
    return Activity(False, problems[0][0], f"Can't admit new workloads: {listed}.")


def _problems(value: ClusterQueue, knowledge: Knowledge) -> Iterable[tuple[ClusterQueueReason, str]]:
    if value.stop_policy != StopPolicy.NONE:
        yield ClusterQueueReason.STOPPED, "is stopped"
    flavors = [flavor.name for group in value.resource_groups for flavor in group.flavors]
    missing = sorted({name for name in flavors if name not in knowledge.flavors})
    if missing:
        yield ClusterQueueReason.FLAVOR_NOT_FOUND, f"references missing ResourceFlavor(s): {','.join(missing)}"
    missing = sorted(rule.name for rule in value.checks if rule.name not in knowledge.checks)
    if missing:
        yield ClusterQueueReason.ADMISSION_CHECK_NOT_FOUND, f"references missing AdmissionCheck(s): {','.join(missing)}"
    checks = [(rule, knowledge.checks[rule.name]) for rule in value.checks if rule.name in knowledge.checks]
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
    if remote and any(check.controller == PROVISIONING_CONTROLLER for _, check in checks):
        names = ",".join(sorted(rule.name for rule, check in checks if check.controller == PROVISIONING_CONTROLLER))
        yield (
            ClusterQueueReason.MULTIKUEUE_WITH_PROVISIONING_REQUEST,
            f"Cannot use ProvisioningRequest AdmissionChecks together with MultiKueue, found: {names}",
        )
    if not remote:
        for name in flavors:
            flavor = knowledge.flavors.get(name)
            if flavor is not None and flavor.topology and flavor.topology not in knowledge.topologies:
                yield (
                    ClusterQueueReason.TOPOLOGY_NOT_FOUND,
                    f'there is no Topology "{flavor.topology}" for TAS flavor "{name}"',
                )


def cluster_queue(live: LiveQueue, knowledge: Knowledge, *, fair_sharing: bool) -> ClusterQueueState:
    """The figures of a queue; all its flavors and resources are listed even where nothing is used."""
    if live.value is None:
        return ClusterQueueState(
            name=live.name,
            active=False,
            reason="NotFound",
            message=f"Can't admit new workloads: ClusterQueue {live.name} not found.",
        )
    status = activity(live.value, knowledge)
    listed = [option.cells[name].key for group in live.groups for option in group.options for name in option.cells]
    reservation = {key: live.node.cell(key).usage for key in listed}
    usage = {key: live.standing.admitted.get(key, 0) for key in listed}
    return ClusterQueueState(
        name=live.name,
        active=status.active,
        reason=status.reason,
        message=status.message,
        reservation=reservation,
        usage=usage,
        borrowed_reservation=_borrowed(live.node, reservation),
        borrowed=_borrowed(live.node, usage),
        pending=len(live.queue.entries),
        inadmissible=live.queue.parked_count,
        reserving=len(live.standing.records),
        admitted=live.standing.admitted_count,
        weighted_share=shares.share(live.node).status() if fair_sharing else None,
    )


def local_queue(
    value: LocalQueue,
    live: LiveQueue | None,
    knowledge: Knowledge,
    *,
    holdings: Holdings | None,
    pending: int,
    consumption: Consumption | None,
    usage: float | None,
) -> LocalQueueState:
    """The figures of a local queue."""
    if value.stop_policy != StopPolicy.NONE:
        active, reason, message = False, LocalQueueReason.STOPPED, "LocalQueue is stopped"
    elif live is None or live.value is None:
        active, reason = False, LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST
        message = "Can't submit new workloads to clusterQueue"
    elif not activity(live.value, knowledge).active:
        active, reason = False, LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE
        message = "Can't submit new workloads to clusterQueue"
    else:
        active, reason, message = True, LocalQueueReason.READY, "Can submit new workloads to localQueue"
    if live is None or live.value is None:
        return LocalQueueState(key=value.key, active=active, reason=reason, message=message)
    listed = [option.cells[name].key for group in live.groups for option in group.options for name in option.cells]
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


def cohort(node: Node, *, fair_sharing: bool) -> CohortState:
    """The figures of a cohort."""
    return CohortState(
        name=node.name,
        subtree_quota={key: min(cell.quota, MAX_INT64) for key, cell in sorted(node.cells.items()) if cell.declared},
        usage={key: cell.usage for key, cell in sorted(node.cells.items())},
        weighted_share=shares.share(node).status() if fair_sharing else None,
        in_cycle=node.in_cycle,
    )


def _borrowed(node: Node, usage: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
    if node.parent is None:
        return dict.fromkeys(usage, 0)
    return {key: max(0, amount - node.cell(key).nominal) for key, amount in usage.items()}
