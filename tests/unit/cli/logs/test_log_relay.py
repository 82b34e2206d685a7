# SPDX-License-Identifier: Apache-2.0
"""`mkctl logs` through an agent: what it requests, prints and says when nothing comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest

from multikueue.api.resource import JOBS
from multikueue.cli.logs.log_relay import LogRelayReader
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_logs import INTERRUPTED, LogQuery
from multikueue.kube import errors
from multikueue.kube.errors import Details, KubeError
from multikueue.kube.rest.client import KubeClient

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
EVERYTHING = LogQuery()


def refused(kind: type[errors.ApiError], status: int) -> errors.ApiError:
    return kind(request="GET", status=status, reason="", message="refused", details=Details())


class Hub:
    """A hub whose agent answers each request with these chunks; None removes the request."""

    def __init__(self, *requests: list[Object | None]) -> None:
        self.chunks = list(requests)
        self.current: list[Object | None] = []
        self.specs: list[Object] = []
        self.confirmed: list[int] = []
        self.deleted: list[str] = []
        self.creating: KubeError | None = None
        self.failing: list[KubeError] = []
        self.gone = False

    async def create(self, resource: Any, body: Object, *, namespace: str) -> bytes:
        if self.creating is not None:
            raise self.creating
        self.specs.append(body["spec"])
        self.current = self.chunks.pop(0) if self.chunks else []
        self.gone = False
        return orjson.dumps({**body, "metadata": {**body["metadata"], "uid": "u", "namespace": namespace}})

    async def get_object(self, resource: Any, name: str, *, namespace: str) -> Object:
        if self.failing:
            raise self.failing.pop(0)
        read = self.confirmed[-1] if self.confirmed and len(self.specs) else 0
        chunk = self.current[read] if read < len(self.current) else {}
        if chunk is None:
            self.gone = True
            raise refused(errors.NotFound, 404)
        status = {**chunk, "cursor": read + 1} if chunk else {"cursor": read}
        return {"metadata": {"name": name, "uid": "u"}, "status": status}

    async def patch(self, resource: Any, name: str, body: Object, *, namespace: str) -> bytes:
        self.confirmed.append(body["spec"]["cursor"])
        return b"{}"

    async def delete(self, resource: Any, name: str, *, namespace: str) -> bytes:
        self.deleted.append(name)
        self.confirmed = []
        if self.gone:
            raise refused(errors.NotFound, 404)
        return b"{}"


class Screen:
    """What is printed."""

    def __init__(self, hub: Hub, query: LogQuery = EVERYTHING, *, silence: float = 5.0) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.reader = LogRelayReader(
            cast(KubeClient, hub), JOBS, Key("ns", "j"), query, show=self._show, note=self.notes.append, silence=silence
        )

    def _show(self, lines: Iterator[str], pod: str, container: str) -> None:
        self.lines += [f"{pod}/{container} {line}" for line in lines]


def chunk(*lines: str, pod: str = "p", **more: Any) -> Object:
    return {"pod": pod, "container": "c", "chunk": "".join(f"{line}\n" for line in lines), **more}


def at(second: int, text: str) -> str:
    return f"2026-01-01T00:00:{second:02d}.5Z {text}"


async def test_chunks_are_printed_and_confirmed_and_the_request_is_removed() -> None:
    hub = Hub([chunk(at(1, "one")), chunk(at(2, "two"), ended=True, message="done")])
    screen = Screen(hub, LogQuery(container="c", tail=3, follow=True))
    ended = await screen.reader.read("east")
    assert (screen.lines, ended.more, screen.notes) == (["p/c one", "p/c two"], False, ["done"])
    assert hub.specs == [
        {
            "job": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
            "container": "c",
            "follow": True,
            "tailLines": 3,
        }
    ]
    assert len(hub.deleted) == 1


async def test_a_line_in_two_chunks_is_one_line() -> None:
    hub = Hub([{**chunk(), "chunk": at(1, "be")}, {**chunk(), "chunk": "gun\n", "ended": True}])
    screen = Screen(hub)
    await screen.reader.read("east")
    assert screen.lines == ["p/c begun"]


@pytest.mark.parametrize("end", [{"ended": True, "message": f"{INTERRUPTED}: because"}, None], ids=["said", "removed"])
async def test_an_interrupted_request_is_continued_where_it_was_without_a_line_twice(end: Object | None) -> None:
    first: list[Object | None] = [chunk(at(1, "one"), at(2, "two")), chunk(at(5, "other"), pod="q"), end]
    again = [chunk(at(1, "one"), at(2, "two"), at(2, "also two")), chunk(at(5, "other"), pod="q", ended=True)]
    hub = Hub(first, cast(list[Object | None], again))
    screen = Screen(hub, LogQuery(tail=9))
    assert (await screen.reader.read("east")).more
    assert not (await screen.reader.read("east")).more
    assert screen.lines == ["p/c one", "p/c two", "q/c other", "p/c also two"]
    assert hub.specs[1]["sinceTime"] == "2026-01-01T00:00:02Z"
    assert "tailLines" not in hub.specs[1]


async def test_a_request_that_ends_without_a_line_and_a_reason_has_read_a_pod() -> None:
    screen = Screen(Hub([{"ended": True}]), LogQuery(tail=0))
    await screen.reader.read("east")
    assert (screen.reader.has_shown, screen.lines, screen.notes) == (True, [], [])


@pytest.mark.parametrize("last", [{"ended": True}, {"ended": True, "message": INTERRUPTED}], ids=["over", "broken"])
async def test_a_request_that_ends_with_a_reason_has_read_none(last: Object) -> None:
    screen = Screen(Hub([{"message": "The job has no pods on the worker cluster (any more)"}, last]))
    await screen.reader.read("east")
    assert not screen.reader.has_shown


async def test_a_pod_without_the_container_is_refused_as_with_a_kubeconfig_and_at_once() -> None:
    hub = Hub([{"message": "Pod p has no container nope"}, None])
    screen = Screen(hub, LogQuery(container="nope", follow=True))
    with pytest.raises(BadInput, match="Pod p has no container nope"):
        await screen.reader.read("east")
    assert (len(hub.deleted), screen.notes) == (1, [])


async def test_of_all_pods_those_with_the_container_are_shown() -> None:
    lacking = {"message": "Pod p has no container c"}
    screen = Screen(Hub([lacking, chunk(at(1, "one"), pod="q", ended=True)]), LogQuery(container="c", all_pods=True))
    await screen.reader.read("east")
    assert (screen.lines, screen.notes) == (["q/c one"], ["Pod p has no container c"])
    nowhere = Screen(Hub([lacking, {"ended": True}]), LogQuery(container="c", all_pods=True))
    with pytest.raises(BadInput, match="Pod p has no container c"):
        await nowhere.reader.read("east")


async def test_an_agent_that_does_not_answer_is_named_with_what_to_do() -> None:
    hub = Hub([])
    with pytest.raises(BadInput, match=r"agent of cluster east has not answered .* --worker-kubeconfig FILE"):
        await Screen(hub, silence=0.0).reader.read("east")
    assert len(hub.deleted) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refused(errors.NotFound, 404), "is not installed"),
        (refused(errors.Forbidden, 403), r"needs the right to create joblogrequests.multikueue.io and to get pods/log"),
    ],
    ids=["an old hub", "no right"],
)
async def test_a_request_that_is_not_taken_says_what_is_missing(error: KubeError, message: str) -> None:
    hub = Hub()
    hub.creating = error
    with pytest.raises(BadInput, match=message):
        await Screen(hub).reader.read("east")
    assert hub.deleted == []


async def test_a_hub_that_fails_for_a_moment_is_asked_again() -> None:
    hub = Hub([chunk(at(1, "one"), ended=True)])
    hub.failing = [
        refused(errors.InternalError, 500),
        refused(errors.TooManyRequests, 429),
        errors.Unreachable("GET: no answer", sent=True),
    ]
    screen = Screen(hub)
    await screen.reader.read("east")
    assert screen.lines == ["p/c one"]
    assert len(screen.notes) == 3


async def test_text_of_the_hub_cannot_move_the_cursor_of_a_terminal() -> None:
    hub = Hub([chunk(at(1, "\x1b[2J"), ended=True, message="\x1b[2J")])
    screen = Screen(hub)
    await screen.reader.read("east")
    assert all(text.isprintable() for text in (*screen.lines, *screen.notes))
