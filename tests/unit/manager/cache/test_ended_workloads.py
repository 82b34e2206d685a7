# SPDX-License-Identifier: Apache-2.0
"""Which Workloads have finished, and which of them nothing is left to do about."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.cache.ended_workloads import (
    ENDED_INDEX,
    HELD,
    RELEASED,
    ended,
    finished_in,
    has_finished,
    is_released,
)
from manager.cache.views import View
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.cache.store import Store, read_row

FINISHED = [{"type": "Finished", "status": "True"}]


@pytest.mark.parametrize(
    ("changed", "terms"),
    [
        pytest.param({}, [RELEASED], id="nothing is left to do"),
        pytest.param({"spec": {"queueName": "lq"}}, [RELEASED, "team/lq"], id="of a queue"),
        pytest.param({"status": {"conditions": [{"type": "Finished", "status": "False"}]}}, [], id="not finished"),
        pytest.param({"status": None}, [], id="without a status"),
        pytest.param({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}, [HELD], id="with a finalizer"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-03-01T08:00:00Z"}}, [HELD], id="deleted"),
        pytest.param(
            {"spec": {"priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "high"}}},
            [HELD],
            id="with a class whose value it follows",
        ),
        pytest.param(
            {"metadata": {"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "team/older"}}},
            [HELD],
            id="a slice, whose former one may have to be finished",
        ),
    ],
)
def test_a_workload_that_has_finished_is_known_as_such_and_what_is_left_of_it(
    changed: dict[str, Any], terms: list[str]
) -> None:
    workload = {"metadata": {"namespace": "team", "name": "w"}, "spec": {}, "status": {"conditions": FINISHED}}
    assert list(ended({**workload, **changed})) == terms


def test_what_is_known_of_each_workload_without_reading_it() -> None:
    store = Store({ENDED_INDEX: ended})
    for name, conditions, finalizers in (("waits", [], []), ("held", FINISHED, ["f"]), ("released", FINISHED, [])):
        metadata = {"namespace": "team", "name": name, "finalizers": finalizers}
        store.put(read_row(orjson.dumps({"metadata": metadata, "spec": {}, "status": {"conditions": conditions}})))
    view = View(WORKLOADS, clock=ManualClock(), store=store)
    names = ("waits", "held", "released", "unknown")
    assert [name for name in names if has_finished(view, Key("team", name))] == ["held", "released"]
    assert [name for name in names if is_released(view, Key("team", name))] == ["released"]


def test_the_finished_workloads_of_a_queue_are_counted_also_those_that_were_just_written() -> None:
    store, queue = Store({ENDED_INDEX: ended}), Key("team", "lq")

    def finished(name: str, of: str, version: int) -> bytes:
        metadata = {"namespace": "team", "name": name, "uid": name, "resourceVersion": str(version)}
        return orjson.dumps({"metadata": metadata, "spec": {"queueName": of}, "status": {"conditions": FINISHED}})

    for name, of in (("a", "lq"), ("b", "lq"), ("c", "other")):
        store.put(read_row(finished(name, of, 1)))
    view = View(WORKLOADS, clock=ManualClock(), store=store)
    assert finished_in(view, queue) == 2
    for name in ("a", "d"):
        view.on_write(finished(name, "lq", 2))
    assert finished_in(view, queue) == 3
