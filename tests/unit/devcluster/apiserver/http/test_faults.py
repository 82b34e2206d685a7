# SPDX-License-Identifier: Apache-2.0
"""Faults on demand, by HTTP and by Python, and their effect on requests and watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta

import pytest

from devcluster.apiserver.http.faults import Fault
from multikueue.core.clock import ManualClock
from tests.support.embedded import Caller, api_server, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
JANE = {"impersonate-user": "jane", "impersonate-group": "system:masters"}


@pytest.fixture
def jane(admin: Caller) -> Caller:
    return Caller(admin.api, headers=JANE)


async def inject(admin: Caller, **rule: object) -> None:
    seen = await admin.ask("PUT", "/faults", {"rules": [rule]})
    assert seen.status == 200, seen.body


async def answer_of(caller: Caller, path: str) -> object:
    """The answer; None if the connection is closed."""
    found = caller.begin("GET", path)
    return await found if isinstance(found, Coroutine) else found


async def test_the_rules_in_force_are_shown_and_lifted(admin: Caller) -> None:
    await inject(admin, code=500, share=0.5, path="/api")
    admin.api.context.clock_offset = 7.0
    shown = (await admin.get("/faults")).body
    assert (shown["rules"][0]["code"], shown["rules"][0]["share"], shown["clockOffset"]) == (500, 0.5, 7.0)
    assert shown["staleReads"] is None
    lifted = await admin.delete("/faults")
    assert lifted.body == {"rules": [], "clockOffset": 0.0, "staleReads": None}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param([], "expected an object", id="a body that is no object"),
        pytest.param({"rules": {}}, "rules are a list", id="rules that are no list"),
        pytest.param({"rules": [1]}, "rules[0]: expected an object", id="a rule that is no object"),
        pytest.param({"rules": [{"cod": 500}]}, "unknown field 'cod'", id="an unknown field"),
        pytest.param({"rules": [{"code": "x"}]}, "rules[0].code: expected int", id="a field of another type"),
        pytest.param({"rules": [{"drop": 1}]}, "rules[0].drop: expected bool", id="a number for a truth"),
        pytest.param({"rules": [{"code": 200}]}, "expected 400 to 599", id="a code that is no error"),
        pytest.param({"clockOffset": "x"}, "clockOffset: expected seconds", id="an offset that is no number"),
        pytest.param({"staleReads": 10**9}, "staleReads: expected", id="a version from the future"),
        pytest.param({"other": 1}, "expected an object of rules", id="an unknown switch"),
    ],
)
async def test_a_wrong_fault_is_refused_and_changes_nothing(admin: Caller, body: object, text: str) -> None:
    await inject(admin, code=500, path="/none")
    before = (await admin.get("/faults")).body
    seen = await admin.ask("PUT", "/faults", body)
    assert seen.status == 400
    assert text in seen.body["message"]
    assert (await admin.get("/faults")).body == before


async def test_only_masters_may_inject_faults(admin: Caller) -> None:
    seen = await Caller(admin.api, headers={"impersonate-user": "jane"}).get("/faults")
    assert seen.status == 403


async def test_an_overloaded_server_sends_retry_after(admin: Caller) -> None:
    await inject(admin, code=429, retry_after=3)
    seen = await admin.get(MAPS)
    assert (seen.status, seen.body["reason"], seen.headers["Retry-After"]) == (429, "TooManyRequests", "3")
    assert seen.body["details"]["retryAfterSeconds"] == 3


async def test_a_server_fails(admin: Caller) -> None:
    admin.api.faults.rules = [Fault(code=500)]
    seen = await admin.get(MAPS)
    assert (seen.status, seen.body["reason"]) == (500, "InternalError")


async def test_a_rule_applies_to_matching_requests(admin: Caller, jane: Caller) -> None:
    await inject(admin, code=503, user="jane", method="GET", path=MAPS)
    assert (await jane.get(MAPS)).status == 503
    assert (await jane.get("/api/v1/nodes")).status == 200
    assert (await jane.create(MAPS, config_map("a"))).status == 201
    assert (await admin.get(MAPS)).status == 200


async def test_a_rule_applies_to_a_share_of_requests(admin: Caller) -> None:
    await inject(admin, code=500, share=0.5)
    codes = [(await admin.get(MAPS)).status for _ in range(100)]
    assert {200, 500} == set(codes)


async def test_a_slow_server_answers_later(admin: Caller) -> None:
    await inject(admin, seconds=0.05)
    begun = time.monotonic()
    assert (await admin.get(f"{MAPS}/none")).status == 404
    assert time.monotonic() - begun >= 0.05


async def test_a_dropped_request_has_no_answer(admin: Caller) -> None:
    await inject(admin, drop=True, path=MAPS)
    assert await answer_of(admin, MAPS) is None


async def test_a_hanging_request_is_answered_when_the_fault_is_lifted(admin: Caller) -> None:
    await inject(admin, hang=True, path=MAPS)
    asking = asyncio.create_task(admin.get(MAPS))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    await inject(admin, code=500, path=MAPS)
    async with asyncio.timeout(5):
        assert (await asking).status == 500


async def test_a_partition_affects_one_client_only(admin: Caller, jane: Caller) -> None:
    mine, theirs = admin.watch(MAPS), jane.watch(MAPS)
    await inject(admin, drop=True, user="jane")
    assert (mine.aborted, theirs.aborted) == (False, True)
    assert await answer_of(jane, MAPS) is None
    assert (await admin.create(MAPS, config_map("a"))).status == 201
    assert await mine.said() == [("ADDED", "a")]
    await admin.delete("/faults")
    assert (await jane.get(MAPS)).status == 200
    mine.stop()


async def test_a_half_open_link_delivers_later(admin: Caller, jane: Caller) -> None:
    theirs = jane.watch(MAPS)
    await inject(admin, hang=True, user="jane")
    for name in "ab":
        await admin.create(MAPS, config_map(name))
    assert await theirs.said() == []
    await admin.delete("/faults")
    assert await theirs.said() == [("ADDED", "a"), ("ADDED", "b")]
    theirs.stop()


async def test_watches_are_cut_by_python(admin: Caller) -> None:
    watch = admin.watch(MAPS)
    admin.api.cut_watches()
    assert watch.aborted


async def test_watches_are_cut_by_http(admin: Caller) -> None:
    watch = admin.watch(MAPS)
    assert (await admin.ask("POST", "/faults/cut-watches")).status == 200
    assert watch.aborted


async def test_a_compaction_by_http_expires_the_history(admin: Caller) -> None:
    first = await admin.create(MAPS, config_map("a"))
    await admin.create(MAPS, config_map("b"))
    assert (await admin.ask("POST", "/faults/compact")).status == 200
    seen = await admin.get(MAPS, resourceVersion=first.version, resourceVersionMatch="Exact")
    assert seen.status == 410


async def test_a_clock_that_is_ahead_sets_the_times_of_objects() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    admin = Caller(api_server(clock=ManualClock(start)))
    await admin.ask("PUT", "/faults", {"clockOffset": 3600})
    seen = await admin.create(MAPS, config_map("a"))
    wanted = (start + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert seen.body["metadata"]["creationTimestamp"] == wanted
    await admin.api.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("POST", "/faults", 405, id="faults are not created"),
        pytest.param("GET", "/faults/compact", 405, id="a compaction is not read"),
        pytest.param("POST", "/faults/none", 404, id="an unknown fault is not found"),
    ],
)
async def test_the_endpoint_answers_wrong_requests(admin: Caller, method: str, path: str, status: int) -> None:
    assert (await admin.ask(method, path)).status == status
