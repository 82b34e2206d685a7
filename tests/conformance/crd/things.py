# SPDX-License-Identifier: Apache-2.0
"""A kind whose schema has one field for every check that a schema can have."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.definitions import definition

GROUP: Final = "things.conformance.test"
THINGS: Final = f"/apis/{GROUP}/v1/namespaces/{{ns}}/things"

Schema = dict[str, Any]


def _string(**more: object) -> Schema:
    return {"type": "string", **more}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


_INTEGER: Final[Schema] = {"type": "integer"}
_PORT: Final = {
    **_object(
        name=_string(), number={**_INTEGER, "minimum": 1, "maximum": 9}, kind=_string(default="tcp"), note=_string()
    ),
    "required": ["name"],
}

FIELDS: Final[dict[str, Schema]] = {
    "string": _string(),
    "integer": _INTEGER,
    "int32": {**_INTEGER, "format": "int32"},
    "int64": {**_INTEGER, "format": "int64"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "short": _string(maxLength=3),
    "long": _string(minLength=3),
    "pattern": _string(pattern="^[a-z]+$"),
    "enum": _string(enum=["a", "b"]),
    "numberEnum": {**_INTEGER, "enum": [1, 2]},
    "low": {**_INTEGER, "minimum": 2},
    "high": {**_INTEGER, "maximum": 4},
    "above": {**_INTEGER, "minimum": 2, "exclusiveMinimum": True},
    "below": {"type": "number", "maximum": 4.5, "exclusiveMaximum": True},
    "even": {**_INTEGER, "multipleOf": 2},
    "few": {"type": "array", "items": _string(), "maxItems": 2},
    "many": {"type": "array", "items": _INTEGER, "minItems": 2},
    "unique": {"type": "array", "items": _string(), "x-kubernetes-list-type": "set"},
    "ports": {
        "type": "array",
        "items": _PORT,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "twoKeys": {
        "type": "array",
        "items": {**_object(a=_string(), b=_INTEGER), "required": ["a", "b"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a", "b"],
    },
    "small": {"type": "object", "additionalProperties": _string(), "maxProperties": 1},
    "big": {"type": "object", "additionalProperties": _INTEGER, "minProperties": 2},
    "mapOfLists": {"type": "object", "additionalProperties": {"type": "array", "items": _INTEGER}},
    "either": {"x-kubernetes-int-or-string": True},
    "eitherLimited": {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^[0-9]+%?$",
    },
    "nullable": _string(nullable=True),
    "nullableObject": {**_object(a=_string()), "nullable": True},
    "needs": {**_object(a=_string(), b=_string()), "required": ["a", "b"]},
    "anything": {"x-kubernetes-preserve-unknown-fields": True},
    "open": {**_object(known=_object(a=_string())), "x-kubernetes-preserve-unknown-fields": True},
    "template": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "closedTemplate": {**_object(spec=_object(a=_string())), "x-kubernetes-embedded-resource": True},
    "oneOf": {
        **_object(a=_string(), b=_string()),
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "anyOf": {
        **_object(a=_string(), b=_string()),
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "allOf": {
        **_object(a=_INTEGER),
        "allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"maximum": 4}}}],
    },
    "not": {**_object(a=_string(), b=_string()), "not": {"required": ["a"]}},
    "time": _string(format="date-time"),
    "date": _string(format="date"),
    "duration": _string(format="duration"),
    "uuid": _string(format="uuid"),
    "uri": _string(format="uri"),
    "email": _string(format="email"),
    "hostname": _string(format="hostname"),
    "ipv4": _string(format="ipv4"),
    "ipv6": _string(format="ipv6"),
    "cidr": _string(format="cidr"),
    "bytes": _string(format="byte"),
    "password": _string(format="password"),
    "unheardOf": _string(format="unheard-of"),
    "defaults": {
        **_object(
            text=_string(default="hello"),
            number={**_INTEGER, "default": 0},
            list={"type": "array", "items": _string(), "default": ["x"]},
            nothing=_string(nullable=True, default="set"),
            inner={**_object(a=_string(default="deep"), b=_string()), "default": {}},
            lazy=_object(a=_string(default="only when there")),
        )
    },
    "defaultMap": {"type": "object", "additionalProperties": _object(a=_string(default="x"), b=_string())},
}

DEFINITION: Final = definition(
    "Thing",
    {
        **_object(
            spec=_object(**FIELDS),
            status=_object(phase=_string(), count={**_INTEGER, "minimum": 1}, inner=_object(a=_string())),
        ),
        "required": ["spec"],
    },
    group=GROUP,
    subresources={"status": {}},
)


def thing(spec: object, **more: object) -> dict[str, Any]:
    """An object of that kind."""
    return {"kind": "Thing", "apiVersion": f"{GROUP}/v1", "metadata": {"name": "t"}, "spec": spec, **more}
