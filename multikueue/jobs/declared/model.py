# SPDX-License-Identifier: Apache-2.0
"""The base of the parts of a declaration: an unknown field is a mistake, and a path is compiled when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from multikueue.jobs.declared.paths import JobPath

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class DeclarationModel(BaseModel):
    """A part of a declaration."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True, arbitrary_types_allowed=True)


class _PathSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_path)


class _FieldSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_field)


def _path(value: Any) -> JobPath:
    if isinstance(value, JobPath):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a JSONPath such as $.spec.suspend, found {type(value).__name__}")
    return JobPath(value)


def _field(value: Any) -> JobPath:
    path = _path(value)
    if path.keys is None:
        raise ValueError(f"{path}: expected the path of one field, without wildcards and filters")
    return path


Query: TypeAlias = Annotated[JobPath, _PathSchema]
"""A path that may find several values."""
FieldPath: TypeAlias = Annotated[JobPath, _FieldSchema]
"""A path of names and indexes, which can be written to."""
