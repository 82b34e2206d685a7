# SPDX-License-Identifier: Apache-2.0
"""Whether the indexes that succeeded are enough for a Job's successPolicy. Pure: the first rule that holds decides."""

from __future__ import annotations

from collections.abc import Set

from multikueue.api.objects import JsonObject
from multikueue.devcluster.controllers import index_ranges


def met(policy: JsonObject | None, succeeded: Set[int], *, completions: int) -> str | None:
    """The message of the rule that holds; None while none does."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        counted: Set[int] = succeeded
        wanted: int | None = rule.get("succeededCount")
        if rule.get("succeededIndexes") is not None:
            listed = index_ranges.parse(rule["succeededIndexes"], below=completions)
            counted = succeeded & listed
            wanted = len(listed) if wanted is None else wanted
        if wanted is not None and len(counted) >= wanted:
            return f"Matched rules at index {number}"
    return None
