# SPDX-License-Identifier: Apache-2.0
"""A pod template as the schema of Workloads stores it.

API servers accept pod templates in their kinds that this schema refuses: with a duplicate environment variable, port or
image pull secret. Here such a template is normalised so that a Workload can have it: nulls and unknown fields are
removed, defaults of the schema are filled in, and of entries with the same key the last one is kept in its place.
Entries on which quota depends are never removed: a template with duplicates of those is refused.

Of the environment variables of a container that have one name, too, the last counts, and `$(NAME)` in a value is the
value of NAME before that place. A reference to a removed entry is replaced by its value, so that the environment is the
same. A removed entry with `valueFrom` has no value; a reference to it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.api.podtemplate import PodTemplateSpec
from multikueue.api.structural import object_schema

_COUNTED: Final = frozenset({"containers", "initContainers", "ephemeralContainers", "resourceClaims", "claims"})
# `$$` is a dollar sign; a `$` before anything else than a name in parentheses is itself.
_TOKENS: Final = re.compile(r"\$\$|\$\(([^)]*)\)|[^$]+|\$")

_NESTED: Final = (dict, list, tuple)


@dataclass(frozen=True, slots=True)
class _Node:
    """The schema of one place."""

    fields: Mapping[str, _Node] = field(default_factory=dict)
    values: _Node | None = None
    """Of an object with keys of the user's choice."""
    items: _Node | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    """The keys of the entries of the list."""
    is_set: bool = False
    is_environment: bool = False
    is_open: bool = False
    """Whether fields that it does not name are kept."""


def stored_template(template: JsonObject) -> JsonObject:
    """The template as a Workload can store it; `template` itself is not changed."""
    kept: JsonObject = _kept(template, _template_node())
    return kept


def _kept(value: Any, node: _Node) -> Any:
    if isinstance(value, dict):
        kept = {}
        fields, values = node.fields, node.values
        for name, item in value.items():
            if item is None:
                continue
            inner = fields.get(name) or values
            if inner is not None:
                kept[name] = _kept(item, inner) if isinstance(item, _NESTED) else item
            elif node.is_open:
                kept[name] = item
        for name, default in node.defaults.items():
            kept.setdefault(name, default)
        return kept
    if isinstance(value, list | tuple) and node.items is not None:
        items = [_kept(item, node.items) for item in value if item is not None]
        return without_repetitions(items) if node.is_environment else _last_of_each(items, node)
    return value


def _last_of_each(items: list[Any], node: _Node) -> list[Any]:
    if len(items) < 2 or not (node.keys or node.is_set):
        return items
    last: dict[object, int] = {}
    for index, item in enumerate(items):
        last[_key(item, node.keys)] = index
    return items if len(last) == len(items) else [items[index] for index in sorted(last.values())]


def _key(item: Any, keys: Iterable[str]) -> object:
    if not isinstance(item, dict):
        return repr(item)
    return tuple(repr(item.get(name)) for name in keys)


@cache
def _template_node() -> _Node:
    return _node(object_schema(PodTemplateSpec))


def _node(schema: JsonObject, name: str = "") -> _Node:
    properties: Mapping[str, JsonObject] = schema.get("properties") or {}
    values = schema.get("additionalProperties")
    items = schema.get("items")
    listed = schema.get("x-kubernetes-list-type")
    return _Node(
        fields={key: _node(inner, key) for key, inner in properties.items()},
        values=_node(values) if isinstance(values, dict) else None,
        items=_node(items) if isinstance(items, dict) else None,
        defaults={key: inner["default"] for key, inner in properties.items() if "default" in inner},
        keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()) if name not in _COUNTED else (),
        is_set=listed == "set",
        is_environment=name == "env",
        is_open=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
    )


def without_repetitions(env: Sequence[JsonObject]) -> list[JsonObject]:
    """The same variables, each name once; the arguments are not changed."""
    last = {str(entry.get("name")): index for index, entry in enumerate(env)}
    if len(last) == len(env):
        return list(env)
    gone: dict[str, str | None] = {}  # what is before this place and goes: its value, if it has one of its own
    kept: list[JsonObject] = []
    for index, entry in enumerate(env):
        name, value = str(entry.get("name")), entry.get("value")
        later = frozenset(other for other, place in last.items() if place >= index)
        if last[name] == index:
            text = _replaced(value, gone) if isinstance(value, str) else value
            kept.append(entry if text == value else {**entry, "value": text})
            gone.pop(name, None)
        elif "valueFrom" in entry:
            gone[name] = None
        else:
            gone[name] = _replaced(_escaped(str(value or "")), gone, later)
    return kept


def _escaped(text: str) -> str:
    """The same value, independent of what follows it: a literal `$` is written `$$`."""
    return _TOKENS.sub(lambda match: "$$" if match[0] == "$" else match[0], text)


def _replaced(text: str, gone: Mapping[str, str | None], later: frozenset[str] = frozenset()) -> str:
    """`text` with the values of what goes; names that are defined `later` only are no references where it is put."""

    def token(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0]
        value = gone.get(name)
        if value is not None:
            return value
        return f"${match[0]}" if name in later and name not in gone else match[0]

    return _TOKENS.sub(token, text)
