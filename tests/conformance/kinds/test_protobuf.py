# SPDX-License-Identifier: Apache-2.0
"""Objects that Go clients send in protobuf: what a server reads in them, field by field."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side
from tests.conformance.kinds.go_objects import OBJECTS
from tests.conformance.kinds.go_pods import Document
from tests.support.protobuf import encode

pytestmark = pytest.mark.binaries

CASES = Cases("protobuf")

_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


def _add(resource: str, base: str, value: Document) -> None:
    @CASES.case(f"{resource} are read as a Go client sends them")
    async def play(side: Side) -> None:
        body = encode(side.own(value))
        await side.post(f"{base}/{resource}", body, content_type=_PROTOBUF)
        if value.get("metadata", {}).get("finalizers"):
            name = side.own(value["metadata"]["name"])
            patch = {"metadata": {"finalizers": None}}
            await side.patch("merge", f"{base}/{resource}/{name}", patch)
            await side.delete(f"{base}/{resource}/{name}?gracePeriodSeconds=0")


for _resource, (_base, _value) in OBJECTS.items():
    _add(_resource, _base, _value)


@CASES.case("a body in protobuf whose end is missing is refused")
async def _short(side: Side) -> None:
    body = encode(side.own(OBJECTS["configmaps"][1]))
    for length in (3, 4, 10, len(body) - 1):
        path = side.own("/api/v1/namespaces/{ns}/configmaps")
        answer = await side.server.send(Exchange("POST", path, body[:length], content_type=_PROTOBUF))
        side.note(f"{length} bytes", answer.status)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_server_reads_protobuf_as_a_real_one(judge: Judge, case: Case) -> None:
    """Names, zeros and nested values."""
    await judge(case)
