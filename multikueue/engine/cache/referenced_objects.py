# SPDX-License-Identifier: Apache-2.0
"""Flavors, checks, namespaces and topologies, and the look-ups that flavor choice and queue states make in them.

Results of matching pod shapes against flavors are cached until a flavor changes.
"""

from __future__ import annotations

from typing import Final

from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.flavorassigner.eligibility import mismatch, topology_mismatch
from multikueue.engine.values import AdmissionCheck, Flavor, Namespace, TopologyLevels
from multikueue.engine.workloads import PodSet

_CACHE_LIMIT: Final = 50_000


class ReferencedObjects:
    """Objects that queues refer to by name."""

    def __init__(self) -> None:
        self.flavors: dict[str, Flavor] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.topologies: dict[str, TopologyLevels] = {}
        self._mismatches: dict[tuple[str, str], str] = {}
        self._selected: dict[tuple[str, str], bool] = {}

    def set_flavor(self, name: str, value: Flavor | None) -> None:
        """Store a flavor; None removes it."""
        if value is None:
            self.flavors.pop(name, None)
        else:
            self.flavors[name] = value
        self._mismatches.clear()

    def set_namespace(self, name: str, value: Namespace | None) -> None:
        """Store a namespace; None removes it."""
        if value is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = value
        self._selected.clear()

    def forget_selections(self) -> None:
        """Drop cached selections: a queue's selector may have changed."""
        self._selected.clear()

    def selects(self, cluster_queue: CachedClusterQueue, namespace: str) -> bool:
        """Whether a namespace exists and the queue's selector matches it."""
        key = (cluster_queue.name, namespace)
        known = self._selected.get(key)
        if known is None:
            value = self.namespaces.get(namespace)
            selector = cluster_queue.value.namespace_selector if cluster_queue.value is not None else None
            known = value is not None and selector is not None and selector.matches(value.labels)
            if len(self._selected) >= _CACHE_LIMIT:
                self._selected.clear()
            self._selected[key] = known
        return known

    def levels(self, topology: str) -> tuple[str, ...] | None:
        """The levels of a topology; None if it does not exist."""
        known = self.topologies.get(topology)
        return None if known is None else known.levels

    def has_topology(self, flavor: str) -> bool:
        """Whether pods of the flavor are placed by a topology."""
        value = self.flavors.get(flavor)
        return value is not None and bool(value.topology)

    def all_topology(self, cluster_queue: CachedClusterQueue) -> bool:
        """Whether all flavors of a queue have a topology; False without flavors (§12 row 4)."""
        return bool(cluster_queue.flavors) and all(self.has_topology(name) for name in cluster_queue.flavors)

    def flavor_mismatch(
        self, cluster_queue: CachedClusterQueue, flavor: str, pod_set: PodSet, covered: frozenset[str]
    ) -> str:
        """Why pods cannot run on a flavor, as shown to users; empty if they can."""
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
                all_topology=bool(value.topology) and self.all_topology(cluster_queue),
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
