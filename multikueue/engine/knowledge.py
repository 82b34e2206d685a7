# SPDX-License-Identifier: Apache-2.0
"""What the engine knows of flavors, checks, namespaces and topologies, and which queues that concerns.

Owns lookups that flavor choice and the states of queues make. Matches of pod shapes against flavors are kept
until a flavor changes.
"""

from __future__ import annotations

from typing import Final

from multikueue.engine.eligibility import mismatch, topology_mismatch
from multikueue.engine.live import LiveQueue
from multikueue.engine.topology import Topology
from multikueue.engine.values import AdmissionCheck, Flavor, Namespace
from multikueue.engine.workloads import PodSet

_CACHE_LIMIT: Final = 50_000


class Knowledge:
    """Objects that queues refer to by name."""

    def __init__(self) -> None:
        self.flavors: dict[str, Flavor] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.topologies: dict[str, Topology] = {}
        self._mismatches: dict[tuple[str, str], str] = {}
        self._selected: dict[tuple[str, str], bool] = {}

    def set_flavor(self, name: str, value: Flavor | None) -> None:
        """Learn or forget a flavor."""
        if value is None:
            self.flavors.pop(name, None)
        else:
            self.flavors[name] = value
        self._mismatches.clear()

    def set_namespace(self, name: str, value: Namespace | None) -> None:
        """Learn or forget a namespace."""
        if value is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = value
        self._selected.clear()

    def forget_selections(self) -> None:
        """A queue's selector may have changed."""
        self._selected.clear()

    def selects(self, live: LiveQueue, namespace: str) -> bool:
        """Whether a namespace exists and the queue's selector matches it."""
        key = (live.name, namespace)
        known = self._selected.get(key)
        if known is None:
            value = self.namespaces.get(namespace)
            selector = live.value.namespace_selector if live.value is not None else None
            known = value is not None and selector is not None and selector.matches(value.labels)
            if len(self._selected) >= _CACHE_LIMIT:
                self._selected.clear()
            self._selected[key] = known
        return known

    def levels(self, topology: str) -> tuple[str, ...] | None:
        """The levels of a topology, if it is known."""
        known = self.topologies.get(topology)
        return None if known is None else known.levels

    def all_topology(self, live: LiveQueue) -> bool:
        """Whether all flavors of a queue have a topology; not so without flavors (§12 row 4)."""
        flavors = self.flavors
        return bool(live.flavors) and all(name in flavors and flavors[name].topology for name in live.flavors)

    def flavor_mismatch(self, live: LiveQueue, flavor: str, pod_set: PodSet, covered: frozenset[str]) -> str:
        """Why pods cannot run on a flavor, in the words for users; empty when they can."""
        value = self.flavors.get(flavor)
        if value is None:
            return f"flavor {flavor} not found"
        if value.topology or (pod_set.topology is not None and pod_set.topology.explicit):
            shape = pod_set.shape
            names = {name for container in shape.containers for name in container.requests}
            names.update(shape.pod_requests or ())
            reason = topology_mismatch(
                value,
                pod_set,
                all_topology=bool(value.topology) and self.all_topology(live),
                requests_group=not covered.isdisjoint(names),
                topologies=self,
            )
            if reason:
                return reason
        if not value.taints and not value.node_labels:
            return ""
        fingerprint = pod_set.shape.fingerprint
        if not fingerprint:
            return mismatch(value, pod_set.shape)
        key = (flavor, fingerprint)
        reason_or_none = self._mismatches.get(key)
        if reason_or_none is None:
            if len(self._mismatches) >= _CACHE_LIMIT:
                self._mismatches.clear()
            reason_or_none = self._mismatches[key] = mismatch(value, pod_set.shape)
        return reason_or_none
