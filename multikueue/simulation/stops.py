# SPDX-License-Identifier: Apache-2.0
"""What stopped queues do to workloads that hold quota, before the first cycle (`docs/spec/engine.md §7.6`).

Owns the reading of stop policies: Hold takes the reservation of what is not admitted yet, HoldAndDrain evicts what runs
as well. As for every victim, quota is free at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import EvictedReason, QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, Condition, set_condition
from multikueue.core.keys import Key
from multikueue.engine import lifecycle, messages
from multikueue.engine.workloads import Workload
from multikueue.simulation.refusals import Refusal
from multikueue.simulation.world import World


def apply(world: World, *, now: datetime) -> tuple[Refusal, ...]:
    """Take back what stopped queues hold; returns what was taken, in order of name."""
    stops = []
    for key, value in sorted(world.workloads.items()):
        if not value.reserved or value.finished or value.admission is None:
            continue
        changed = _drained(world, value, now) or _held(world, value, now)
        if changed is not None:
            world.workloads[key], stop = changed
            world.engine.upsert_workload(world.workloads[key], now)
            stops.append(stop)
    if stops:
        world.engine.flush(now)
    return tuple(stops)


def _policies(world: World, value: Workload) -> tuple[StopPolicy, StopPolicy]:
    """Those of the ClusterQueue and of the LocalQueue."""
    assert value.admission is not None
    live = world.engine.lives.get(value.admission.cluster_queue)
    local = world.engine.waiting.local_queues.get(Key(value.key.namespace, value.queue_name))
    cluster_policy = live.value.stop_policy if live is not None and live.value is not None else StopPolicy.NONE
    return cluster_policy, local.stop_policy if local is not None else StopPolicy.NONE


def _drained(world: World, value: Workload, now: datetime) -> tuple[Workload, Refusal] | None:
    cluster_queue, local_queue = _policies(world, value)
    if cluster_queue == StopPolicy.HOLD_AND_DRAIN:
        reason, message = EvictedReason.CLUSTER_QUEUE_STOPPED, messages.CLUSTER_QUEUE_STOPPED
    elif local_queue == StopPolicy.HOLD_AND_DRAIN:
        reason, message = EvictedReason.LOCAL_QUEUE_STOPPED, messages.LOCAL_QUEUE_STOPPED
    else:
        return None
    if not value.admitted:
        return None
    evicted = lifecycle.evicted(value, reason, message, now)
    return lifecycle.released(evicted, now), Refusal(value.key, reason, message)


def _held(world: World, value: Workload, now: datetime) -> tuple[Workload, Refusal] | None:
    if value.admitted or value.admission is None:
        return None
    cluster_queue, local_queue = _policies(world, value)
    if cluster_queue != StopPolicy.NONE:
        message = f"ClusterQueue {value.admission.cluster_queue} is stopped"
    elif local_queue != StopPolicy.NONE:
        message = f"LocalQueue {value.queue_name} is stopped"
    else:
        return None
    reason = QuotaReservedReason.SUSPENDED
    lost = Condition(
        type=WorkloadCondition.QUOTA_RESERVED, status=FALSE, reason=reason, message=message, last_transition_time=now
    )
    changed = replace(value, admission=None, conditions=set_condition(value.conditions, lost))
    return changed, Refusal(value.key, reason, message)
