# SPDX-License-Identifier: Apache-2.0
"""Which combinations of API server and transport CI leaves out, where a test runs in all four.

`make test` has such a test by pull on the embedded server. Of the three others `make conformance` has the one on a real
server by the other transport in half of the modules, and by pull in the rest; for what attacks are about it has both.
Each server and each transport is met by each test or its neighbours, and all four take CI twenty minutes.
The rest have the mark `left_out`, and run with `make combinations`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final
from zlib import crc32

import pytest

from tests.support.sites import Transport

_SERVERS: Final = frozenset({"embedded", "binaries"})
_TRANSPORTS: Final = frozenset(Transport)
_ON_EMBEDDED: Final = frozenset({"embedded", Transport.PUSH})
_ON_REAL: Final = (frozenset({"binaries", Transport.PULL}), frozenset({"binaries", Transport.PUSH}))
_WHOLE: Final = ("tests/security/", "tests/e2e/security/")
"""Folders that have both on real servers."""


def mark_left_out(items: Iterable[pytest.Item]) -> None:
    """Give the mark to those of which all four combinations were collected."""
    found: dict[Hashable, dict[frozenset[str], pytest.Item]] = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            chosen, others = combination(item.callspec.params, item.callspec.indices)
            found[item.path, item.originalname, others][chosen] = item
    for combinations in found.values():
        if has_all(combinations):
            for each in left_out(combinations[_ON_EMBEDDED].nodeid.partition("::")[0]):
                combinations[each].add_marker(pytest.mark.left_out)


def left_out(module: str) -> tuple[frozenset[str], ...]:
    """The combinations that CI leaves out in a module, given by its path from the root."""
    if module.startswith(_WHOLE):
        return (_ON_EMBEDDED,)
    return _ON_EMBEDDED, _ON_REAL[crc32(module.encode()) % 2]


def combination(
    parameters: Mapping[str, object], positions: Mapping[str, int]
) -> tuple[frozenset[str], frozenset[tuple[str, int]]]:
    """The server and the transport among the parameters of a test, and the others by their positions."""
    chosen: set[str] = set()
    others = set()
    for name, value in parameters.items():
        values = value if isinstance(value, tuple) else (value,)
        if all(isinstance(each, str) and each in _SERVERS | _TRANSPORTS for each in values):
            chosen.update(values)
        else:
            others.add((name, positions[name]))
    return frozenset(chosen), frozenset(others)


def has_all(combinations: Iterable[frozenset[str]]) -> bool:
    """Whether these have both transports on both servers."""
    return {frozenset({server, transport}) for server in _SERVERS for transport in _TRANSPORTS} <= set(combinations)
