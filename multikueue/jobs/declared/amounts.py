# SPDX-License-Identifier: Apache-2.0
"""Numbers of a declaration: counts in a job, and what is computed from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.jobs.declared.model import DeclarationModel, Query
from multikueue.jobs.declared.paths import JobPath

_FORMS = ("value", "path", "sum", "product", "min", "max", "difference")


class PodAmount(DeclarationModel):
    """A whole number from 0: of the declaration, of the job, or computed. A number or a path alone are short forms.

    A number that the job does not have is absent: it has no part in a sum, a minimum or a maximum, and makes a product
    and a difference absent. `default` is the value of what is absent.
    """

    value: Annotated[int, Field(ge=0, le=MAX_INT32, strict=True)] | None = None
    path: Query | None = None
    """With several values their sum."""
    sum: Annotated[tuple[PodAmount, ...], Field(min_length=1)] | None = None
    product: Annotated[tuple[PodAmount, ...], Field(min_length=1)] | None = None
    min: Annotated[tuple[PodAmount, ...], Field(min_length=1)] | None = None
    max: Annotated[tuple[PodAmount, ...], Field(min_length=1)] | None = None
    difference: Annotated[tuple[PodAmount, ...], Field(min_length=2, max_length=2)] | None = None
    """The first less the second, at least 0."""
    default: Annotated[int, Field(ge=0, le=MAX_INT32, strict=True)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"value": value}
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [form for form in _FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(_FORMS)}, found {' and '.join(given) or 'none'}")
        return self

    @property
    def paths(self) -> Iterator[JobPath]:
        """The fields of the job that it is computed from."""
        if self.path is not None:
            yield self.path
        for operand in self.sum or self.product or self.min or self.max or self.difference or ():
            yield from operand.paths

    def of(self, root: JsonObject) -> int | None:
        """The number; None if it is absent. Raises `BadInput` for a value of the job that is no count."""
        found = self._found(root)
        if found is None:
            return self.default
        if found > MAX_INT32:
            raise BadInput(f"{self.path or 'the number computed'}: expected at most {MAX_INT32}, found {found}")
        return found

    def _found(self, root: JsonObject) -> int | None:
        if self.path is not None:
            values = [parse_unsigned(each, field=str(self.path), maximum=MAX_INT32) for each in self.path.values(root)]
            return sum(values) if values else None
        if self.value is not None:
            return self.value
        operands = self.sum or self.product or self.min or self.max or self.difference or ()
        numbers = [operand.of(root) for operand in operands]
        present = [number for number in numbers if number is not None]
        if not present or (len(present) < len(numbers) and (self.product or self.difference)):
            return None
        if self.sum:
            return sum(present)
        if self.min:
            return min(present)
        if self.max:
            return max(present)
        if self.difference:
            return max(0, present[0] - present[1])
        result = 1
        for number in present:
            result = min(result * number, MAX_INT32 + 1)
        return result
