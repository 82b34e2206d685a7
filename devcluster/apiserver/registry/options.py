# SPDX-License-Identifier: Apache-2.0
"""The parameters of a write: dry run, field validation, field manager, force.

Validated together, as `CreateOptions`, `UpdateOptions` or `PatchOptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.http.requests import Request

_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_MAX_MANAGER: Final = 128
_ESCAPES: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def check(request: Request, *, applies: bool = False) -> None:
    """Validate the parameters of a write. Raises `StatusError`."""
    if not request.query_text:
        if applies:
            raise errors.invalid(errors.About("", "meta.k8s.io", "PatchOptions"), [_NO_MANAGER])
        return
    causes: list[StatusCause] = []
    query = request.query
    manager = query.get("fieldManager", "")
    if applies:
        if not manager:
            causes.append(_NO_MANAGER)
    elif request.method == "PATCH" and "force" in query:
        causes.append(
            StatusCause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")
        )
    causes += _manager_problems(manager)
    if "dryRun" in query:
        causes += dry_run_problems(parse_qs(request.query_text, keep_blank_values=True)["dryRun"])
    mode = query.get("fieldValidation", "")
    if mode not in _VALIDATIONS:
        listed = ", ".join(f'"{name}"' for name in _VALIDATIONS)
        text = f'Unsupported value: "{mode}": supported values: {listed}'
        causes.append(StatusCause("FieldValueNotSupported", text, "fieldValidation"))
    if causes:
        raise errors.invalid(errors.About("", "meta.k8s.io", _KINDS.get(request.method, "")), causes)


_NO_MANAGER: Final = StatusCause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")


def manager(request: Request) -> str:
    """The `fieldManager` of a write; empty if not given."""
    return request.query.get("fieldManager", "")


def dry_run(request: Request) -> bool:
    """Whether the write is a dry run."""
    return bool(request.query_text) and request.query.get("dryRun", "") == "All"


def dry_run_problems(given: Sequence[str]) -> list[StatusCause]:
    """The problems of the values of `dryRun`."""
    if all(value == "All" for value in given):
        return []
    shown = documents.dump(list(given)).decode()
    return [StatusCause("FieldValueNotSupported", f'Unsupported value: {shown}: supported values: "All"', "dryRun")]


def _manager_problems(manager: str) -> list[StatusCause]:
    found = []
    if len(manager.encode()) > _MAX_MANAGER:
        text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
        found.append(StatusCause("FieldValueTooLong", text, "fieldManager"))
    for position, char in enumerate(manager):
        if not char.isprintable():
            shown = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in manager)
            text = f'Invalid value: "{shown}": invalid character U+{ord(char):04X} (at position {position})'
            found.append(StatusCause("FieldValueInvalid", text, "fieldManager"))
            break
    return found
