# SPDX-License-Identifier: Apache-2.0
"""The benchmark's mix, small, with every decision compared with the model's: no shortcut changes any of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from multikueue.engine import Cycle, Engine, Settings
from tests.bench.engine.mix import Class, Mix, run
from tests.support.reference_engine import ReferenceEngine
from tests.unit.engine.test_model import comparable

SMALL = Mix(
    "small",
    2,
    3,
    (
        Class("small", 12, 100, 200, 50, 1),
        Class("medium", 5, 300, 500, 100, 5),
        Class("large", 4, 700, 1000, 200, 20),
    ),
)
COMPARED_EVENTS = (
    "upsert_flavor",
    "upsert_namespace",
    "upsert_cluster_queue",
    "upsert_local_queue",
    "upsert_workload",
)


class CheckedEngine(Engine):
    """An engine that compares each cycle with the model."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.model = ReferenceEngine(settings)
        for name in COMPARED_EVENTS:
            setattr(self, name, self._both(name))

    def _both(self, name: str) -> Callable[[Any, datetime], None]:
        mine, theirs = getattr(self, name), getattr(self.model, name)

        def both(value: object, now: datetime) -> None:
            mine(value, now)
            theirs(value, now)

        return both

    def cycle(self, now: datetime, *, repeat: bool = True, most_heads: int | None = None) -> Cycle:
        found = super().cycle(now, repeat=repeat, most_heads=most_heads)
        assert [comparable(decision) for decision in found.decisions] == self.model.cycle(now)
        return found


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_all_decisions_are_those_of_the_model(fair: bool) -> None:
    result = run(SMALL, engine=CheckedEngine(Settings(pods_ready=None, fair_sharing=fair)))
    assert result.finished == 2 * 3 * 21
    assert result.preempted > 0
