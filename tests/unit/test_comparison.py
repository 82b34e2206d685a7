# SPDX-License-Identifier: Apache-2.0
"""What tests.comparison prints of two managers."""

from __future__ import annotations

import pytest

from tests.comparison.answers import compared
from tests.comparison.histories.both import decided
from tests.comparison.histories.history import Mix, history
from tests.comparison.shown import comparable, differences


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Workload job-a-b3f09", "Workload job-a-HASH"),
        ("UID: b41ad301-beb8-4f1a-83a8-41631fa39b23,", "UID: UID,"),
        ("wait time since queued was 12s", "wait time since queued was SECONDS"),
        ("at 2026-11-29T20:28:47Z", "at TIME"),
        ("Admitted by ClusterQueue q", "Admitted by ClusterQueue q"),
    ],
)
def test_what_differs_from_run_to_run_is_replaced(text: str, want: str) -> None:
    assert comparable(text) == want


def test_differences_are_the_lines_that_only_one_has() -> None:
    assert list(differences(["a", "b", "c"], ["c", "a", "d"])) == ["kueue: b", "ours:  d"]


@pytest.mark.parametrize(
    ("kueue", "ours", "want"),
    [
        (["taken: a: 1", "taken: b: 2"], ["taken: a: 1", "taken: b: 3"], ["kueue: taken: b: 2", "ours:  taken: b: 3"]),
        (["taken: a: 1"], ["refused: no"], ["kueue: taken", "ours: refused: no"]),
        (["refused: no"], ["refused: never"], ["kueue: refused: no", "ours:  refused: never"]),
        (["refused: no"], ["refused: no"], []),
    ],
)
def test_an_object_that_one_refuses_is_not_shown_as_the_other_takes_it(
    kueue: list[str], ours: list[str], want: list[str]
) -> None:
    assert list(compared(kueue, ours)) == want


@pytest.mark.parametrize("mix", [Mix(), Mix(fair=True), Mix(placed=True), Mix(checked=True), Mix(sets=True)])
def test_a_history_is_the_same_each_time_and_names_only_what_is_there(mix: Mix) -> None:
    for seed in range(20):
        found = history(seed, mix)
        assert found == history(seed, mix)
        jobs = [step.job for step in found.steps if step.job is not None]
        assert {job.queue for job in jobs} <= set(found.queues)
        of_jobs = {step.name for step in found.steps if step.verb in ("finish", "delete", "run", "stop", "check")}
        assert of_jobs <= {job.name for job in jobs}
        assert bool(found.nodes) == mix.placed
        assert all(bool(job.topology) <= mix.placed for job in jobs)


def test_a_message_alone_is_no_difference_of_a_history() -> None:
    assert decided({"~ Workload j: QuotaReserved: Pending: x"}) == []
    assert decided({"~ Workload j: x", "Job j: suspended True"}) == ["Job j: suspended True"]
