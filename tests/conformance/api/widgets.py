# SPDX-License-Identifier: Apache-2.0
"""A custom resource with every kind of list and map, for the cases of this folder."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.conformance.crd.installed import PATIENCE, create
from tests.conformance.definitions import definition
from tests.conformance.harness import Both, Exchange, Server

GROUP: Final = "conformance.test"
WIDGETS: Final = f"/apis/{GROUP}/v1/namespaces/{{ns}}/widgets"
GADGETS: Final = f"/apis/{GROUP}/v1/gadgets"

_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer", "format": "int64"}
_SPEC: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "color": {"type": "string", "enum": ["red", "green", "blue"]},
        "title": {"type": "string", "minLength": 2, "maxLength": 20},
        "level": {"type": "integer", "default": 3},
        "port": {"x-kubernetes-int-or-string": True},
        "enabled": {"type": "boolean"},
        "ratio": {"type": "number"},
        "nothing": {"type": "string", "nullable": True},
        "plain": {"type": "array", "items": _STRING},
        "set": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "numbers": {"type": "array", "items": _INTEGER, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": _STRING,
                    "value": _STRING,
                    "count": _INTEGER,
                    "tags": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
                    "limits": {"type": "object", "additionalProperties": _STRING},
                },
            },
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": _INTEGER,
                    "protocol": {"type": "string", "default": "TCP"},
                    "label": _STRING,
                },
            },
        },
        "atomicList": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "atomic"},
        "atomicItems": {
            "type": "array",
            "items": {"type": "object", "properties": {"a": _STRING, "b": _STRING}},
            "x-kubernetes-list-type": "atomic",
        },
        "labels": {"type": "object", "additionalProperties": _STRING},
        "atomicMap": {"type": "object", "additionalProperties": _STRING, "x-kubernetes-map-type": "atomic"},
        "deep": {
            "type": "object",
            "properties": {
                "a": _STRING,
                "b": _STRING,
                "inner": {"type": "object", "properties": {"x": _INTEGER, "y": _INTEGER}},
            },
        },
        "atomicStruct": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"x": _INTEGER, "y": _INTEGER},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
_STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "phase": _STRING,
        "replicas": _INTEGER,
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {"type": _STRING, "status": _STRING, "reason": _STRING, "message": _STRING},
            },
        },
    },
}


_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}
DEFINITIONS: Final = (
    definition(
        "Widget",
        _SCHEMA,
        group=GROUP,
        subresources={"status": {}},
        selectableFields=[{"jsonPath": ".spec.color"}],
    ),
    definition("Gadget", _SCHEMA, group=GROUP, scope="Cluster"),
)


def widget(name: str = "w", spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A widget."""
    found: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}}
    if spec is not None:
        found["spec"] = spec
    return {**found, **more}


def gadget(name: str = "{id}", spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A cluster-scoped object without a status subresource."""
    return {**widget(name, spec, **more), "kind": "Gadget"}


async def install(both: Both) -> None:
    """Serve the kinds of this module on both servers."""
    await asyncio.gather(*(_install(server) for server in (both.embedded, both.real)))


async def _install(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        for definition in DEFINITIONS:
            await create(server, definition)
        for definition in DEFINITIONS:
            names = definition["spec"]["names"]
            # A real server serves a new kind a moment after it is established, and fields by ownership a moment later.
            body = {"apiVersion": f"{GROUP}/v1", "kind": names["kind"], "metadata": {"name": "ready"}}
            where = f"/apis/{GROUP}/v1/" + ("namespaces/default/" if definition["spec"]["scope"] != "Cluster" else "")
            path = f"{where}{names['plural']}/ready?fieldManager=ready&dryRun=All"
            ready = Exchange("PATCH", path, body, content_type="application/apply-patch+yaml")
            while (await server.send(ready)).status not in (200, 201):
                await asyncio.sleep(0.05)
