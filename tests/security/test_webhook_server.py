# SPDX-License-Identifier: Apache-2.0
"""The webhook server under hostile clients: long bodies, slow ones, too many, and reviews that are none."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import anyio
import orjson
import pytest
import trustme
from aiohttp import web

from manager.cache.caches import Caches
from manager.cache.views import View
from manager.namespaces import ManagedNamespaces
from manager.seals import Seals
from manager.webhooks.configurations import KUEUE_HOOKS, Hook, job_hooks
from manager.webhooks.handlers import Handlers
from manager.webhooks.server import LIMITS, application
from multikueue.api.configuration import Configuration
from multikueue.api.crds import CONVERSION_PATH
from multikueue.api.resource import NAMESPACES, Resource
from multikueue.core.clock import ManualClock
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.serving.limits import ConnectionGuard, ServingLimits
from multikueue.kube.serving.serve import ServingCertificate, add_metrics, add_probes, serving
from tests.support.access import NobodyMay, NoKinds, nobody_owns

pytestmark = pytest.mark.anyio

JOB_HOOKS = job_hooks(JobRegistry(("batch/job",)))
HOOKS = {hook.path: hook for hook in (*KUEUE_HOOKS, *JOB_HOOKS)}
VALIDATE_JOB = next(hook.path for hook in JOB_HOOKS if not hook.mutates)
MEBIBYTE = 1024 * 1024
QUICK = replace(LIMITS, read_seconds=0.2, idle_seconds=0.2)
"""The limits of the webhook server, with deadlines that a test can wait for."""


class EmptyCaches:
    """Caches of a cluster that holds a namespace and nothing else."""

    def __init__(self) -> None:
        self.views: dict[Resource, View] = {}
        team = {"metadata": {"name": "team", "uid": "u", "resourceVersion": "1", "labels": {}}}
        self.view(NAMESPACES).on_write(orjson.dumps(team))

    def view(self, resource: Resource) -> View:
        return self.views.setdefault(resource, View(resource, clock=ManualClock()))


def webhooks() -> web.Application:
    caches, configuration = EmptyCaches(), Configuration()
    handlers = Handlers(
        configuration=configuration,
        caches=cast(Caches, caches),
        registry=JobRegistry(("batch/job",)),
        namespaces=ManagedNamespaces(configuration, caches.view(NAMESPACES)),
        jobs=True,
        seals=Seals.drawn(ManualClock()),
        access=NobodyMay(),
        owners=nobody_owns(),
        kinds=NoKinds(),
    )

    async def ready() -> None:
        return

    return application(handlers.by_path(), ready=ready, is_cached=lambda hook, request: True)


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)

    async def status(self) -> int:
        """Of the next answer, whose body is read as well; 0 when the server closed instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        lines = head.decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        self.body = await self.reader.readexactly(length)
        return int(lines[0].split()[1])

    async def closed(self) -> bool:
        """Wait until the server has closed it."""
        with suppress(ConnectionError):
            await self.reader.read()
        return True


class Server:
    """A server of ours and its clients."""

    def __init__(self, port: int, stack: AsyncExitStack, context: ssl.SSLContext | None) -> None:
        self.port = port
        self._stack = stack
        self._context = context

    async def client(self, *, secured: bool | None = None) -> Client:
        context = self._context if secured is not False else None
        name = "127.0.0.1" if context is not None else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)
        self._stack.push_async_callback(_close, writer)
        return Client(reader, writer)

    async def post(self, path: str, body: bytes, *, headers: bytes = b"") -> Client:
        client = await self.client()
        client.send(request(path, len(body), headers), body)
        return client

    async def answers(self) -> bool:
        """Whether a new client is served."""
        with anyio.fail_after(10):
            client = await self.post(VALIDATE_JOB, review())
            return await client.status() == 200


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def server(
    limits: ServingLimits = LIMITS, *, tls: bool = False, app: Callable[[], web.Application] = webhooks
) -> AsyncIterator[Server]:
    certificate, context = None, None
    if tls:
        authority = trustme.CA()
        leaf = authority.issue_cert("127.0.0.1")
        certificate = ServingCertificate(leaf.private_key_and_cert_chain_pem.bytes())
        context = ssl.create_default_context()
        authority.configure_trust(context)
    async with serving(app(), "127.0.0.1:0", certificate=certificate, limits=limits) as port:
        async with AsyncExitStack() as stack:
            yield Server(port, stack, context)


def request(path: str, length: int | None, headers: bytes = b"") -> bytes:
    size = b"" if length is None else b"Content-Length: %d\r\n" % length
    return b"POST %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n" % (path.encode(), size, headers)


def review(**changes: Any) -> bytes:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "team"}, "spec": {}}
    asked = {"uid": "u", "operation": "CREATE", "namespace": "team", "name": "j", "object": job}
    return encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked | changes})


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()  # orjson writes nothing that is nested deeper than 254


CHUNKED = b"Transfer-Encoding: chunked\r\n"


async def test_a_body_longer_than_two_objects_is_answered_with_413_before_it_is_read() -> None:
    async with server() as hooks:
        client = await hooks.client()
        client.send(request(VALIDATE_JOB, 7 * MEBIBYTE + 1))
        assert await client.status() == 413
        assert await hooks.answers()


async def test_a_chunked_body_that_grows_too_long_is_answered_with_413() -> None:
    async with server() as hooks:
        client = await hooks.client()
        client.send(request(VALIDATE_JOB, None, CHUNKED))
        for _ in range(8):
            client.send(b"%x\r\n" % MEBIBYTE, bytes(MEBIBYTE), b"\r\n")
        assert await client.status() == 413
        assert await hooks.answers()


async def test_two_objects_of_the_largest_size_are_read() -> None:
    large = {"metadata": {"name": "j", "annotations": {"a": "x" * (3 * MEBIBYTE)}}}
    async with server() as hooks:
        client = await hooks.post(VALIDATE_JOB, review(object=large, oldObject=large))
        assert await client.status() == 200


async def test_a_conversion_of_a_long_list_is_read() -> None:
    item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "x" * (8 * MEBIBYTE)}}
    asked = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": [item]}
    async with server() as hooks:
        client = await hooks.post(CONVERSION_PATH, encoded({"request": asked}))
        assert await client.status() == 200
        client = await hooks.client()
        client.send(request(CONVERSION_PATH, 32 * MEBIBYTE + 1))
        assert await client.status() == 413


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "over TLS"])
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(request(VALIDATE_JOB, 1000)[:-2], id="headers without an end"),
        pytest.param(request(VALIDATE_JOB, 1000) + b"{", id="a body shorter than its Content-Length says"),
        pytest.param(request(VALIDATE_JOB, None, CHUNKED) + b"5\r\nabcde\r\n", id="chunks without an end"),
    ],
)
async def test_a_request_that_stops_half_way_is_answered_with_408(start: bytes, tls: bool) -> None:
    async with server(QUICK, tls=tls) as hooks:
        client = await hooks.client()
        client.send(start)
        assert await client.status() == 408
        assert await client.closed()


@pytest.mark.parametrize(
    "start", [pytest.param(b"POST / HTTP/1.1\r\nX: ", id="headers"), pytest.param(request("/", 10**5), id="a body")]
)
async def test_one_byte_at_a_time_gains_no_time(start: bytes) -> None:
    async with server(QUICK) as hooks:
        client = await hooks.client()
        client.send(start)

        async def trickle() -> None:
            while not client.reader.at_eof():
                client.send(b"x")
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle)
            assert await client.status() == 408
            tasks.cancel_scope.cancel()


async def test_a_client_that_sends_nothing_is_closed_after_a_while() -> None:
    async with server(QUICK) as hooks:
        client = await hooks.client()
        assert await client.closed()


async def test_a_connection_is_closed_when_no_second_request_comes() -> None:
    async with server(QUICK) as hooks:
        client = await hooks.post(VALIDATE_JOB, review())
        assert await client.status() == 200
        assert await client.closed()


async def test_a_tls_handshake_that_never_ends_is_closed() -> None:
    async with server(QUICK, tls=True) as hooks:
        client = await hooks.client(secured=False)
        client.send(b"\x16\x03\x01")  # the beginning of a ClientHello
        assert await client.closed()
        assert await hooks.answers()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "over TLS"])
async def test_five_hundred_idle_connections_block_no_client(tls: bool) -> None:
    async with server(tls=tls) as hooks:
        held = [await hooks.client(secured=False) for _ in range(500)]
        assert all([await hooks.answers() for _ in range(3)])
        assert len(held) == 500


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "in their TLS handshake"])
async def test_a_full_server_closes_the_connection_that_was_idle_for_longest(tls: bool) -> None:
    async with server(replace(LIMITS, connections=3), tls=tls) as hooks:
        first, second, _ = [await hooks.client(secured=False) for _ in range(3)]
        assert await hooks.answers()
        assert await first.closed()
        assert not second.reader.at_eof()


async def test_a_connection_in_use_is_not_closed_for_a_new_one() -> None:
    hold, asked = anyio.Event(), anyio.Event()

    async def slow(request: web.Request) -> web.Response:
        asked.set()
        await hold.wait()
        return web.Response(text="done")

    def app() -> web.Application:
        made = web.Application()
        made.router.add_post("/slow", slow)
        return made

    async with server(replace(LIMITS, connections=2), app=app) as busy:
        working = await busy.post("/slow", b"")
        await asked.wait()
        idle = await busy.client()
        another = await busy.client()
        assert await idle.closed()
        hold.set()
        assert await working.status() == 200
        assert not another.reader.at_eof()


async def test_large_bodies_are_bounded_together_and_small_ones_are_served() -> None:
    async with server(replace(LIMITS, buffered_bytes=8 * MEBIBYTE)) as hooks:
        first = await hooks.client()
        first.send(request(VALIDATE_JOB, 7 * MEBIBYTE), b"{")
        assert await hooks.answers()  # after the headers of the first were read
        second = await hooks.client()
        second.send(request(VALIDATE_JOB, 7 * MEBIBYTE), b"{")
        assert await second.status() == 503
        assert await hooks.answers()


@pytest.mark.parametrize("page", ["/metrics", "/healthz", "/readyz"])
async def test_metrics_and_probes_have_the_same_limits(page: str) -> None:
    from prometheus_client import CollectorRegistry

    def app() -> web.Application:
        made = web.Application()
        add_metrics(made, CollectorRegistry())
        add_probes(made, live=lambda: None, ready=lambda: None)
        return made

    async with server(ServingLimits(read_seconds=0.2, idle_seconds=0.2), app=app) as probes:
        fine = await probes.client()
        fine.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % page.encode())
        assert await fine.status() == 200
        assert await fine.closed()
        long = await probes.client()
        long.send(request(page, 65 * 1024))
        assert await long.status() in (405, 413)
        slow = await probes.client()
        slow.send(b"GET %s HTTP/1.1\r\n" % page.encode())
        assert await slow.status() == 408


async def test_what_is_not_http_is_refused_without_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as hooks:
        client = await hooks.client()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\x1b]8;;bad\r\n\r\n")
        assert await client.status() == 400
    assert not caplog.records


NESTED = b"[" * 100_000 + b"]" * 100_000
MALFORMED = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "nested 100,000 deep": NESTED,
    "an object nested 100,000 deep": b'{"request":{"uid":"u","operation":"CREATE","object":%s}}' % NESTED,
    "a list": b"[]",
    "text": b'"x"',
    "a number of 5,000 digits": b"9" * 5000,
    "no request": b"{}",
    "a request that is text": b'{"request":"x"}',
    "a request that is a list": b'{"request":["uid"]}',
    "no uid": b'{"request":{"operation":"CREATE"}}',
    "a uid that is a number": b'{"request":{"uid":1,"operation":"CREATE"}}',
}
REVIEWS = {
    "an operation that is a list": {"operation": []},
    "a name that is an object": {"name": {}},
    "a user that is text": {"userInfo": "root"},
    "a user name that is a number": {"userInfo": {"username": 7}},
    "an object that is text": {"object": "x"},
    "an old object that is a list": {"oldObject": []},
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("path", [VALIDATE_JOB, CONVERSION_PATH], ids=["admission", "conversion"])
async def test_what_is_no_review_is_answered_with_400(path: str, body: bytes) -> None:
    async with server() as hooks:
        client = await hooks.post(path, body)
        assert await client.status() == 400
        assert client.body.startswith(b"not a")
        assert b"Traceback" not in client.body


@pytest.mark.parametrize("changes", REVIEWS.values(), ids=REVIEWS.keys())
async def test_a_review_with_a_field_of_the_wrong_type_is_answered_with_400(changes: dict[str, Any]) -> None:
    async with server() as hooks:
        client = await hooks.post(VALIDATE_JOB, review(**changes))
        assert await client.status() == 400
        assert b"expected" in client.body


@pytest.mark.parametrize(
    "changes",
    [{"desiredAPIVersion": 1}, {"objects": {}}, {"objects": ["x"]}, {"objects": [None]}],
    ids=["a version that is a number", "objects that are none", "an object that is text", "an object that is null"],
)
async def test_a_conversion_with_a_field_of_the_wrong_type_is_answered_with_400(changes: dict[str, Any]) -> None:
    asked = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": []} | changes
    async with server() as hooks:
        client = await hooks.post(CONVERSION_PATH, encoded({"request": asked}))
        assert await client.status() == 400
        assert b"expected" in client.body


def deep(depth: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    return nested


WRONG: dict[str, Any] = {
    "text": "x",
    "a number": 7,
    "a list of text": ["x"],
    "a list of null": [None],
    "true": True,
    "an object of text": {"name": "x", "labels": "x", "annotations": ["x"], "podSets": "x", "template": "x"},
    "an object of lists": {
        "podSets": [["x"]],
        "resourceGroups": [["x"]],
        "finalizers": {"x": 1},
        "ownerReferences": [7],
    },
    "an object nested 900 deep": deep(900),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS.keys())
async def test_an_object_of_the_wrong_shape_is_allowed_or_denied(hook: Hook, field: str, wrong: Any) -> None:
    obj: dict[str, Any] = {"apiVersion": hook.resource.api_version, "kind": hook.resource.kind}
    obj |= {"metadata": {"name": "j", "namespace": "team"}, field: wrong}
    async with server() as hooks:
        client = await hooks.post(hook.path, review(object=obj))
        assert await client.status() == 200
        answer = orjson.loads(client.body)["response"]
        assert answer["allowed"] or answer["status"]["message"]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("kind", ["Workload", "ClusterQueue", "Cohort", "LocalQueue", "Topology"])
async def test_an_object_of_the_wrong_shape_fails_its_conversion_or_passes_through(kind: str, wrong: Any) -> None:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": "j"}, "spec": wrong}
    asked = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [obj, obj | {"status": wrong}]}
    async with server() as hooks:
        client = await hooks.post(CONVERSION_PATH, encoded({"request": asked}))
        assert await client.status() == 200
        assert orjson.loads(client.body)["response"]["result"]["status"] in ("Success", "Failure")


async def test_a_refusal_that_quotes_a_long_value_is_cut() -> None:
    job = {"metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "!" * MEBIBYTE}}, "spec": {}}
    async with server() as hooks:
        client = await hooks.post(VALIDATE_JOB, review(object=job))
        assert await client.status() == 200
        assert not orjson.loads(client.body)["response"]["allowed"]
        assert len(client.body) < 32 * 1024


def test_a_guard_closes_only_idle_connections() -> None:
    closed: list[str] = []

    class Held:
        def __init__(self, name: str) -> None:
            self.name = name

        def abort(self) -> None:
            closed.append(self.name)

    guard = ConnectionGuard(ServingLimits(connections=2))
    a, b, c, d = (Held(name) for name in "abcd")
    assert guard.admit(a)
    assert guard.admit(b)
    guard.busy(a)
    assert guard.admit(c)
    assert closed == ["b"]
    guard.busy(c)
    assert not guard.admit(d)
    guard.idle(c)
    guard.idle(a)
    assert guard.admit(d)
    assert closed == ["b", "c"]
    guard.gone(a)
    guard.abort_all()
    assert (closed, len(guard)) == (["b", "c", "d"], 0)
