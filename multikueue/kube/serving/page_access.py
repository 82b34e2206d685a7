# SPDX-License-Identifier: Apache-2.0
"""Authentication and authorization of requests for our pages, by the API server.

A TokenReview authenticates the bearer token, a SubjectAccessReview decides whether the user may `get` the path. A page
is served only if both succeed; an API server that does not answer is a 503. Answers are cached for a short time, and a
limited number of them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import anyio
import orjson
from aiohttp import web

from multikueue.api.objects import JsonObject
from multikueue.api.resource import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from multikueue.core.clock import Clock
from multikueue.core.printable import excerpt
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient

ALLOWED_SECONDS: Final = 60.0
"""How long an allowed answer is cached: a revoked token can be used for that time."""
REFUSED_SECONDS: Final = 10.0
"""How long a denied answer is cached: a user who was just allowed waits for that time."""
_ANSWERS_KEPT: Final = 256
_REVIEWS_AT_ONCE: Final = 4
_TIMEOUT_SECONDS: Final = 5.0
_SCHEME: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class NoAccess:
    """Why a page is not served, with the HTTP status."""

    status: int
    text: str

    def response(self) -> web.Response:
        """The answer."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return web.Response(status=self.status, text=f"{self.text}\n", headers=headers)


class PageAccess:
    """Decides which users may `get` one path."""

    def __init__(self, client: KubeClient, path: str, *, clock: Clock) -> None:
        self._client = client
        self._path = path
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, NoAccess | None]] = OrderedDict()
        """By the digest of a token: the expiry of the cached answer, and the answer."""
        self._reviews = anyio.CapacityLimiter(_REVIEWS_AT_ONCE)

    async def refusal(self, request: web.Request) -> NoAccess | None:
        """Why the request is refused; None if it is allowed."""
        header = request.headers.get("Authorization", "")
        token = header.removeprefix(_SCHEME).strip()
        if not header.startswith(_SCHEME) or not token:
            return NoAccess(401, "a bearer token is required: Authorization: Bearer TOKEN")
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        kept = self._kept.get(digest)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        try:
            with anyio.fail_after(_TIMEOUT_SECONDS):
                async with self._reviews:
                    found = await self._review(token)
        except (KubeError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_TIMEOUT_SECONDS:.0f} s"
            return NoAccess(503, f"cannot authenticate the request: {excerpt(reason, 400)}")
        self._keep(digest, found)
        return found

    async def _review(self, token: str) -> NoAccess | None:
        status = await self._ask(TOKEN_REVIEWS, {"token": token})
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            return NoAccess(401, "the token is not valid")
        named = {name: user[name] for name in ("groups", "uid", "extra") if user.get(name)}
        attributes = {"path": self._path, "verb": "get"}
        spec = {"user": user.get("username") or "", **named, "nonResourceAttributes": attributes}
        status = await self._ask(SUBJECT_ACCESS_REVIEWS, spec)
        if status.get("allowed") is not True:
            return NoAccess(403, f"{excerpt(user.get('username') or '')} may not get {self._path}")
        return None

    async def _ask(self, resource: Resource, spec: JsonObject) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = orjson.loads(await self._client.create(resource, body))
        status: dict[str, Any] = answer.get("status") or {}
        return status

    def _keep(self, digest: bytes, answer: NoAccess | None) -> None:
        seconds = ALLOWED_SECONDS if answer is None else REFUSED_SECONDS
        self._kept.pop(digest, None)
        self._kept[digest] = (self._clock.monotonic() + seconds, answer)
        if len(self._kept) > _ANSWERS_KEPT:
            self._kept.popitem(last=False)
