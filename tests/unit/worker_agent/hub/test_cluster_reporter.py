# SPDX-License-Identifier: Apache-2.0
"""How often a hub is written to, whatever happens on the cluster."""

from __future__ import annotations

from itertools import pairwise

from multikueue.core.clock import ManualClock
from worker_agent.hub.cluster_reporter import ReportPace

BATCH, INTERVAL, PERIOD = 0.1, 1.0, 10.0
TICKS = 100


class Cluster:
    """A cluster whose state is a number, and the reports of it; a report takes no time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = 0
        self.reports: list[tuple[float, int]] = []
        self.refusing = False
        self.attempts = 0
        self.pace = ReportPace(batch=BATCH, interval=INTERVAL, period=PERIOD)
        self.look()

    def look(self) -> None:
        """What a reporter does when it wakes."""
        now = self.clock.monotonic()
        if self.pace.left(now) > 0.0005:
            return
        self.pace.began(now)
        self.attempts += 1
        if self.refusing:
            self.pace.failed(now)
        else:
            self.reports.append((now, self.state))
            self.pace.sent(now)

    def change(self) -> None:
        self.state += 1
        self.pace.changed(self.clock.monotonic())

    def live(self, seconds: float, *, changes_a_second: int = 0) -> None:
        """Let time pass, with changes spread evenly over it."""
        for tick in range(round(seconds * TICKS)):
            if changes_a_second and tick % (TICKS // changes_a_second) == 0:
                self.change()
            self.clock.advance(1 / TICKS)
            self.look()


def test_a_single_change_is_reported_after_the_batch_and_not_with_the_next_regular_report() -> None:
    cluster = Cluster()
    cluster.live(5)
    began = cluster.clock.monotonic()
    cluster.change()
    cluster.live(0.02)
    cluster.change()
    cluster.live(2)
    assert [state for _, state in cluster.reports] == [0, 2], "both changes are in one report"
    assert BATCH - 0.001 <= cluster.reports[-1][0] - began <= BATCH + 0.02


def test_a_cluster_that_changes_a_hundred_times_a_second_writes_once_a_second_and_reports_the_last_state() -> None:
    cluster = Cluster()
    cluster.live(60, changes_a_second=100)
    assert 55 <= len(cluster.reports) <= 62
    times = [when for when, _ in cluster.reports]
    assert min(later - earlier for earlier, later in pairwise(times)) >= INTERVAL - 0.001
    cluster.live(INTERVAL + BATCH)
    assert cluster.reports[-1][1] == cluster.state == 6000
    written = len(cluster.reports)
    cluster.live(PERIOD - INTERVAL - BATCH - 0.1)
    assert len(cluster.reports) == written, "what was told is not told again at once"


def test_without_any_change_there_is_a_report_each_period() -> None:
    cluster = Cluster()
    cluster.live(35)
    assert [round(when) for when, _ in cluster.reports] == [0, 10, 20, 30]


def test_a_change_while_a_report_is_sent_is_in_the_next_one() -> None:
    pace = ReportPace(batch=BATCH, interval=INTERVAL, period=PERIOD)
    pace.began(0.0)
    assert pace.changed(0.05)
    assert not pace.changed(0.06), "who waits is woken once"
    pace.sent(0.2)
    assert pace.left(0.2) == INTERVAL - 0.2


def test_a_failing_hub_is_retried_with_a_growing_pause_and_then_gets_the_report() -> None:
    cluster = Cluster()
    cluster.refusing = True
    cluster.live(60, changes_a_second=100)
    assert 6 <= cluster.attempts <= 11
    cluster.refusing = False
    cluster.live(PERIOD)
    assert cluster.reports[-1][1] == cluster.state


def test_a_report_that_the_hub_waits_for_goes_out_after_the_shortest_pause() -> None:
    pace = ReportPace(batch=BATCH, interval=INTERVAL, period=PERIOD)
    pace.began(0.0)
    pace.sent(0.0, awaited=True)
    assert pace.left(0.0) == INTERVAL
