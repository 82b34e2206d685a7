# SPDX-License-Identifier: Apache-2.0
"""What ran is written down, one line at a time."""

from __future__ import annotations

from pathlib import Path

from devcluster.kubelet.journal import STARTED, Journal, JournalEntry, read

ENTRY = JournalEntry(
    time="2026-01-01T00:00:00Z", cluster="w", event=STARTED, namespace="n", pod="p", uid="u", node="x", owner="Job/j"
)


def test_entries_are_read_back_in_order_over_several_writers(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for _ in range(2):
        journal = Journal(path)
        journal.write(ENTRY)
        journal.close()
    assert read(path) == [ENTRY, ENTRY]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.write(ENTRY)
    journal.close()
    with path.open("a") as file:
        file.write('{"time": "2026')
    assert read(path) == [ENTRY]


def test_no_journal_means_nothing_ran(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == []
