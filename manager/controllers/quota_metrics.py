# SPDX-License-Identifier: Apache-2.0
"""The gauges of quota, of what pending workloads request, and of cohorts (`docs/spec/kueue-api.md §7`)."""

from __future__ import annotations

import math

from manager.controllers.gauges import Gauges
from multikueue.engine.decisions import ClusterQueueState, LocalQueueState
from multikueue.engine.figures import CohortFigures, QueueFigures
from multikueue.engine.resources import Usage, quantity_of


def add_pending(gauges: Gauges, figures: QueueFigures) -> None:
    """What the pending workloads of a ClusterQueue request, and of how many kinds they are."""
    queue = {"cluster_queue": figures.name}
    for resource, amount in figures.requested.items():
        text = "Requested by pending workloads."
        gauges.add("cluster_queue_resource_pending", text, _shown(resource, amount), **queue, resource=resource)
    for status, count in (("active", figures.hashes), ("inadmissible", figures.inadmissible_hashes)):
        gauges.add("pending_scheduling_hashes", "Kinds of pending workloads.", count, **queue, status=status)


def add_quota(gauges: Gauges, figures: QueueFigures, state: ClusterQueueState) -> None:
    """The quota of a ClusterQueue, and what of it is reserved and used; a limit that is not set is infinite."""
    queue = {"cohort": figures.cohort, "cluster_queue": figures.name}
    for (flavor, resource), quota in figures.quotas.items():
        for name, text, amount in (
            ("cluster_queue_nominal_quota", "Nominal quota.", quota.nominal),
            ("cluster_queue_borrowing_limit", "Borrowing limit.", quota.borrowing_limit),
            ("cluster_queue_lending_limit", "Lending limit.", quota.lending_limit),
        ):
            value = math.inf if amount is None else _shown(resource, amount)
            gauges.add(name, text, value, **queue, flavor=flavor, resource=resource)
    add_usage(gauges, "cluster_queue_resource_reservation", "Reserved.", state.reservation, **queue)
    add_usage(gauges, "cluster_queue_resource_usage", "Used by admitted workloads.", state.usage, **queue)
    if figures.share is not None:
        text = "Its weighted share; NaN with a weight of 0 while it borrows."
        gauges.add("cluster_queue_weighted_share", text, figures.share, **queue)


def add_place(gauges: Gauges, figures: QueueFigures) -> None:
    """Where a ClusterQueue is in the tree of cohorts."""
    place = {"parent_cohort": figures.cohort, "root_cohort": figures.root}
    gauges.add("cluster_queue_info", "1, with its cohorts in the labels.", 1, cluster_queue=figures.name, **place)


def add_cohort(gauges: Gauges, figures: CohortFigures) -> None:
    """The figures of a cohort and its tree."""
    cohort = {"cohort": figures.name}
    place = {"parent_cohort": figures.parent, "root_cohort": figures.root}
    gauges.add("cohort_info", "1, with its cohorts in the labels.", 1, **cohort, **place)
    add_usage(gauges, "cohort_subtree_quota", "Quota of its tree.", figures.quota, **cohort)
    add_usage(gauges, "cohort_subtree_resource_reservations", "Reserved in its tree.", figures.reserved, **cohort)
    text = "Admitted, unfinished workloads of its tree."
    gauges.add("cohort_subtree_admitted_active_workloads", text, figures.admitted, **cohort)
    if figures.share is not None:
        text = "Its weighted share; NaN with a weight of 0 while it borrows."
        gauges.add("cohort_weighted_share", text, figures.share, **cohort)


def add_consumed(gauges: Gauges, state: LocalQueueState, *, cluster_queue: str) -> None:
    """What a LocalQueue has used lately, where that orders it among others."""
    if state.weighted_share is None:
        return
    text = "Its usage of admission fair sharing."
    queue = {"name": state.key.name, "namespace": state.key.namespace, "cluster_queue": cluster_queue}
    gauges.add("local_queue_admission_fair_sharing_usage", text, state.weighted_share, **queue)


def add_usage(gauges: Gauges, name: str, text: str, usage: Usage, /, **labels: str) -> None:
    """An amount of each resource of each flavor."""
    for key, amount in usage.items():
        value = _shown(key.resource, amount)
        gauges.add(name, text, value, **labels, flavor=key.flavor, resource=key.resource)


def _shown(resource: str, amount: int) -> float:
    """In cores, bytes and pieces."""
    return float(quantity_of(resource, amount))
