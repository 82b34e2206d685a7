# SPDX-License-Identifier: Apache-2.0
"""The variable `authorizer` of expressions about a write: may the requester, or a service account, do that as well?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.codec.documents import JsonValue


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """The answer to a check."""

    allowed: bool
    reason: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a check is about: a resource, or a path that is no resource."""

    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Access(Protocol):
    """Decides what one user may do."""

    def decide(self, verb: str, attributes: Attributes) -> AccessAnswer:
        """Whether the user may do that."""

    def of_account(self, namespace: str, name: str) -> Access:
        """The decisions about a service account."""


@dataclass(frozen=True, slots=True)
class AuthorizerValue:
    """`authorizer`; `requestResource` is what the request itself is about."""

    access: Access
    request: Attributes

    def __getitem__(self, field: str) -> AccessCheck:
        if field != "requestResource":
            raise CelError(f"no such key: {field}")
        return AccessCheck(self.access, self.request)


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """`authorizer.path(…)`, `authorizer.group(…)` and all that is made from them, until `check`."""

    access: Access
    attributes: Attributes


def _begun(value: AuthorizerValue, **attributes: str) -> AccessCheck:
    if not isinstance(value, AuthorizerValue):
        raise CelError("no such overload")
    return AccessCheck(value.access, Attributes(**attributes))


def _narrowed(value: AccessCheck, **attributes: str) -> AccessCheck:
    if not isinstance(value, AccessCheck):
        raise CelError("no such overload")
    return AccessCheck(value.access, replace(value.attributes, **attributes))


def _account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if not isinstance(value, AuthorizerValue):
        raise CelError("no such overload")
    return AuthorizerValue(value.access.of_account(namespace, name), value.request)


def _check(value: AccessCheck, verb: str) -> AccessAnswer:
    if not isinstance(value, AccessCheck):
        raise CelError("no such overload")
    return value.access.decide(verb, value.attributes)


AUTHORIZER_METHODS: Final[dict[str, Callable[..., JsonValue]]] = {
    "path": lambda value, path: _begun(value, path=path),
    "group": lambda value, group: _begun(value, group=group),
    "serviceAccount": _account,
    "resource": lambda value, resource: _narrowed(value, resource=resource),
    "subresource": lambda value, subresource: _narrowed(value, subresource=subresource),
    "namespace": lambda value, namespace: _narrowed(value, namespace=namespace),
    "name": lambda value, name: _narrowed(value, name=name),
    # Only webhooks that authorize see selectors; roles are about all objects, whatever they select.
    "fieldSelector": lambda value, selector: _narrowed(value),
    "labelSelector": lambda value, selector: _narrowed(value),
    "check": _check,
    "allowed": lambda decision: decision.allowed,
    "reason": lambda decision: decision.reason,
    "errored": lambda decision: bool(decision.error),
    "error": lambda decision: decision.error,
}
