# SPDX-License-Identifier: Apache-2.0
"""The types of the language: their text form, and assignability.

Object types are identified by their name, which is their path in the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Type:
    """A type and its parameters; a name of one capital letter is a type variable."""

    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, repr=False)
    """The fields of an object."""
    most: int = field(default=0, compare=False, repr=False)
    """The maximal size of a value, in bytes, items or entries."""
    least: int = field(default=1, compare=False, repr=False)
    """The minimal size of a value in JSON, in bytes."""

    def __str__(self) -> str:
        if _is_open(self):
            return "dyn"
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name


Bindings: TypeAlias = dict[str, Type]

BOOL: Final = Type("bool")
BYTES: Final = Type("bytes")
DOUBLE: Final = Type("double")
DURATION: Final = Type("duration")
DYN: Final = Type("dyn")
ERROR: Final = Type("!error!")
INT: Final = Type("int")
NULL: Final = Type("null")
STRING: Final = Type("string")
TIMESTAMP: Final = Type("timestamp")
UINT: Final = Type("uint")

_NEVER_NULL: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "string", "type", "uint"})
_TOKEN: Final = re.compile(r"[\w.@]+|[(),]")


def list_of(item: Type) -> Type:
    """The type of lists of a type."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps from one type to another."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of optional values of a type."""
    return Type("optional_type", (value,))


def parse_type(text: str) -> Type:
    """The type of a text such as `list(string)`."""
    found, rest = _parse(_TOKEN.findall(text))
    if rest:
        raise ValueError(f"{text} is no type")
    return found


def _parse(tokens: list[str]) -> tuple[Type, list[str]]:
    name, rest = tokens[0], tokens[1:]
    if rest[:1] != ["("]:
        return Type(name), rest
    parameters = []
    while rest[0] != ")":
        inner, rest = _parse(rest[1:])
        parameters.append(inner)
    return Type(name, tuple(parameters)), rest[1:]


def renamed(kind: Type, mark: int) -> Type:
    """The type with fresh type variables."""
    if _is_open(kind):
        return Type(f"{kind.name[0]}{mark}")
    return Type(kind.name, tuple(renamed(part, mark) for part in kind.parameters)) if kind.parameters else kind


def resolved(kind: Type, bindings: Bindings) -> Type:
    """The type with its bound type variables replaced."""
    while kind.name in bindings:
        kind = bindings[kind.name]
    if not kind.parameters:
        return kind
    return Type(
        kind.name, tuple(resolved(part, bindings) for part in kind.parameters), most=kind.most, least=kind.least
    )


def closed(kind: Type) -> Type:
    """The type with unbound type variables replaced by `dyn`."""
    if _is_open(kind):
        return DYN
    if not kind.parameters:
        return kind
    return Type(kind.name, tuple(map(closed, kind.parameters)), most=kind.most, least=kind.least)


def fits(given: Type, wanted: Type, bindings: Bindings) -> bool:
    """Whether a value of one type is assignable to another; binds type variables."""
    given, wanted = resolved(given, bindings), resolved(wanted, bindings)
    if _is_open(wanted) or _is_open(given):
        name, other = (wanted.name, given) if _is_open(wanted) else (given.name, wanted)
        if other.name == name:
            return True
        if _mentions(other, name):
            return False
        bindings[name] = other
        return True
    if {given.name, wanted.name} & {"dyn", "!error!"}:
        return True
    if given.name == "null" or wanted.name == "null":
        return given.name == wanted.name or not {given.name, wanted.name} & _NEVER_NULL
    if given.name != wanted.name or given.name == "type":
        return given.name == wanted.name
    return all_fit(given.parameters, wanted.parameters, bindings)


def all_fit(given: Sequence[Type], wanted: Sequence[Type], bindings: Bindings) -> bool:
    """Whether each type is assignable to its counterpart."""
    return len(given) == len(wanted) and all(
        fits(one, other, bindings) for one, other in zip(given, wanted, strict=True)
    )


def _is_open(kind: Type) -> bool:
    return kind.name[:1].isupper() and (len(kind.name) == 1 or kind.name[1:].isdigit())


def _mentions(kind: Type, name: str) -> bool:
    return kind.name == name or any(_mentions(part, name) for part in kind.parameters)
