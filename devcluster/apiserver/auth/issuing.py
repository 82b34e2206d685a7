# SPDX-License-Identifier: Apache-2.0
"""Token requests of service accounts (`serviceaccounts/token`): their limits, and what a token can be bound to."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.auth.tokens import ISSUER, Tokens
from devcluster.apiserver.codec import decoding, documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import About, StatusCause
from devcluster.apiserver.http.requests import Answer, Request, answer
from devcluster.apiserver.patch import managers
from devcluster.apiserver.patch.managers import FieldManager
from devcluster.apiserver.registry import ownership
from devcluster.apiserver.schema import builtin
from multikueue.core.timestamps import format_time

_GROUP: Final = "authentication.k8s.io"
_API_VERSION: Final = f"{_GROUP}/v1"
_NODE: Final = "io.k8s.api.authentication.v1.TokenRequest"
_DEFAULT_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 1 << 32
_BINDABLE: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


def issue(request: Request, account: JsonObject, *, context: ServerContext, tokens: Tokens) -> Answer:
    """A token of the service account. Raises `StatusError`."""
    body = decoding.decode(request)
    spec = documents.child(body, "spec") if isinstance(body, dict) else {}
    seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
    for broken, limit in (
        (seconds < _LEAST_SECONDS, "less than 10 minutes"),
        (seconds > _MOST_SECONDS, "larger than 2^32 seconds"),
    ):
        if broken:
            text = f"Invalid value: {seconds}: may not specify a duration {limit}"
            cause = StatusCause("FieldValueInvalid", text, "spec.expirationSeconds")
            raise errors.invalid(About("", _GROUP, "TokenRequest"), [cause])
    metadata = account["metadata"]
    reference = documents.child(spec, "boundObjectRef")
    token = tokens.issue(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        audiences=spec.get("audiences") or [ISSUER],
        seconds=seconds,
        bound=_bound(reference, metadata["namespace"], context) if reference else {},
    )
    stamp = context.stamp()
    granted = {**spec, "expirationSeconds": seconds}
    owners = managers.update(
        {"spec": {}},
        {"spec": granted},
        kind=builtin.node(_NODE),
        managers={},
        by=FieldManager(ownership.manager_of(request), managers.UPDATE, _API_VERSION, "token"),
        now=stamp,
    )
    return answer(
        201,
        {
            "kind": "TokenRequest",
            "apiVersion": _API_VERSION,
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "creationTimestamp": stamp,
                "managedFields": managers.write(owners),
            },
            "spec": {
                "audiences": spec.get("audiences") or [ISSUER],
                "expirationSeconds": seconds,
                "boundObjectRef": reference or None,
            },
            "status": {
                "token": token,
                "expirationTimestamp": format_time(context.now() + timedelta(seconds=seconds)),
            },
        },
    )


def _bound(reference: JsonObject, namespace: str, context: ServerContext) -> dict[str, JsonObject]:
    """The object that a token is bound to, as claims name it. Raises `StatusError`."""
    kind, name = reference.get("kind", ""), reference.get("name", "")
    plural = _BINDABLE.get(kind)
    if plural is None:
        version = reference.get("apiVersion", "")
        raise errors.bad_request(f"cannot bind token to object of type /{version}, Kind={kind}")
    found = context.get(plural, name if plural == "nodes" else f"{namespace}/{name}")
    if found is None:
        raise errors.not_found(About(name, "", plural))
    return {kind.lower(): {"name": name, "uid": found["metadata"]["uid"]}}
