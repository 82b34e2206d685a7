# SPDX-License-Identifier: Apache-2.0
"""Models to structural schemas.

Converts Python annotations and their `Schema` markers to the OpenAPI v3 of a CustomResourceDefinition. The output is
the same for the same models, without titles and other JSON Schema of pydantic; an unknown annotation is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from importlib.resources import files
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from multikueue.api import field_descriptions
from multikueue.api.meta import JsonObject, KubeObject, WireModel
from multikueue.api.schema import QUANTITY, Schema
from multikueue.core.quantity import Quantity

_PLAIN: Final[Mapping[object, JsonObject]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Quantity: {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": True,
    },
}
_KEYWORDS: Final = {
    "format": "format",
    "pattern": "pattern",
    "minimum": "minimum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "max_properties": "maxProperties",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
}


def object_schema(model: type[WireModel]) -> JsonObject:
    """The schema of `model` and of everything in it."""
    marker = model.SCHEMA
    if marker.reference is not None:
        return _data(marker.reference)
    properties = {}
    required = []
    for name, info in model.model_fields.items():
        alias = info.alias or name
        properties[alias] = _field(model, name, info)
        marked = _merge(info.metadata).required
        if info.is_required() if marked is None else marked:
            required.append(alias)
    schema: JsonObject = {"type": "object"}
    if model.__doc__:
        schema["description"] = cleandoc(model.__doc__)
    schema["properties"] = dict(sorted(properties.items()))
    if required:
        schema["required"] = sorted(required)
    return schema | _keywords(marker)


def kind_schema(model: type[KubeObject]) -> JsonObject:
    """The schema of a whole object; the API server adds that of the metadata."""
    schema = object_schema(model)
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _field(model: type[WireModel], name: str, info: FieldInfo) -> JsonObject:
    if info.annotation is None:
        raise TypeError(f"{model.__name__}.{name} has no annotation")
    try:
        schema = _of(info.annotation, info.metadata)
    except TypeError as error:
        raise TypeError(f"{model.__name__}.{name}: {error}") from error
    if _merge(info.metadata).defaulted:
        schema["default"] = _default(info.get_default(call_default_factory=True, validated_data={}))
    # A field may be inherited, and its description with it.
    lines = (field_descriptions.of_field(each.__name__, info.alias or name) for each in model.__mro__)
    line = next((line for line in lines if line), "")
    return schema | {"description": line} if line else schema


def _of(annotation: object, metadata: Sequence[object]) -> JsonObject:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _of(arguments[0], [*arguments[1:], *metadata])
    if origin in (Union, UnionType):
        given = [argument for argument in arguments if argument is not NoneType]
        if len(given) != 1:
            raise TypeError(f"a structural schema cannot express {annotation}")
        return _of(given[0], metadata)
    return _base(annotation, origin, arguments) | _keywords(_merge(metadata))


def _base(annotation: object, origin: object, arguments: Sequence[object]) -> JsonObject:
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], ())}
    if origin is dict:
        if arguments[1] is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": _of(arguments[1], ())}
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return object_schema(annotation)
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    raise TypeError(f"no rule for {annotation}")


def _merge(metadata: Sequence[object]) -> Schema:
    merged = Schema()
    for marker in metadata:
        if isinstance(marker, Schema):
            given = {f.name: getattr(marker, f.name) for f in fields(marker) if getattr(marker, f.name) != f.default}
            given["rules"] = merged.rules + marker.rules
            merged = replace(merged, **given)
    return merged


def _keywords(marker: Schema) -> JsonObject:
    schema: JsonObject = {
        keyword: getattr(marker, name) for name, keyword in _KEYWORDS.items() if getattr(marker, name) is not None
    }
    if marker.enum is not None:
        schema["enum"] = [str(value) for value in marker.enum]
    if marker.map_keys is not None:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(marker.map_keys)
    if marker.rules:
        schema["x-kubernetes-validations"] = [{"rule": rule.rule, "message": rule.message} for rule in marker.rules]
    if marker.preserve_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _default(value: object) -> object:
    if isinstance(value, Quantity):
        return value.ceil() if Quantity.of(value.ceil()) == value else str(value)
    if isinstance(value, WireModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, StrEnum):
        return str(value)
    return value


@cache
def _read_data(name: str) -> str:
    return (files("multikueue.api") / "schemas" / f"{name.lower()}.json").read_text(encoding="utf-8")


def _data(name: str) -> JsonObject:
    # Parsed for each call: the caller may change it.
    loaded: JsonObject = json.loads(_read_data(name))
    return loaded
