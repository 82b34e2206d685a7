# SPDX-License-Identifier: Apache-2.0
"""Paths of discovery, documents and health, with and without a slash at their end."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("paths")
SLASHED: Final = (
    *("/api/", "/apis/", "/api/v1/", "/apis/batch/", "/apis/batch/v1/", "/version/"),
    *("/api/v1/namespaces/", "/api/v1/namespaces/{ns}/", "/api/v1/namespaces/{ns}/configmaps/"),
)
NOT_SLASHED: Final = ("/healthz/", "/readyz/", "/livez/", "/openapi/v2/", "/openapi/v3/", "/nothing/")
EMPTY_SEGMENT: Final = ("//api", "/api//v1", "/api/v1//namespaces", "/apis//batch/v1")
CHECKS: Final = ("/healthz", "/readyz/etcd", "/livez/ping", "/readyz/nothing")


async def _note(side: Side, path: str) -> None:
    found = await side.server.send(side.filled(Exchange("GET", path, accept="*/*")))
    kind = found.body.get("kind") if isinstance(found.body, dict) else None
    side.note(path, [found.status, kind])


@CASES.case("discovery and resources may have a slash at the end")
async def _(side: Side) -> None:
    for path in SLASHED:
        await _note(side, path)


@CASES.case("health and documents may not")
async def _(side: Side) -> None:
    for path in NOT_SLASHED:
        await _note(side, path)


@CASES.case("an empty segment names nothing")
async def _(side: Side) -> None:
    for path in EMPTY_SEGMENT:
        await _note(side, path)


@CASES.case("one check of the server's health")
async def _(side: Side) -> None:
    for path in CHECKS:
        await _note(side, path)


@CASES.case("the Service of the API server and the range of Service addresses")
async def _(side: Side) -> None:
    service = (await side.server.send(Exchange("GET", "/api/v1/namespaces/default/services/kubernetes"))).body
    cidr = (await side.server.send(Exchange("GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"))).body
    for port in service["spec"]["ports"]:
        port["targetPort"] = "<the server's>"
    for found in (service, cidr):
        del found["metadata"]["uid"]
        # The embedded server writes them at once, a real one by clients of its own.
        found["metadata"].pop("managedFields", None)
        side.note(found["kind"], found)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_path_is_answered_as_by_a_real_server(judge: Judge, case: Case) -> None:
    """The status and the kind of the answer."""
    await judge(case)
