# SPDX-License-Identifier: Apache-2.0
"""That no scenario of the reference is forgotten: each is tested, or is listed with what it waits for."""

from __future__ import annotations

import re

from tests.component.scenarios.catalogue import ROOT, WAITING, claimed, listed
from tests.component.scenarios.unit_cases import CASES

PAGE = ROOT / "docs" / "reference" / "scenarios.md"


def test_each_scenario_is_tested_or_waits_for_something_that_is_named() -> None:
    tested = claimed()
    assert [each for each in listed() if each not in tested and each not in WAITING] == []


def test_nothing_waits_that_is_tested_or_is_no_scenario() -> None:
    tested, known = claimed(), set(listed())
    assert [each for each in WAITING if each in tested or each not in known] == []


def test_each_unit_case_names_a_test_that_is_there() -> None:
    missing = []
    for case, where in CASES.items():
        if where.startswith("none: "):
            continue
        path, _, name = where.partition("::")
        file = ROOT / "tests" / path
        if not file.exists() or not re.search(rf"def {name or 'test_'}", file.read_text()):
            missing.append(f"{case}: {where}")
    assert missing == []


def test_the_page_lists_every_scenario_as_played_or_with_what_it_waits_for() -> None:
    played, _, waiting = PAGE.read_text().partition("## What waits")
    shown = {each for row in re.findall(r"^\| ([A-Z][^|]*) \|", played, re.MULTILINE) for each in row.split()}
    waits = {
        each: reason
        for ids, reason in re.findall(r"^\| ([A-Z][^|]*) \| ([^|]*) \|$", waiting, re.MULTILINE)
        for each in ids.split(", ")
    }
    assert waits == WAITING
    of_kinds = {each for each in claimed() if re.fullmatch(r"[FX]\d+|B[1-5]", each)}
    assert of_kinds - shown == set()
