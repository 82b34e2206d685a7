# SPDX-License-Identifier: Apache-2.0
"""What a simulated process may leave out because it ends with its seed: packing, parsing the same bytes twice, garbage.

Owns replacements of real code that change nothing but what a seed costs. Rows are parsed once for all who look at them,
which holds as long as nobody writes to what he was given; `changed` says whether somebody did.
"""

from __future__ import annotations

import gc
from typing import Any, Final

import orjson

from manager.cache import caches
from multikueue.kube.cache.store import Row

_PARSED: Final[dict[bytes, dict[str, Any]]] = {}


def take() -> None:
    """Take them in this process, which the caller ends soon."""
    gc.disable()
    setattr(caches, "packed", bytes)  # noqa: B010 (mypy would have it that modules are final)
    setattr(Row, "object", _shared)  # noqa: B010
    forget()


def forget() -> None:
    """Drop what was parsed before: to free it costs a seed more than to begin with nothing."""
    _PARSED.clear()


def changed() -> str:
    """The first object that is no longer as its bytes say, beside what views add to each."""
    for raw, parsed in _PARSED.items():
        found: dict[str, Any] = orjson.loads(raw)
        for name in ("apiVersion", "kind", "spec"):
            if name not in found and name in parsed:
                found[name] = {} if name == "spec" else parsed[name]
        if parsed != found:
            return raw.decode()
    return ""


def _shared(row: Row) -> dict[str, Any]:
    raw = row.raw
    found = _PARSED.get(raw)
    if found is None:
        found = _PARSED[raw] = orjson.loads(raw)
    return found
