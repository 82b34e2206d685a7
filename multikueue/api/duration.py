# SPDX-License-Identifier: Apache-2.0
"""Durations as Go and Kubernetes write them: `1h30m`, `5s`, `100ms`, `0`.

Owns reading and printing, and the field type for models. Everything in between is a `timedelta`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from multikueue.core.errors import BadInput

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_MICROSECONDS: Final = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> timedelta:
    """The duration that `text` says. Raises `BadInput`."""
    unsigned = text.removeprefix("-").removeprefix("+")
    if unsigned == "0":
        return timedelta()
    total = 0.0
    position = 0
    while match := _PART.match(unsigned, position):
        total += float(match[1]) * _MICROSECONDS[match[2]]
        position = match.end()
    if not position or position != len(unsigned):
        raise BadInput(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    duration = timedelta(microseconds=total)
    return -duration if text.startswith("-") else duration


def format_duration(duration: timedelta) -> str:
    """`duration` as Go prints it, without the parts that are zero."""
    microseconds = duration // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    hours, rest = divmod(microseconds, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds = f"{rest / 1_000_000:.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{seconds}s" if rest else ""]
    return sign + ("".join(parts) or "0s")


class _DurationSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            _read, serialization=core_schema.plain_serializer_function_ser_schema(format_duration)
        )


def _read(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    # YAML reads a bare 0 as a number.
    if isinstance(value, str) or value == 0:
        return parse_duration(str(value))
    raise BadInput(f"{value!r} is not a duration such as 30s, 5m or 1h30m")


Duration: TypeAlias = Annotated[timedelta, _DurationSchema]
