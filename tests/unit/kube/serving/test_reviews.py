# SPDX-License-Identifier: Apache-2.0
"""Users and rights by the API server's reviews, and for how long an answer is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web

from multikueue.core.clock import ManualClock
from multikueue.kube.serving.reviews import ALLOWED_SECONDS, REFUSED_SECONDS, ReviewedUser, Unreviewed, UserReviews
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api

pytestmark = pytest.mark.anyio

ALICE = ReviewedUser(name="alice", uid="7", groups=("team",), extra=(("scopes", ("a", "b")),))
RIGHT = {"resourceAttributes": {"verb": "get", "resource": "things"}}


async def server(request: web.Request) -> web.StreamResponse:
    spec = orjson.loads(await request.read())["spec"]
    if request.path.endswith("tokenreviews"):
        user = {"username": "alice", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a", "b"]}}
        return json_answer({"status": {"authenticated": spec["token"] == "good", "user": user}})
    assert spec["resourceAttributes"] == RIGHT["resourceAttributes"]
    named = {"user": "alice", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a", "b"]}}
    return json_answer({"status": {"allowed": {key: spec.get(key) for key in named} == named}})


@asynccontextmanager
async def reviewing(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = server,
) -> AsyncIterator[tuple[UserReviews, StubApi, ManualClock]]:
    clock = ManualClock()
    async with stub_api(answer) as api, api.client() as client:
        yield UserReviews(client, clock=clock), api, clock


async def test_a_token_is_the_user_that_the_server_finds() -> None:
    async with reviewing() as (reviews, _, _):
        assert await reviews.user_of("good") == ALICE
        assert await reviews.user_of("bad") is None


async def test_a_right_is_that_of_the_whole_user() -> None:
    async with reviewing() as (reviews, _, _):
        assert await reviews.allows(ALICE, RIGHT)
        assert not await reviews.allows(ReviewedUser(name="alice"), RIGHT)


async def test_a_yes_is_used_for_a_minute_and_a_no_for_ten_seconds() -> None:
    async with reviewing() as (reviews, api, clock):
        for seconds, asked in ((0.0, 2), (REFUSED_SECONDS, 3), (ALLOWED_SECONDS, 5)):
            clock.advance(seconds)
            for _ in range(3):
                assert await reviews.allows(ALICE, RIGHT)
                assert not await reviews.allows(ReviewedUser(name="bob"), RIGHT)
            assert len(api.seen) == asked


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_a_server_that_does_not_answer_gives_no_right_and_is_asked_again(code: int) -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        return status_answer(code, "Broken", Retry_After="0")

    async with reviewing(away) as (reviews, api, _):
        with pytest.raises(Unreviewed, match="cannot authenticate the request"):
            await reviews.allows(ALICE, RIGHT)
        api.answer = server
        assert await reviews.allows(ALICE, RIGHT)
