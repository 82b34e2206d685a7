# SPDX-License-Identifier: Apache-2.0
"""Expressions about a write, in webhook configurations and admission policies: their variables and type check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel import checker
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from devcluster.apiserver.errors import StatusCause

_AUTHORIZER: Final = Type(
    "kubernetes.authorization.Authorizer",
    fields={"requestResource": Type("kubernetes.authorization.ResourceCheck")},
)
_KIND: Final = Type("kubernetes.GroupVersionKind", fields=dict.fromkeys(("group", "version", "kind"), STRING))
_RESOURCE: Final = Type(
    "kubernetes.GroupVersionResource", fields=dict.fromkeys(("group", "version", "resource"), STRING)
)
_USER: Final = Type(
    "kubernetes.UserInfo",
    fields={
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
)
_REQUEST: Final = Type(
    "kubernetes.AdmissionRequest",
    fields={
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
SCOPE: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "request": _REQUEST,
    "authorizer": _AUTHORIZER,
    "namespaceObject": DYN,
}
"""The variables of all of them; policies have more."""


def type_problems(
    text: str, scope: Mapping[str, Type], path: str, wanted: Type, *, patches: bool = False
) -> list[StatusCause]:
    """The problems of an expression that must be of a type; `patches` if it may make messages."""
    kind, problems = checked(text, scope, path, patches=patches)
    if not problems and kind != wanted:
        return [field_errors.invalid(path, text, f"must evaluate to {wanted} but got {_named(kind)}")]
    return problems


def checked(
    text: str, scope: Mapping[str, Type], path: str, *, patches: bool = False
) -> tuple[Type, list[StatusCause]]:
    """The type of an expression; `dyn`, with its problems, if it has none."""
    try:
        return checker.check(text, scope, patches=patches).type, []
    except CelError as error:
        return DYN, [field_errors.invalid(path, text, f"compilation failed: {error}")]


def _named(kind: Type) -> str:
    return "null_type" if kind.name == "null" else str(kind)
