# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI documents of custom resources: their types, and what can be done with them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from tests.conformance.api.widgets import GROUP
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = [pytest.mark.binaries, pytest.mark.usefixtures("widgets")]

CASES = Cases("openapi")
_DOCUMENT: Final = f"/openapi/v3/apis/{GROUP}/v1"
_KINDS: Final = ("Widget", "Gadget")
_PATIENCE: Final = 60.0

Document = dict[str, Any]


async def _document(side: Side) -> Document:
    """The document, once it has all kinds; a real server publishes them a while after it serves them."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await side.server.send(Exchange("GET", _DOCUMENT))
            if found.status == 200:
                # A real server calls it plain text.
                body: Document = json.loads(found.body) if isinstance(found.body, str) else found.body
                if all(_type(kind) in body["components"]["schemas"] for kind in _KINDS):
                    return body
            await asyncio.sleep(0.1)


def _own(document: Document, name: str) -> Document:
    """A type, without the descriptions of what every kind has: those are another project's text."""
    found: Document = document["components"]["schemas"][name]
    shared = ("apiVersion", "kind", "metadata", "items")
    properties = {
        key: {each: entry for each, entry in value.items() if key not in shared or each != "description"}
        for key, value in found["properties"].items()
    }
    return {**found, "properties": properties}


def _type(kind: str) -> str:
    return ".".join([*reversed(GROUP.split(".")), "v1", kind])


for _kind in _KINDS:
    for _name in (_type(_kind), _type(f"{_kind}List")):

        async def _schema(side: Side, name: str = _name) -> None:
            side.note(name, _own(await _document(side), name))

        CASES.add(f"the type {_name} is published", _schema)


@CASES.case("the types that a group needs are published")
async def _types(side: Side) -> None:
    side.note("names", sorted((await _document(side))["components"]["schemas"]))


@CASES.case("the paths of a group are published")
async def _paths(side: Side) -> None:
    paths = (await _document(side))["paths"]
    side.note("paths", {path: sorted(item) for path, item in sorted(paths.items())})


@CASES.case("the operations of a path are published")
async def _operations(side: Side) -> None:
    for path, item in sorted((await _document(side))["paths"].items()):
        for verb, operation in sorted(item.items()):
            if verb == "parameters":
                side.note(path, sorted(entry["name"] for entry in operation))
                continue
            published: Document = {name: entry for name, entry in operation.items() if name.startswith("x-kubernetes")}
            published["parameters"] = sorted(entry["name"] for entry in operation.get("parameters", ()))
            published["takes"] = sorted(operation.get("requestBody", {}).get("content", ()))
            published["answers"] = {
                code: sorted(entry.get("content", ())) for code, entry in operation["responses"].items()
            }
            side.note(f"{verb} {path}", published)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_custom_resource_is_described_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What clients read before they write."""
    await judge(case)
