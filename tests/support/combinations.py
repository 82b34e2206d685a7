# SPDX-License-Identifier: Apache-2.0
"""Which tests are one combination too many for CI: by push on the embedded server, where three others are there.

A test that runs on both API servers and by both transports runs four times. `make test` has it by pull on the embedded
server, `make conformance` by both on real ones. The fourth meets nothing that these do not, and all of them take CI
ten minutes; they have the mark `fourth`, and run with `make fourths`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import pytest

from tests.support.sites import Transport

_SERVERS: Final = frozenset({"embedded", "binaries"})
_TRANSPORTS: Final = frozenset(Transport)
_FOURTH: Final = frozenset({"embedded", Transport.PUSH})


def mark_fourths(items: Iterable[pytest.Item]) -> None:
    """Give the mark to those of which the three others were collected as well."""
    found: dict[Hashable, dict[frozenset[str], pytest.Item]] = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            chosen, others = combination(item.callspec.params, item.callspec.indices)
            found[item.path, item.originalname, others][chosen] = item
    for combinations in found.values():
        if _FOURTH in combinations and has_all(combinations):
            combinations[_FOURTH].add_marker(pytest.mark.fourth)


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
