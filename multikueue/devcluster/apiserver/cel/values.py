# SPDX-License-Identifier: Apache-2.0
"""Values of expressions that JSON has no form for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from multikueue.devcluster.apiserver.documents import JsonValue

Variables: TypeAlias = dict[str, JsonValue]
Program: TypeAlias = Callable[[Variables], JsonValue]
"""An expression, or a part of one, that can be asked for its value."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: JsonValue = None


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL."""

    text: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """One of the formats that strings are held to."""

    name: str
