# SPDX-License-Identifier: Apache-2.0
"""What the agent reads for a request for logs, and when it sends the next chunk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import orjson
import pytest

from multikueue.dispatch.protocol.job_logs import INTERRUPTED, MAX_CHUNK_BYTES, NO_CONTAINER, LogAnswer
from multikueue.kube import errors
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.json_slices import Page
from tests.support.api_refusals import refused
from tests.support.logged_jobs import running_pod
from worker_agent.local import log_requests
from worker_agent.local.log_requests import MAY_NOT_LIST, MAY_NOT_READ, NO_PODS, LogRequests
from worker_agent.pod_owners import LoggedPods

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
PODS = LoggedPods(namespace="ns", job_uid="u", selector="job=u", direct=True)


class Worker:
    """The worker's API server."""

    def __init__(self, **logs: str) -> None:
        self.logs = logs
        self.pods = [running_pod(name, job="j", job_uid="u") for name in logs]
        for number, pod in enumerate(self.pods):
            pod["metadata"] |= {
                "namespace": "ns",
                "uid": pod["metadata"]["name"],
                "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
            }
        self.listing: KubeError | None = None
        self.reading: KubeError | None = None
        self.breaks = False
        self.open = anyio.Event()
        self.asked: list[Object] = []
        self.streams = 0
        self.most_streams = 0

    async def list_page(self, resource: Any, **query: Any) -> Page:
        if self.listing is not None:
            raise self.listing
        return Page([orjson.dumps(pod) for pod in self.pods], "1", None)

    async def stream_log(self, pod: str, **query: Any) -> AsyncGenerator[bytes, None]:
        self.asked.append({"pod": pod, **query})
        if self.reading is not None:
            raise self.reading
        self.streams += 1
        self.most_streams = max(self.most_streams, self.streams)
        try:
            yield self.logs[pod].encode()
            if self.breaks:
                raise errors.Unreachable("GET pods/log: broken", sent=True)
            if query["follow"]:
                await self.open.wait()
        finally:
            self.streams -= 1


class Agent:
    """Answers as they would be written to the hub."""

    def __init__(self, worker: Worker, *, lists: bool = True, reads: bool = True, at_once: int = 8) -> None:
        self.answers: dict[str, tuple[LogAnswer, ...]] = {}
        self.writes = 0
        self.requests = LogRequests(
            cast(KubeClient, worker),
            may_list_pods=lambda: lists,
            may_read_logs=lambda: reads,
            answered=self._take,
            at_once=at_once,
        )
        self.entries: list[Object] = []
        self.status: Object = {}

    def _take(self, name: str, uid: str, answers: tuple[LogAnswer, ...]) -> None:
        assert uid == "a"
        self.writes += self.answers.get(name, ()) != answers
        self.answers[name] = answers

    def ask(self, *entries: Object, over: bool = False, pods: LoggedPods | None = PODS) -> None:
        self.entries = list(entries)
        self.update(over=over, pods=pods)

    def update(self, *, over: bool = False, pods: LoggedPods | None = PODS) -> None:
        assignment = {"metadata": {"name": "x", "uid": "a"}, "spec": {"logs": self.entries}, "status": self.status}
        self.requests.update("x", assignment, pods=pods, over=over)

    async def answer(self, cursor: int, request: str = "r") -> LogAnswer:
        """The chunk of that number, once it is there."""
        found: list[LogAnswer] = []

        def there() -> bool:
            found[:] = [each for each in self.answers.get("x", ()) if (each.request, each.cursor) == (request, cursor)]
            return bool(found)

        await until(there)
        return found[0]

    async def read_on(self, cursor: int, request: str = "r") -> LogAnswer:
        """The next chunk, once the one before it was read."""
        for entry in self.entries:
            if entry["request"] == request:
                entry["cursor"] = cursor - 1
        self.update()
        return await self.answer(cursor, request)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.002)


@asynccontextmanager
async def agent(worker: Worker, **options: Any) -> AsyncIterator[Agent]:
    made = Agent(worker, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.requests.run)
        yield made
        tasks.cancel_scope.cancel()
    assert worker.streams == 0, "every connection is closed"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows short enough to wait for, and long enough for a busy machine to read a whole log within one."""
    monkeypatch.setattr(log_requests, "WINDOW_SECONDS", 0.5)
    monkeypatch.setattr(log_requests, "_LOOK_SECONDS", 0.01)


def asked(**options: Any) -> Object:
    return {"request": "r", "cursor": 0, **options}


async def test_a_short_log_is_one_chunk_which_is_the_last() -> None:
    async with agent(Worker(p1="one\r\ntwo\x1b\n")) as it:
        it.ask(asked(tailLines=7, sinceTime="2026-01-01T00:00:00.5Z"))
        found = await it.answer(1)
        assert found == LogAnswer(request="r", cursor=1, pod="p1", container="main", text="one\ntwo\\x1b\n", ended=True)


async def test_the_next_chunk_is_sent_when_the_last_was_read_and_not_before() -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    async with agent(Worker(p1=text)) as it:
        it.ask(asked())
        chunks = [await it.answer(1)]
        await anyio.sleep(0.05)
        assert it.writes == 1
        while not chunks[-1].ended:
            chunks.append(await it.read_on(len(chunks) + 1))
        assert "".join(each.text for each in chunks) == text
        assert max(len(each.text.encode()) for each in chunks) <= MAX_CHUNK_BYTES
        assert len(chunks) == len(text.encode()) // MAX_CHUNK_BYTES + 1


async def test_what_is_asked_reaches_the_server() -> None:
    worker = Worker(p1="")
    async with agent(worker) as it:
        it.ask(asked(container="side", tailLines=0, sinceTime="2026-01-01T00:00:00.5Z"))
        await it.answer(1)
    (query,) = worker.asked
    assert query == {
        "pod": "p1",
        "namespace": "ns",
        "container": "side",
        "tail": 0,
        "follow": False,
        "since": "2026-01-01T00:00:00Z",
    }


async def test_a_pod_without_the_container_is_named_in_words_that_mkctl_knows() -> None:
    async with agent(Worker(p1="one\n")) as it:
        it.ask(asked(container="nope"))
        found = await it.answer(1)
        assert (found.pod, found.message) == ("", f"Pod p1 {NO_CONTAINER} nope")


async def test_a_silent_log_that_is_followed_is_answered_once_so_that_the_user_knows_it_is_read() -> None:
    worker = Worker(p1="")
    async with agent(worker) as it:
        it.ask(asked(follow=True))
        first = await it.answer(1)
        assert (first.text, first.ended) == ("", False)
        it.entries[0]["cursor"] = 1
        it.update()
        await anyio.sleep(0.1)
        assert it.writes == 1
        worker.open.set()
        it.update(over=True)
        assert (await it.answer(2)).ended


async def test_all_pods_are_read_and_one_without_the_option() -> None:
    worker = Worker(p1="one\n", p2="two\n")
    async with agent(worker) as it:
        it.ask(asked(allPods=True))
        first = await it.answer(1)
        second = await it.read_on(2)
        assert [(first.pod, first.text), (second.pod, second.text)] == [("p1", "one\n"), ("p2", "two\n")]
        it.ask(asked(request="s"))
        assert (await it.answer(1, "s")).pod == "p2"


async def test_of_a_group_only_the_requested_pod_is_read_and_followed_to_its_end() -> None:
    worker = Worker(p1="one\n", p2="two\n")
    worker.open.set()
    group = replace(PODS, members=frozenset({"p1", "p2"}))
    async with agent(worker) as it:
        it.ask(asked(pod="p1"), asked(request="s", pod="p2", follow=True), pods=group)
        answers = [await it.answer(1), await it.answer(1, "s")]
        assert [(each.pod, each.text) for each in answers] == [("p1", "one\n"), ("p2", "two\n")]
        it.entries[1]["cursor"] = 1
        it.update(pods=group)
        assert answers[1].ended or (await it.answer(2, "s")).ended, "the group goes on, and the pod does not"
    assert sorted(each["pod"] for each in worker.asked) == ["p1", "p2"]


async def test_a_pod_that_is_not_of_the_group_is_not_read_whoever_requests_it() -> None:
    worker = Worker(p1="one\n", p2="a secret\n")
    worker.pods[1]["metadata"]["ownerReferences"] = []
    async with agent(worker) as it:
        it.ask(asked(pod="p2"), pods=replace(PODS, members=frozenset({"p1"})))
        assert (await it.answer(1)).message == NO_PODS
    assert worker.asked == []


async def test_a_pod_that_only_has_the_label_is_not_read() -> None:
    worker = Worker(p1="one\n")
    worker.pods[0]["metadata"]["ownerReferences"][0]["uid"] = "another"
    async with agent(worker) as it:
        it.ask(asked())
        assert (await it.answer(1)).message == NO_PODS
    assert worker.asked == []


async def test_a_group_whose_pods_change_is_read_on() -> None:
    worker = Worker(p1="one\n")
    worker.pods[0]["metadata"]["ownerReferences"] = []
    group = replace(PODS, members=frozenset({"p1"}))
    async with agent(worker) as it:
        it.ask(asked(follow=True, allPods=True), pods=group)
        assert (await it.answer(1)).text == "one\n"
        second = running_pod("p2", job="j", job_uid="another")
        second["metadata"] |= {"namespace": "ns", "uid": "p2", "creationTimestamp": "2026-01-01T00:00:01Z"}
        worker.logs["p2"] = "two\n"
        worker.pods.append(second)
        it.entries[0]["cursor"] = 1
        it.update(pods=replace(group, members=frozenset({"p1", "p2"})))
        assert (await it.answer(2)).text == "two\n"
        assert [each["pod"] for each in worker.asked] == ["p1", "p2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lists": False}, MAY_NOT_LIST), ({"reads": False}, MAY_NOT_READ)],
    ids=["list pods", "get pods/log"],
)
async def test_a_missing_right_is_named(options: Any, message: str) -> None:
    async with agent(Worker(p1="one\n"), **options) as it:
        it.ask(asked())
        assert (await it.answer(1)).message == message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refused(errors.Forbidden, 403), MAY_NOT_READ),
        (refused(errors.NotFound, 404), "refused"),
        (refused(errors.BadRequest, 400), "refused"),
        (refused(errors.InternalError, 500), INTERRUPTED),
        (refused(errors.TooManyRequests, 429), INTERRUPTED),
        (errors.Unreachable("GET: no answer", sent=True), INTERRUPTED),
    ],
    ids=["403", "404", "400", "500", "429", "no answer"],
)
@pytest.mark.parametrize("what", ["listing", "reading"])
async def test_a_server_that_refuses_ends_the_request_with_the_reason(
    what: str, error: KubeError, message: str
) -> None:
    worker = Worker(p1="one\n")
    setattr(worker, what, error)
    async with agent(worker) as it:
        it.ask(asked())
        found = await it.answer(1)
        if not found.ended:
            assert (await it.read_on(2)).ended
        assert message in found.message or what == "listing"
        assert found.message


async def test_a_connection_that_breaks_keeps_what_was_read_and_says_that_there_is_more() -> None:
    worker = Worker(p1="one\n")
    worker.breaks = True
    async with agent(worker) as it:
        it.ask(asked())
        found = await it.answer(1)
        assert (found.text, found.ended) == ("one\n", True)
        assert found.message.startswith(INTERRUPTED)


@pytest.mark.parametrize("status", [{}, {"logs": [{"request": "r", "cursor": 3}]}], ids=["read", "not read yet"])
async def test_a_new_agent_does_not_guess_how_far_the_last_one_was(status: Object) -> None:
    worker = Worker(p1="one\n")
    async with agent(worker) as it:
        it.status = status
        it.ask(asked(cursor=0 if status else 3))
        found = await it.answer(4)
        assert (found.ended, found.message) == (True, INTERRUPTED)
    assert worker.asked == []


async def test_a_request_that_is_gone_is_closed_at_once() -> None:
    worker = Worker(p1="one\n")
    async with agent(worker) as it:
        it.ask(asked(follow=True))
        await it.answer(1)
        assert worker.streams == 1
        it.ask()
        await until(lambda: worker.streams == 0)
        assert it.answers["x"] == ()
        it.ask(asked(request="s", follow=True))
        await until(lambda: worker.streams == 1)
        it.requests.forget("x")
        await until(lambda: worker.streams == 0)


async def test_only_so_many_requests_are_read_at_one_time() -> None:
    worker = Worker(p1="one\n")
    async with agent(worker, at_once=2) as it:
        it.ask(*(asked(request=f"r{number}", follow=True) for number in range(5)))
        await until(lambda: worker.streams == 2)
        await anyio.sleep(0.05)
        assert worker.most_streams == 2
        it.ask(asked(request="r4", follow=True))
        await it.answer(1, "r4")
        assert worker.most_streams == 2


async def test_entries_that_cannot_be_read_are_left_out() -> None:
    async with agent(Worker(p1="one\n")) as it:
        bad: list[Any] = ["text", {"request": 7}, {"request": "b", "container": "../x"}, {"request": "c", "cursor": -1}]
        it.ask(*bad, asked())
        assert (await it.answer(1)).text == "one\n"
        assert {each.request for each in it.answers["x"]} == {"r"}


async def test_a_job_that_is_not_here_is_not_read() -> None:
    async with agent(Worker(p1="one\n")) as it:
        it.ask(asked(), pods=None)
        await anyio.sleep(0.02)
        assert it.writes == 0
