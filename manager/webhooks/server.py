# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the webhooks: a body in, a body out.

Owns the routes and what is answered to something that is no review. The answers themselves are `webhooks.handlers`'.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio
from aiohttp import web

from manager.webhooks.configurations import Hook
from manager.webhooks.handlers import Handler
from manager.webhooks.review import AdmissionRequest, convert_review, read_admission, write_admission
from multikueue.api import conversion
from multikueue.api.crds import CONVERSION_PATH
from multikueue.core.errors import BadInput

_log = logging.getLogger(__name__)

_LOOKS = 50  # a second in all, far more than a watch is behind; what is asked about may just as well not exist
_LOOK_SECONDS = 0.02
_MAX_BODY = 32 * 1024 * 1024  # a conversion of a long list comes in one request
Knows = Callable[[Hook, AdmissionRequest], bool]
"""Whether what a request is about has been seen."""
_Route = Callable[[web.Request], Awaitable[web.Response]]


def application(
    handlers: Mapping[str, tuple[Hook, Handler]],
    *,
    ready: Callable[[], Awaitable[None]],
    knows: Knows,
) -> web.Application:
    """The application that serves all webhooks and the conversion.

    Admission waits for `ready`, since a job that is defaulted by an empty cache would never be queued; conversion
    does not, since the caches may need it to fill. What a request is about and `knows` misses is waited for a moment.
    """
    app = web.Application(client_max_size=_MAX_BODY)
    app.router.add_post(CONVERSION_PATH, _convert)
    for path, (hook, handler) in handlers.items():
        app.router.add_post(path, _admission(hook, handler, ready, knows))
    return app


def _admission(hook: Hook, handler: Handler, ready: Callable[[], Awaitable[None]], knows: Knows) -> _Route:
    async def answer(request: web.Request) -> web.Response:
        await ready()
        try:
            review = read_admission(await _body(request))
        except BadInput as error:
            return web.Response(status=400, text=str(error))
        for _ in range(_LOOKS):
            if knows(hook, review):
                break
            await anyio.sleep(_LOOK_SECONDS)
        found = handler(review)
        if found.refusals:
            _log.info(
                "%s of %s %s/%s by %s refused: %s",
                review.operation,
                hook.resource.kind,
                review.namespace,
                review.name,
                review.user,
                "; ".join(found.refusals),
            )
        body = write_admission(review, found, kind=f"{hook.resource.kind}.{hook.resource.group}")
        return web.Response(body=body, content_type="application/json")

    return answer


async def _convert(request: web.Request) -> web.Response:
    try:
        body = convert_review(await _body(request), conversion.convert)
    except BadInput as error:
        return web.Response(status=400, text=str(error))
    return web.Response(body=body, content_type="application/json")


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except ConnectionError as error:
        # The API server went away or gave up: it asks again, and nobody reads this answer.
        raise web.HTTPBadRequest(text=f"the request broke off: {error}") from error
