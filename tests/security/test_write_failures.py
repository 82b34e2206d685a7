# SPDX-License-Identifier: Apache-2.0
"""Every write of manager and agents, with three failures: the end is what it is without.

`make writes` tries every failure, once and for a minute.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.simulation.scripts.failing import EVERY_FAILURE, THREE_FAILURES
from tests.simulation.scripts.write_failures import DOCUMENT, Result, document, listed_writes
from tests.simulation.world.network import WriteFailure

pytestmark = [pytest.mark.timeout(900), pytest.mark.attacks]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """What came of each case; those that differ are in the output too."""
    path = tmp_path_factory.mktemp("writes") / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.scripts.write_failures", "--three", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert path.exists(), done.stdout[-5_000:] + done.stderr[-5_000:]
    found: list[dict[str, Any]] = orjson.loads(path.read_bytes())
    return [Result(**{field.name: entry[field.name] for field in fields(Result)}) for entry in found]


def test_every_write_that_is_made_is_listed_and_every_one_that_is_listed_is_made(results: list[Result]) -> None:
    made = {result.write for result in results}
    assert len(made) > 60
    assert sorted(made - listed_writes()) == [], "writes that docs/reference/write-failures.md does not list"
    assert sorted(listed_writes() - made) == [], "writes of docs/reference/write-failures.md that no course makes"


def test_every_write_is_tried_with_three_failures(results: list[Result]) -> None:
    tried = {(result.write, result.failure, result.lasting) for result in results}
    writes = {result.write for result in results}
    assert tried == {(write, failure.value, lasting) for write in writes for failure, lasting in THREE_FAILURES}


@pytest.mark.parametrize(
    ("failure", "lasting"),
    [
        pytest.param(failure, lasting, id=f"{failure.value} {'for a minute' if lasting else 'once'}")
        for failure, lasting in THREE_FAILURES
    ],
)
def test_the_end_is_the_same(results: list[Result], failure: WriteFailure, lasting: bool) -> None:
    found = [result for result in results if (result.failure, result.lasting) == (failure.value, lasting)]
    assert {result.write: result.problem for result in found if result.problem} == {}


def test_every_write_of_the_document_has_the_same_end(results: list[Result]) -> None:
    same = [
        replace(result, failure=failure.value, lasting=lasting, problem="")
        for result in results
        for failure, lasting in EVERY_FAILURE
    ]
    assert DOCUMENT.read_text() == document(same)
