# SPDX-License-Identifier: Apache-2.0
"""The pending workloads of a queue, by page, and how long one order is used."""

from __future__ import annotations

import anyio
import pytest

from manager.visibility.pending import PendingPage, PendingWorkloads
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, WORKLOADS
from multikueue.core.keys import Key
from multikueue.engine.decisions import PendingPosition
from multikueue.engine.engine import Engine
from tests.unit.manager.visibility.builders import OWNER, Hub

pytestmark = pytest.mark.anyio

ALL = PendingPage()


@pytest.fixture
async def hub() -> Hub:
    made = Hub()
    made.queue("cq", "a", "b")
    made.workload("late", "a", created=3)
    made.workload("urgent", "b", priority=5, created=4)
    made.workload("early", "a", created=1)
    made.workload("middle", "b", created=2)
    return made


def pending(hub: Hub) -> PendingWorkloads:
    return PendingWorkloads(hub.caches, hub, clock=hub.clock)


async def test_a_cluster_queue_shows_its_workloads_by_priority_and_age(hub: Hub) -> None:
    found = await pending(hub).of_cluster_queue("cq", ALL)
    assert found is not None
    assert [
        (each["metadata"]["name"], each["positionInClusterQueue"], each["positionInLocalQueue"]) for each in found
    ] == [("urgent", 0, 0), ("early", 1, 0), ("middle", 2, 1), ("late", 3, 1)]


async def test_a_workload_is_shown_with_its_owner_and_nothing_else_of_its_metadata(hub: Hub) -> None:
    found = await pending(hub).of_cluster_queue("cq", PendingPage(limit=1))
    assert found == [
        {
            "metadata": {
                "name": "urgent",
                "namespace": "team",
                "creationTimestamp": "2026-01-01T00:00:04Z",
                "ownerReferences": [OWNER],
            },
            "priority": 5,
            "localQueueName": "b",
            "positionInClusterQueue": 0,
            "positionInLocalQueue": 0,
        }
    ]


async def test_a_local_queue_shows_its_own_with_their_positions_in_both_queues(hub: Hub) -> None:
    found = await pending(hub).of_local_queue(Key("team", "b"), ALL)
    assert found is not None
    assert [
        (each["metadata"]["name"], each["positionInClusterQueue"], each["positionInLocalQueue"]) for each in found
    ] == [("urgent", 0, 0), ("middle", 2, 1)]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (PendingPage(offset=1, limit=2), ["early", "middle"]),
        (PendingPage(offset=3), ["late"]),
        (PendingPage(offset=9), []),
        (PendingPage(offset=10**17, limit=100_000), []),
    ],
)
async def test_a_page_is_a_part_of_the_order(hub: Hub, page: PendingPage, names: list[str]) -> None:
    found = await pending(hub).of_cluster_queue("cq", page)
    assert found is not None
    assert [each["metadata"]["name"] for each in found] == names


async def test_queues_that_do_not_exist_have_no_answer(hub: Hub) -> None:
    assert await pending(hub).of_cluster_queue("other", ALL) is None
    assert await pending(hub).of_local_queue(Key("team", "cq"), ALL) is None
    assert await pending(hub).of_local_queue(Key("other", "a"), ALL) is None


async def test_a_local_queue_whose_cluster_queue_is_missing_shows_nothing(hub: Hub) -> None:
    hub.caches.view(CLUSTER_QUEUES).on_not_found(Key("", "cq"))
    assert await pending(hub).of_local_queue(Key("team", "a"), ALL) == []


class Slow:
    """Sorting takes two seconds."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.sorted = 0

    def pending(self, cluster_queue: str) -> tuple[PendingPosition, ...]:
        self.sorted += 1
        self._hub.clock.advance(2.0)
        return Engine.pending(self._hub.engine, cluster_queue)


async def test_an_order_is_used_again_for_ten_times_as_long_as_it_took(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(hub)
    monkeypatch.setattr(hub.engine, "pending", slow.pending, raising=True)
    shown = pending(hub)
    for seconds, times in ((0.0, 1), (19.0, 1), (1.0, 2)):
        hub.clock.advance(seconds)
        with anyio.move_on_after(0.2):  # the page is read when there is time for it
            await shown.of_cluster_queue("cq", ALL)
            await shown.of_local_queue(Key("team", "a"), ALL)
        assert slow.sorted == times


async def test_an_order_of_a_former_engine_is_not_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(hub)
    monkeypatch.setattr(hub.engine, "pending", slow.pending, raising=True)
    shown = pending(hub)
    with anyio.move_on_after(0.2):
        await shown.of_cluster_queue("cq", ALL)
    hub.engine = Hub().engine
    hub.clock.advance(11.0)
    assert await shown.of_cluster_queue("cq", ALL) == []


async def test_another_queue_is_sorted_when_there_is_time_for_it(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.queue("other", "c")
    hub.workload("w", "c")
    slow = Slow(hub)
    monkeypatch.setattr(hub.engine, "pending", slow.pending, raising=True)
    shown = pending(hub)
    with anyio.move_on_after(0.2):
        await shown.of_cluster_queue("cq", ALL)
    hub.clock.advance(9.0)
    with anyio.move_on_after(0.2):
        await shown.of_cluster_queue("other", ALL)
    assert slow.sorted == 1, "two seconds of work are as much as ten more may have"
    hub.clock.advance(1.5)
    with anyio.move_on_after(0.2):
        await shown.of_cluster_queue("other", ALL)
    assert slow.sorted == 2


async def test_reading_objects_counts_as_well(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    read = hub.caches.view(WORKLOADS).object

    def slowly(key: Key) -> JsonObject | None:
        hub.clock.advance(1.0)
        return read(key)

    monkeypatch.setattr(hub.caches.view(WORKLOADS), "object", slowly)
    shown = pending(hub)
    assert len(await shown.of_cluster_queue("cq", ALL) or ()) == 4
    with anyio.move_on_after(0.2) as waited:
        await shown.of_cluster_queue("cq", ALL)
    assert waited.cancelled_caught
    hub.clock.advance(40.0)
    assert len(await shown.of_cluster_queue("cq", ALL) or ()) == 4
