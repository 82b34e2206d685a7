# SPDX-License-Identifier: Apache-2.0
"""The requests of the group visibility.kueue.x-k8s.io and their answers (`docs/spec/kueue-api.md §1.12`).

Knows who asks and nothing of HTTP connections. Errors are a Status, as of any API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote

import orjson

from manager.visibility import documents
from manager.visibility.documents import SUBRESOURCE, SUMMARY, VERSIONS
from manager.visibility.pending import DEFAULT_LIMIT, MAX_LIMIT, PendingPage, PendingWorkloads
from multikueue.api.constants import VISIBILITY_GROUP
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.kube.serving.reviews import ReviewedUser, Unreviewed, UserReviews

JSON: Final = "application/json"
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_JSON_RANGES: Final = frozenset({"", "*/*", "application/*", JSON})
_MASTERS: Final = "system:masters"
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    503: "ServiceUnavailable",
}
_MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request."""

    method: str
    path: str
    """As it was sent: its segments are percent-encoded."""
    query: Mapping[str, str]
    accept: str


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """Its answer."""

    status: int
    body: bytes
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class _Target:
    """The queue that a path names; a ClusterQueue has no namespace."""

    version: str
    plural: str
    key: Key


class VisibilityApi:
    """Answers requests of authenticated users."""

    def __init__(self, pending: PendingWorkloads, reviews: UserReviews) -> None:
        self._pending = pending
        self._reviews = reviews

    async def answer(self, request: ApiRequest, user: ReviewedUser) -> ApiAnswer:
        """The answer; what a user may read is decided by the API server's rules for the subresource."""
        target = _target(request.path)
        document = None if target else _document(request)
        if target is None and document is None:
            return failure(404, "the server could not find the requested resource")
        if request.method != "GET":
            return failure(405, f"the server does not allow {excerpt(request.method)} here: only GET")
        if document is not None:
            return document
        assert target is not None
        if _media_type(request.accept) is None:
            return failure(406, f"only {JSON} is served")
        refused = await self._refusal(target, user)
        if refused is not None:
            return refused
        try:
            page = _page(request.query)
        except BadInput as error:
            return failure(400, str(error))
        return await self._summary(target, page)

    async def _refusal(self, target: _Target, user: ReviewedUser) -> ApiAnswer | None:
        if _MASTERS in user.groups:
            return None
        attributes = {
            "verb": "get",
            "group": VISIBILITY_GROUP,
            "version": target.version,
            "resource": target.plural,
            "subresource": SUBRESOURCE,
            "name": target.key.name,
            **({"namespace": target.key.namespace} if target.key.namespace else {}),
        }
        try:
            allowed = await self._reviews.allows(user, {"resourceAttributes": attributes})
        except Unreviewed as error:
            return failure(503, str(error))
        if allowed:
            return None
        where = f'in the namespace "{target.key.namespace}"' if target.key.namespace else "at the cluster scope"
        asked = f'resource "{target.plural}/{SUBRESOURCE}" in API group "{VISIBILITY_GROUP}" {where}'
        about = f'{target.plural}.{VISIBILITY_GROUP} "{target.key.name}"'
        return failure(403, f"{about} is forbidden: User {excerpt(user.name)} cannot get {asked}")

    async def _summary(self, target: _Target, page: PendingPage) -> ApiAnswer:
        if target.plural == CLUSTER_QUEUES.plural:
            items = await self._pending.of_cluster_queue(target.key.name, page)
        else:
            items = await self._pending.of_local_queue(target.key, page)
        if items is None:
            kind, name = target.plural.removesuffix("s"), target.key.name
            details = {"name": name, "group": VISIBILITY_GROUP, "kind": kind}
            return failure(404, f'{kind}.{VISIBILITY_GROUP} "{name}" not found', details=details)
        version = f"{VISIBILITY_GROUP}/{target.version}"
        return _json({"kind": SUMMARY, "apiVersion": version, "metadata": {}, "items": items})


def failure(code: int, message: str, *, details: JsonObject | None = None) -> ApiAnswer:
    """A Status; `details` name the object, by which clients recognize it."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[code],
        **({} if details is None else {"details": details}),
        "code": code,
    }
    return ApiAnswer(code, orjson.dumps(status))


def _json(document: JsonObject, content_type: str = JSON) -> ApiAnswer:
    return ApiAnswer(200, orjson.dumps(document), content_type)


def _target(path: str) -> _Target | None:
    match [unquote(segment) for segment in path.removesuffix("/").split("/")]:
        case ["", "apis", group, version, "clusterqueues", name, subresource]:
            found = _Target(version, CLUSTER_QUEUES.plural, Key("", name))
        case ["", "apis", group, version, "namespaces", namespace, "localqueues", name, subresource] if namespace:
            found = _Target(version, LOCAL_QUEUES.plural, Key(namespace, name))
        case _:
            return None
    served = group == VISIBILITY_GROUP and version in VERSIONS and subresource == SUBRESOURCE
    return found if served and found.key.name else None


def _document(request: ApiRequest) -> ApiAnswer | None:
    """Discovery and OpenAPI; None for any other path."""
    make = _documents().get(request.path.removesuffix("/"))
    if make is None:
        return None
    media = _media_type(request.accept, *(map(_DISCOVERY.format, ("v2", "v2beta1")) if request.path == "/apis" else ()))
    if media is None:
        return failure(406, f"only {JSON} is served")
    if media == JSON:
        return _json(make())
    return _json(documents.aggregated_discovery("v2beta1" if "v=v2beta1" in media else "v2"), media)


def _documents() -> dict[str, Callable[[], JsonObject]]:
    found: dict[str, Callable[[], JsonObject]] = {
        "/apis": documents.group_list,
        f"/apis/{VISIBILITY_GROUP}": documents.group,
        "/openapi/v2": documents.openapi_v2,
        "/openapi/v3": documents.openapi_index,
    }
    for version in VERSIONS:
        found[f"/apis/{VISIBILITY_GROUP}/{version}"] = partial(documents.resources, version)
        found[f"/openapi/v3/apis/{VISIBILITY_GROUP}/{version}"] = partial(documents.openapi_v3, version)
    return found


def _media_type(accept: str, *others: str) -> str | None:
    """The first type in an Accept header that is served: JSON or one of `others`; None without one."""
    for entry in accept.split(","):
        parts = [part.strip() for part in entry.split(";") if not part.strip().startswith("q=")]
        if parts[0] in _JSON_RANGES and not any(part.startswith("as=") for part in parts[1:]):
            return JSON
        for other in others:
            if parts[0] == JSON and set(parts) == set(other.split(";")):
                return other
    return None


def _page(query: Mapping[str, str]) -> PendingPage:
    """Raises `BadInput`; a limit of 0 is the default one, as without it."""
    return PendingPage(_number(query, "offset"), min(_number(query, "limit") or DEFAULT_LIMIT, MAX_LIMIT))


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise BadInput(f"{name}: {excerpt(text)} is not a number of 0 or more")
    return int(text)
