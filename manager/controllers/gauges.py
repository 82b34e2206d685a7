# SPDX-License-Identifier: Apache-2.0
"""Gauges that are computed when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily

_ROLE: Final = "replica_role"


class Gauges:
    """The families of one scrape, each with the samples that are added to it."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._families: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, text: str, value: float, /, **labels: str) -> None:
        """One sample of `kueue_` and the name; all of a family have the same labels."""
        if name not in self._families:
            self._families[name] = GaugeMetricFamily(f"kueue_{name}", text, labels=(*labels, _ROLE))
        self._families[name].add_metric((*labels.values(), self._role), value)

    def families(self) -> Iterator[GaugeMetricFamily]:
        """All of them."""
        yield from self._families.values()
