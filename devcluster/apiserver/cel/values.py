# SPDX-License-Identifier: Apache-2.0
"""Values of expressions that are no JSON values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from devcluster.apiserver.codec.documents import JsonValue

Variables: TypeAlias = dict[str, JsonValue]
Program: TypeAlias = Callable[[Variables], JsonValue]
"""A compiled expression or a part of one: from variables to a value."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: JsonValue = None


class MadeMap(dict[JsonValue, JsonValue]):
    """A map that an expression has made, other than those of the objects that it sees."""


@dataclass(frozen=True, slots=True)
class CelMessage:
    """A value of a message type such as `Object.spec`."""

    type: str
    fields: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL."""

    text: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named format of strings."""

    name: str
