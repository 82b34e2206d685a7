# SPDX-License-Identifier: Apache-2.0
"""Who asks: client certificates, static tokens, service-account tokens, and whom they impersonate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from multikueue.devcluster.apiserver import errors
from multikueue.devcluster.apiserver.auth.rbac import Authorizer
from multikueue.devcluster.apiserver.auth.tokens import Tokens
from multikueue.devcluster.apiserver.requests import Request, User

_AUTHENTICATED: Final = "system:authenticated"
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
_OPEN: Final = ("/healthz", "/livez", "/readyz", "/version")
"""Paths that a probe may ask for without saying who it is."""


class Authentication:
    """Finds out who asks."""

    def __init__(self, *, tokens: Tokens, authorizer: Authorizer, static: Mapping[str, User] | None = None) -> None:
        self._tokens = tokens
        self._authorizer = authorizer
        self._static = dict(static or {})
        self.insecure: User | None = None
        """Whom a request without any credentials is taken for; on a plain loopback port of a test only."""

    def user(self, request: Request) -> User:
        """Who asks, after impersonation. Raises `StatusError`."""
        found = self._direct(request)
        if "impersonate-user" in request.headers or "impersonate-group" in request.headers:
            return self._impersonated(request, found)
        return found

    def _direct(self, request: Request) -> User:
        if request.certificate is not None:
            return request.certificate
        header = request.headers.get("authorization", "")
        if header[:7].lower() == "bearer ":
            token = header[7:].strip()
            static = self._static.get(token)
            if static is not None:
                return static
            checked = self._tokens.check(token)
            if checked is not None:
                return checked[0]
            raise errors.unauthorized()
        if header:
            raise errors.unauthorized()
        if self.insecure is not None:
            return self.insecure
        if request.path.startswith(_OPEN):
            return ANONYMOUS
        raise errors.unauthorized()

    def _impersonated(self, request: Request, user: User) -> User:
        headers = request.headers
        name = headers.get("impersonate-user", "")
        if not name:
            raise errors.bad_request("requested [{Group}] without impersonating a user")
        groups = [group.strip() for group in headers.get("impersonate-group", "").split(",") if group.strip()]
        kind, about = "users", name
        if name.startswith("system:serviceaccount:"):
            kind = "serviceaccounts"
            about = name.rpartition(":")[2]
        self._allow(user, kind, about, namespace=name.split(":")[2] if kind == "serviceaccounts" else "")
        for group in groups:
            self._allow(user, "groups", group)
        extra: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            if header.startswith("impersonate-extra-"):
                extra[unquote(header.removeprefix("impersonate-extra-"))] = tuple(value.split(", "))
        uid = headers.get("impersonate-uid", "")
        if kind == "serviceaccounts":
            parts = name.split(":")
            groups = groups or ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
        if name != ANONYMOUS.name and _AUTHENTICATED not in groups:
            groups.append(_AUTHENTICATED)
        return User(name, tuple(groups), uid, extra)

    def _allow(self, user: User, resource: str, name: str, *, namespace: str = "") -> None:
        if not self._authorizer.allows(
            user, verb="impersonate", group="", resource=resource, namespace=namespace, name=name
        ):
            about = errors.About(name, "", resource)
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            raise errors.forbidden(
                about,
                f'User "{user.name}" cannot impersonate resource "{resource}" in API group ""{where}',
            )


def certificate_user(certificate: bytes) -> User | None:
    """Whom a verified client certificate (DER) names: CN is the user, each O a group."""
    subject = x509.load_der_x509_certificate(certificate).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        return None
    groups = [str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return User(str(names[0].value), (*groups, _AUTHENTICATED))
