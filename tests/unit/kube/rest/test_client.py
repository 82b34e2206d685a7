# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from multikueue.api.resource import JOBS
from multikueue.core.errors import BadInput
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource
from multikueue.kube.rest.tokens import FileToken
from tests.support.stub_api import Answer, event, json_answer, listing, status_answer, stream, stub_api, thing


def answers(*responses: web.Response) -> Answer:
    queue = list(responses)

    async def answer(request: web.Request) -> web.StreamResponse:
        return queue.pop(0)

    return answer


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        pytest.param(404, "NotFound", errors.NotFound, id="not found"),
        pytest.param(409, "Conflict", errors.Conflict, id="a conflict of versions"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="the reason tells a name that is taken"),
        pytest.param(410, "Expired", errors.Gone, id="an expired version"),
        pytest.param(422, "Invalid", errors.Invalid, id="an invalid object"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="forbidden"),
        pytest.param(418, "Teapot", errors.ApiError, id="an unknown failure is still an API error"),
    ],
)
async def test_a_failure_is_an_error_that_names_cluster_verb_and_object(
    code: int, reason: str, want: type[errors.ApiError]
) -> None:
    async with stub_api(answers(status_answer(code, reason, "because"))) as api, api.client() as client:
        with pytest.raises(want, match=r"stub: GET jobs.batch ns/a: because") as caught:
            await client.get(JOBS, "a", namespace="ns")
    assert type(caught.value) is want
    assert caught.value.status == code


@pytest.mark.parametrize(
    ("code", "reason", "message", "want"),
    [
        pytest.param(
            403, "Forbidden", 'admission webhook "v.kb.io" denied the request: spec: no', True, id="a webhook's refusal"
        ),
        pytest.param(
            400, "BadRequest", 'admission webhook "v.kb.io" denied the request', True, id="a webhook's own reason"
        ),
        pytest.param(
            403, "Forbidden", 'jobs.batch is forbidden: User "u" cannot create resource "jobs"', False, id="no right"
        ),
        pytest.param(422, "Invalid", 'Job.batch "a" is invalid: spec: no', False, id="a schema's refusal"),
    ],
)
async def test_a_webhook_denial_differs_from_a_missing_right(code: int, reason: str, message: str, want: bool) -> None:
    async with stub_api(answers(status_answer(code, reason, message))) as api, api.client() as client:
        with pytest.raises(errors.ApiError) as caught:
            await client.get(JOBS, "a", namespace="ns")
    assert caught.value.denied_by_webhook is want


async def test_a_page_that_is_no_status_is_quoted() -> None:
    page = web.Response(text="<html>bad gateway</html>", status=418)
    async with stub_api(answers(page)) as api, api.client() as client:
        with pytest.raises(errors.ApiError, match="answered 418: <html>bad gateway"):
            await client.get(JOBS, "a", namespace="ns")


@pytest.mark.parametrize(
    ("verb", "failure", "want_requests"),
    [
        pytest.param("GET", (429, "TooManyRequests"), 2, id="a read that is shed is sent again"),
        pytest.param("POST", (429, "TooManyRequests"), 2, id="a write that is shed is sent again"),
        pytest.param("GET", (503, "ServiceUnavailable"), 2, id="a read of a server that is away is sent again"),
        pytest.param("POST", (503, "ServiceUnavailable"), 1, id="a write that may have happened is not"),
        pytest.param("GET", (500, "InternalError"), 2, id="a read that broke is sent again"),
        pytest.param("POST", (504, "Timeout"), 1, id="a write that timed out is not"),
        pytest.param("GET", (404, "NotFound"), 1, id="an answer is an answer"),
    ],
)
async def test_what_is_sent_again(verb: str, failure: tuple[int, str], want_requests: int) -> None:
    script = answers(status_answer(*failure, Retry_After="0.01"), json_answer(thing("a")))
    async with stub_api(script) as api, api.client() as client:
        call = client.get(JOBS, "a", namespace="ns") if verb == "GET" else client.create(JOBS, {}, namespace="ns")
        if want_requests == 1:
            with pytest.raises(errors.ApiError):
                await call
        else:
            await call
        assert len(api.seen) == want_requests


async def test_a_long_retry_after_is_the_callers_decision() -> None:
    async with (
        stub_api(answers(status_answer(429, "TooManyRequests", Retry_After="60"))) as api,
        api.client() as client,
    ):
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(JOBS, "a", namespace="ns")
    assert caught.value.retry_after == 60


async def test_a_read_that_hangs_is_not_sent_again() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await anyio.sleep_forever()
        raise AssertionError("slept forever")

    async with stub_api(answer) as api, api.client() as client:
        with pytest.raises(errors.Unreachable) as caught:
            await client.request("GET", "/slow", timeout=0.05)
        assert caught.value.hung
        assert len(api.seen) == 1


async def test_a_server_that_is_not_there_is_unreachable_and_nothing_was_sent() -> None:
    config = ClusterConfig(name="gone", server="http://127.0.0.1:1", tls=TlsSource())
    async with KubeClient(config) as client:
        with pytest.raises(errors.Unreachable, match=r"gone: POST jobs\.batch") as caught:
            await client.create(JOBS, {}, namespace="ns")
    assert not caught.value.sent


async def test_a_401_renews_the_credentials_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        if len(seen) == 1:
            token.write_text("new-token")
            return status_answer(401, "Unauthorized")
        return json_answer(thing("a"))

    async with stub_api(answer) as api, api.client(tokens=FileToken(token)) as client:
        await client.get(JOBS, "a", namespace="ns")
    assert seen == ["Bearer old", "Bearer new-token"]


async def test_a_401_with_the_renewed_credentials_is_an_error(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("bad")
    script = answers(status_answer(401, "Unauthorized"), status_answer(401, "Unauthorized"))
    async with stub_api(script) as api, api.client(tokens=FileToken(token)) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get(JOBS, "a", namespace="ns")
        assert len(api.seen) == 2


async def test_a_list_is_read_page_by_page() -> None:
    script = answers(listing(thing("a"), token="more"), listing(thing("b"), version="11"))
    async with stub_api(script) as api, api.client() as client:
        page = await client.list_all(JOBS, limit=1, label_selector="x=y")
        assert api.seen == [
            "GET /apis/batch/v1/jobs?limit=1&labelSelector=x%3Dy",
            "GET /apis/batch/v1/jobs?limit=1&continue=more&labelSelector=x%3Dy",
        ]
    assert (len(page.items), page.resource_version) == (2, "11")


async def test_a_list_whose_snapshot_expires_between_pages_is_read_whole() -> None:
    script = answers(
        listing(thing("a"), token="more"), status_answer(410, "Expired"), listing(thing("b"), thing("c"), version="12")
    )
    async with stub_api(script) as api, api.client() as client:
        page = await client.list_all(JOBS, limit=1)
        assert "limit" not in api.seen[-1]
    assert (len(page.items), page.resource_version) == (2, "12")


async def test_a_watch_gives_events_larger_than_any_line_limit_in_pieces_of_any_size() -> None:
    big = thing("a", "2", text="x" * 3_000_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        line = event("ADDED", big) + event("DELETED", thing("b", "3"))
        return await stream(request, line[:10], line[10:1_000_000], line[1_000_000:])  # type: ignore[no-any-return]

    async with stub_api(answer) as api, api.client() as client:
        found = [(e.type, len(e.raw)) async for e in client.watch(JOBS, resource_version="1")]
    assert [kind for kind, _ in found] == ["ADDED", "DELETED"]
    assert found[0][1] > 3_000_000


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(
            event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
            errors.Gone,
            id="a version that is too old",
        ),
        pytest.param(b"<html>oops</html>\n", errors.ApiError, id="a proxy's page in the stream"),
    ],
)
async def test_an_error_in_a_watch_is_raised(line: bytes, want: type[errors.ApiError]) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, line)  # type: ignore[no-any-return]

    async with stub_api(answer) as api, api.client() as client:
        with pytest.raises(want):
            async for _ in client.watch(JOBS):
                pass


async def test_a_watch_that_receives_nothing_is_closed() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, event("ADDED", thing("a")), then=lambda: asyncio.sleep(5))  # type: ignore[no-any-return]

    async with stub_api(answer) as api, api.client(idle_watch_seconds=0.1) as client:
        with pytest.raises(errors.Unreachable, match="the watch broke"):
            async for _ in client.watch(JOBS):
                pass


async def test_requests_are_counted_by_verb_and_resource() -> None:
    script = answers(json_answer(thing("a")), json_answer(thing("a")))
    async with stub_api(script) as api, api.client() as client:
        await client.apply(JOBS, "a", {}, namespace="ns", manager="m", subresource="status")
        await client.delete(JOBS, "a", namespace="ns", uid="u1", propagation="Background")
        assert dict(client.requests_sent) == {("APPLY", "jobs/status"): 1, ("DELETE", "jobs"): 1}
        assert "fieldManager=m&force=true&fieldValidation=Ignore" in api.seen[0]
        assert b'"preconditions":{"uid":"u1"}' in api.bodies[1]


async def test_credentials_that_cannot_be_had_are_a_failed_request_and_nothing_worse(tmp_path: Path) -> None:
    async with stub_api(answers()) as api, api.client(tokens=FileToken(tmp_path / "missing")) as client:
        with pytest.raises(errors.Unreachable, match="cannot read the token file"):
            await client.get(JOBS, "a", namespace="ns")
        assert api.seen == []


async def test_a_json_patch_cannot_carry_an_expected_version() -> None:
    async with stub_api(answers()) as api, api.client() as client:
        with pytest.raises(BadInput, match="only a merge patch"):
            await client.patch(JOBS, "a", [], namespace="ns", kind=PatchKind.JSON, resource_version="7")


async def test_a_server_that_is_not_trusted_cannot_fill_the_memory() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer: web.StreamResponse = await stream(request, *[b"x" * 65536] * 64)
        return answer

    async with stub_api(endless) as api, api.client(max_answer_bytes=1_000_000) as client:
        with pytest.raises(errors.Unreachable, match="larger than 1000000 bytes"):
            await client.get(JOBS, "j", namespace="ns")
        with pytest.raises(errors.Unreachable, match="larger than 1000000 bytes"):
            await anext(client.watch(JOBS, namespace="ns"))
