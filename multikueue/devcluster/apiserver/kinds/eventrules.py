# SPDX-License-Identifier: Apache-2.0
"""What new events of `events.k8s.io` may not say; the causes name fields as the older form does."""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause

_REQUIRED: Final = ("reportingController", "reportingInstance", "action", "reason")
_LIMITS: Final = {
    "reportingInstance": ("reportingInstance", 128),
    "action": ("action", 128),
    "reason": ("reason", 128),
    "note": ("message", 1024),
}
_DEPRECATED: Final = {
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "deprecatedSource": "source",
}


def problems(value: JsonObject) -> list[Cause]:
    """Everything that is wrong with one."""
    found = []
    if value.get("type") not in ("Normal", "Warning"):
        found.append(_wrong("type", f"has invalid value: {value.get('type') or ''}"))
    if not value.get("eventTime"):
        return [words.required("eventTime"), *found]
    found += [words.required(name) for name in _REQUIRED if not value.get(name)]
    found += words.key_problems("reportingController", value.get("reportingController") or "")
    for name, (shown, most) in _LIMITS.items():
        if len((value.get(name) or "").encode()) > most:
            found.append(_wrong(shown, f"can have at most {most} characters"))
    found += [_wrong(shown, "needs to be unset") for name, shown in _DEPRECATED.items() if value.get(name)]
    count = documents.child(value, "series").get("count")
    if isinstance(count, int) and count < 2:  # one alone is no series
        found.append(_wrong("series.count", "should be at least 2"))
    return found


def _wrong(field: str, text: str) -> Cause:
    return words.bad_value(field, "", text)
