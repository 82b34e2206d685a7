# SPDX-License-Identifier: Apache-2.0
"""When a job kind counts as removed: each answer of a server, of a proxy before it, and of none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
import pytest
from aiohttp import web

from manager.cache.kind_removal import LOOKS, KindRemoval, is_about_object, lacks_resource, lacks_version
from multikueue.api.resource import JOBS, Resource
from multikueue.kube.errors import from_response
from multikueue.kube.rest.client import KubeClient
from tests.support.stub_api import json_answer, listing, status_answer, stub_api

PIPELINES: Final = Resource("ci.example.com", "v1", "Pipeline", "pipelines")
OTHER: Final = "apiextensions.k8s.io/v1"
LIST: Final = "/apis/ci.example.com/v1/pipelines"
DEFINITION: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pipelines.ci.example.com"
VERSION: Final = "/apis/ci.example.com/v1"
GROUPS: Final = "/apis"

Respond = Callable[[], web.Response]


def not_served() -> web.Response:
    """What kube-apiserver answers to a path that nothing serves."""
    return web.Response(text="404 page not found\n", status=404)


def page_of_a_proxy() -> web.Response:
    return web.Response(text="<html>404 Not Found: nginx</html>", status=404, content_type="text/html")


def failing(code: int) -> Respond:
    """An answer after which the client does not ask again by itself."""
    return lambda: status_answer(code, "", "no", Retry_After="60")


def gone(kind: str, name: str) -> web.Response:
    details = {"group": "", "kind": kind, "name": name}
    body = {"kind": "Status", "code": 404, "reason": "NotFound", "details": details, "message": "not found"}
    return json_answer(body, 404)


def without_definition() -> web.Response:
    return gone("customresourcedefinitions", "pipelines.ci.example.com")


def groups(*versions: str) -> web.Response:
    found = [{"name": each.split("/")[0], "versions": [{"groupVersion": each}]} for each in versions]
    return json_answer({"kind": "APIGroupList", "groups": found})


def resources(*names: str, version: str = "ci.example.com/v1") -> web.Response:
    found = [{"name": name, "kind": name} for name in names]
    return json_answer({"kind": "APIResourceList", "groupVersion": version, "resources": found})


REMOVED: Final[Mapping[str, Respond]] = {
    LIST: not_served,
    DEFINITION: without_definition,
    VERSION: not_served,
    GROUPS: lambda: groups(OTHER),
}


class Server:
    """Answers each path as it is told."""

    def __init__(self, answers: Mapping[str, Respond]) -> None:
        self.answers = dict(answers)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        return self.answers[request.path]()


async def looked(answers: Mapping[str, Respond], *, times: int = LOOKS, resource: Resource = PIPELINES) -> list[bool]:
    """What each of these looks says."""
    async with stub_api(Server(answers)) as api, api.client() as client:
        removal = KindRemoval(client, resource)
        return [await removal.confirms() for _ in range(times)]


async def test_a_kind_whose_definition_is_gone_and_that_is_not_served_is_removed_by_the_second_look() -> None:
    assert await looked(REMOVED, times=3) == [False, True, True]


async def test_a_kind_is_removed_also_if_its_group_has_others() -> None:
    assert await looked({**REMOVED, VERSION: lambda: resources("runs", "runs/status")}) == [False, True]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({LIST: listing}, id="it is listed"),
        pytest.param({LIST: lambda: gone("namespaces", "team-a")}, id="the 404 is about a namespace"),
        pytest.param({LIST: lambda: status_answer(403, "Forbidden")}, id="it may not be listed"),
        pytest.param({LIST: failing(503)}, id="an aggregated API is away"),
        pytest.param({LIST: failing(429)}, id="the list is answered 429"),
        pytest.param({LIST: failing(500)}, id="the list is answered 500"),
        pytest.param({DEFINITION: lambda: json_answer({"kind": "x", "metadata": {}})}, id="it has a definition"),
        pytest.param({DEFINITION: lambda: status_answer(403, "Forbidden")}, id="its definition may not be read"),
        pytest.param({DEFINITION: not_served}, id="the server has no definitions"),
        pytest.param({DEFINITION: page_of_a_proxy}, id="a proxy answers instead of the definition"),
        pytest.param({DEFINITION: lambda: status_answer(404, "NotFound")}, id="the definition's 404 names nothing"),
        pytest.param(
            {DEFINITION: lambda: gone("customresourcedefinitions", "runs.ci.example.com")},
            id="the 404 is of another definition",
        ),
        pytest.param(
            {DEFINITION: failing(500)},
            id="the definition is answered 500",
        ),
        pytest.param({VERSION: lambda: resources("pipelines", "runs")}, id="discovery of the version has it"),
        pytest.param({VERSION: lambda: resources("runs", version="v1")}, id="discovery is of another version"),
        pytest.param({VERSION: lambda: json_answer({"kind": "Status"})}, id="discovery is something else"),
        pytest.param({VERSION: lambda: web.Response(text="{")}, id="discovery is not JSON"),
        pytest.param(
            {VERSION: failing(503)},
            id="discovery is not available",
        ),
        pytest.param({GROUPS: lambda: groups(OTHER, "ci.example.com/v1")}, id="an aggregated API answers 404 itself"),
        pytest.param({GROUPS: lambda: groups("apps/v1")}, id="the list of groups is not complete"),
        pytest.param({GROUPS: lambda: json_answer({"kind": "APIGroupList", "groups": 1})}, id="the list is no list"),
        pytest.param({GROUPS: page_of_a_proxy}, id="a proxy answers instead of discovery"),
        pytest.param({GROUPS: lambda: status_answer(403, "Forbidden")}, id="discovery may not be read"),
    ],
)
async def test_an_answer_that_leaves_doubt_removes_nothing(answers: Mapping[str, Respond]) -> None:
    assert not any(await looked({**REMOVED, **answers}))


async def test_a_proxy_that_answers_404_to_everything_removes_nothing() -> None:
    assert not any(await looked(dict.fromkeys(REMOVED, page_of_a_proxy)))


async def test_a_server_that_is_away_removes_nothing() -> None:
    async with stub_api(Server(REMOVED)) as api:
        config = api.config()
    async with KubeClient(config) as client:
        removal = KindRemoval(client, PIPELINES)
        assert not await removal.confirms()


async def test_looks_that_flap_begin_anew() -> None:
    server = Server(REMOVED)
    async with stub_api(server) as api, api.client() as client:
        removal = KindRemoval(client, PIPELINES)
        seen = [await removal.confirms()]
        server.answers[LIST] = listing
        seen.append(await removal.confirms())
        server.answers[LIST] = not_served
        seen.append(await removal.confirms())
        removal.begin_anew()
        seen += [await removal.confirms(), await removal.confirms()]
    assert seen == [False, False, False, False, True]


async def test_the_kinds_of_kubernetes_are_never_removed() -> None:
    async with stub_api(Server({})) as api, api.client() as client:
        removal = KindRemoval(client, JOBS)
        assert not any([await removal.confirms() for _ in range(LOOKS + 1)])
        assert api.seen == []


@pytest.mark.parametrize("document", [None, [], "x", {}, {"kind": "APIResourceList"}, {"kind": "APIGroupList"}])
def test_what_is_no_discovery_lacks_nothing(document: Any) -> None:
    assert not lacks_resource(document, PIPELINES)
    assert not lacks_version(document, PIPELINES)


def test_a_404_is_about_an_object_only_if_a_server_names_it() -> None:
    def about(**details: str) -> bool:
        body = {"kind": "Status", "reason": "NotFound", "code": 404, "details": details}
        return is_about_object(from_response(request="GET", status=404, body=orjson.dumps(body)), "a", PIPELINES)

    assert about(name="a", kind="pipelines")
    assert not about(name="b", kind="pipelines")
    assert not about(name="a", kind="namespaces")
    page = from_response(request="GET", status=404, body=b"404 page not found")
    assert not is_about_object(page, "a", PIPELINES)
