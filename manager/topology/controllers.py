# SPDX-License-Identifier: Apache-2.0
"""What the manager runs for topology aware scheduling: nothing before a flavor has a topology."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from manager.context import ManagerContext
from manager.topology.node_failures import NodeFailures
from manager.topology.objects import TopologyObjects
from manager.topology.ungater import TopologyUngater


class TopologyControllers:
    """Nodes and pods, the pods that wait for their domain, and nodes that fail."""

    def __init__(self, context: ManagerContext) -> None:
        self.objects = TopologyObjects(context)
        self._ungater = TopologyUngater(context, self.objects)
        self._failures = NodeFailures(context, self.objects)

    def attach(self) -> None:
        """Follow what they react to."""
        self._ungater.attach()
        self._failures.attach()

    @property
    def runs(self) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """What runs until the leadership ends, by name."""
        return [
            ("topology-objects", self.objects.run),
            ("topology-pods", self._ungater.controller.run),
            ("topology-nodes", self._failures.run),
        ]
