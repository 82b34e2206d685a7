# SPDX-License-Identifier: Apache-2.0
"""That no scenario of the reference is forgotten: each is tested, or is listed with what it waits for."""

from __future__ import annotations

import re

from tests.component.scenarios.catalogue import ROOT, WAITING, claimed, listed
from tests.component.scenarios.unit_cases import CASES


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
