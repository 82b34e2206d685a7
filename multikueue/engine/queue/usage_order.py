# SPDX-License-Identifier: Apache-2.0
"""Admission fair sharing: the recent usage of the local queues of a queue (`docs/spec/engine.md §1.10`).

Owns the decayed consumption of each local queue, the penalties of workloads just admitted, and the figure that orders
local queues. The caller samples; `due` says when the next sample is due.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from multikueue.core.keys import Key
from multikueue.engine.resources import CPU
from multikueue.engine.settings import AdmissionFairSharing


@dataclass(slots=True)
class Consumption:
    """What one local queue consumed; amounts in base units, processors in cores."""

    weight: float = 1.0
    consumed: dict[str, float] = field(default_factory=dict)
    sampled_at: datetime | None = None
    penalties: dict[Key, dict[str, float]] = field(default_factory=dict)


class UsageOrder:
    """The consumption of all local queues whose queue is ordered by it."""

    def __init__(self, settings: AdmissionFairSharing) -> None:
        self._settings = settings
        self._queues: dict[Key, Consumption] = {}

    def of(self, local_queue: Key) -> Consumption:
        """The record of a local queue."""
        record = self._queues.get(local_queue)
        if record is None:
            record = self._queues[local_queue] = Consumption()
        return record

    def resume(self, local_queue: Key, consumed: Mapping[str, float], sampled_at: datetime | None) -> bool:
        """Continue from a former leader's record, unless this one has sampled since; whether it did."""
        record = self.of(local_queue)
        if record.sampled_at is not None or sampled_at is None:
            return False
        record.consumed, record.sampled_at = dict(consumed), sampled_at
        return True

    def forget(self, local_queue: Key) -> None:
        """Drop a local queue."""
        self._queues.pop(local_queue, None)

    def usage(self, local_queue: Key) -> float:
        """The figure that orders; lower goes first."""
        record = self.of(local_queue)
        if record.weight <= 0:
            return math.inf
        weights = self._settings.resource_weights
        total = sum(weights.get(name, 1.0) * value for name, value in record.consumed.items())
        for penalty in record.penalties.values():
            total += sum(weights.get(name, 1.0) * value for name, value in penalty.items())
        return total / record.weight

    def alpha(self, seconds: float) -> float:
        """The weight of current usage after `seconds`."""
        if self._settings.half_life_seconds <= 0:
            return 0.0
        return 1.0 - math.exp2(-max(0.0, seconds) / self._settings.half_life_seconds)

    def add_penalty(self, local_queue: Key, workload: Key, requests: Mapping[str, int]) -> None:
        """Charge a workload that was admitted before its usage shows; charging twice changes nothing."""
        alpha = self.alpha(self._settings.sampling_seconds)
        self.of(local_queue).penalties[workload] = {name: value * alpha for name, value in base_units(requests).items()}

    def remove_penalty(self, local_queue: Key, workload: Key) -> None:
        """Remove a charge."""
        self.of(local_queue).penalties.pop(workload, None)

    def settle_penalty(self, local_queue: Key, workload: Key) -> bool:
        """Turn a charge into consumption: the workload was admitted; whether there was one."""
        record = self.of(local_queue)
        penalty = record.penalties.pop(workload, None)
        for name, value in penalty.items() if penalty is not None else ():
            record.consumed[name] = record.consumed.get(name, 0.0) + value
        return penalty is not None

    def sample(self, local_queue: Key, admitted: Mapping[str, int], now: datetime) -> None:
        """Decay past consumption and add current usage."""
        record = self.of(local_queue)
        if self._settings.half_life_seconds <= 0:
            record.consumed = {}
        elif record.sampled_at is not None:
            alpha = self.alpha((now - record.sampled_at).total_seconds())
            present = base_units(admitted)
            record.consumed = {
                name: record.consumed.get(name, 0.0) * (1 - alpha) + present.get(name, 0.0) * alpha
                for name in {**record.consumed, **present}
            }
        record.sampled_at = now

    def due(self, local_queue: Key) -> datetime | None:
        """When to sample a local queue next; None for at once."""
        sampled = self.of(local_queue).sampled_at
        return None if sampled is None else sampled + timedelta(seconds=self._settings.sampling_seconds)


def base_units(requests: Mapping[str, int]) -> dict[str, float]:
    """Amounts as fractions of base units."""
    return {name: value / 1000 if name == CPU else float(value) for name, value in requests.items()}
