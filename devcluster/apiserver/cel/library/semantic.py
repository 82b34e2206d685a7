# SPDX-License-Identifier: Apache-2.0
"""Semantic versions, as rules compare them; build metadata is ignored."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Final

from devcluster.apiserver.cel.syntax import CelError

_NUMBER: Final = "(0|[1-9][0-9]*)"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LEADING: Final = re.compile(r"0+(?=[0-9])")


@total_ordering
class Version:
    """A version; a pre-release is less than its release."""

    __slots__ = ("_key", "major", "minor", "patch")

    def __init__(self, text: str, normalize: bool = False) -> None:  # the argument name of the language
        """Parse. Raises `CelError`."""
        match = _VERSION.fullmatch(_normal(text) if normalize else text)
        if match is None:
            raise CelError(_complaint(text))
        self.major, self.minor, self.patch = (int(match[index]) for index in (1, 2, 3))
        parts = () if match[4] is None else tuple(_rank(part) for part in match[4].split("."))
        if any(part.isdigit() and part != "0" and part.startswith("0") for part in (match[4] or "").split(".")):
            raise CelError(f"Numeric PreRelease version must not contain leading zeroes {match[4]!r}")
        self._key = (self.major, self.minor, self.patch, not parts, parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


def is_version(text: str, normalize: bool = False) -> bool:
    """Whether the text is a version."""
    try:
        Version(text, normalize)
    except CelError:
        return False
    return True


def _rank(part: str) -> tuple[int, int, str]:
    """Numbers come before other identifiers."""
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def _normal(text: str) -> str:
    """Without a `v` and leading zeros, with missing parts set to 0."""
    text = text.removeprefix("v")
    end = min((text.index(mark) for mark in "-+" if mark in text), default=len(text))
    parts = [_LEADING.sub("", part) for part in text[:end].split(".")]
    if 1 <= len(parts) < 3 and parts[0]:
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts) + text[end:]


def _complaint(text: str) -> str:
    if not text:
        return "Version string empty"
    if len(text.split(".", 2)) != 3:
        return "No Major.Minor.Patch elements found"
    return f"Invalid character(s) found in version {text!r}"
