# SPDX-License-Identifier: Apache-2.0
"""What an agent reports about a failed job, and how the hub reads what a worker made of it."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import (
    MAX_CONTAINERS,
    MAX_LINES,
    MAX_LOG_BYTES,
    FailedContainer,
    JobFailure,
    failure_of,
    failure_wire,
    last_lines,
    log_key,
    record_name,
)

FAILURE = JobFailure(
    containers=(
        FailedContainer(pod="p1", container="main", exit_code=3, reason="Error", log="one\ntwo"),
        FailedContainer(pod="p1", container="side", exit_code=137, signal=9, problem="no log"),
    ),
    omitted=("p0",),
    omitted_count=1,
)


def container(**fields: Any) -> dict[str, Any]:
    return {"pod": "p1", "container": "main", "exitCode": 1, **fields}


def read(*containers: Any, **fields: Any) -> JobFailure:
    found = failure_of({"failure": {"containers": list(containers), **fields}})
    assert found is not None
    return found


def test_the_hub_reads_what_an_agent_writes() -> None:
    assert failure_of({"failure": failure_wire(FAILURE)}) == FAILURE
    assert (failure_wire(None), failure_of({})) == (None, None)


def test_a_summary_has_exit_codes_and_what_was_left_out() -> None:
    assert list(FAILURE.summary()) == [
        "pod p1, container main: exit code 3 (Error)",
        "pod p1, container side: exit code 137 (signal 9)",
        "1 more failed pods left out: p0",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "text",
        None,
        container(pod=7),
        container(pod="../../secrets"),
        container(pod="x" * 300),
        container(container="a/b"),
        container(exitCode="-1"),
        container(exitCode=1e9),
        container(exitCode=True),
    ],
    ids=str,
)
def test_a_container_that_cannot_be_read_does_not_hide_the_others(entry: Any) -> None:
    assert [each.exit_code for each in read(entry, container(exitCode=4)).containers] == [4]


@pytest.mark.parametrize("wire", ["text", 7, [], {"containers": "text"}, {"omitted": 3}], ids=str)
def test_a_failure_of_another_type_says_nothing(wire: Any) -> None:
    found = failure_of({"failure": wire})
    assert found is None or found == JobFailure()


def test_more_lines_and_containers_than_allowed_are_cut() -> None:
    found = read(*(container(log="é" * MAX_LOG_BYTES) for _ in range(50)), omitted=["p"] * 500)
    assert len(found.containers) == MAX_CONTAINERS
    assert sum(len(each.log.encode()) for each in found.containers) <= MAX_LOG_BYTES
    assert found.omitted_count <= 20


def test_control_characters_are_escaped() -> None:
    (found,) = read(container(log="\x1b[2Jred\x00\n\u202eend", reason="a\nb", problem="\x07")).containers
    assert found.log == "\\x1b[2Jred\\x00\n\\u202eend"
    assert (found.reason, found.problem) == ("a\\x0ab", "\\x07")


def test_the_last_lines_are_the_end_of_a_log() -> None:
    text = "".join(f"line {number}\n" for number in range(200))
    kept = last_lines(text).splitlines()
    assert (len(kept), kept[0], kept[-1]) == (MAX_LINES, "line 120", "line 199")
    long = last_lines("x" * 50_000 + " the end\n")
    assert long.endswith(" the end")
    assert len(long.encode()) <= MAX_LOG_BYTES
    assert len(last_lines("\x00" * 50_000).encode()) <= MAX_LOG_BYTES
    assert last_lines("a\r\nb\n") == "a\nb"
    assert last_lines("") == ""


def test_a_new_job_of_the_same_name_has_another_record() -> None:
    job = Key("ns", "j")
    assert record_name(job, "1f0c9a7e-1111") == "j-failure-1f0c9a7e"
    assert record_name(job, "1f0c9a7f-1111") != record_name(job, "1f0c9a7e-1111")
    assert len(log_key(FailedContainer(pod="p" * 253, container="c" * 63, exit_code=1))) <= 253
