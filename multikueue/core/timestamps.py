# SPDX-License-Identifier: Apache-2.0
"""Times as the Kubernetes API writes them: RFC 3339 `Time` (whole seconds) and `MicroTime`.

Values are aware `datetime` in UTC, far enough from the limits of the calendar that a duration can be added or
subtracted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_MAX_LENGTH: Final = 64
_YEARS: Final = range(1900, 3000)
_UTC: Final = "+00:00"
_KEPT: Final = 4096  # an object repeats its times in each version, and many objects have those of one second


def parse_time(text: str) -> datetime:
    """An aware UTC time of the years 1900 to 2999 from RFC 3339 text. Raises `BadInput`, also without a time zone."""
    parsed = _parsed(text) if isinstance(text, str) and len(text) <= _MAX_LENGTH else None
    if parsed is None:
        raise BadInput(f"{excerpt(text)} is not an RFC 3339 time such as 2026-01-31T08:00:00Z")
    return parsed


@lru_cache(_KEPT)
def _parsed(text: str) -> datetime | None:
    """None if it is not a time. Raises `BadInput` for a time that is not accepted."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    if parsed.tzinfo is None:
        raise BadInput(f"{excerpt(text)} has no time zone; write 2026-01-31T08:00:00Z")
    if parsed.year not in _YEARS:
        raise BadInput(f"{excerpt(text)} is not a time of the years {_YEARS.start} to {_YEARS.stop - 1}")
    return parsed.astimezone(UTC)


def format_time(moment: datetime) -> str:
    """`metav1.Time`: whole seconds, truncated as by the API server."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").removesuffix(_UTC) + "Z"


def format_micro_time(moment: datetime) -> str:
    """`metav1.MicroTime`: always six digits of a second."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix(_UTC) + "Z"
