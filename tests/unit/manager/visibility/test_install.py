# SPDX-License-Identifier: Apache-2.0
"""The registration of the visibility API: written once, repaired, and not made for what nothing serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from manager.visibility import install
from manager.visibility.install import MANAGER, ServiceTarget, VisibilityRegistration
from tests.support.stub_api import json_answer, status_answer, stub_api

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
SERVICE = "/api/v1/namespaces/n/services/kueue-visibility-server"
NEWER, OLDER = (
    f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.visibility.kueue.x-k8s.io"
    for version in ("v1beta2", "v1beta1")
)
INSIDE, OUTSIDE = ServiceTarget(namespace="n"), ServiceTarget(namespace="n", host="localhost", port=1)


class Server:
    """Stores what is applied."""

    def __init__(self, stored: dict[str, Object] | None = None) -> None:
        self.stored = stored or {}
        self.written: list[str] = []
        self.failing = 0
        self.rounds = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.rounds += request.method == "GET" and request.path == SERVICE
        if self.failing:
            return status_answer(self.failing, "Broken")
        if request.method == "PATCH":
            self.written.append(request.path)
            applied = orjson.loads(await request.read())
            entry = {"manager": MANAGER, "operation": "Apply", "fieldsV1": {}}
            applied["metadata"]["managedFields"] = [entry]
            self.stored[request.path] = applied
        found = self.stored.get(request.path)
        return json_answer(found) if found else status_answer(404, "NotFound")


async def registered(server: Server, target: ServiceTarget) -> None:
    """Keep it registered for three rounds."""
    async with stub_api(server.answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(VisibilityRegistration(client, target, ca_bundle=lambda: "Y2E=").run)
        await until(lambda: server.rounds > 3)
        tasks.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.01)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "CHECK_SECONDS", 0.02)


async def test_a_manager_outside_the_cluster_writes_service_and_registration_once() -> None:
    server = Server()
    await registered(server, OUTSIDE)
    assert server.written == [SERVICE, NEWER, OLDER]


async def test_inside_the_cluster_the_service_is_left_as_it_is() -> None:
    service = {"metadata": {"name": "kueue-visibility-server"}, "spec": {"type": "ClusterIP"}}
    server = Server({SERVICE: service})
    await registered(server, INSIDE)
    assert server.written == [NEWER, OLDER]
    assert server.stored[SERVICE] == service


async def test_without_a_service_nothing_is_registered_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    await registered(server, INSIDE)
    assert server.written == []
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "visibility API not registered retry_after=0 reason=Service n/kueue-visibility-server does not exist"
    ]


async def test_a_registration_of_kueues_manifests_is_verified_from_now_on() -> None:
    unverified = {
        "metadata": {"name": "v1beta2.visibility.kueue.x-k8s.io"},
        "spec": {"insecureSkipTLSVerify": True, "service": {"name": "kueue-visibility-server", "namespace": "n"}},
    }
    server = Server({SERVICE: {"metadata": {}}, NEWER: unverified})
    await registered(server, INSIDE)
    assert server.written.count(NEWER) >= 1
    assert server.stored[NEWER]["spec"]["caBundle"] == "Y2E="
    assert not server.stored[NEWER]["spec"]["insecureSkipTLSVerify"]


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_a_server_that_refuses_is_asked_again_and_logged_once(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.failing = code

    def logged() -> int:
        return sum("visibility API not registered" in record.getMessage() for record in caplog.records)

    async with stub_api(server.answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(VisibilityRegistration(client, OUTSIDE, ca_bundle=lambda: "Y2E=").run)
        await until(lambda: logged() > 0)
        server.failing = 0
        await until(lambda: len(server.written) == 3)
        tasks.cancel_scope.cancel()
    assert server.written == [SERVICE, NEWER, OLDER]
    assert logged() == 1
