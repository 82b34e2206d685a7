# SPDX-License-Identifier: Apache-2.0
"""Questions of a declaration that a job answers with yes or no."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from multikueue.api.objects import JsonObject
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.jobs.declared.amounts import PodAmount
from multikueue.jobs.declared.model import DeclarationModel, Query

_FORMS = ("condition", "path", "positive", "at_least", "all", "any", "not_")
_SHOWN = ("condition", "path", "positive", "atLeast", "all", "any", "not")


class JobCheck(DeclarationModel):
    """One question; exactly one form."""

    condition: Annotated[str, Field(min_length=1)] | None = None
    """Whether `status.conditions` has one of this type with the status `is`."""
    is_: Annotated[str, Field(alias="is")] = TRUE
    path: Query | None = None
    """Whether one of its values is in `in`; without `in`, whether one is not empty, false or 0."""
    in_: Annotated[tuple[str | int | bool, ...] | None, Field(alias="in", min_length=1)] = None
    positive: PodAmount | None = None
    """Whether it is above 0."""
    at_least: Annotated[tuple[PodAmount, ...], Field(min_length=2, max_length=2)] | None = None
    """Whether the first number is at least the second; absent numbers are 0."""
    all: Annotated[tuple[JobCheck, ...], Field(min_length=1)] | None = None
    any: Annotated[tuple[JobCheck, ...], Field(min_length=1)] | None = None
    not_: Annotated[JobCheck | None, Field(alias="not")] = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for form, name in zip(_FORMS, _SHOWN, strict=True) if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(_SHOWN)}, found {' and '.join(given) or 'none'}")
        if self.in_ is not None and self.path is None:
            raise ValueError(f"in belongs to path, found it with {given[0]}")
        if "is_" in self.model_fields_set and self.condition is None:
            raise ValueError(f"is belongs to condition, found it with {given[0]}")
        return self

    def holds(self, root: JsonObject) -> bool:
        """Whether it is so. Raises `BadInput` for a count of the job that is none."""
        if self.condition is not None:
            found = condition_of(root, self.condition)
            return found is not None and found.get("status") == self.is_
        if self.path is not None:
            return any(self._accepts(value) for value in self.path.values(root))
        if self.positive is not None:
            return (self.positive.of(root) or 0) > 0
        if self.at_least is not None:
            one, other = (amount.of(root) or 0 for amount in self.at_least)
            return one >= other
        if self.all is not None:
            return all(check.holds(root) for check in self.all)
        if self.any is not None:
            return any(check.holds(root) for check in self.any)
        return self.not_ is not None and not self.not_.holds(root)

    def answer(self, root: JsonObject, *, unreadable: bool) -> bool:
        """`holds`, and `unreadable` for a job whose counts cannot be read."""
        try:
            return self.holds(root)
        except BadInput:
            return unreadable

    def _accepts(self, value: Any) -> bool:
        if self.in_ is None:
            return bool(value)
        # In Python 1 equals True.
        return any(type(value) is type(each) and value == each for each in self.in_)


def condition_of(root: JsonObject, kind: str) -> JsonObject | None:
    """The condition of that type in the status; entries of another shape are skipped."""
    return next((each for each in _conditions(root) if each.get("type") == kind), None)


def _conditions(root: JsonObject) -> Iterator[JsonObject]:
    status = root.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for entry in conditions if isinstance(conditions, list) else ():
        if isinstance(entry, dict):
            yield entry
