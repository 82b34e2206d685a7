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
    """What one write costs, in milliseconds; the median of the rounds."""

    write: PricedWrite
    condition: Condition
    cpu: Mapping[str, float]
    """CPU time by process."""
    lowest: float
    """Of the rounds, for the API server."""
    highest: float
    wall: float
    calls: int
    reviews: float
    """Requests to webhooks for each write."""

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
    calls = sum(each.calls for each in samples)
    return Price(
        write=write,
        condition=condition,
        cpu={
            name: 1000 * statistics.median(each.cpu[name] / each.calls for each in samples) for name in samples[0].cpu
        },
        lowest=min(own),
        highest=max(own),
        wall=1000 * statistics.median(each.wall / each.calls for each in samples),
        calls=calls,
        reviews=sum(each.reviews for each in samples) / calls,
    )
