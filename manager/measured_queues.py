# SPDX-License-Identifier: Apache-2.0
"""Of which LocalQueues and cohorts there are metrics (`metrics.localQueueMetrics`, `docs/spec/kueue-api.md §6`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from manager.cache.views import View
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource
from multikueue.api.selector import core_selector
from multikueue.core.keys import Key

_LOCAL_QUEUES: Final = "LocalQueueMetrics"
COHORTS_GATE: Final = "MetricsForCohorts"


class MeasuredQueues:
    """Decides by the configuration, and by the queues and cohorts as they are now."""

    def __init__(self, configuration: Configuration, view: Callable[[Resource], View]) -> None:
        """`view` gives the objects of a kind."""
        settings = configuration.metrics.local_queue_metrics
        self._enabled = settings.enable and configuration.gate(_LOCAL_QUEUES)
        selector = settings.local_queue_selector
        self._selector = None if selector is None else core_selector(selector)
        self._local_queues, self._cohorts = view(LOCAL_QUEUES), view(COHORTS)
        self._cluster_queues = view(CLUSTER_QUEUES) if configuration.gate(COHORTS_GATE) else None

    def measures(self, key: Key) -> bool:
        """Whether there are metrics of that LocalQueue; with a selector none of one that does not exist."""
        if not self._enabled or self._selector is None:
            return self._enabled
        queue = self._local_queues.object(key)
        return queue is not None and self._selector.matches(queue["metadata"].get("labels") or {})

    def cohorts_above(self, cluster_queue: str) -> tuple[str, ...]:
        """The cohorts of a ClusterQueue that there are metrics of, up to their root; of a cycle each one once."""
        if self._cluster_queues is None:
            return ()
        queue = self._cluster_queues.object(Key("", cluster_queue)) or {}
        name = str((queue.get("spec") or {}).get("cohortName") or "")
        found: dict[str, None] = {}
        while name and name not in found:
            found[name] = None
            cohort = self._cohorts.object(Key("", name)) or {}
            name = str((cohort.get("spec") or {}).get("parentName") or "")
        return tuple(found)
