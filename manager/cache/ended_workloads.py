# SPDX-License-Identifier: Apache-2.0
"""Which Workloads have finished, and whether anything is left to do about them, without parsing them.

Most Workloads of a large hub have finished. An index tells them from the others, so that a manager that starts, a queue
or a check that changes, costs nothing for them. One that no indexer can read counts as not finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from manager.cache.views import View
from multikueue.api.constants import WORKLOAD_PRIORITY_CLASS_KIND
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.jobs.framework.slices import replaces

ENDED_INDEX: Final = "ended"
"""Workloads that have finished: `RELEASED` or `HELD`, and by the `queue_term` of their LocalQueue."""
RELEASED: Final = "released"
"""Of one that nothing is left to do about, but to delete it when its retention is over."""
HELD: Final = "held"
"""Of one with a finalizer, a priority class to follow, or a former slice to finish; or that is being deleted."""


def ended(obj: JsonObject) -> Iterable[str]:
    """The indexer of `ENDED_INDEX`."""
    if not is_true_in(obj.get("status"), WorkloadCondition.FINISHED):
        return ()
    metadata: JsonObject = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionTimestamp") or priority_class(obj) or replaces(obj)
    return [HELD if held else RELEASED, *queue_of(obj)]


def queue_of(obj: JsonObject) -> Iterable[str]:
    """The `queue_term` of the LocalQueue of a Workload, if it has one."""
    name = (obj.get("spec") or {}).get("queueName")
    return [queue_term(obj["metadata"]["namespace"], name)] if name else ()


@lru_cache(maxsize=8192)
def queue_term(namespace: str, name: str) -> str:
    """How indexes name a LocalQueue; one text for all of its Workloads."""
    return str(Key(namespace, name))


def finished_in(workloads: View, queue: Key) -> int:
    """How many Workloads of a LocalQueue have finished and are still stored."""
    return workloads.count(ENDED_INDEX, queue_term(queue.namespace, queue.name))


def priority_class(obj: JsonObject) -> Iterable[str]:
    """The name of the WorkloadPriorityClass of a Workload, if it has one."""
    reference: JsonObject = (obj.get("spec") or {}).get("priorityClassRef") or {}
    return [reference["name"]] if reference.get("kind") == WORKLOAD_PRIORITY_CLASS_KIND else ()


def has_finished(workloads: View, key: Key) -> bool:
    """Whether a Workload has finished; False if it is unknown or cannot be read."""
    return any(workloads.has(ENDED_INDEX, state, key) for state in (RELEASED, HELD))


def is_released(workloads: View, key: Key) -> bool:
    """Whether it has finished, and nothing is left to do about it."""
    return workloads.has(ENDED_INDEX, RELEASED, key)
