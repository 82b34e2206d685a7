# SPDX-License-Identifier: Apache-2.0
"""Why the status of a Workload was written, read off the object before and after the write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tests.support.managers import condition, is_true

Object = dict[str, Any]

ADMISSION: Final = "admission"
EVICTION: Final = "eviction"
FIRST: Final = "first reason to wait"
REASON: Final = "another reason to wait"
MESSAGE: Final = "another message of the same reason"
NUMBERS: Final = "only numbers moved"
END_BY_WORKER: Final = "worker: finished"
CLEARED_BY_WORKER: Final = "worker: reservation cleared"
_NUMBER: Final = re.compile(r"\d+")


def cause(old: Object | None, new: Object) -> str | None:
    """The cause of the change from `old` to `new`; None if the status is the same."""
    before, after = (old or {}).get("status") or {}, new.get("status") or {}
    if before == after:
        return None
    if is_true(new, "Finished") and not is_true(old, "Finished"):
        return END_BY_WORKER
    if is_true(old, "QuotaReserved") and not is_true(new, "QuotaReserved"):
        return CLEARED_BY_WORKER
    if is_true(new, "QuotaReserved") and not is_true(old, "QuotaReserved"):
        return ADMISSION
    if is_true(new, "Evicted") and not is_true(old, "Evicted"):
        return EVICTION
    waited, waits = condition(old, "QuotaReserved"), condition(new, "QuotaReserved")
    if waits and not waited:
        return FIRST
    if waited.get("reason") != waits.get("reason"):
        return REASON
    if _without_numbers(waited) != _without_numbers(waits):
        return MESSAGE
    changed = _changed(before, after)
    if not changed - {"QuotaReserved", "resourceRequests"}:
        return NUMBERS
    return f"other: {', '.join(sorted(changed))}"


def _without_numbers(found: Object) -> str:
    return _NUMBER.sub("0", found.get("message", ""))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The names of fields and types of conditions that differ."""
    fields = {name for name in {*before, *after} - {"conditions"} if before.get(name) != after.get(name)}
    old, new = ({each["type"]: each for each in status.get("conditions") or ()} for status in (before, after))
    return fields | {kind for kind in {*old, *new} if old.get(kind) != new.get(kind)}
