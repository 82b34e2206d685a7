# SPDX-License-Identifier: Apache-2.0
"""The bench of queueing reads who was preempted for whom off a watch."""

from __future__ import annotations

from typing import Any

from tests.bench.engine.mix import BASELINE
from tests.bench.queueing.preemptions import Preemptions
from tests.bench.queueing.workloads import workload

SMALL, _, LARGE = BASELINE.classes


def seen(uid: str, queue: str = "q", *, large: bool = False, preemptor: str = "") -> dict[str, Any]:
    found = workload(queue, LARGE if large else SMALL, 1)
    found["metadata"]["uid"] = uid
    if preemptor:
        message = f"Preempted to accommodate a workload (UID: {preemptor}, JobUID: UNKNOWN) due to prioritization"
        found["status"] = {"conditions": [{"type": "Evicted", "status": "True", "message": message}]}
    return found


def test_evictions_are_counted_by_victim_and_preemptor() -> None:
    found = Preemptions()
    found.on_created(seen("large", large=True), 10.0)
    found.on_evicted(seen("s1", preemptor="large"), admitted=11.0, now=11.1)
    found.on_evicted(seen("s2", "other", preemptor="large"), admitted=9.0, now=11.0)
    assert found.figures() == {
        "small for large": {
            "evictions": 2,
            "preemptor_waited_before_admission": 1,
            "run_was_over": 1,
            "for_another_queue": 1,
        }
    }


def test_an_eviction_for_another_reason_has_no_preemptor() -> None:
    found = Preemptions()
    found.on_evicted(seen("s1"), admitted=1.0, now=2.0)
    assert found.figures()["unknown"]["evictions"] == 1
