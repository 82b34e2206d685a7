# SPDX-License-Identifier: Apache-2.0
"""YAML as Kubernetes reads it, and syntax errors of JSON and YAML in a real server's words.

YAML has 1.1 booleans, but neither dates nor numbers of base 60, and all keys are strings. JSON is parsed here only
after the fast parser has failed.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue

_SPACE: Final = " \t\r\n"
_END: Final = "unexpected end of JSON input"
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_YAML_NAMES: Final = re.compile(r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF")
_YAML_INT: Final = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_YAML_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_TRUE: Final = frozenset({"y", "yes", "true", "on"})


class _Bad(Exception):
    """The first syntax error."""


def json_problem(text: str) -> str:
    """The first syntax error of a JSON text; empty if it is valid."""
    try:
        end = _space(text, _value(text, _space(text, 0)))
        if end < len(text):
            raise _Bad(_unexpected(text, end, "after top-level value"))
    except _Bad as problem:
        return str(problem)
    return ""


def _unexpected(text: str, at: int, where: str) -> str:
    if at >= len(text):
        return _END
    char = text[at]
    shown = {"\n": "'\\n'", "\t": "'\\t'", "\r": "'\\r'", "'": "'\\''", "\0": "'\\x00'"}.get(char, f"'{char}'")
    return f"invalid character {shown} {where}"


def _space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _value(text: str, at: int) -> int:
    char = text[at : at + 1]
    if char == "{":
        return _members(text, at + 1)
    if char == "[":
        at = _space(text, at + 1)
        if text[at : at + 1] == "]":
            return at + 1
        while True:
            at = _space(text, _value(text, _space(text, at)))
            if text[at : at + 1] == "]":
                return at + 1
            if text[at : at + 1] != ",":
                raise _Bad(_unexpected(text, at, "after array element"))
            at += 1
    if char == '"':
        return _string(text, at + 1)
    for literal in ("true", "false", "null"):
        if char == literal[0]:
            for offset, wanted in enumerate(literal):
                if text[at + offset : at + offset + 1] != wanted:
                    raise _Bad(_unexpected(text, at + offset, f"in literal {literal} (expecting '{wanted}')"))
            return at + len(literal)
    found = _NUMBER.match(text, at)
    if found is None:
        if char == "-":
            raise _Bad(_unexpected(text, at + 1, "in numeric literal"))
        raise _Bad(_unexpected(text, at, "looking for beginning of value"))
    return found.end()


def _members(text: str, at: int) -> int:
    at = _space(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        at = _space(text, at)
        if text[at : at + 1] != '"':
            raise _Bad(_unexpected(text, at, "looking for beginning of object key string"))
        at = _space(text, _string(text, at + 1))
        if text[at : at + 1] != ":":
            raise _Bad(_unexpected(text, at, "after object key"))
        at = _space(text, _value(text, _space(text, at + 1)))
        if text[at : at + 1] == "}":
            return at + 1
        if text[at : at + 1] != ",":
            raise _Bad(_unexpected(text, at, "after object key:value pair"))
        at += 1


def _string(text: str, at: int) -> int:
    while at < len(text):
        char = text[at]
        if char == '"':
            return at + 1
        if char < " ":
            raise _Bad(_unexpected(text, at, "in string literal"))
        if char == "\\":
            at += 1
            if at < len(text) and text[at] not in '"\\/bfnrtu':
                raise _Bad(_unexpected(text, at, "in string escape code"))
        at += 1
    raise _Bad(_END)


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it; collects duplicate keys."""

    twice: list[str]
    """The duplicate keys, in a real server's words."""
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> JsonObject:
    loader.flatten_mapping(node)
    found: JsonObject = {}
    for key_node, value_node in node.value:
        key = _key(loader.construct_object(key_node, deep=True))
        if key in found:
            loader.twice.append(f'line {key_node.start_mark.line + 1}: key "{key}" already set in map')
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _key(key: JsonValue) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


def _construct_bool(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in _TRUE


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
for _tag, _pattern, _first in (
    ("bool", _YAML_NAMES, "yYnNtTfFoO"),
    ("int", _YAML_INT, "-+0123456789"),
    ("float", _YAML_FLOAT, "-+.0123456789"),
    ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("merge", re.compile(r"<<"), "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern.pattern})$"), list(_first))


def load_yaml(text: bytes, *, twice: list[str] | None = None) -> JsonValue:
    """The document; `twice` collects duplicate keys. Raises `ValueError` with a real server's text."""
    if text[:1] == b"{":
        try:
            found = documents.load(text)  # most bodies declared as YAML are JSON, which has a faster parser
            if twice is None or not documents.may_repeat(text, found):
                return found
        except ValueError:
            pass  # reported as an error of YAML
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        loader.twice = [] if twice is None else twice
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark is not None else 0
        # A real server counts lines from 0 if the tokens are valid and only their order is not.
        shown = line + 1 if line and isinstance(error, yaml.scanner.ScannerError) else line
        where = f"line {shown}: " if line else ""
        raise ValueError(f"yaml: {where}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
