# SPDX-License-Identifier: Apache-2.0
"""The engine that the manager feeds: its settings, and the nodes and pods that it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from manager.context import ManagerContext
from manager.scheduler.engine_feed import EngineFeed
from manager.topology.objects import TopologyObjects
from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.engine.settings import Settings
from tests.support.engine_builders import Bench, group, pods, queue, workload
from tests.unit.manager.builders import admitted, reserved, wire
from tests.unit.manager.topology.builders import RACK, Object, Site, node, pod, site
from tests.unit.manager.topology.test_ungater import assigned, placed


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


class Places:
    """The engine of a manager with nodes and pods, and how often the scheduler was woken."""

    def __init__(self, at: Site) -> None:
        self.site = at
        self.objects: TopologyObjects = at.objects
        self.changes = 0
        self.feed = EngineFeed(
            at.context,
            settings=Settings(pods_ready=None),
            changed=lambda resource, key, obj: None,
            topology=at.objects,
            wake=self._count,
        )

    def _count(self) -> None:
        self.changes += 1

    async def has(self, *nodes: Object, pods: tuple[Object, ...] = ()) -> None:
        """These are on the server, and were seen there."""
        self.site.server.nodes = {each["metadata"]["name"]: each for each in nodes}
        await self.objects.nodes.relist()
        await self.site.has_pods(*pods)

    @property
    def usable(self) -> dict[str, bool]:
        return {name: each.usable for name, each in self.feed.engine.capacity.nodes.items()}

    @property
    def used(self) -> dict[str, int]:
        """The milli-cpu that counted pods use, by node."""
        return {name: used["cpu"] for name, used in self.feed.engine.capacity._bound.items()}


@asynccontextmanager
async def places() -> AsyncIterator[Places]:
    async with site() as at:
        found = Places(at)
        await found.feed.attach()
        yield found


def bound(name: str = "a", to: str = "n", version: str = "1", *, of: str = "") -> Object:
    """A pod on that node, of a Workload or of none."""
    made = pod(name, of=of, version=version, started_in={RACK: "r1"})
    made["spec"]["nodeName"] = to
    return made


@pytest.mark.anyio
async def test_nodes_are_told_to_the_engine_as_they_come_change_and_go() -> None:
    async with places() as found:
        await found.has(node("n"), node("broken", ready=False), node("cordoned", unschedulable=True))
        assert found.usable == {"n": True, "broken": False, "cordoned": False}
        assert found.changes == 3
        await found.has()
        assert found.usable == {}
        assert found.changes == 6


@pytest.mark.anyio
async def test_a_node_that_cannot_be_read_is_none() -> None:
    async with places() as found:
        await found.has(node("n"))
        unreadable = node("n")
        unreadable["metadata"]["resourceVersion"] = "2"
        unreadable["status"]["allocatable"] = {"cpu": "many"}
        await found.has(unreadable)
        assert found.usable == {}
        assert [entry.key for entry in found.site.quarantine.entries()] == [Key("", "n")]


@pytest.mark.anyio
async def test_a_pod_uses_its_node_from_the_moment_it_is_bound_until_it_is_gone() -> None:
    async with places() as found:
        await found.has(node("n"), pods=(pod("a", of=""),))
        assert found.used == {}
        await found.has(node("n"), pods=(bound(version="2"),))
        assert found.used == {"n": 1000}
        told = found.changes
        await found.has(node("n"))
        assert (found.used, found.changes) == ({}, told + 1)


@pytest.mark.anyio
async def test_the_pods_of_a_workload_that_has_the_place_do_not_count_twice() -> None:
    async with places() as found:
        found.site.has_workload(wire(placed(admitted(), assigned({"r1": 1}))))
        found.site.has_workload(wire(reserved(), name="elsewhere"))
        on_node = (
            bound("a", of="w"),
            bound("b", "other", of="elsewhere"),
            bound("c", "third", of="gone"),
        )
        await found.has(pods=on_node)
        assert found.used == {"other": 1000, "third": 1000}


@pytest.mark.anyio
async def test_a_pod_on_a_host_that_its_workload_was_not_given_uses_it() -> None:
    """A tenant says of which Workload a pod is, and one may still run where its Workload was before."""
    async with places() as found:
        found.site.has_workload(wire(placed(admitted(), assigned({"a": 1}, levels=(HOSTNAME_LABEL,)))))
        named = node("n")
        named["metadata"]["labels"] = {HOSTNAME_LABEL: "a"}
        await found.has(named, pods=(bound("a", "a", of="w"), bound("b", "b", of="w"), bound("c", "n", of="w")))
        assert found.used == {"b": 1000}


@pytest.mark.anyio
async def test_a_new_engine_has_the_nodes_and_pods_of_the_one_before() -> None:
    async with places() as found:
        await found.has(node("n"), pods=(bound(),))
        await found.feed.rebuild()
        assert (found.usable, found.used) == ({"n": True}, {"n": 1000})


@pytest.mark.anyio
async def test_the_scheduler_is_not_woken_by_pods_that_free_no_place() -> None:
    async with places() as found:
        await found.has(pods=(pod("a", of=""),))
        assert found.changes == 0
