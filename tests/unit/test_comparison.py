# SPDX-License-Identifier: Apache-2.0
"""What tests.comparison prints of two managers."""

from __future__ import annotations

import pytest

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
