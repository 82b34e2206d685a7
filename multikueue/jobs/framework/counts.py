# SPDX-License-Identifier: Apache-2.0
"""Pod counts in jobs, Workloads and statuses, which others wrote."""

from __future__ import annotations

from multikueue.api.objects import JsonObject
from multikueue.core.parsing import MAX_INT32, parse_unsigned


def count_of(source: JsonObject, name: str, *, at: str, default: int = 0) -> int:
    """The 32-bit count in the field `name`, `default` if absent. Raises `BadInput`, which names `at.name`."""
    value = source.get(name)
    return default if value is None else parse_unsigned(value, field=f"{at}.{name}", maximum=MAX_INT32)
