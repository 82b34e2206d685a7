# SPDX-License-Identifier: Apache-2.0
"""The field type of durations in models, read and printed by `core.duration`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

from multikueue.core.duration import format_duration, parse_duration
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


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
    raise BadInput(f"{excerpt(value)} is not a duration such as 30s, 5m or 1h30m")


Duration: TypeAlias = Annotated[timedelta, _DurationSchema]
