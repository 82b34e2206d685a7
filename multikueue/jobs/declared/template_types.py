# SPDX-License-Identifier: Apache-2.0
"""The types of a pod template's values, by the schema of Workloads; a CRD of others need not have checked them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.api.podtemplate import PodTemplateSpec
from multikueue.api.structural import object_schema
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_IS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
}
_NUMBER_OR_TEXT: Final = "a number or a text"


def pod_template(value: Any, *, at: str) -> JsonObject:
    """The value, which has the types of a pod template. Raises `BadInput` with the path below `at`."""
    if not isinstance(value, dict):
        raise BadInput(f"{at}: expected an object, found {excerpt(value)}")
    _require(value, _schema(), at)
    return value


@cache
def _schema() -> JsonObject:
    return object_schema(PodTemplateSpec)


def _require(value: Any, schema: JsonObject, at: str) -> None:
    if value is None:
        return
    expected, fits = _IS.get(str(schema.get("type")), (_NUMBER_OR_TEXT, _is_number_or_text))
    if not fits(value):
        raise BadInput(f"{at}: expected {expected}, found {excerpt(value)}")
    if isinstance(value, dict):
        fields, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in value.items():
            if name in fields:
                _require(item, fields[name], f"{at}.{name}")
            elif isinstance(others, dict):
                _require(item, others, f"{at}[{excerpt(name)}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            where = f"{at}[{index}]"
            if item is None:
                raise BadInput(f"{where}: expected a value, found null")
            _require(item, schema["items"], where)


def _is_number_or_text(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)
