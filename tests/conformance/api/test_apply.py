# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: ownership, conflicts, and removal of fields without an owner."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.api.applying import SUBJECTS, sequence
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases

pytestmark = pytest.mark.binaries

_COUNTS: Final = {
    "widget": 110,
    "config map": 25,
    "deployment": 40,
    "role": 10,
    "service": 12,
    "job": 20,
    "service account": 12,
    "secret": 12,
    "resource quota": 8,
    "lease": 8,
}
CASES = Cases("apply")
for _name, _count in _COUNTS.items():
    for _seed in range(_count):
        CASES.add(f"managers of a {_name} get along, seed {_seed}", sequence(SUBJECTS[_name], _seed))


@pytest.mark.parametrize("case", CASES.params())
async def test_apply(judge: Judge, case: Case) -> None:
    await judge(case)
