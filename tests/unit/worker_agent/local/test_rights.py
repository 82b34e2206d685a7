# SPDX-License-Identifier: Apache-2.0
"""What an agent knows of its rights, beside a server that answers as it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from multikueue.api.resource import JOBS, NODES, SECRETS, WORKLOADS, Resource
from multikueue.core.clock import SystemClock
from multikueue.dispatch.protocol.worker_rights import describe_missing, missing_of
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.crds.kinds import JOB_SETS
from tests.support.managers import eventually
from tests.support.stub_api import json_answer, status_answer, stub_api
from worker_agent.local.rights import Rights

pytestmark = pytest.mark.anyio

SECONDS = 0.2


class Server:
    """What the stub answers to reviews, and to requests."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.refuses_reviews = False
        self.silent = False
        self.review: Callable[[str], Any] | None = None
        self.forbidden: set[str] = set()
        self.message = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group ""'
        self.kueue = True
        self.rounds = 0
        self.rules: Any = {}
        self.asked: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/selfsubjectaccessreviews"):
            return await self._review(orjson.loads(await request.read())["spec"])
        if request.path.endswith("/selfsubjectrulesreviews"):
            if isinstance(self.rules, int):
                return status_answer(self.rules, "Failed", "no rules")
            return json_answer(self.rules)
        if request.path == WORKLOADS.base_path:
            self.rounds += 1
            return json_answer({}) if self.kueue else status_answer(404, "NotFound", "no such group")
        if request.path in self.forbidden:
            return status_answer(403, "Forbidden", self.message)
        return json_answer({"metadata": {"resourceVersion": "1"}, "items": []})

    async def _review(self, spec: dict[str, Any]) -> web.StreamResponse:
        if self.silent:
            return status_answer(503, "ServiceUnavailable", "not now")
        if self.refuses_reviews:
            return status_answer(403, "Forbidden", "no reviews for you")
        asked = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        names = (asked.get("resource"), asked.get("group"), asked.get("path"))
        name = f"{asked['verb']} {'.'.join(filter(None, names))}"
        if asked.get("subresource"):
            name += f"/{asked['subresource']}"
        self.asked.add(name)
        if self.review is not None:
            return json_answer(self.review(name))
        return json_answer({"status": {"allowed": name not in self.denied}})


@asynccontextmanager
async def rights_at(
    server: Server, *, kinds: Sequence[Resource] = (JOBS,), seconds: float = SECONDS
) -> AsyncIterator[tuple[Rights, KubeClient, list[int]]]:
    """The rights of an agent of that server, and how often they were others."""
    turns: list[int] = []
    async with stub_api(server.answer) as stub, stub.client() as client, anyio.create_task_group() as tasks:
        rights = Rights(
            client,
            kinds,
            seconds=seconds,
            clock=SystemClock(),
            random=Random(1),
            on_change=lambda: turns.append(len(rights.missing())),
        )
        tasks.start_soon(rights.run)
        yield rights, client, turns
        tasks.cancel_scope.cancel()


async def reviewed(server: Server, *, times: int = 1) -> None:
    """Wait for whole rounds of reviews, or with 0 until one has begun."""
    before = server.rounds

    async def probe() -> int:
        return server.rounds - before

    await eventually(probe, what="the rights are reviewed", until=lambda seen: seen > times)


def names(rights: Rights) -> list[str]:
    return [right.name for right in rights.missing()]


async def missing(rights: Rights, *wanted: str) -> None:
    async def probe() -> list[str]:
        return names(rights)

    await eventually(probe, what=f"{wanted} are missing", until=lambda seen: seen == list(wanted))


async def test_rights_that_are_taken_away_and_given_back_are_noticed() -> None:
    server = Server()
    async with rights_at(server) as (rights, _, turns):
        await reviewed(server)
        assert names(rights) == []
        assert turns == [0], "what the hub may send is known now"
        turns.clear()
        server.denied = {"patch jobs.batch", "list nodes", "patch workloads.kueue.x-k8s.io/status"}
        await missing(rights, "patch jobs.batch", "list nodes", "patch workloads.kueue.x-k8s.io/status")
        assert not rights.may_follow(NODES)
        assert not rights.missing_required()
        server.denied = {"delete jobs.batch"}
        await missing(rights, "delete jobs.batch")
        assert rights.missing_required()
        server.denied = set()
        await missing(rights)


async def test_rights_on_queues_are_missed_only_where_there_are_some() -> None:
    server = Server()
    server.kueue = False
    server.denied = {"list workloads.kueue.x-k8s.io", "list pods"}
    async with rights_at(server) as (rights, _, _):
        await missing(rights, "list pods")
        server.kueue = True
        await missing(rights, "list pods", "list workloads.kueue.x-k8s.io")


async def test_a_server_that_gives_no_answer_leaves_things_as_they_are() -> None:
    server = Server()
    server.denied = {"list nodes"}
    async with rights_at(server) as (rights, _, _):
        await missing(rights, "list nodes")
        server.silent, server.denied = True, set()
        await reviewed(server)
        assert names(rights) == ["list nodes"]
        server.silent = False
        await missing(rights)


@pytest.mark.parametrize(
    "answer",
    [{}, [], "yes", {"status": None}, {"status": {"allowed": "false"}}, {"status": {"allowed": 0}}, {"status": []}],
    ids=str,
)
async def test_an_answer_that_is_none_denies_nothing_and_breaks_nothing(answer: Any) -> None:
    server = Server()
    server.review = lambda name: answer
    async with rights_at(server) as (rights, _, turns):
        await reviewed(server)
        assert names(rights) == []
        assert turns == []


async def test_if_reviews_are_refused_refused_requests_show_missing_rights() -> None:
    server = Server()
    server.refuses_reviews = True
    server.forbidden = {"/api/v1/nodes"}
    async with rights_at(server) as (rights, client, _):
        await reviewed(server)
        assert names(rights) == []
        with pytest.raises(Forbidden):
            await client.list_page(NODES)
        assert names(rights) == ["list nodes"]
        await missing(rights)  # after a while it is worth another attempt


async def test_a_refused_request_counts_longer_than_a_review_that_answers_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker_agent.local.rights._GAP_SECONDS", 0.0)
    server = Server()
    server.forbidden = {"/api/v1/nodes"}
    async with rights_at(server, seconds=1000) as (rights, client, _):
        await reviewed(server, times=0)
        with pytest.raises(Forbidden):
            await client.list_page(NODES)
        await reviewed(server, times=0)
        assert names(rights) == ["list nodes"]


async def test_a_write_that_a_webhook_refuses_is_no_missing_right() -> None:
    server = Server()
    path = JOBS.path("ns")
    server.forbidden = {path}
    server.message = 'admission webhook "w" denied the request: no'
    async with rights_at(server) as (rights, client, _):
        with pytest.raises(Forbidden):
            await client.create(JOBS, {}, namespace="ns")
        assert names(rights) == []
        server.message = 'jobs.batch is forbidden: User "u" cannot create resource "jobs" in API group "batch"'
        with pytest.raises(Forbidden):
            await client.create(JOBS, {}, namespace="ns")
        assert names(rights) == ["create jobs.batch"]


async def test_a_server_that_flaps_is_asked_no_more_often() -> None:
    server = Server()
    flips = 0

    def review(name: str) -> Any:
        nonlocal flips
        flips += 1
        return {"status": {"allowed": flips % 2 == 0}}

    server.review = review
    async with rights_at(server) as (rights, _, turns):
        await reviewed(server, times=2)
        assert len(turns) <= server.rounds + 1
        assert len(rights.missing()) < len(rights.table)


async def test_a_right_to_one_kind_is_required_only_while_no_kind_can_run() -> None:
    server = Server()
    server.denied = {"create jobsets.jobset.x-k8s.io"}
    async with rights_at(server, kinds=[JOBS, JOB_SETS]) as (rights, _, _):
        await missing(rights, "create jobsets.jobset.x-k8s.io")
        assert rights.may_run(JOBS)
        assert not rights.may_run(JOB_SETS)
        assert not rights.missing_required()
        shown = describe_missing(missing_of(rights.report(), rights.table))
        assert shown == (
            "missing rights: create jobsets.jobset.x-k8s.io"
            " (would give: jobs of this kind can run there, as those of others can)"
        )
        server.denied |= {"list jobs.batch"}
        await missing(rights, "list jobs.batch", "create jobsets.jobset.x-k8s.io")
        assert [right.name for right in rights.missing_required()] == names(rights)


def rules(*granted: dict[str, Any], paths: Sequence[str] = (), incomplete: bool = False) -> dict[str, Any]:
    """The answer of a server to a review of all rules."""
    return {
        "status": {
            "resourceRules": list(granted),
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": list(paths)}],
            "incomplete": incomplete,
        }
    }


EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


async def test_what_the_rules_grant_is_not_reviewed_one_by_one() -> None:
    server = Server()
    server.rules = rules(EVERYTHING, paths=["*"])
    async with rights_at(server) as (rights, _, _):
        await reviewed(server)
        assert rights.may_send(SECRETS)
        assert (names(rights), server.asked) == ([], set())
        server.rules = rules({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["nodes", "pods"]})
        server.denied = {"patch jobs.batch"}
        await missing(rights, "patch jobs.batch")
        assert not {"list nodes", "watch pods"} & server.asked
        assert {"list namespaces", "get pods/log", "get /readyz"} <= server.asked


@pytest.mark.parametrize(
    "answer",
    [
        rules(EVERYTHING, paths=["*"], incomplete=True),
        {},
        [],
        {"status": None},
        {"status": {"resourceRules": [EVERYTHING]}},
    ],
    ids=str,
)
async def test_each_right_is_reviewed_where_the_rules_are_not_all(answer: Any) -> None:
    server = Server()
    server.rules = answer
    server.denied = {"list nodes"}
    async with rights_at(server) as (rights, _, _):
        await missing(rights, "list nodes")


@pytest.mark.parametrize("status", [403, 404, 409, 500, 503])
async def test_each_right_is_reviewed_where_the_server_fails_to_list_the_rules(status: int) -> None:
    server = Server()
    server.rules = status
    server.denied = {"list nodes"}
    async with rights_at(server) as (rights, _, _):
        await missing(rights, "list nodes")
