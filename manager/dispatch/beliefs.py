# SPDX-License-Identifier: Apache-2.0
"""What is to be believed about work on clusters whose jobs this process has not read yet.

Owns how a granted or stopping Workload becomes an unanswered observation. A hosted mailbox is empty when a manager
starts; without this the first plan would take everything that runs on a worker that is away just now for gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from manager.context import ManagerContext
from manager.dispatch.checks import Checks
from manager.dispatch.push_clusters import PushClusters
from manager.workload_status import Status
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.core.keys import Key
from multikueue.federation.epochs import epoch_of
from multikueue.federation.facts import Observation


def beliefs(context: ManagerContext, checks: Checks, push: PushClusters) -> Iterator[tuple[Key, Observation]]:
    """Workload and observation, for everything that may stand on a worker that only this process can ask."""
    for key in context.caches.view(WORKLOADS).keys():  # noqa: SIM118  (a view is no mapping)
        workload = context.statuses.current(key)
        if workload is None:
            continue
        status = Status.of(workload)
        if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.is_true(WorkloadCondition.FINISHED):
            continue
        source = next((found for entry in status.checks if (found := checks.source(entry.name)) is not None), None)
        if source is None:
            continue
        metadata: Mapping[str, str] = workload["metadata"].get("annotations") or {}
        for cluster in _where(context, push, status, listed=source.clusters or ()):
            yield (
                key,
                Observation(
                    cluster=cluster,
                    workload_uid=workload["metadata"]["uid"],
                    epoch=epoch_of((eviction.count for eviction in status.evictions), metadata),
                    intent=Intent.RUN,
                ),
            )


def _where(context: ManagerContext, push: PushClusters, status: Status, *, listed: tuple[str, ...]) -> tuple[str, ...]:
    chosen = status.cluster_name
    if chosen:
        # A cluster that nothing is known of any more is lost, which is not the same as that its work has gone.
        known = context.caches.view(MULTIKUEUE_CLUSTERS).get(Key("", chosen)) is not None
        return (chosen,) if push.serves(chosen) or not known else ()
    # Eviction has cleared the name of the cluster that may still run it.
    if status.is_true(WorkloadCondition.EVICTED):
        return tuple(cluster for cluster in listed if push.serves(cluster))
    return ()
