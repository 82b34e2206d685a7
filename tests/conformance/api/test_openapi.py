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


_TEXT: Final[Document] = {"type": "string", "description": "A text."}
_SCHEMAS_OF_V2: Final[dict[str, Document]] = {
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": _TEXT}},
    "open without properties": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "of values": {
        "type": "object",
        "description": "A kind.",
        "required": ["a"],
        "properties": {
            "a": {**_TEXT, "enum": ["x", "y"], "default": "x", "minLength": 1, "pattern": "^[xy]$"},
            "n": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "multipleOf": 2},
            "e": {"x-kubernetes-int-or-string": True, "description": "Either."},
            "f": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "l": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": _TEXT}},
            },
            "x": {
                "type": "object",
                "x-kubernetes-validations": [{"rule": "true"}],
                "properties": {"oneOf": _TEXT, "not": _TEXT},
                "oneOf": [{"required": ["oneOf"]}, {"required": ["not"]}],
            },
        },
    },
    "of values that may be null": {
        "type": "object",
        "properties": {
            "o": {"type": "object", "nullable": True, "properties": {"a": _TEXT}},
            "l": {"type": "array", "nullable": True, "items": {"type": "string", "nullable": True}},
            "s": {**_TEXT, "nullable": True, "maxLength": 3},
        },
    },
    "with open parts": {
        "type": "object",
        "properties": {
            "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": _TEXT}},
            "any": {"x-kubernetes-preserve-unknown-fields": True},
            "l": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            "r": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"kind": {"type": "string"}}},
            "p": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
}


def _described(schema: Any) -> Any:
    """A schema without the descriptions of what each object has: those are another project's text."""
    if isinstance(schema, list):
        return [_described(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _described(entry) for key, entry in schema.items()}
    for name in ("apiVersion", "kind", "metadata"):
        if isinstance(properties := found.get("properties"), dict) and name in properties:
            properties[name].pop("description", None)
    return found


def _published(title: str, schema: Document) -> None:
    @CASES.case(f"a kind {title} is published in version 2")
    async def _(side: Side) -> None:
        group = side.own("{id}.conformance.test")
        names = {"plural": "things", "kind": "Thing"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await side.quietly(Exchange("POST", path, definition))
        name = ".".join([*reversed(group.split(".")), "v1", "Thing"])
        async with asyncio.timeout(_PATIENCE):
            while True:
                found = (await side.quietly(Exchange("GET", "/openapi/v2"))).body
                if name in found["definitions"]:
                    break
                await asyncio.sleep(0.5)
        side.note(title, _described(found["definitions"][name]))
        await side.quietly(Exchange("DELETE", f"{path}/things.{group}"))


for _title, _schema_of in _SCHEMAS_OF_V2.items():
    _published(_title, _schema_of)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_custom_resource_is_described_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What clients read before they write."""
    await judge(case)
