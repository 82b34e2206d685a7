# SPDX-License-Identifier: Apache-2.0
"""Which containers of a failed job are reported."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.worker.failed_pods import MAX_FAILED_PODS, failed_containers


def pod(name: Any, *codes: Any, ended: Any = "2026-01-01T00:00:00Z", field: str = "containerStatuses") -> Any:
    statuses = [
        {"name": f"c{number}", "state": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ended}}}
        for number, code in enumerate(codes)
    ]
    return {"metadata": {"name": name}, "status": {field: statuses}}


def test_only_containers_that_ended_with_an_error_are_reported() -> None:
    found = failed_containers([pod("p", 0, 3), pod("init", 1, field="initContainerStatuses")])
    assert [(each.pod, each.container, each.exit_code) for each in found.containers] == [
        ("p", "c1", 3),
        ("init", "c0", 1),
    ]
    assert not found.problem


def test_a_container_that_a_signal_ended_has_failed() -> None:
    killed = {"name": "c", "state": {"terminated": {"exitCode": 0, "signal": 9}}}
    found = failed_containers([{"metadata": {"name": "p"}, "status": {"containerStatuses": [killed]}}])
    assert [each.signal for each in found.containers] == [9]


def test_the_newest_pods_are_reported_and_the_others_named() -> None:
    found = failed_containers([pod(f"p{number}", 1, ended=f"2026-01-01T00:00:0{number}Z") for number in range(8)])
    assert [each.pod for each in found.containers] == ["p7", "p6", "p5"]
    assert len(found.containers) == MAX_FAILED_PODS
    assert (found.omitted, found.omitted_count) == (("p4", "p3", "p2", "p1", "p0"), 5)


def test_of_a_hundred_failed_pods_twenty_are_named_and_all_are_counted() -> None:
    found = failed_containers([pod(f"p{number}", 1) for number in range(100)])
    assert (len(found.omitted), found.omitted_count) == (20, 97)
    assert list(found.summary())[-1].endswith(", ...")


@pytest.mark.parametrize(
    "broken",
    [
        7,
        {},
        {"metadata": "x", "status": []},
        pod("../up", 1),
        pod(3, 1),
        pod("p", "1e9"),
        pod("p", -1),
        {"metadata": {"name": "p"}, "status": {"containerStatuses": "x"}},
        {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "c", "state": "x"}, 5]}},
    ],
    ids=str,
)
def test_a_pod_that_cannot_be_read_is_left_out(broken: Any) -> None:
    found = failed_containers([broken, pod("good", 2)])
    assert [each.pod for each in found.containers] == ["good"]


def test_without_a_failed_container_it_says_so() -> None:
    assert "no failed container" in failed_containers([pod("p", 0)]).problem
    assert failed_containers([pod("p", 1)], unread="only 500").problem == "only 500"
