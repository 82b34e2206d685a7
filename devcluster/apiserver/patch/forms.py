# SPDX-License-Identifier: Apache-2.0
"""The first check of an applied object: undeclared fields, wrong types, and missing or duplicate keys of lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.patch import fieldset, typed
from devcluster.apiserver.patch.strategic import go_text
from devcluster.apiserver.schema.node import ANY, TypeNode, item_key

_TYPE_NAMES: Final = {str: "string", bool: "boolean", dict: "map", list: "list"}


def problem(value: JsonValue, kind: TypeNode) -> str | None:
    """All problems in a real server's words; None if there are none."""
    found = list(_problems(value, kind, ""))
    if len(found) < 2:
        return found[0] if found else None
    return "errors:\n" + "\n".join(f"  {text}" for text in found)


def _problems(value: JsonValue, kind: TypeNode, path: str) -> Iterator[str]:
    if value is None or kind.int_or_string:
        return
    if kind.properties or kind.additional is not None or kind.type == "object":
        if isinstance(value, dict):
            for name, entry in value.items():
                field = kind.field(name)
                where = f"{path}.{name}"
                if field is None:
                    yield f"{where}: field not declared in schema"
                    return  # no further problems of this object are reported
                yield from _problems(entry, field, where)
        else:
            yield f"{path}: expected map, got &{{{go_text(value)}}}"
    elif kind.type == "array":
        if isinstance(value, list):
            yield from _items(value, kind, path)
        else:
            yield f"{path}: expected list, got &{{{go_text(value)}}}"
    else:
        yield from _scalar(value, kind, path)


def _items(items: list[JsonValue], kind: TypeNode, path: str) -> Iterator[str]:
    inner = kind.items or ANY
    seen = set()
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        if kind.list_type in ("map", "set"):
            nameless = _nameless(item, kind)
            if nameless is not None:
                yield f"{path}: element {index}: {nameless}"
                return  # no further problems of this list are reported
            shown = fieldset.readable(typed.element(kind, item))
            if shown in seen:
                yield f"{path}: duplicate entries for key {shown}"
            seen.add(shown)
            where = f"{path}{shown}"
        yield from _problems(item, inner, where)


def _nameless(item: JsonValue, kind: TypeNode) -> str | None:
    """Why an item of a list has no key; None if it has one."""
    if kind.list_type == "set":
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        odd = "an explicit null" if item is None else "a map type" if isinstance(item, dict) else None
        return None if odd is None else f"associative list without keys has an element that's {odd}"
    if not isinstance(item, dict):
        return f"associative list with keys may not have {'a null element' if item is None else 'non-map elements'}"
    key = item_key(kind, item)
    if key is not None and any(part is not None for part in key):
        return None
    listed = " ".join(f'"{name}"' for name in kind.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{listed}] (and doesn't have default "
        "values for any key fields)"
    )


def _scalar(value: JsonValue, kind: TypeNode, path: str) -> Iterator[str]:
    if kind.type in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{path}: expected numeric (int or float), got {_TYPE_NAMES[type(value)]}"
        return
    wanted = {"string": str, "boolean": bool}.get(kind.type)
    if wanted is not None and not isinstance(value, wanted):
        shown = documents.dump(value).decode()
        yield f"{path}: expected {kind.type}, got &value.valueUnstructured{{Value:{shown}}}"
