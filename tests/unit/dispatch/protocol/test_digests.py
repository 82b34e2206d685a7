# SPDX-License-Identifier: Apache-2.0
"""Two sides find out that they do not see the same assignments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api.clusterreport import BUCKETS
from multikueue.dispatch.protocol.digests import SETTLING, Comparison, Digests, bucket_of, within
from tests.unit.dispatch.builders import NOW

NAMES = [f"job-{number}" for number in range(40)]


def assignment(name: str, *, uid: str = "u", epoch: int = 1, intent: str = "Run", phase: str = "") -> dict[str, Any]:
    status = {"epoch": epoch, "phase": phase} if phase else {}
    return {"metadata": {"name": name, "uid": uid}, "spec": {"epoch": epoch, "intent": intent}, "status": status}


@given(st.permutations(NAMES), st.sets(st.sampled_from(NAMES)))
def test_the_way_there_does_not_matter(order: list[str], removed: set[str]) -> None:
    one, other = Digests(), Digests()
    for name in NAMES:
        one.put(assignment(name, phase="Running"))
    for name in order:
        other.put(assignment(name, epoch=7))
        other.put(assignment(name, phase="Running"))
    for name in removed:
        one.remove(name)
        other.remove(name)
    assert one.values() == other.values()
    assert (one.values() == Digests().values()) == (removed == set(NAMES))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"uid": "v"}, id="another object"),
        pytest.param({"epoch": 2}, id="another epoch"),
        pytest.param({"intent": "Evict"}, id="another intent"),
        pytest.param({"phase": "Running"}, id="another word"),
    ],
)
def test_a_difference_shows_in_its_bucket_alone(change: dict[str, Any]) -> None:
    one, other = Digests(), Digests()
    for name in NAMES:
        one.put(assignment(name))
        other.put(assignment(name))
    other.put(assignment("job-7", **change))
    differing = [i for i, pair in enumerate(zip(one.values(), other.values(), strict=True)) if pair[0] != pair[1]]
    assert differing == [bucket_of("job-7")]
    assert "job-7" in within(NAMES, differing)


def values(**buckets: str) -> list[str]:
    return [buckets.get(f"b{number}", "same") for number in range(BUCKETS)]


def test_what_is_on_its_way_is_not_disputed() -> None:
    seen = Comparison()
    for number in range(10):
        now = NOW + number * SETTLING
        assert seen.disputed(values(b3=str(number)), values(b3=str(number - 1)), now) == ()


def test_a_lasting_difference_is_disputed_once_a_while() -> None:
    seen = Comparison()
    here, there = values(b3="x"), values(b3="y")
    assert seen.disputed(here, there, NOW) == ()
    assert seen.disputed(here, there, NOW + SETTLING - timedelta(seconds=1)) == ()
    assert seen.disputed(here, there, NOW + SETTLING) == (3,)
    assert seen.disputed(here, there, NOW + SETTLING) == (), "it was asked for a moment ago"
    assert seen.disputed(here, there, NOW + 2 * SETTLING) == (3,), "and did not help"
    assert seen.disputed(here, here, NOW + 3 * SETTLING) == ()
    assert seen.disputed(here, there, NOW + 4 * SETTLING) == ()
