# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors of list, watch and deletecollection.

Owns reading them with Kubernetes' errors, and the test whether an object is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, parse_selector
from multikueue.devcluster.apiserver import documents, errors, words
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.resources import ResourceType

_TERM: Final = re.compile(r"((?:[^=!\\,]|\\.)*)(==|!=|=)((?:[^\\,]|\\.)*)")
_WORD: Final = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_OPERATORS: Final = frozenset({"=", "==", "!=", "<", ">"})
_SYMBOLS: Final = _OPERATORS | frozenset({"!", "(", ")", ","})
_COMMON: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource are meant."""

    labels: LabelSelector | None = None
    fields: tuple[tuple[str, bool, str], ...] = ()
    """Field, whether equal or not, value."""

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.labels is None and not self.fields

    @property
    def name(self) -> str | None:
        """The one name that is asked for, if it is."""
        for field, equal, value in self.fields:
            if field == "metadata.name" and equal:
                return value
        return None

    def matches(self, value: JsonObject, kind: ResourceType) -> bool:
        """Whether the object is meant."""
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
    """The one name that a field selector asks for; empty when it asks for none or cannot be read."""
    for part in re.split(r"(?<!\\),", fields):
        match = _TERM.fullmatch(part)
        if match is not None and match[1] == "metadata.name" and match[2] != "!=":
            return re.sub(r"\\(.)", r"\1", match[3])
    return ""


class _Tokens:
    """A label selector, word for word."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = [*_WORD.findall(text), ""]
        self._next = 0

    def peek(self) -> str:
        """The next word; empty at the end."""
        return self._words[self._next]

    def take(self) -> str:
        """The next word, which is the past then."""
        found = self._words[self._next]
        self._next = min(self._next + 1, len(self._words) - 1)
        return found


def _requirement_problem(text: str) -> str:
    """What a real server says of the first thing that is wrong with a label selector; empty if it is right."""
    tokens = _Tokens(text)
    while tokens.peek():
        if tokens.peek() in _SYMBOLS - {"!"}:
            return f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'"
        negated = tokens.peek() == "!"
        if negated:
            tokens.take()
        if (key := tokens.take()) in _SYMBOLS or not key:
            return f"unable to parse requirement: found '{key}', expected: identifier"
        for cause in words.key_problems("<nil>", key):
            return f"unable to parse requirement: <nil>: {cause.message}"
        if not negated and tokens.peek() not in ("", ","):
            problem = _operator_problem(tokens, key)
            if problem:
                return f"unable to parse requirement: {problem}"
        if (word := tokens.take()) not in ("", ","):
            return f"found '{word}', expected: ',' or 'end of string'"
        if word == "," and (not tokens.peek() or tokens.peek() in _SYMBOLS - {"!"}):
            return f"found '{tokens.peek()}', expected: identifier after ','"
    return ""


def _operator_problem(tokens: _Tokens, key: str) -> str:
    operator = tokens.take()
    values: list[str] = []
    if operator in ("in", "notin"):
        if (word := tokens.take()) != "(":
            return f"found '{word}' expected: '('"
        while (word := tokens.take()) != ")":
            if not word or (word in _SYMBOLS and word != ","):
                return f"found '{word}', expected: ',' or ')'"
            if word != ",":
                values.append(word)
        return _value_problem(values, key)
    if operator not in _OPERATORS:
        return f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt"
    if tokens.peek() in ("", ","):
        return ""
    word = tokens.take()
    return f"found '{word}', expected: identifier" if word in _SYMBOLS else _value_problem([word], key)


def _value_problem(values: list[str], key: str) -> str:
    for index, value in enumerate(values):
        for cause in words.label_value_problems(f"values[{index}][{key}]", value):
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
