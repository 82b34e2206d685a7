# SPDX-License-Identifier: Apache-2.0
"""Entries of status.admissionChecks that a foreign controller sets.

`kueue-admission` applies the whole list, since it creates and resets every entry, but it never owns `podSetUpdates` and
`requeueAfterSeconds` of a foreign controller: a field with two owners stays when only one of them drops it. What
another manager owns, on the other hand, an apply cannot remove; that is left over and has to be patched away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from manager.cache.views import View
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.engine.decode.check_health import is_foreign

IsForeign: TypeAlias = Callable[[str], bool]
"""Whether the controller of the AdmissionCheck of that name is not one of the manager's."""

_THEIRS: Final = ("podSetUpdates", "requeueAfterSeconds")


def foreign_of(checks: View) -> IsForeign:
    """Reads the controller of a check from the cache; a check that is gone is treated as ours."""

    def foreign(name: str) -> bool:
        check = checks.object(Key("", name))
        return check is not None and is_foreign((check.get("spec") or {}).get("controllerName") or "")

    return foreign


def applied(status: JsonObject, foreign: IsForeign) -> JsonObject:
    """The status as it is applied: without the fields of checks that only their controllers set."""
    entries: Sequence[JsonObject] = status.get("admissionChecks") or ()
    if not any(name in entry for entry in entries if foreign(entry["name"]) for name in _THEIRS):
        return status
    return {**status, "admissionChecks": [_shared(entry) if foreign(entry["name"]) else entry for entry in entries]}


def _shared(entry: JsonObject) -> JsonObject:
    return {name: value for name, value in entry.items() if name not in _THEIRS}
