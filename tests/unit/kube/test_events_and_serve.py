# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ssl
from collections.abc import Set

import aiohttp
import anyio
import orjson
import pytest
import trustme
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.kube.runtime import events
from multikueue.kube.runtime.event_budget import EventBudget
from multikueue.kube.runtime.events import NORMAL, WARNING, EventRecorder, Reference
from multikueue.kube.serving import serve
from tests.support.polling import until
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api

JOB = Reference("batch/v1", "Job", "train", "team", "uid-1")


def budget(clock: ManualClock, *, burst: int, steps: Set[str] = frozenset()) -> EventBudget:
    return EventBudget(qps=1.0, burst=burst, steps=steps, clock=clock)


async def delivered(api: StubApi, count: int) -> list[tuple[str, dict[str, object]]]:
    await until(lambda: len(api.bodies) >= count, what=f"{count} events are delivered")
    return [(seen.split()[0], orjson.loads(body)) for seen, body in zip(api.seen, api.bodies, strict=True)]


async def test_equal_events_are_one_series_and_different_ones_are_not() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue")
        tasks.start_soon(recorder.run)
        for _ in range(3):
            recorder.event(JOB, WARNING, "Pending", "no quota")
        recorder.event(JOB, NORMAL, "Admitted", "x" * 5000)
        sent = await delivered(api, 4)
        assert [verb for verb, _ in sent] == ["POST", "PATCH", "PATCH", "POST"]
        assert sent[0][1]["regarding"] == JOB.body()
        assert sent[2][1]["series"]["count"] == 3  # type: ignore[index]
        assert len(str(sent[3][1]["note"])) == 1024
        tasks.cancel_scope.cancel()


async def test_an_object_that_floods_is_held_to_a_rate_and_others_are_not() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue")
        for number in range(100):
            recorder.event(JOB, NORMAL, "Flood", f"number {number}")
        recorder.event(Reference("v1", "Pod", "other", "team"), NORMAL, "Calm", "one")
        tasks.start_soon(recorder.run)
        sent = await delivered(api, 26)
        assert sent[-1][1]["reason"] == "Calm"
        tasks.cancel_scope.cancel()


async def test_normal_events_are_held_to_a_budget_and_warnings_are_not() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    clock = ManualClock()
    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue", budget=budget(clock, burst=2), clock=clock)
        for number in range(5):
            recorder.event(Reference("v1", "Pod", f"pod-{number}", "team"), NORMAL, "Admitted", "as the others")
        recorder.event(JOB, WARNING, "Pending", "no quota")
        tasks.start_soon(recorder.run)
        sent = await delivered(api, 3)
        assert [body["reason"] for _, body in sent] == ["Admitted", "Admitted", "Pending"]
        clock.advance(1.0)
        recorder.event(JOB, NORMAL, "Admitted", "a second later")
        assert len(await delivered(api, 4)) == 4
        tasks.cancel_scope.cancel()


async def test_ordinary_steps_have_half_of_the_burst_and_a_tenth_of_the_rate() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    clock = ManualClock()
    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue", budget=budget(clock, burst=6, steps={"Step"}), clock=clock)
        for number in range(5):
            recorder.event(Reference("v1", "Pod", f"pod-{number}", "team"), NORMAL, "Step", "admitted")
            recorder.event(Reference("v1", "Pod", f"pod-{number}", "team"), NORMAL, "End", "succeeded")
        tasks.start_soon(recorder.run)
        sent = await delivered(api, 6)
        assert [body["reason"] for _, body in sent] == ["Step", "End", "Step", "End", "Step", "End"]
        clock.advance(2.0)
        recorder.event(JOB, NORMAL, "Step", "two seconds later")
        recorder.event(JOB, NORMAL, "End", "two seconds later")
        recorder.event(JOB, NORMAL, "End", "and again")
        assert [body["reason"] for _, body in (await delivered(api, 8))[6:]] == ["End", "End"]
        clock.advance(8.0)
        recorder.event(JOB, NORMAL, "Step", "ten seconds later")
        assert (await delivered(api, 9))[-1][1]["reason"] == "Step"
        tasks.cancel_scope.cancel()


async def test_steps_that_are_left_out_are_not_logged_and_other_events_are(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    clock = ManualClock()
    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue", budget=budget(clock, burst=1, steps={"Step"}), clock=clock)
        recorder.event(JOB, NORMAL, "End", "within the budget")
        recorder.event(JOB, NORMAL, "Step", "left out")
        tasks.start_soon(recorder.run)
        recorder.event(JOB, NORMAL, "End", "over the budget")
        await until(lambda: bool(caplog.records), what="the dropped one is logged")
        assert [each.getMessage() for each in caplog.records] == ["events dropped: too many at once count=1"]
        tasks.cancel_scope.cancel()


async def test_an_event_that_cannot_be_delivered_does_not_stop_the_next() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(403, "Forbidden") if len(api.seen) == 1 else json_answer({})

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue")
        tasks.start_soon(recorder.run)
        recorder.event(JOB, NORMAL, "First", "lost")
        recorder.event(JOB, NORMAL, "Second", "kept")
        assert len(await delivered(api, 2)) == 2
        tasks.cancel_scope.cancel()


async def test_an_event_waits_until_the_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_BACKOFF", Backoff(base=0.001, cap=0.002))

    async def answer(request: web.Request) -> web.StreamResponse:
        return status_answer(503, "ServiceUnavailable") if len(api.seen) < 4 else json_answer({})

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue")
        tasks.start_soon(recorder.run)
        recorder.event(JOB, NORMAL, "Kept", "through an outage")
        recorder.event(JOB, NORMAL, "Next", "comes after it")
        sent = await delivered(api, 5)
        assert [body["reason"] for _, body in sent] == ["Kept", "Kept", "Kept", "Kept", "Next"]
        tasks.cancel_scope.cancel()


async def test_the_name_of_an_event_is_one_also_where_a_long_name_is_cut() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        recorder = EventRecorder(client, "kueue")
        tasks.start_soon(recorder.run)
        recorder.event(Reference("v1", "Pod", "a" * 219 + ".b", "team"), NORMAL, "Cut", "here")
        ((_, body),) = await delivered(api, 1)
        name = body["metadata"]["name"]  # type: ignore[index]
        assert name.startswith("a" * 219 + ".")
        assert ".." not in name
        tasks.cancel_scope.cancel()


async def test_probes_and_metrics_are_served() -> None:
    registry = CollectorRegistry()
    Counter("things", "Things", registry=registry).inc()
    app = web.Application()
    serve.add_probes(app, live=lambda: None, ready=lambda: "caches are not synced", also={"/alive": lambda: None})
    serve.add_metrics(app, registry)
    async with serve.serving(app, "127.0.0.1:0") as port, aiohttp.ClientSession() as session:
        for path in ("healthz", "alive"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as live:
                assert (live.status, await live.text()) == (200, "ok")
        async with session.get(f"http://127.0.0.1:{port}/readyz") as ready:
            assert (ready.status, await ready.text()) == (500, "caches are not synced")
        async with session.get(f"http://127.0.0.1:{port}/metrics") as metrics:
            assert "things_total 1.0" in await metrics.text()


async def test_a_port_in_use_is_one_clear_error() -> None:
    async with serve.serving(web.Application(), "127.0.0.1:0") as port:
        with pytest.raises(serve.PortInUse, match=f"127.0.0.1:{port}: the port is in use"):
            async with serve.serving(web.Application(), f"127.0.0.1:{port}"):
                pass


@pytest.mark.parametrize("text", ["8080", "host:", "host:http", ":99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not an address"):
        serve.parse_address(text)


async def test_a_serving_certificate_is_replaced_while_the_server_runs() -> None:
    authorities = [trustme.CA(), trustme.CA()]

    def pem(authority: trustme.CA) -> bytes:
        leaf = authority.issue_cert("127.0.0.1")
        return leaf.private_key_and_cert_chain_pem.bytes()

    async def trusted_by(authority: trustme.CA, port: int) -> bool:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        try:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"https://127.0.0.1:{port}/healthz", ssl=context) as answer:
                    return answer.status == 200
        except aiohttp.ClientConnectorError:
            return False

    certificate = serve.ServingCertificate(pem(authorities[0]))
    app = web.Application()
    serve.add_probes(app, live=lambda: None, ready=lambda: None)
    async with serve.serving(app, "127.0.0.1:0", certificate=certificate) as port:
        assert [await trusted_by(authority, port) for authority in authorities] == [True, False]
        certificate.replace(pem(authorities[1]))
        assert [await trusted_by(authority, port) for authority in authorities] == [False, True]
