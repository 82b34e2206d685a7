# SPDX-License-Identifier: Apache-2.0
"""Times as the Kubernetes API writes them.

Owns parsing and printing of RFC 3339 `Time` (whole seconds) and `MicroTime`. Everything in between is an aware
`datetime` in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime

from multikueue.core.errors import BadInput


def parse_time(text: str) -> datetime:
    """An aware UTC time from RFC 3339 text; a time without a zone is refused. Raises `BadInput`."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is not an RFC 3339 time such as 2026-01-31T08:00:00Z") from error
    if parsed.tzinfo is None:
        raise BadInput(f"{text!r} has no time zone; write 2026-01-31T08:00:00Z")
    return parsed.astimezone(UTC)


def format_time(moment: datetime) -> str:
    """`metav1.Time`: whole seconds, cut and not rounded, as the API server does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """`metav1.MicroTime`: always six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
