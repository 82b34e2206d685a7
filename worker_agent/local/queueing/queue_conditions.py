# SPDX-License-Identifier: Apache-2.0
"""Fields of LocalQueues and ClusterQueues that are read without a model."""

from __future__ import annotations

from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.core.conditions import FALSE, find_in


def cluster_queue_of(local_queue: JsonObject) -> str:
    """The ClusterQueue of a LocalQueue."""
    return str((local_queue.get("spec") or {}).get("clusterQueue") or "")


def why_inactive(queue: JsonObject) -> str:
    """The message of Active=False of a queue of either kind; empty if the queue has no such condition."""
    found = find_in(queue.get("status"), ACTIVE_CONDITION)
    if found is None or found.get("status") != FALSE:
        return ""
    return str(found.get("message") or found.get("reason") or "not active")
