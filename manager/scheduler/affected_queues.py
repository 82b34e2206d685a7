# SPDX-License-Identifier: Apache-2.0
"""Which queues have other figures after a change of an object, before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from multikueue.core.keys import Key

_SPARE: Final = 64


class AffectedQueues:
    """Where each Workload counts that has not finished, and where each LocalQueue points to."""

    __slots__ = ("_places", "_shared", "_targets")

    def __init__(self) -> None:
        self._places: dict[Key, tuple[str, Key]] = {}
        self._shared: dict[tuple[str, Key], tuple[str, Key]] = {}
        """Each place once: thousands of Workloads count in one."""
        self._targets: dict[Key, str] = {}

    def of_change(self, resource: Resource, key: Key, obj: JsonObject | None) -> Iterator[tuple[Resource, Key]]:
        """The changed object, unless it is a Workload, and the queues that counted it or count it now.

        Records the change; `obj` is None for a deleted object, and for a Workload that has finished.
        """
        if resource is WORKLOADS:
            yield from self._of_workload(key, obj)
            return
        if resource is LOCAL_QUEUES:
            yield from self._of_local_queue(key, obj)
        yield resource, key

    def _of_local_queue(self, key: Key, obj: JsonObject | None) -> Iterator[tuple[Resource, Key]]:
        targets = {self._targets.pop(key, "")}
        if obj is not None:
            self._targets[key] = str(obj["spec"].get("clusterQueue") or "")
            targets ^= {self._targets[key]}
        # Its pending Workloads now count in that ClusterQueue, or no longer.
        for name in targets - {""}:
            yield CLUSTER_QUEUES, Key("", name)

    def _of_workload(self, key: Key, obj: JsonObject | None) -> Iterator[tuple[Resource, Key]]:
        before = self._places.pop(key, None)
        if len(self._shared) > len(self._places) + _SPARE:
            self._shared.clear()  # most are of Workloads that are gone
        after: tuple[str, Key] | None = None
        if obj is not None:
            admission: JsonObject = (obj.get("status") or {}).get("admission") or {}
            queue = Key(key.namespace, obj["spec"].get("queueName") or "")
            place = (admission.get("clusterQueue") or self._targets.get(queue, ""), queue)
            after = self._places[key] = self._shared.setdefault(place, place)
        for counted in {before, after} - {None}:
            assert counted is not None
            cluster_queue, local_queue = counted
            yield LOCAL_QUEUES, local_queue
            if cluster_queue:
                yield CLUSTER_QUEUES, Key("", cluster_queue)
