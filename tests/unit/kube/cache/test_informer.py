# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from multikueue.api.resource import JOBS
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.packing import packed
from multikueue.kube.runtime.quarantine import Quarantine
from tests.support.stub_api import StubApi, event, json_answer, listing, status_answer, stream, stub_api, thing

FAST = Backoff(base=0.01, cap=0.05)


class Script:
    """Answers lists and watches from two queues; a watch past the end stays open."""

    def __init__(self, *, lists: list[Callable[[], web.Response]], watches: list[list[bytes]]) -> None:
        self._lists = lists
        self._watches = watches

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return self._lists.pop(0)()
        if self._watches:
            return await stream(request, *self._watches.pop(0))  # type: ignore[no-any-return]
        return await stream(request, then=anyio.sleep_forever)  # type: ignore[no-any-return]


@asynccontextmanager
async def following(script: Script, **options: Any) -> AsyncIterator[tuple[Informer, list[str], StubApi]]:
    """An informer at work, what its handler saw, and the server."""
    seen: list[str] = []

    def note(change: Change) -> None:
        seen.append(f"{change.type} {change.key.name}@{change.row.resource_version}")

    async with stub_api(script) as api, api.client() as client, anyio.create_task_group() as tasks:
        informer = Informer(client, JOBS, backoff=FAST, **options)
        informer.add_handler(note)
        tasks.start_soon(informer.run)
        yield informer, seen, api
        tasks.cancel_scope.cancel()


async def until(seen: list[str], want: list[str]) -> None:
    """Wait until the handler has seen `want`; a difference shows as the assertion's."""
    with anyio.move_on_after(30):
        while len(seen) < len(want):
            await anyio.sleep(0.005)
    assert seen == want


async def test_it_lists_then_follows() -> None:
    script = Script(
        lists=[lambda: listing(thing("a", "1"))],
        watches=[
            [event("ADDED", thing("b", "11")), event("MODIFIED", thing("a", "12")), event("DELETED", thing("b", "13"))]
        ],
    )
    async with following(script) as (informer, seen, api):
        await until(seen, ["ADDED a@1", "ADDED b@11", "MODIFIED a@12", "DELETED b@13"])
        assert informer.store.keys() == (Key("ns", "a"),)
        assert informer.synced.is_set()
        assert "resourceVersion=10" in api.seen[1]


async def test_a_watch_that_ends_is_resumed_where_it_was() -> None:
    bookmark = {"kind": "Job", "metadata": {"resourceVersion": "20"}}
    script = Script(
        lists=[lambda: listing(thing("a"))],
        watches=[
            [event("MODIFIED", thing("a", "15")), event("BOOKMARK", bookmark)],
            [event("ADDED", thing("b", "21"))],
        ],
    )
    async with following(script) as (_, seen, api):
        await until(seen, ["ADDED a@1", "MODIFIED a@15", "ADDED b@21"])
        assert "resourceVersion=20" in api.seen[2]


async def test_it_is_connected_as_soon_as_a_quiet_watch_is_open_again() -> None:
    script = Script(lists=[lambda: listing(thing("a"))], watches=[[event("MODIFIED", thing("a", "15"))]])
    async with following(script) as (informer, seen, api):
        await until(seen, ["ADDED a@1", "MODIFIED a@15"])
        with anyio.fail_after(30):
            while len(api.seen) < 3 or not informer.connected:  # the second watch is open, and silent
                await anyio.sleep(0.005)


async def test_after_a_410_what_vanished_meanwhile_is_reported_as_deleted() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    script = Script(
        lists=[
            lambda: listing(thing("a"), thing("b")),
            lambda: listing(thing("b", "30"), thing("c", "31"), version="40"),
        ],
        watches=[[gone]],
    )
    async with following(script) as (informer, seen, _):
        await until(seen, ["ADDED a@1", "ADDED b@1", "MODIFIED b@30", "ADDED c@31", "DELETED a@1"])
        assert len(informer.store) == 2


async def test_a_restored_server_is_listed_again() -> None:
    causes = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    behind = event("ERROR", {"kind": "Status", "code": 504, "reason": "Timeout", "details": causes})
    script = Script(
        lists=[lambda: listing(thing("a", "12"), version="20"), lambda: listing(thing("a", "7"), version="8")],
        watches=[[behind]],
    )
    async with following(script) as (informer, seen, api):
        await until(seen, ["ADDED a@12", "MODIFIED a@7"])
        assert informer.version == 8
        assert len(api.seen) >= 3


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param(lambda: listing(version="19"), True, id="a list of before says so"),
        pytest.param(lambda: listing(thing("a", "7"), version="1000"), True, id="an object of before says so"),
        pytest.param(lambda: listing(thing("a", "30"), version="40"), False, id="a list of later does not"),
        pytest.param(lambda: listing(thing("a", "7", uid="b"), version="40"), False, id="another object does not"),
    ],
)
async def test_a_restored_server_is_notified(second: Callable[[], web.Response], expected: bool) -> None:
    script = Script(lists=[lambda: listing(thing("a", "12"), version="20"), second], watches=[])
    told: list[bool] = []
    async with stub_api(script) as api, api.client() as client:
        informer = Informer(client, JOBS, backoff=FAST, on_restored=lambda: told.append(True))
        await informer.relist()
        await informer.relist()
        assert bool(told) is expected


async def test_an_object_that_was_made_again_meanwhile_is_two_objects() -> None:
    script = Script(
        lists=[lambda: listing(thing("a", "1", uid="one"))], watches=[[event("ADDED", thing("a", "9", uid="two"))]]
    )
    async with following(script) as (_, seen, _api):
        await until(seen, ["ADDED a@1", "DELETED a@1", "ADDED a@9"])


async def test_a_server_that_is_away_is_asked_again() -> None:
    script = Script(
        lists=[lambda: status_answer(403, "Forbidden"), lambda: json_answer({"broken": True}, 418), lambda: listing()],
        watches=[],
    )
    async with following(script) as (informer, _, _api):
        with anyio.fail_after(30):
            await informer.synced.wait()
        assert informer.last_error is None


@pytest.mark.breaks_on_purpose
async def test_a_stream_that_is_no_stream_leads_to_a_new_list() -> None:
    script = Script(
        lists=[lambda: listing(thing("a")), lambda: listing(thing("a", "5"))],
        watches=[[event("ADDED", {"metadata": {"name": 7}})]],
    )
    async with following(script) as (_, seen, _api):
        await until(seen, ["ADDED a@1", "MODIFIED a@5"])


async def test_indexes_follow_every_change() -> None:
    script = Script(
        lists=[lambda: listing(thing("a", queue="red"), thing("b", queue="red"))],
        watches=[[event("MODIFIED", thing("a", "11", queue="blue")), event("DELETED", thing("b", "12"))]],
    )
    indexers = {"queue": lambda obj: [obj["spec"]["queue"]] if "queue" in obj["spec"] else []}
    async with following(script, indexers=indexers) as (informer, seen, _):
        await until(seen, ["ADDED a@1", "ADDED b@1", "MODIFIED a@11", "DELETED b@12"])
        assert [row.key.name for row in informer.store.list("queue", "blue")] == ["a"]
        assert informer.store.list("queue", "red") == []


async def test_a_handler_that_comes_late_sees_what_is_there() -> None:
    async with following(Script(lists=[lambda: listing(thing("a"))], watches=[])) as (informer, seen, _):
        await until(seen, ["ADDED a@1"])
        late: list[str] = []
        informer.add_handler(lambda change: late.append(change.key.name))
        assert late == ["a"]


@pytest.mark.parametrize("kept", [pytest.param(b"{}", id="to little"), pytest.param(b"", id="to nothing")])
async def test_an_object_can_be_cut_down_before_it_is_kept(kept: bytes) -> None:
    script = Script(lists=[lambda: listing(thing("a", text="long"))], watches=[])
    async with following(script, shrink=lambda obj: kept) as (informer, seen, _):
        await until(seen, ["ADDED a@1"])
        row = informer.store.get(Key("ns", "a"))
        assert row is not None
        assert (row.raw, row.uid) == (kept, "uid-a")


async def test_a_packed_object_is_read_as_any_other() -> None:
    script = Script(lists=[lambda: listing(thing("a", text="long " * 100))], watches=[])
    async with following(script, shrink=lambda obj: packed(orjson.dumps(obj))) as (informer, seen, _):
        await until(seen, ["ADDED a@1"])
        row = informer.store.get(Key("ns", "a"))
        assert row is not None
        assert row.object() == orjson.loads(row.raw)
        assert b"long long" in row.raw


@pytest.mark.parametrize("index", ["unknown"])
async def test_an_unknown_index_is_an_error(index: str) -> None:
    async with following(Script(lists=[lambda: listing()], watches=[])) as (informer, _, _api):
        with pytest.raises(KeyError, match=index):
            informer.store.list(index, "x")


async def test_a_server_that_forgets_at_once_is_not_asked_in_a_hot_loop() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    script = Script(lists=[lambda: listing()] * 1000, watches=[[gone]] * 1000)
    async with following(script) as (informer, _, api):
        informer._backoff = Backoff(base=0.1, cap=0.1)
        await anyio.sleep(0.5)
        assert len(api.seen) < 30


@pytest.mark.breaks_on_purpose
async def test_a_handler_that_breaks_at_one_object_gets_all_others_and_that_one_again() -> None:
    seen: list[str] = []

    def break_once(change: Change) -> None:
        seen.append(change.key.name)
        if seen == ["a"]:
            raise KeyError("a mistake of ours")

    script = Script(lists=[lambda: listing(thing("a"), thing("b"))], watches=[])
    quarantine = Quarantine(backoff=FAST)
    async with stub_api(script) as api, api.client() as client, anyio.create_task_group() as tasks:
        informer = Informer(client, JOBS, backoff=FAST, quarantine=quarantine)
        informer.add_handler(break_once)
        tasks.start_soon(informer.run)
        with anyio.fail_after(30):
            await informer.synced.wait()
        assert seen == ["a", "b"]
        (entry,) = quarantine.entries()
        assert (entry.key, entry.message) == (Key("ns", "a"), "unexpected KeyError: 'a mistake of ours'")
        tasks.start_soon(quarantine.run)
        with anyio.fail_after(30):
            while quarantine.entries():
                await anyio.sleep(0.01)
        assert seen == ["a", "b", "a"]
        tasks.cancel_scope.cancel()


async def test_an_object_that_an_index_cannot_read_is_kept_and_found_under_nothing() -> None:
    def by_queue(obj: dict[str, Any]) -> list[str]:
        if obj["spec"].get("queue") == "²":
            raise BadInput("spec.queue: not a name")
        return [obj["spec"]["queue"]]

    script = Script(
        lists=[lambda: listing(thing("a", queue="²"), thing("b", queue="red"))],
        watches=[[event("MODIFIED", thing("a", "11", queue="blue"))]],
    )
    quarantine = Quarantine()
    async with following(script, indexers={"queue": by_queue}, quarantine=quarantine) as (informer, seen, _):
        await until(seen, ["ADDED a@1", "ADDED b@1", "MODIFIED a@11"])
        assert [row.key.name for row in informer.store.list("queue", "blue")] == ["a"]
        assert quarantine.entries() == ()


async def test_what_shrinks_an_object_may_fail_at_one() -> None:
    def shrink(obj: dict[str, Any]) -> bytes:
        if "odd" in str(obj):
            raise BadInput("spec.text: odd")
        return b"{}"

    script = Script(lists=[lambda: listing(thing("a", text="odd"), thing("b"))], watches=[])
    quarantine = Quarantine()
    async with following(script, shrink=shrink, quarantine=quarantine) as (informer, seen, _):
        await until(seen, ["ADDED a@1", "ADDED b@1"])
        assert [(each.reader, each.key.name) for each in quarantine.entries()] == [("cache", "a")]
        kept = informer.store.get(Key("ns", "a"))
        assert kept is not None
        assert kept.raw == b""


async def test_a_cleared_informer_reports_every_object_as_deleted_and_lists_again() -> None:
    script = Script(lists=[lambda: listing(thing("a"), thing("b")), lambda: listing(thing("c", "30"))], watches=[])
    async with following(script) as (informer, seen, _):
        await until(seen, ["ADDED a@1", "ADDED b@1"])
        informer.clear()
        assert not informer.synced.is_set()
        assert seen[2:] == ["DELETED a@1", "DELETED b@1"]
        await until(seen, ["ADDED a@1", "ADDED b@1", "DELETED a@1", "DELETED b@1", "ADDED c@30"])
        assert informer.store.keys() == (Key("ns", "c"),)
