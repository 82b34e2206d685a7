# SPDX-License-Identifier: Apache-2.0
"""Requests for logs and chunks, as they are written by others."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.dispatch.protocol.job_logs import (
    MAX_CHUNK_BYTES,
    MAX_REQUESTS,
    LogAnswer,
    LogQuery,
    RelayedRequest,
    answers_of,
    cut,
    readable,
    relayed_requests,
    subject,
)

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j"}


def answered(*entries: Any) -> tuple[LogAnswer, ...]:
    return answers_of({"status": {"logs": list(entries)}})


def test_what_is_written_is_read_again() -> None:
    query = LogQuery(pod="p", container="c", tail=0, since="2026-01-01T00:00:00Z", follow=True, all_pods=True)
    request = RelayedRequest(request="u", cursor=3, query=query)
    assert relayed_requests({"spec": {"logs": [request.wire()]}}) == (request,)
    answer = LogAnswer(request="u", cursor=3, pod="p", container="c", text="a\n\tb", ended=True, message="m")
    assert answered(answer.wire()) == (answer,)


@pytest.mark.parametrize(
    "status",
    [None, "text", {"logs": "text"}, {"logs": [1, None, {}, {"request": "x" * 65}, {"request": "u", "cursor": "x"}]}],
    ids=str,
)
def test_what_cannot_be_read_is_no_answer(status: Any) -> None:
    assert answers_of({"status": status}) == ()


def test_the_text_of_a_worker_is_cut_and_printable() -> None:
    hostile = {
        "request": "u",
        "cursor": 1,
        "pod": "../p",
        "container": 7,
        "chunk": "\x1b\u202e\x00é" * MAX_CHUNK_BYTES,
        "message": "\x07" * 5_000,
        "ended": "yes",
    }
    (found,) = answered(hostile)
    assert (found.pod, found.container, found.ended) == ("", "", False)
    assert len(found.text.encode()) <= MAX_CHUNK_BYTES
    assert len(found.message) <= 1024
    assert (found.text + found.message).isprintable()
    assert len(answered(*[hostile] * 50)) == MAX_REQUESTS


def test_a_text_is_cut_between_characters() -> None:
    head, rest = cut("aé€😀b", 5)
    assert (head, rest) == ("aé", "€😀b")
    assert cut("short") == ("short", "")


def test_reading_twice_changes_nothing() -> None:
    text = readable("\x1b[2J\r\n\ttab \ud800")
    assert text == "\\x1b[2J\n\ttab \\ud800"
    assert readable(text) == text


@pytest.mark.parametrize(
    "spec",
    [
        {"container": "../c"},
        {"pod": "../p"},
        {"pod": 1},
        {"tailLines": -1},
        {"tailLines": "many"},
        {"sinceTime": "yesterday"},
    ],
    ids=str,
)
def test_a_request_with_an_invalid_field_is_refused(spec: Any) -> None:
    with pytest.raises(BadInput):
        LogQuery.of(spec)


def test_a_seal_covers_all_but_the_cursor() -> None:
    base = subject({"job": JOB})
    assert subject({"job": JOB, "cursor": 9, "follow": False, "container": "", "allPods": False}) == base
    for change in ({"job": {**JOB, "name": "k"}}, {"tailLines": 0}, {"follow": True}, {"container": "c"}):
        assert subject({"job": JOB, **change}) != base
