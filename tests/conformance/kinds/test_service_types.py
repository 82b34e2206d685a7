# SPDX-License-Identifier: Apache-2.0
"""What a Service keeps and loses when its type changes."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("service types")
Document = dict[str, Any]

_SERVICES: Final = "/api/v1/namespaces/{ns}/services"
_EXTERNAL: Final[Document] = {"type": "ExternalName", "externalName": "h.example.com"}
_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def _spec(kind: str) -> Document:
    given = {"selector": {"a": "b"}, "ports": [{"name": "h", "port": 80}]}
    return {**given, **(_EXTERNAL if kind == "ExternalName" else {"type": kind})}


def _shown(spec: Document) -> Document:
    """The spec without chosen addresses and ports."""
    found = {**spec}
    for name in ("clusterIP", "clusterIPs"):
        if found.get(name):
            found[name] = "<chosen>"
    found["ports"] = [
        {**port, "nodePort": "<chosen>"} if port.get("nodePort") else port for port in spec.get("ports", ())
    ]
    return found


def _add(before: str, after: str) -> None:
    @CASES.case(f"{before} becomes {after}")
    async def _(side: Side) -> None:
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": _spec(before)}
        await side.quietly(Exchange("POST", _SERVICES, body))
        patch = {"spec": _EXTERNAL if after == "ExternalName" else {"type": after}}
        found = await side.server.send(
            side.filled(Exchange("PATCH", f"{_SERVICES}/s", patch, content_type="application/merge-patch+json"))
        )
        side.note("changed", [found.status, found.body.get("message"), _shown(found.body.get("spec", {}))])
        stored = await side.server.send(side.filled(Exchange("GET", f"{_SERVICES}/s")))
        spec = stored.body["spec"]
        spec.pop("clusterIP", None)
        spec.pop("clusterIPs", None)
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
        put = await side.server.send(side.filled(Exchange("PUT", f"{_SERVICES}/s", stored.body)))
        side.note("written again", [put.status, put.body.get("message"), _shown(put.body.get("spec", {}))])


for _before, _after in permutations(_TYPES, 2):
    _add(_before, _after)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_service_changes_its_type_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Addresses, ports and policies of each pair of types."""
    await judge(case)
