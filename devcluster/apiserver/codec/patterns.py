# SPDX-License-Identifier: Apache-2.0
"""Regular expressions in Go's syntax, as in schemas and rules, by Python's module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_FLAGS: Final = re.compile(r"^(\^?)(\(\?[ims]+\))(.*)$", re.DOTALL)
_MULTILINE: Final = re.compile(r"\(\?[is]*m")


@cache
def pattern_of(text: str) -> re.Pattern[str]:
    """The compiled pattern. Raises `re.error`.

    Go's `\\z` is Python's `\\Z`, and its `$` does not match before a final newline unless lines are matched. Its
    classes such as `\\d` are of ASCII. It accepts flags anywhere, Python only at the start; they apply to the rest.
    """
    return re.compile(_FLAGS.sub(r"\2\1\3", "".join(_tokens(text))), re.ASCII)


def _tokens(text: str) -> Iterator[str]:
    end = "$" if _MULTILINE.search(text) else r"\Z"
    replaced = {"$": end, r"\z": r"\Z"}
    for token in _TOKEN.findall(text):
        yield replaced.get(token, token)
