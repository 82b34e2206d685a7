# SPDX-License-Identifier: Apache-2.0
"""Authentication: client certificates, static tokens, service-account tokens, impersonation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster.apiserver import errors
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.auth.tokens import Tokens
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.http.requests import IMPERSONATES, Request, User, parse_target, verb_of

_AUTHENTICATED: Final = "system:authenticated"
_GROUP: Final = "authentication.k8s.io"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_EXTRA: Final = f"{IMPERSONATES}extra-"
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Authentication:
    """Finds the user of a request."""

    def __init__(self, *, tokens: Tokens, authorizer: Authorizer, static: Mapping[str, User] | None = None) -> None:
        self._tokens = tokens
        self._authorizer = authorizer
        self._static = dict(static or {})
        self._impersonators: set[str] = set()
        self.insecure: User | None = None
        """The user of requests without credentials; only for a plain loopback port of a test."""

    def user(self, request: Request) -> User:
        """The user, after impersonation. Raises `StatusError`."""
        found = self._direct(request)
        if any(header.startswith(IMPERSONATES) for header in request.headers):
            return self._impersonated(request, found)
        return found

    def _direct(self, request: Request) -> User:
        if request.certificate is not None:
            return request.certificate
        scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            static = self._static.get(token)
            if static is not None:
                return static
            checked = self._tokens.check(token)
            if checked is not None:
                return checked[0]
            raise errors.unauthorized()
        return self.insecure if self.insecure is not None and not scheme else ANONYMOUS

    def _impersonated(self, request: Request, user: User) -> User:
        headers = request.headers
        name, uid = headers.get("impersonate-user", ""), headers.get("impersonate-uid", "")
        groups = [group for group in headers.get("impersonate-group", "").split("\n") if group]
        extra = {
            unquote(header.removeprefix(_EXTRA)): tuple(value.split("\n"))
            for header, value in headers.items()
            if header.startswith(_EXTRA)
        }
        if not name:
            wanted = _go_user(uid, groups, extra)
            raise errors.bad_request(f"requested {wanted} without impersonating a user name")
        account = _ACCOUNT.fullmatch(name)
        if account is not None:
            self._allow_person(request, user, "serviceaccounts", account[2], namespace=account[1])
        else:
            self._allow_person(request, user, "users", name)
        for group in groups:
            self._allow(user, "groups", group)
        for key, values in extra.items():
            for value in values:
                self._allow(user, "userextras", value, group=_GROUP, sub=key)
        if uid:
            self._allow(user, "uids", uid, group=_GROUP)
        if account is not None and not groups:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[1]}"]
        if name == ANONYMOUS.name:
            groups += [group for group in ANONYMOUS.groups if group not in groups]
        elif not {_AUTHENTICATED, *ANONYMOUS.groups} & set(groups):
            groups.append(_AUTHENTICATED)
        return User(name, tuple(groups), uid, extra)

    def _allow_person(self, request: Request, user: User, resource: str, name: str, *, namespace: str = "") -> None:
        """Raises `StatusError`; the error for a user who never impersonated names the right for this request only."""
        if self._authorizer.allows(
            user, verb="impersonate", group="", resource=resource, namespace=namespace, name=name
        ):
            self._impersonators.add(user.name)
            return
        if user.name in self._impersonators:
            self._allow(user, resource, name, namespace=namespace)
        mode = "serviceaccount" if resource == "serviceaccounts" else "user-info"
        raise self._refusal(request, user, f"impersonate-on:{mode}")

    def _allow(
        self, user: User, resource: str, name: str, *, namespace: str = "", group: str = "", sub: str = ""
    ) -> None:
        self._authorizer.check(
            user, verb="impersonate", group=group, resource=resource, namespace=namespace, name=name, sub=sub
        )

    def _refusal(self, request: Request, user: User, prefix: str) -> StatusError:
        """The error for a user who lacks the request's own verb with a prefix, as a real server checks it."""
        target = parse_target(request.path)
        try:
            if target is None or not target.resource:
                self._authorizer.check_path(user, verb=f"{prefix}:{request.method.lower()}", path=request.path)
            else:
                verb = f"{prefix}:{verb_of(request, target)}"
                self._authorizer.check_request(request, target, verb=verb, user=user)
        except StatusError as error:
            return error
        return errors.unauthorized()


def _go_user(uid: str, groups: list[str], extra: dict[str, tuple[str, ...]]) -> str:
    """A user as a real server's log prints it."""

    def strings(values: Sequence[str]) -> str:
        return "{" + ", ".join(f'"{value}"' for value in values) + "}"

    shown_groups = f"[]string{strings(groups)}" if groups else "[]string(nil)"
    entries = ", ".join(f'"{key}":[]string{strings(values)}' for key, values in sorted(extra.items()))
    shown_extra = f"map[string][]string{{{entries}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:"{uid}", Groups:{shown_groups}, Extra:{shown_extra}}}'


def certificate_user(certificate: bytes) -> User | None:
    """The user of a verified client certificate (DER): CN is the name, each O a group."""
    subject = x509.load_der_x509_certificate(certificate).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        return None
    groups = [str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    extra = {_CREDENTIAL: (f"X509SHA256={hashlib.sha256(certificate).hexdigest()}",)}
    return User(str(names[0].value), (*groups, _AUTHENTICATED), "", extra)
