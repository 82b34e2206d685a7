# SPDX-License-Identifier: Apache-2.0
"""What the benches of many clusters and many Workloads calculate."""

from __future__ import annotations

from collections import Counter

from tests.bench.manager.crowd import Size
from tests.bench.manager.sites import Requests, requests_between
from tests.bench.scale.__main__ import size_of
from tests.bench.scale.metrics import total


def test_workloads_are_spread_evenly_over_clusters_and_queues() -> None:
    size = Size(clusters=40, running=400, queues=5)

    assert set(Counter(size.cluster(number) for number in range(400)).values()) == {10}
    assert set(Counter(size.queue(number) for number in range(400)).values()) == {40}


def test_a_queue_has_the_check_that_its_clusters_are_in() -> None:
    size = Size(clusters=50, running=1000, queues=3)

    checks = {size.queue(number): set[str]() for number in range(1000)}
    for number in range(1000):
        checks[size.queue(number)].add(size.check(number))

    assert len(checks) == 9
    assert all(len(found) == 1 for found in checks.values())
    assert size.check(19) != size.check(20)


def test_the_quota_of_a_queue_is_what_runs_in_it() -> None:
    size = Size(clusters=2, running=5, waiting=100, queues=2)

    assert size.quotas() == {"queue-000": 3, "queue-001": 2}


def test_a_queue_in_which_nothing_runs_has_no_quota() -> None:
    assert Size(clusters=1, running=1, queues=2).quotas() == {"queue-000": 1, "queue-001": 0}


def test_a_tenth_of_the_workloads_runs_and_most_have_finished() -> None:
    size = size_of(1005, agents=3)

    assert (size.running, size.ended, size.waiting) == (100, 603, 302)
    assert size.workloads == 1005


def test_a_series_is_summed_over_its_labels() -> None:
    page = "\n".join(
        [
            "# HELP waiting Help.",
            'waiting{queue="a",x="b"} 3.0',
            'waiting{queue="c"} 4.0',
            'waiting_more{queue="a"} 9.0',
            "all 2",
        ]
    )

    assert total(page, "waiting") == 7.0
    assert total(page, "all") == 2.0
    assert total(page, "none") == 0.0


def test_requests_are_those_of_the_busiest_second_and_of_an_average_one() -> None:
    lines = ["100 agent 1", "109 agent 2", "110 agent 4", "300 agent 50", "105 mk-manager 5", "105 other 7"]

    found = requests_between(lines, since=10.0, until=20.0)

    assert found == {
        "agent": Requests(peak=6.0, mean=0.7),
        "mk-manager": Requests(peak=5.0, mean=0.5),
        "all": Requests(peak=18.0, mean=1.9),
    }
