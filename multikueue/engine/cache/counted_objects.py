# SPDX-License-Identifier: Apache-2.0
"""The objects that decide what pods request: limit ranges, runtime classes, device classes and claim templates.

When one changes, the requests of waiting workloads that it concerns are counted anew. What is reserved stays as it was
admitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from multikueue.core.keys import Key
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.reservations import Reservations
from multikueue.engine.devices.claimants import Claimants
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass
from multikueue.engine.queue.flushes import FlushRequests
from multikueue.engine.queue.waiting import WaitingWorkloads
from multikueue.engine.requests import RequestCounter
from multikueue.engine.topology.capacity import TopologyCapacity
from multikueue.engine.values import LimitRange, RuntimeClass


class CountedObjects:
    """Takes their events; the part of `Cache` that concerns requests."""

    def __init__(
        self,
        counter: RequestCounter,
        *,
        capacity: TopologyCapacity,
        reservations: Reservations,
        waiting: WaitingWorkloads,
        flushes: FlushRequests,
    ) -> None:
        self.counter = counter
        self.capacity = capacity
        self.reservations = reservations
        self.waiting = waiting
        self.flushes = flushes
        self.claimants = Claimants(counter.claim_templates)
        self.configured = 0
        """How often something changed that decisions in any tree may depend on."""

    def upsert_limit_range(self, value: LimitRange, now: datetime) -> None:
        """A LimitRange was created or changed."""
        self._limit(value.key, value, now)

    def delete_limit_range(self, key: Key, now: datetime) -> None:
        """A LimitRange was deleted."""
        self._limit(key, None, now)

    def upsert_runtime_class(self, value: RuntimeClass, now: datetime) -> None:
        """A RuntimeClass was created or changed."""
        self._runtime_class(value.name, value, now)

    def delete_runtime_class(self, name: str, now: datetime) -> None:
        """A RuntimeClass was deleted."""
        self._runtime_class(name, None, now)

    def upsert_device_class(self, value: DeviceClass, now: datetime) -> None:
        """A DeviceClass was created or changed."""
        self._device_class(value.name, value, now)

    def delete_device_class(self, name: str, now: datetime) -> None:
        """A DeviceClass was deleted."""
        self._device_class(name, None, now)

    def upsert_claim_template(self, value: ClaimTemplate, now: datetime) -> None:
        """A ResourceClaimTemplate was created, or made anew."""
        self._claim_template(value.key, value, now)

    def delete_claim_template(self, key: Key, now: datetime) -> None:
        """A ResourceClaimTemplate was deleted."""
        self._claim_template(key, None, now)

    def _limit(self, key: Key, value: LimitRange | None, now: datetime) -> None:
        self.configured += 1
        self.counter.set_limit_range(key.namespace, key.name, value)
        self.waiting.recount(lambda _: True, now, namespace=key.namespace)

    def _runtime_class(self, name: str, value: RuntimeClass | None, now: datetime) -> None:
        self.configured += 1
        self.counter.set_runtime_class(name, value)
        self.waiting.recount(
            lambda workload: any(pod_set.shape.runtime_class == name for pod_set in workload.pod_sets), now
        )

    def _device_class(self, name: str, value: DeviceClass | None, now: datetime) -> None:
        """Only the resource that a class serves decides anything, and any workload may request that."""
        if self.counter.set_device_class(name, value):
            self.configured += 1
            self.capacity.device_resources = frozenset(self.counter.device_resources)
            self.waiting.recount(lambda _: True, now)
            self._request(map(self.waiting.cluster_queue_of, self.waiting.pending.values()), now)

    def _claim_template(self, key: Key, value: ClaimTemplate | None, now: datetime) -> None:
        """Tenants may write these as often as they like: only what names the template is counted again."""
        if not self.counter.set_claim_template(key, value):
            return
        named = self.claimants.of(key)
        for workload in named:
            record = self.reservations.records.get(workload)
            if record is not None and not record.assumed:
                self.claimants.find_admitted(record.workload, self.counter.holds_claims)
        self._request(self.waiting.offer_again(named, now), now)

    def _request(self, concerned: Iterable[CachedClusterQueue], now: datetime) -> None:
        """Have the trees of these queues flushed."""
        for cluster_queue in concerned:
            self.flushes.request(cluster_queue.node, now)
