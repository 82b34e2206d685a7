# SPDX-License-Identifier: Apache-2.0
"""Authentication and authorization of requests for our pages, by the API server.

The bearer token says who asks, and a review whether that user may `get` the path. A page is served only if both
succeed; an API server that does not answer is a 503.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from multikueue.core.clock import Clock
from multikueue.core.printable import excerpt
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.serving.reviews import Unreviewed, UserReviews

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
        self._path = path
        self._reviews = UserReviews(client, clock=clock)

    async def refusal(self, request: web.Request) -> NoAccess | None:
        """Why the request is refused; None if it is allowed."""
        token = bearer_token(request)
        if not token:
            return NoAccess(401, "a bearer token is required: Authorization: Bearer TOKEN")
        try:
            user = await self._reviews.user_of(token)
            if user is None:
                return NoAccess(401, "the token is not valid")
            if not await self._reviews.allows(user, {"nonResourceAttributes": {"path": self._path, "verb": "get"}}):
                return NoAccess(403, f"{excerpt(user.name)} may not get {self._path}")
        except Unreviewed as error:
            return NoAccess(503, str(error))
        return None


def bearer_token(request: web.Request) -> str:
    """The bearer token of a request; empty without one."""
    header = request.headers.get("Authorization", "")
    return header.removeprefix(_SCHEME).strip() if header.startswith(_SCHEME) else ""
