# SPDX-License-Identifier: Apache-2.0
"""Who asks: client certificates, static tokens, service-account tokens, and whom they impersonate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from multikueue.devcluster.apiserver import errors
from multikueue.devcluster.apiserver.auth.rbac import Authorizer
from multikueue.devcluster.apiserver.auth.tokens import Tokens
from multikueue.devcluster.apiserver.errors import StatusError
from multikueue.devcluster.apiserver.requests import Request, User

_AUTHENTICATED: Final = "system:authenticated"
_GROUP: Final = "authentication.k8s.io"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_EXTRA: Final = "impersonate-extra-"
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Authentication:
    """Finds out who asks."""

    def __init__(self, *, tokens: Tokens, authorizer: Authorizer, static: Mapping[str, User] | None = None) -> None:
        self._tokens = tokens
        self._authorizer = authorizer
        self._static = dict(static or {})
        self._speakers: set[str] = set()
        self.refused: Callable[[Request, User, str], StatusError] = _refused
        """What is said to somebody who may not do what a request asks, given a prefix of the verb."""
        self.insecure: User | None = None
        """Whom a request without any credentials is taken for; on a plain loopback port of a test only."""

    def user(self, request: Request) -> User:
        """Who asks, after impersonation. Raises `StatusError`."""
        found = self._direct(request)
        if any(header.startswith("impersonate-") for header in request.headers):
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
        groups = [group.strip() for group in headers.get("impersonate-group", "").split(",") if group.strip()]
        extra = {
            unquote(header.removeprefix(_EXTRA)): tuple(value.split(", "))
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
        """Raises `StatusError`; whoever never spoke for anybody is told the right to speak for one about one thing."""
        if self._authorizer.allows(
            user, verb="impersonate", group="", resource=resource, namespace=namespace, name=name
        ):
            self._speakers.add(user.name)
            return
        if user.name in self._speakers:
            self._allow(user, resource, name, namespace=namespace)
        mode = "serviceaccount" if resource == "serviceaccounts" else "user-info"
        raise self.refused(request, user, f"impersonate-on:{mode}")

    def _allow(
        self, user: User, resource: str, name: str, *, namespace: str = "", group: str = "", sub: str = ""
    ) -> None:
        self._authorizer.check(
            user, verb="impersonate", group=group, resource=resource, namespace=namespace, name=name, sub=sub
        )


def _refused(request: Request, user: User, prefix: str) -> StatusError:
    return errors.forbidden(errors.About(), f'User "{user.name}" cannot {prefix} path "{request.path}"')


def _go_user(uid: str, groups: list[str], extra: dict[str, tuple[str, ...]]) -> str:
    """A user as a real server's log shows one."""

    def strings(values: Sequence[str]) -> str:
        return "{" + ", ".join(f'"{value}"' for value in values) + "}"

    shown_groups = f"[]string{strings(groups)}" if groups else "[]string(nil)"
    entries = ", ".join(f'"{key}":[]string{strings(values)}' for key, values in sorted(extra.items()))
    shown_extra = f"map[string][]string{{{entries}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:"{uid}", Groups:{shown_groups}, Extra:{shown_extra}}}'


def certificate_user(certificate: bytes) -> User | None:
    """Whom a verified client certificate (DER) names: CN is the user, each O a group."""
    subject = x509.load_der_x509_certificate(certificate).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        return None
    groups = [str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    extra = {_CREDENTIAL: (f"X509SHA256={hashlib.sha256(certificate).hexdigest()}",)}
    return User(str(names[0].value), (*groups, _AUTHENTICATED), "", extra)
