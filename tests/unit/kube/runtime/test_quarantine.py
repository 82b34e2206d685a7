# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random

import anyio
import pytest
from prometheus_client import CollectorRegistry

from multikueue.api.resource import JOBS, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput, HubRestored
from multikueue.core.keys import Key
from multikueue.kube.errors import Unreachable
from multikueue.kube.runtime.quarantine import Quarantine, Quarantined, QuarantineMetrics
from multikueue.kube.runtime.supervisor import Supervisor

ONE = Key("team", "one")
ODD = BadInput("spec.count: expected a whole number from 0 to 5, found 7")


def quarantine(**more: object) -> tuple[Quarantine, list[Quarantined]]:
    made = Quarantine(clock=ManualClock(), random=Random(1), **more)  # type: ignore[arg-type]
    reported: list[Quarantined] = []
    made.add_reporter(reported.append)
    return made, reported


def test_an_object_that_cannot_be_read_is_reported_once_until_the_reason_changes() -> None:
    made, reported = quarantine()
    for error in (ODD, ODD, BadInput("spec.count: is missing")):
        with made.guard("scheduler", WORKLOADS, ONE):
            raise error
    assert [entry.message for entry in reported] == [str(ODD), "spec.count: is missing"]
    (entry,) = made.entries()
    assert (entry.attempts, entry.reader, entry.key) == (3, "scheduler", ONE)


def test_one_that_can_be_read_again_is_released_for_that_reader_only() -> None:
    made, _ = quarantine()
    for reader in ("scheduler", "dispatch"):
        with made.guard(reader, WORKLOADS, ONE):
            raise ODD
    with made.guard("scheduler", WORKLOADS, ONE):
        pass
    assert [entry.reader for entry in made.entries()] == ["dispatch"]


@pytest.mark.parametrize("error", [Unreachable("hub: no answer"), HubRestored("restored")])
def test_trouble_of_a_server_is_no_fault_of_the_object(error: Exception) -> None:
    made, reported = quarantine()
    with pytest.raises(type(error)):
        with made.guard("scheduler", WORKLOADS, ONE):
            raise error
    assert (len(made), reported) == (0, [])


def test_ten_thousand_objects_are_held_and_counted_by_reader_and_resource() -> None:
    registry = CollectorRegistry()
    made = Quarantine(metrics=QuarantineMetrics(registry))
    for number in range(10_000):
        made.add("scheduler", WORKLOADS, Key("team", f"w-{number}"), ODD)
    made.release("scheduler", WORKLOADS, Key("team", "w-1"))
    made.add("jobs", JOBS, ONE, ODD)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("multikueue_quarantined_objects", reader="scheduler", resource="workloads") == 9_999
    assert value("multikueue_quarantined_objects", reader="jobs", resource="jobs") == 1
    assert value("multikueue_quarantines_total", reader="scheduler", resource="workloads") == 10_000


@pytest.mark.breaks_on_purpose
def test_a_mistake_of_ours_is_named_with_its_class_and_without_control_characters() -> None:
    made, reported = quarantine()
    with made.guard("scheduler", WORKLOADS, ONE):
        raise KeyError("na\x1b[2Jme")
    assert reported[0].message == r"unexpected KeyError: 'na\x1b[2Jme'"


@pytest.mark.anyio
async def test_a_retry_comes_after_a_pause_that_grows_until_the_object_can_be_used() -> None:
    made = Quarantine(random=Random(1), backoff=Backoff(base=0.01, cap=0.02))
    tried: list[int] = []

    def use() -> None:
        tried.append(made.entries()[0].attempts)
        if len(tried) < 3:
            raise ODD
        made.release("scheduler", WORKLOADS, ONE)

    made.add("scheduler", WORKLOADS, ONE, ODD, retry=use)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        with anyio.fail_after(30):
            while len(tried) < 3:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert tried == [1, 2, 3]
    assert len(made) == 0


@pytest.mark.anyio
@pytest.mark.breaks_on_purpose
async def test_a_loop_that_fails_is_run_again_and_counted() -> None:
    registry = CollectorRegistry()
    supervisor = Supervisor(random=Random(1), registry=registry, backoff=Backoff(base=0.001, cap=0.002))
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise RuntimeError("a mistake of ours")

    with anyio.fail_after(30):
        await supervisor.keep("garbage", run)
    assert runs == 4
    assert registry.get_sample_value("multikueue_loop_restarts_total", {"loop": "garbage"}) == 3


@pytest.mark.anyio
@pytest.mark.parametrize("nested", [False, True], ids=["by itself", "out of a group"])
async def test_a_hub_that_was_restored_ends_a_loop(nested: bool) -> None:
    async def run() -> None:
        if not nested:
            raise HubRestored("restored")
        raise ExceptionGroup("of a task group", [ValueError("by the way"), HubRestored("restored")])

    with pytest.raises((HubRestored, ExceptionGroup)) as ended:
        await Supervisor(random=Random(1)).keep("leading", run)
    assert isinstance(ended.value, HubRestored) or ended.group_contains(HubRestored, match="restored")
