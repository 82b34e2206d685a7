# SPDX-License-Identifier: Apache-2.0
"""Which assignments' statuses a mailbox has written again after a list."""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
import pytest
from aiohttp import web

from multikueue.core.clock import SystemClock
from tests.support.stub_api import event, listing, stream, stub_api
from worker_agent.hub.mailbox import Mailbox

EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})


def assignment(name: str, version: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "mk-w", "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"epoch": 1, "intent": "Run"}}


@pytest.mark.parametrize(
    ("then", "resent"),
    [
        pytest.param({"a": "9", "b": "11"}, ["a", "b"], id="the hub was restored from a backup"),
        pytest.param({"a": "10", "b": "11"}, [], id="nothing has changed"),
        pytest.param({"a": "12", "b": "11"}, [], id="an assignment has changed"),
        pytest.param({"b": "11"}, [], id="an assignment is gone"),
    ],
)
async def test_statuses_are_in_doubt_once_a_list_is_older_than_what_was_read(
    then: dict[str, str], resent: list[str]
) -> None:
    """Those that an agent before this one wrote may be lost: this one has only read them."""
    lists = [{"a": "10", "b": "11"}, then]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            watching = EXPIRED if lists else b""
            return await stream(request, watching, then=None if lists else anyio.sleep_forever)  # type: ignore[no-any-return]
        now = lists.pop(0)
        # Its versions are far beyond those of the hub that was lost.
        return listing(*(assignment(name, version) for name, version in now.items()), version="1000")

    found: list[str] = []
    async with stub_api(answer) as api, api.client() as client, anyio.create_task_group() as tasks:
        mailbox = Mailbox(
            client,
            "w",
            clock=SystemClock(),
            random=Random(1),
            changed=lambda name: None,
            resend=lambda obj: found.append(obj["metadata"]["name"]),
        )
        tasks.start_soon(mailbox.informer.run)
        with anyio.fail_after(30):
            while mailbox.informer.lists < 2 or lists or sorted(mailbox.names()) != sorted(then):
                await anyio.sleep(0.01)
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert sorted(found) == resent
