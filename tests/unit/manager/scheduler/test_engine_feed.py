# SPDX-License-Identifier: Apache-2.0
"""The engine that the manager makes: what it has turned on that the engine alone has not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from manager.context import ManagerContext
from manager.scheduler.engine_feed import EngineFeed
from multikueue.core.clock import SystemClock
from multikueue.engine.settings import Settings
from tests.support.engine_builders import Bench, group, pods, queue, workload


def test_quota_of_ended_workloads_is_withheld_for_inadmissible_ones() -> None:
    context = cast("ManagerContext", SimpleNamespace(clock=SystemClock()))
    feed = EngineFeed(context, settings=Settings(pods_ready=None), changed=lambda resource, key, obj: None)
    bench = Bench(queue("q", group(default="2")), engine=feed.engine)
    bench.add(workload("first", "q", pods(cpu="1")), workload("second", "q", pods(cpu="1"), created=1))
    bench.cycle()
    bench.cycle()
    bench.add(workload("large", "q", pods(cpu="2"), created=2)).cycle()
    assert bench.waits("q") == ["[large]"]
    bench.finish("first")
    bench.add(workload("small", "q", pods(cpu="1"), created=3)).cycle()
    assert bench.waits("q") == ["[large]", "small"]
