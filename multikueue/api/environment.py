# SPDX-License-Identifier: Apache-2.0
"""Environment variables of a container, each name once.

A container may have a variable twice: the last one counts, and `$(NAME)` in a value is the value of NAME before that
place. This is the same environment without repetitions: the last entry of each name is kept in its place, and a
reference to a removed entry is replaced by its value. A removed entry with `valueFrom` has no value; a reference to it
is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from multikueue.api.objects import JsonObject

# `$$` is a dollar sign; a `$` before anything else than a name in parentheses is itself.
_TOKENS: Final = re.compile(r"\$\$|\$\(([^)]*)\)|[^$]+|\$")


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
