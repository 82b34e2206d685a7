# SPDX-License-Identifier: Apache-2.0
"""The lines of a log from a stream that breaks."""

from __future__ import annotations

from multikueue.cli.logs.log_lines import MAX_LINE, LogLines

FIRST, SECOND, THIRD = (f"2026-01-01T00:00:0{number}.123456789Z" for number in (1, 2, 3))


def test_lines_are_complete_whatever_the_pieces() -> None:
    lines = LogLines()
    pieces = [f"{FIRST} on".encode(), b"e\n" + SECOND.encode(), b" two\n" + f"{THIRD} three".encode()]
    assert [line for piece in pieces for line in lines.add(piece)] == ["one", "two"]
    assert list(lines.end()) == ["three"]


def test_a_stream_that_is_read_again_repeats_nothing() -> None:
    lines = LogLines()
    assert list(lines.add(f"{FIRST} a\n{SECOND} b\n{SECOND} c\n{THIRD} cut o".encode())) == ["a", "b", "c"]
    assert lines.last == SECOND
    lines.reopened()
    again = f"{FIRST} a\n{SECOND} b\n{SECOND} c\n{SECOND} new\n{THIRD} cut off\n"
    assert list(lines.add(again.encode())) == ["new", "cut off"]


def test_an_endless_line_is_passed_on_in_parts() -> None:
    lines = LogLines()
    (part,) = lines.add(f"{FIRST} ".encode() + b"x" * (MAX_LINE + 1))
    assert len(part) == MAX_LINE + 1
    assert list(lines.add(b"y\n" + f"{SECOND} next\n".encode())) == ["y", "next"]


def test_a_line_without_a_time_is_shown() -> None:
    assert list(LogLines().add(b"plain text\n\xff\xfe\n")) == ["plain text", "\ufffd\ufffd"]
