# SPDX-License-Identifier: Apache-2.0
"""The price of a write, from the rounds in which it was measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.prices.meter import API_SERVER, Sample
from tests.bench.prices.writes import PricedWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a write was measured under, such as `webhooks`: `validating`; both empty for none."""

    part: str
    under: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one write costs, in milliseconds.

    CPU and wall time are of the round in which the API server used the least: other work on the machine
    disturbs that one least.
    """

    write: PricedWrite
    condition: Condition
    cpu: Mapping[str, float]
    """CPU time by process."""
    wall: float
    median: float
    """Of the rounds, for the API server."""
    highest: float
    calls: int
    reviews: float
    """Requests to webhooks for each write, in all rounds."""

    @property
    def api_server(self) -> float:
        """Milliseconds of the API server."""
        return self.cpu[API_SERVER]

    @property
    def name(self) -> str:
        """Such as `Job: create, validating`."""
        return f"{self.write.name}, {self.condition.under}" if self.condition.under else self.write.name


def price_of(write: PricedWrite, condition: Condition, samples: Sequence[Sample]) -> Price:
    """The price; there is at least one sample."""
    own = [1000 * each.cpu[API_SERVER] / each.calls for each in samples]
    best = samples[own.index(min(own))]
    calls = sum(each.calls for each in samples)
    return Price(
        write=write,
        condition=condition,
        cpu={name: 1000 * spent / best.calls for name, spent in best.cpu.items()},
        wall=1000 * best.wall / best.calls,
        median=statistics.median(own),
        highest=max(own),
        calls=calls,
        reviews=sum(each.reviews for each in samples) / calls,
    )
