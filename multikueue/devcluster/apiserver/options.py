# SPDX-License-Identifier: Apache-2.0
"""The parameters of a write: dry run, field validation, field manager, force.

Owns refusing what they may not say, all of it at once, as `CreateOptions`, `UpdateOptions` and `PatchOptions` are
validated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.requests import Request

_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_MAX_MANAGER: Final = 128
_ESCAPES: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def check(request: Request, *, applies: bool = False) -> None:
    """Refuse a write whose parameters say what they may not. Raises `StatusError`."""
    if not request.query_text:
        if applies:
            raise errors.invalid(errors.About("", "meta.k8s.io", "PatchOptions"), [_NO_MANAGER])
        return
    causes: list[Cause] = []
    query = request.query
    manager = query.get("fieldManager", "")
    if applies:
        if not manager:
            causes.append(_NO_MANAGER)
    elif request.method == "PATCH" and "force" in query:
        causes.append(Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force"))
    causes += _manager_problems(manager)
    if "dryRun" in query:
        causes += dry_run_problems(parse_qs(request.query_text, keep_blank_values=True)["dryRun"])
    mode = query.get("fieldValidation", "")
    if mode not in _VALIDATIONS:
        listed = ", ".join(f'"{name}"' for name in _VALIDATIONS)
        text = f'Unsupported value: "{mode}": supported values: {listed}'
        causes.append(Cause("FieldValueNotSupported", text, "fieldValidation"))
    if causes:
        raise errors.invalid(errors.About("", "meta.k8s.io", _KINDS.get(request.method, "")), causes)


_NO_MANAGER: Final = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")


def manager(request: Request) -> str:
    """Who a write says that it is by; empty when it does not say."""
    return request.query.get("fieldManager", "")


def dry_run(request: Request) -> bool:
    """Whether nothing is to be stored."""
    return bool(request.query_text) and request.query.get("dryRun", "") == "All"


def dry_run_problems(given: Sequence[str]) -> list[Cause]:
    """What is wrong with the values of `dryRun`."""
    if all(value == "All" for value in given):
        return []
    shown = documents.dump(list(given)).decode()
    return [Cause("FieldValueNotSupported", f'Unsupported value: {shown}: supported values: "All"', "dryRun")]


def _manager_problems(manager: str) -> list[Cause]:
    found = []
    if len(manager.encode()) > _MAX_MANAGER:
        text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
        found.append(Cause("FieldValueTooLong", text, "fieldManager"))
    for position, char in enumerate(manager):
        if not char.isprintable():
            shown = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in manager)
            text = f'Invalid value: "{shown}": invalid character U+{ord(char):04X} (at position {position})'
            found.append(Cause("FieldValueInvalid", text, "fieldManager"))
            break
    return found
