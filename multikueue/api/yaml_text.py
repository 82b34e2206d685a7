# SPDX-License-Identifier: Apache-2.0
"""Untrusted YAML, read within limits and as Kubernetes reads it.

Owns the limits on length, nesting and the expansion of aliases, and the values that YAML has and JSON has not. Promises
that text beyond a limit is a `yaml.YAMLError` with the line, and needs no more memory than the text; PyYAML itself
crashes the process at some 10,000 levels.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import yaml

from multikueue.api.objects import JsonObject

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 100
MAX_ALIASED: Final = 1_000_000
"""The most values that the aliases of one document may expand to."""
_MAX_DIGITS: Final = 400
_PREFIX: Final = "tag:yaml.org,2002:"
_NOT_JSON: Final = frozenset({f"{_PREFIX}{name}" for name in ("binary", "omap", "pairs", "set", "timestamp")})


class YamlBeyondBounds(yaml.MarkedYAMLError):
    """The text is longer, deeper or larger than the limits."""


def loader(text: bytes) -> Any:
    """A PyYAML loader of the documents in `text`, which the caller disposes of. Raises `yaml.YAMLError`."""
    if len(text) > MAX_BYTES:
        raise YamlBeyondBounds(problem=f"the text has {len(text)} bytes, and at most {MAX_BYTES} are read")
    try:
        _check(text)
    except ValueError as error:
        raise yaml.YAMLError(f"not text: {error}") from error
    return _class()(text)


def load(text: bytes) -> Any:
    """The value of a text of one document, None for an empty one. Raises `yaml.YAMLError`."""
    made = loader(text)
    try:
        return made.get_single_data()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # A tag may ask PyYAML for a value that its text is not.
        raise yaml.YAMLError(f"not a value: {error}") from error
    finally:
        made.dispose()


def dump(value: JsonObject) -> str:
    """The value as YAML text."""
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))


class _Part:
    """A collection that is not complete yet."""

    __slots__ = ("anchor", "height", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1
        self.height = 1

    def add(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


def _check(text: bytes) -> None:
    """Check the events, without recursion, before anything is built from them."""
    parts: list[_Part] = []
    anchors: dict[str, tuple[int, int] | None] = {}
    aliased = 0
    for event in yaml.parse(text, Loader=_base()):
        size, height = 1, 0
        if isinstance(event, yaml.DocumentStartEvent):
            anchors.clear()
            aliased = 0
            continue
        if isinstance(event, yaml.CollectionStartEvent):
            if len(parts) >= MAX_DEPTH:
                raise _beyond(f"nested deeper than {MAX_DEPTH} levels", event)
            parts.append(_Part(event.anchor))
            if event.anchor is not None:
                anchors[event.anchor] = None
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            part = parts.pop()
            size, height = part.size, part.height
            if part.anchor is not None:
                anchors[part.anchor] = size, height
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor is not None:
                anchors[event.anchor] = size, height
        elif isinstance(event, yaml.AliasEvent):
            found = anchors.get(str(event.anchor), (1, 0))  # the loader reports an undefined one
            if found is None:
                raise _beyond(f"the alias {event.anchor} is inside its own anchor", event)
            size, height = found
            aliased += size
            if aliased > MAX_ALIASED:
                raise _beyond(f"aliases expand to more than {MAX_ALIASED} values", event)
            if len(parts) + height > MAX_DEPTH:
                raise _beyond(f"nested deeper than {MAX_DEPTH} levels", event)
        else:
            continue
        if parts:
            parts[-1].add(size, height)


def _beyond(problem: str, event: Any) -> YamlBeyondBounds:
    return YamlBeyondBounds(problem=problem, problem_mark=event.start_mark)


def _base() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _class() -> Any:
    base = _base()
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != f"{_PREFIX}timestamp"]
        for first, known in base.yaml_implicit_resolvers.items()
    }
    constructors = {tag: made for tag, made in base.yaml_constructors.items() if tag not in _NOT_JSON}
    constructors |= {f"{_PREFIX}float": _number, f"{_PREFIX}int": _number, f"{_PREFIX}str": _text}
    constructors |= {f"{_PREFIX}map": _mapping}
    fields = {"yaml_implicit_resolvers": resolvers, "yaml_constructors": constructors}
    return type("_Loader", (base,), fields)


def _number(self: Any, node: yaml.ScalarNode) -> int | float:
    is_float = node.tag == f"{_PREFIX}float"
    if len(node.value) > _MAX_DIGITS:
        raise yaml.constructor.ConstructorError(None, None, f"a number of {len(node.value)} digits", node.start_mark)
    try:
        value: int | float = self.construct_yaml_float(node) if is_float else self.construct_yaml_int(node)
    except (ValueError, IndexError) as error:
        raise yaml.constructor.ConstructorError(None, None, "not a number", node.start_mark) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, "a number that JSON has not", node.start_mark)
    return value


def _text(self: Any, node: yaml.ScalarNode) -> str:
    value: str = self.construct_scalar(node)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise yaml.constructor.ConstructorError(None, None, "half of a character", node.start_mark)
    return value


def _mapping(self: Any, node: yaml.MappingNode) -> Any:
    """A mapping whose keys are text, as in JSON."""
    data: dict[str, Any] = {}
    yield data
    for key, value in self.construct_mapping(node).items():
        data[key if isinstance(key, str) else _key(key)] = value


def _key(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
