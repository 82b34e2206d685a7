# SPDX-License-Identifier: Apache-2.0
"""Which combinations of API server and transport CI leaves out, where a test runs in all four.

`make test` has such a test by pull on the embedded server. Of the three others `make conformance` has the one on a real
server by the other transport in half of the modules, and by pull in the rest; for what attacks are about it has both.
Each server and each transport is met by each test or its neighbours, and all four would take CI another twenty minutes.
A test that is too long for `make test` runs on real servers only, unless it is about attacks. The rest have the mark
`left_out`, and run with `make combinations`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
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
        module = next(iter(combinations.values())).nodeid.partition("::")[0]
        long = frozenset(each for each, item in combinations.items() if item.get_closest_marker("conformance"))
        for each in left_out(module, combinations.keys(), long=long):
            combinations[each].add_marker(pytest.mark.left_out)


def left_out(
    module: str, combinations: Collection[frozenset[str]], *, long: Collection[frozenset[str]] = ()
) -> frozenset[frozenset[str]]:
    """The combinations that CI leaves out of those of a test; the module is given by its path from the root.

    `long` are those that `make test` does not run.
    """
    whole = module.startswith(_WHOLE)
    found: set[frozenset[str]] = set()
    if has_all(combinations):
        found.add(_ON_EMBEDDED)
        if not whole:
            found.add(_ON_REAL[crc32(module.encode()) % 2])
    if not whole and any("binaries" in each for each in combinations):
        found.update(each for each in long if "embedded" in each)
    return frozenset(found)


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
