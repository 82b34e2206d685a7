# SPDX-License-Identifier: Apache-2.0
"""The review of running pods while the API server answers errors, or nonsense."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest
from prometheus_client import CollectorRegistry

from manager.context import ManagerContext
from manager.metrics import ManagerMetrics
from manager.owners import running_pods
from manager.owners.running_pods import RunningPodReview
from multikueue.core.backoff import Backoff
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.errors import Details, Gone, InternalError, KubeError, TooManyRequests, Unreachable
from multikueue.kube.rest.json_slices import Page
from multikueue.kube.runtime.supervisor import Supervisor

pytestmark = pytest.mark.anyio

GHOST = {"apiVersion": "batch/v1", "kind": "Job", "name": "ghost", "uid": "u", "controller": True}
POD = {"metadata": {"name": "free", "namespace": "team", "uid": "p", "ownerReferences": [GHOST]}, "spec": {}}


class Server:
    """A client whose lists fail in turn, and then have these items on one page each."""

    def __init__(self, *errors: KubeError, items: tuple[bytes, ...]) -> None:
        self._errors = list(errors)
        self._items = items

    async def list_page(self, resource: Any, *, continue_token: str | None, **more: Any) -> Page:
        await anyio.lowlevel.checkpoint()
        if self._errors:
            raise self._errors.pop(0)
        number = int(continue_token or 0)
        following = str(number + 1) if number + 1 < len(self._items) else None
        return Page([self._items[number]], "1", following)


class Views:
    """No objects, and one namespace."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def view(self, resource: Any) -> Any:
        return SimpleNamespace(object=lambda key: None, objects=lambda *where: ())

    def subscribe(self, resource: Any, handler: Any) -> None:
        handler(SimpleNamespace(key=Key("", "team"), old=None, new=object()))


async def reported(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes of events, once there are any."""
    monkeypatch.setattr(running_pods, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(running_pods, "_PAUSES", Backoff(base=0.001, factor=1.0, cap=0.001, jitter=0.0))
    notes: list[str] = []
    written = anyio.Event()

    def event(about: Any, kind: str, reason: str, message: str) -> None:
        notes.append(f"{about.name} {reason}: {message}")
        written.set()

    context = SimpleNamespace(
        client=server,
        caches=Views(),
        configuration=SimpleNamespace(manage_jobs_without_queue_name=False),
        recorder=SimpleNamespace(event=event),
        metrics=ManagerMetrics(),
        clock=SystemClock(),
        random=Random(1),
        supervisor=Supervisor(clock=SystemClock(), random=Random(1), registry=CollectorRegistry()),
    )
    review = RunningPodReview(
        cast(ManagerContext, context), JobRegistry(["batch/job"]), manages_namespace=lambda name: name == "team"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(review.run)
        with anyio.fail_after(30):
            await written.wait()
        tasks.cancel_scope.cancel()
    return notes


@pytest.mark.parametrize("failed", range(3))
async def test_a_list_that_fails_is_repeated_until_all_pods_were_reviewed(
    failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        kind(request="list", status=kind.code, reason="", message="", details=Details())
        for kind in (TooManyRequests, InternalError, Gone)
    ]
    server = Server(
        Unreachable("no answer"), *answers[failed:], items=(orjson.dumps({**POD, "metadata": {}}), orjson.dumps(POD))
    )
    (note,) = await reported(server, monkeypatch)
    assert note.startswith('free OutsideQuota: It runs outside quota: the owner "ghost" above it does not exist')


@pytest.mark.parametrize(
    "odd", [b"{", b"[]", b"null", orjson.dumps({"metadata": {"namespace": "team", "ownerReferences": "x"}})]
)
async def test_a_pod_that_cannot_be_read_affects_itself_only(odd: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(await reported(Server(items=(odd, orjson.dumps(POD))), monkeypatch)) == 1
