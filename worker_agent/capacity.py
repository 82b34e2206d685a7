# SPDX-License-Identifier: Apache-2.0
"""The ledger of this cluster, kept in step with its nodes and pods.

Owns the informers of Nodes and Pods and what they change in the ledger, and says when room was freed. Promises that
the ledger is complete once `synced`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.resource import NODES, PODS
from multikueue.core.clock import Clock
from multikueue.federation.ledger import Ledger
from multikueue.federation.node_groups import capacity_wire, group_wire, grouped, total
from multikueue.kube.client import KubeClient
from multikueue.kube.informer import Change, Informer
from worker_agent.footprint import node_facts, pod_facts, small_node, small_pod
from worker_agent.reconnect import RECONNECT

_LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Capacity:
    """The ledger and what feeds it."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock,
        random: Random,
        freed: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.ledger = Ledger()
        self._freed = freed
        self._changed = changed
        self.nodes = Informer(client, NODES, shrink=small_node, clock=clock, random=random, backoff=RECONNECT)
        self.pods = Informer(
            client, PODS, field_selector=_LIVE_PODS, shrink=small_pod, clock=clock, random=random, backoff=RECONNECT
        )
        self.nodes.add_handler(self._on_node)
        self.pods.add_handler(self._on_pod)

    def release(self, owner: str) -> None:
        """Give room back that was promised, and say so if there was any."""
        if owner in self.ledger.owners:
            self.ledger.release(owner)
            self._freed()

    def report(self) -> JsonObject:
        """What a ClusterReport tells of room: in all, and by group of nodes."""
        groups, varying = grouped(self.ledger.rooms())
        return {
            "capacity": [capacity_wire(name, room) for name, room in sorted(total(groups).items())],
            "groups": [group_wire(group) for group in groups],
            "varying": list(varying),
            "nodes": {"ready": self.ledger.ready_nodes, "total": self.ledger.total_nodes},
        }

    def _on_node(self, change: Change) -> None:
        if change.new is None:
            self.ledger.remove_node(change.key.name)
        elif change.old is None or change.old.raw != change.new.raw:
            self.ledger.set_node(node_facts(change.key.name, change.new.raw))
        else:
            return  # a heartbeat: nothing that the ledger looks at
        self._freed()
        self._changed()

    def _ours(self, change: Change) -> bool:
        """Whether the pod belongs to an assignment: the hub counts those by itself, and needs no report of them."""
        raw = change.row.raw if change.new is None else change.new.raw
        facts = pod_facts(raw)
        return facts is None or facts.owner in self.ledger.owners

    def _on_pod(self, change: Change) -> None:
        facts = None if change.new is None else pod_facts(change.new.raw)
        key = str(change.key)
        if facts is None:
            self.ledger.remove_pod(key)
            if change.old is not None and change.old.raw:
                self._freed()
        else:
            self.ledger.set_pod(key, facts)
        if not self._ours(change):
            self._changed()
