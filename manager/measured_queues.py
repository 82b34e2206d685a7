# SPDX-License-Identifier: Apache-2.0
"""Of which LocalQueues there are metrics (`metrics.localQueueMetrics`, `docs/spec/kueue-api.md §6`)."""

from __future__ import annotations

from typing import Final

from manager.cache.views import View
from multikueue.api.configuration import Configuration
from multikueue.api.selector import core_selector
from multikueue.core.keys import Key

_GATE: Final = "LocalQueueMetrics"


class MeasuredLocalQueues:
    """Decides by the configuration, and by the labels that a LocalQueue has now."""

    def __init__(self, configuration: Configuration, local_queues: View) -> None:
        settings = configuration.metrics.local_queue_metrics
        self._enabled = settings.enable and configuration.gate(_GATE)
        selector = settings.local_queue_selector
        self._selector = None if selector is None else core_selector(selector)
        self._local_queues = local_queues

    def measures(self, key: Key) -> bool:
        """Whether there are metrics of that LocalQueue; with a selector none of one that does not exist."""
        if not self._enabled or self._selector is None:
            return self._enabled
        queue = self._local_queues.object(key)
        return queue is not None and self._selector.matches(queue["metadata"].get("labels") or {})
