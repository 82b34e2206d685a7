# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the visibility API: who asks, and the limits of what clients may cost."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from manager.visibility.api import ApiAnswer, ApiRequest, VisibilityApi, failure
from multikueue.kube.serving.front_proxy import TrustedProxies
from multikueue.kube.serving.limits import ServingLimits
from multikueue.kube.serving.page_access import bearer_token
from multikueue.kube.serving.reviews import ReviewedUser, Unreviewed, UserReviews

LIMITS: Final = ServingLimits(connections=128, idle_seconds=120.0)
"""API servers close idle connections after 90 s and must be the first."""
_PROBES: Final = ("/healthz", "/livez", "/readyz")


def application(api: VisibilityApi, *, proxies: TrustedProxies, reviews: UserReviews) -> web.Application:
    """The application.

    A user is named by the API server that passes a request on, or by a bearer token; a probe has none.
    """

    async def user_of(request: web.Request) -> ReviewedUser | None:
        connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        certificate = None if connection is None else connection.getpeercert()
        user = proxies.current.user_of(request.headers, certificate)
        token = "" if user is not None else bearer_token(request)
        return await reviews.user_of(token) if token else user

    async def answer(request: web.Request) -> web.Response:
        try:
            user = await user_of(request)
        except Unreviewed as error:
            return _response(failure(503, str(error)))
        if user is None:
            return _response(failure(401, "Unauthorized"))
        asked = ApiRequest(
            method=request.method,
            path=request.rel_url.raw_path,
            query=request.query,
            accept=",".join(request.headers.getall("Accept", ())),
        )
        return _response(await api.answer(asked, user))

    async def probe(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    for path in _PROBES:
        app.router.add_get(path, probe)
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def _response(answer: ApiAnswer) -> web.Response:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-cache, private"}
    return web.Response(status=answer.status, body=answer.body, headers=headers)
