# SPDX-License-Identifier: Apache-2.0
"""Create, read, update and delete, and what is answered to those who get it wrong."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side

pytestmark = [pytest.mark.binaries, pytest.mark.xdist_group("conformance")]

CASES = Cases("crud")
MAPS = "/api/v1/namespaces/{ns}/configmaps"


def config_map(name: str = "a", **more: object) -> dict[str, object]:
    """A small object."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}, **more}


@CASES.case("an object lives and dies")
async def _(side: Side) -> None:
    await side.post(MAPS, config_map())
    await side.get(f"{MAPS}/a")
    await side.get(MAPS)
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))
    await side.delete(f"{MAPS}/a")
    await side.get(f"{MAPS}/a")


@pytest.mark.parametrize("case", CASES.params())
async def test_crud(judge: Judge, case: Case) -> None:
    await judge(case)
