# SPDX-License-Identifier: Apache-2.0
"""Field errors, in the format of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """The kinds of errors, as kubectl shows them."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    NOT_SUPPORTED = "Unsupported value"
    NOT_FOUND = "Not found"
    TOO_MANY = "Too many"


_REASONS = {
    ErrorKind.REQUIRED: "FieldValueRequired",
    ErrorKind.INVALID: "FieldValueInvalid",
    ErrorKind.DUPLICATE: "FieldValueDuplicate",
    ErrorKind.FORBIDDEN: "FieldValueForbidden",
    ErrorKind.NOT_SUPPORTED: "FieldValueNotSupported",
    ErrorKind.NOT_FOUND: "FieldValueNotFound",
    ErrorKind.TOO_MANY: "FieldValueTooMany",
}
_WITHOUT_VALUE = frozenset({ErrorKind.REQUIRED, ErrorKind.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: the path, the kind, the value, and what is expected."""

    path: str
    kind: ErrorKind
    value: object = None
    detail: str = ""

    @property
    def body(self) -> str:
        """Kind, value and detail."""
        text = str(self.kind)
        if self.kind not in _WITHOUT_VALUE:
            text += f": {_print(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    @property
    def reason(self) -> str:
        """The reason of a cause in `Status.details`."""
        return _REASONS[self.kind]

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


def join(errors: Iterable[FieldError]) -> str:
    """All errors as one message; several are in brackets."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid(path: str, value: object, detail: str) -> FieldError:
    """A value that is not valid."""
    return FieldError(path, ErrorKind.INVALID, value, detail)


def required(path: str, detail: str = "") -> FieldError:
    """A value that is missing."""
    return FieldError(path, ErrorKind.REQUIRED, None, detail)


def duplicate(path: str, value: object) -> FieldError:
    """A value that may occur only once."""
    return FieldError(path, ErrorKind.DUPLICATE, value)


def forbidden(path: str, detail: str) -> FieldError:
    """Something that may not be set, or not now."""
    return FieldError(path, ErrorKind.FORBIDDEN, None, detail)


def not_supported(path: str, value: object, allowed: Iterable[str]) -> FieldError:
    """A value outside of a closed set."""
    supported = ", ".join(json.dumps(str(item)) for item in allowed)
    return FieldError(path, ErrorKind.NOT_SUPPORTED, value, f"supported values: {supported}")


def not_found(path: str, value: object) -> FieldError:
    """A reference to something that does not exist."""
    return FieldError(path, ErrorKind.NOT_FOUND, value)


def too_many(path: str, *, count: int, limit: int) -> FieldError:
    """A list that is too long."""
    return FieldError(path, ErrorKind.TOO_MANY, count, f"must have at most {limit} items")


def _print(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False)
