# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the webhooks: routes, limits, and the answers to what is no review (400) or unreadable (denied)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
from aiohttp import web

from manager.webhooks.configurations import Hook
from manager.webhooks.handlers import Handler
from manager.webhooks.review import AdmissionRequest, ReviewAnswer, convert_review, read_admission, write_admission
from multikueue.api import conversion
from multikueue.api.crds import CONVERSION_PATH
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.kube.serving.limits import ServingLimits

_log = logging.getLogger(__name__)

_ATTEMPTS = 50  # a second in all, far more than a watch lags; the object may also not exist
_LOOK_SECONDS = 0.02
_MEBIBYTE: Final = 1024 * 1024
_WRONG_SHAPE: Final = (TypeError, KeyError, AttributeError, ValueError, LookupError, RecursionError)
_LOGGED_LENGTH: Final = 2000  # of the reasons of a denial, which quote what a tenant wrote
LIMITS: Final = ServingLimits(
    connections=512,
    idle_seconds=120.0,  # API servers close after 90 and must be the first: a request at that moment would fail
    # The object and the old one, of 3 MiB each at most, and the review around them.
    body_bytes=7 * _MEBIBYTE,
    # The API server sends all objects of a list in one request.
    body_bytes_by_path={CONVERSION_PATH: 32 * _MEBIBYTE},
)
"""The limits of what clients may cost the webhook server."""
IsCached = Callable[[Hook, AdmissionRequest], bool]
"""Whether the caches have what a request refers to."""
_Route = Callable[[web.Request], Awaitable[web.Response]]


def application(
    handlers: Mapping[str, tuple[Hook, Handler]],
    *,
    ready: Callable[[], Awaitable[None]],
    is_cached: IsCached,
) -> web.Application:
    """The application that serves all webhooks and the conversion.

    Admission waits for `ready`, since a job that is defaulted by an empty cache would never be queued; conversion
    does not, since the caches may need it to fill. A request is delayed a moment if the caches miss what it refers to.
    """
    app = web.Application(client_max_size=max(LIMITS.body_bytes, *LIMITS.body_bytes_by_path.values()))
    app.router.add_post(CONVERSION_PATH, _convert)
    for path, (hook, handler) in handlers.items():
        app.router.add_post(path, _admission(hook, handler, ready, is_cached))
    return app


def _admission(hook: Hook, handler: Handler, ready: Callable[[], Awaitable[None]], is_cached: IsCached) -> _Route:
    async def answer(request: web.Request) -> web.Response:
        await ready()
        try:
            review = read_admission(await request.read())
        except BadInput as error:
            return web.Response(status=400, text=str(error))
        kind = ".".join(filter(None, (hook.resource.kind, hook.resource.group)))
        try:
            for _ in range(_ATTEMPTS):
                if is_cached(hook, review):
                    break
                await anyio.sleep(_LOOK_SECONDS)
            found = handler(review)
            if isinstance(found, Awaitable):
                found = await found
            body = write_admission(review, found, kind=kind)
        except _WRONG_SHAPE as error:
            # Mutating webhooks see objects before schema validation, so any field may be of any type.
            found = ReviewAnswer(refusals=(f"not the shape of a {hook.resource.kind}: {excerpt(str(error))}",))
            body = write_admission(review, found, kind=kind)
        if found.refusals or found.forbidden:
            _log.info(
                "request denied operation=%s kind=%s key=%s user=%s message=%s",
                review.operation,
                hook.resource.kind,
                Key(review.namespace, review.name),
                review.user,
                "; ".join(filter(None, (*found.refusals, found.forbidden)))[:_LOGGED_LENGTH],
            )
        return web.Response(body=body, content_type="application/json")

    return answer


async def _convert(request: web.Request) -> web.Response:
    try:
        body = convert_review(await request.read(), conversion.convert)
    except BadInput as error:
        return web.Response(status=400, text=str(error))
    return web.Response(body=body, content_type="application/json")
