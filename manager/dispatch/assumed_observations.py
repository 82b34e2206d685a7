# SPDX-License-Identifier: Apache-2.0
"""Assumed observations of work on clusters whose jobs this process has not read yet.

A granted or stopping Workload becomes an unanswered observation. A hosted mailbox is empty when a manager starts;
without the assumption the first plan would consider everything gone that runs on an unavailable worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from manager.cache.ended_workloads import has_finished
from manager.context import ManagerContext
from manager.dispatch.checks import Checks
from manager.dispatch.gather import owner_of, sent_kind
from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.transport.mailbox_transport import Transport
from manager.dispatch.transport.push_clusters import PushClusters
from manager.dispatch.transport.push_transport import GroupKind
from manager.workload.status import Status
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.slices import assigned_as


def assume_unread(
    context: ManagerContext, checks: Checks, push: PushClusters, registry: JobRegistry, *, pull: Transport
) -> None:
    """Assume the assignments on push clusters that were not read yet, but for those that `pull` knows."""
    for assigned, kind, observation in _assumed(context, checks, push, registry):
        if observation.cluster not in pull.observations(assigned):
            push.transport.assume(assigned, observation, kind=kind)


def _assumed(
    context: ManagerContext, checks: Checks, push: PushClusters, registry: JobRegistry
) -> Iterator[tuple[Key, GroupKind, Observation]]:
    """Key of the assignment, kind of the remote job, and observation, for all that may have one on a push cluster."""
    slices = JobSlices(context.caches)
    view = context.caches.view(WORKLOADS)
    for key in view.keys():  # noqa: SIM118  (a view is no mapping)
        workload = None if has_finished(view, key) else context.statuses.current(key)
        if workload is None:
            continue
        status: Status | None = None
        with context.caches.quarantine.guard("multikueue_workload", WORKLOADS, key):
            status = Status.of(workload)
        if status is None:
            continue
        if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.is_true(WorkloadCondition.FINISHED):
            continue
        source = next((found for entry in status.checks if (found := checks.source(entry.name)) is not None), None)
        if source is None:
            continue
        metadata: Mapping[str, str] = workload["metadata"].get("annotations") or {}
        chosen = status.cluster_name or slices.runs_on(workload, ())
        for cluster in _where(context, push, status, chosen=chosen, listed=source.clusters or ()):
            owner = owner_of(workload) or {}
            integration = registry.for_kind(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
            api_version, kind = sent_kind(owner, integration)
            group, _, _ = api_version.rpartition("/")
            assigned, uid = assigned_as(workload)
            yield (
                assigned,
                (group, kind),
                Observation(
                    cluster=cluster,
                    workload_uid=uid,
                    epoch=assumed_epoch(status, metadata),
                    intent=Intent.RUN,
                ),
            )


def assumed_epoch(status: Status, annotations: Mapping[str, str]) -> int:
    """The epoch in which the Workload was granted.

    An eviction is counted before its job has stopped. With the epoch that follows, the assumption would be the newest
    assignment, and the one that really runs would be removed as an older one before it has stopped.
    """
    counted = sum(eviction.count for eviction in status.evictions)
    return epoch_of([max(0, counted - status.is_true(WorkloadCondition.EVICTED))], annotations)


def _where(
    context: ManagerContext, push: PushClusters, status: Status, *, chosen: str, listed: tuple[str, ...]
) -> tuple[str, ...]:
    if chosen:
        # A cluster without any facts is lost; that does not mean that its work is gone.
        known = context.caches.view(MULTIKUEUE_CLUSTERS).get(Key("", chosen)) is not None
        return (chosen,) if push.serves(chosen) or not known else ()
    # Eviction has cleared the name of the cluster that may still run it.
    if status.is_true(WorkloadCondition.EVICTED):
        return tuple(cluster for cluster in listed if push.serves(cluster))
    return ()
