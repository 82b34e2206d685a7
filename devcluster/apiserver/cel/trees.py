# SPDX-License-Identifier: Apache-2.0
"""The nodes of parsed expressions, each with its position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: object
    type: str = field(default="", compare=False, repr=False)
    """The name of its type."""
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`operand.name`, or `operand.?name`."""

    operand: Tree
    name: str
    optional: bool = False
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[index]`, or `operand[?index]`."""

    operand: Tree
    index: Tree
    optional: bool = False
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function, a method when there is a target, or an operator by its symbol."""

    function: str
    target: Tree | None
    arguments: tuple[Tree, ...]
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Tree, ...]
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{a: b}`."""

    items: tuple[tuple[Tree, Tree], ...]
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """`name: value` in a message, or `?name: value`."""

    name: str
    value: Tree
    optional: bool = False
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MessageOf:
    """`Type.name{field: value}`."""

    name: str
    entries: tuple[Entry, ...]
    at: int = field(default=0, compare=False, repr=False)


Tree: TypeAlias = "Literal | Name | Field | Index | Call | ListOf | MapOf | MessageOf"


def qualified(tree: Tree) -> str | None:
    """The name that a chain of selections spells."""
    match tree:
        case Name(name):
            return name
        case Field(operand, name, False):
            before = qualified(operand)
            return None if before is None else f"{before}.{name}"
    return None
