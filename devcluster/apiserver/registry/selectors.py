# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors of list, watch and deletecollection, parsed with Kubernetes' errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry.resources import ResourceType
from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, parse_selector

_TERM: Final = re.compile(r"((?:[^=!\\,]|\\.)*)(==|!=|=)((?:[^\\,]|\\.)*)")
_TOKEN: Final = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_OPERATORS: Final = frozenset({"=", "==", "!=", "<", ">"})
_SYMBOLS: Final = _OPERATORS | frozenset({"!", "(", ")", ","})
_COMMON: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects of a resource."""

    labels: LabelSelector | None = None
    fields: tuple[tuple[str, bool, str], ...] = ()
    """Field, whether it must be equal, value."""

    @property
    def everything(self) -> bool:
        """Whether it selects all objects."""
        return self.labels is None and not self.fields

    @property
    def name(self) -> str | None:
        """The name, if it selects a single one."""
        for field, equal, value in self.fields:
            if field == "metadata.name" and equal:
                return value
        return None

    def matches(self, value: JsonObject, kind: ResourceType) -> bool:
        """Whether it selects the object."""
        metadata = documents.metadata(value)
        if self.labels is not None and not self.labels.matches(documents.strings(metadata.get("labels"))):
            return False
        if not self.fields:
            return True
        known: dict[str, str] | None = None
        for field, equal, wanted in self.fields:
            if field == "metadata.name":
                actual = metadata.get("name", "")
            elif field == "metadata.namespace":
                actual = metadata.get("namespace", "")
            else:
                if known is None:
                    known = kind.behaviour.fields(value)
                actual = known.get(field, "")
            if (actual == wanted) is not equal:
                return False
        return True


EVERYTHING: Final = Selection()


def selection(query: dict[str, str], kind: ResourceType) -> Selection:
    """What the parameters of a request select. Raises `StatusError`."""
    labels = query.get("labelSelector", "")
    fields = query.get("fieldSelector", "")
    if not labels and not fields:
        return EVERYTHING
    why = _requirement_problem(labels)
    if why:
        raise errors.bad_request(why)
    try:
        parsed = parse_selector(labels) if labels else None
    except BadInput as error:
        raise errors.bad_request(f"unable to parse requirement: {error}") from error
    return Selection(parsed if parsed and parsed.requirements else None, tuple(_fields(fields, kind)))


def named(fields: str) -> str:
    """The single name in a field selector; empty if there is none or it cannot be parsed."""
    for part in re.split(r"(?<!\\),", fields):
        match = _TERM.fullmatch(part)
        if match is not None and match[1] == "metadata.name" and match[2] != "!=":
            return re.sub(r"\\(.)", r"\1", match[3])
    return ""


class _Tokens:
    """The tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._next = 0

    def peek(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._next]

    def take(self) -> str:
        """Consume and return the next token."""
        found = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return found


def _requirement_problem(text: str) -> str:
    """A real server's text for the first error of a label selector; empty if it is valid."""
    tokens = _Tokens(text)
    while tokens.peek():
        if tokens.peek() in _SYMBOLS - {"!"}:
            return f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'"
        negated = tokens.peek() == "!"
        if negated:
            tokens.take()
        if (key := tokens.take()) in _SYMBOLS or not key:
            return f"unable to parse requirement: found '{key}', expected: identifier"
        for cause in field_errors.key_problems("<nil>", key):
            return f"unable to parse requirement: <nil>: {cause.message}"
        if not negated and tokens.peek() not in ("", ","):
            problem = _operator_problem(tokens, key)
            if problem:
                return f"unable to parse requirement: {problem}"
        if (token := tokens.take()) not in ("", ","):
            return f"found '{token}', expected: ',' or 'end of string'"
        if token == "," and (not tokens.peek() or tokens.peek() in _SYMBOLS - {"!"}):
            return f"found '{tokens.peek()}', expected: identifier after ','"
    return ""


def _operator_problem(tokens: _Tokens, key: str) -> str:
    operator = tokens.take()
    values: list[str] = []
    if operator in ("in", "notin"):
        if (token := tokens.take()) != "(":
            return f"found '{token}' expected: '('"
        while (token := tokens.take()) != ")":
            if not token or (token in _SYMBOLS and token != ","):
                return f"found '{token}', expected: ',' or ')'"
            if token != ",":
                values.append(token)
        return _value_problem(values, key)
    if operator not in _OPERATORS:
        return f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt"
    if tokens.peek() in ("", ","):
        return ""
    token = tokens.take()
    return f"found '{token}', expected: identifier" if token in _SYMBOLS else _value_problem([token], key)


def _value_problem(values: list[str], key: str) -> str:
    for index, value in enumerate(values):
        for cause in field_errors.label_value_problems(f"values[{index}][{key}]", value):
            return f"{cause.field}: {cause.message}"
    return ""


def _fields(text: str, kind: ResourceType) -> list[tuple[str, bool, str]]:
    found = []
    for part in re.split(r"(?<!\\),", text) if text else ():
        if not part:
            continue
        match = _TERM.fullmatch(part)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field = match[1]
        if field not in _COMMON and field not in kind.behaviour.selectable:
            if kind.custom:
                raise errors.bad_request(f"field label not supported: {field}")
            if not kind.behaviour.selectable:
                known = '"metadata.name", "metadata.namespace"'
                raise errors.bad_request(f'"{field}" is not a known field selector: only {known}')
            raise errors.bad_request(f"field label not supported: {field}")
        value = re.sub(r"\\(.)", r"\1", match[3])
        found.append((field, match[2] != "!=", value))
    return found
