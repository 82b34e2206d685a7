# SPDX-License-Identifier: Apache-2.0
"""What is sent of the log of a virtual container, and which containers the server knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget, Stream
from devcluster.kubelet.lifecycle import PodLifecycle
from devcluster.kubelet.log_server import FollowedLog, LogRange, log_lines
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time
from tests.support.embedded import Caller, Watching, api_server

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("n", "p")
POD: dict[str, Any] = {"spec": {"nodeName": "node", "containers": [{"name": "main", "image": "anything"}]}}
ENDED = PodLifecycle(started_at=START, finished_at=START + timedelta(seconds=10), exit_code=3)
FIRST, LAST = "main started on virtual node node\n", "main ended with exit code 3\n"


async def sent(**query: str) -> str:
    """The log of the ended pod."""
    reply = log_lines(FollowedLog(lambda key: (POD, ENDED), KEY, "main"), query)
    assert isinstance(reply, Stream)
    watching = Watching(reply)
    while not watching.closed:
        await anyio.lowlevel.checkpoint()
    return watching._bytes.decode()


async def test_a_log_is_sent_as_it_is_without_options() -> None:
    assert await sent() == FIRST + LAST


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"limitBytes": "4"}, "main"),
        ({"limitBytes": str(len(FIRST) + 4)}, FIRST + "main"),
        ({"limitBytes": "100000"}, FIRST + LAST),
        ({"limitBytes": "4", "follow": "true"}, "main"),
        ({"tailLines": "1", "limitBytes": "8"}, "main end"),
    ],
    ids=["within a line", "after a line", "more than there is", "while followed", "of the last line"],
)
async def test_no_more_bytes_are_sent_than_asked_for(query: dict[str, str], text: str) -> None:
    assert await sent(**query) == text


async def test_lines_before_the_time_are_left_out() -> None:
    assert await sent(sinceTime=format_micro_time(START + timedelta(seconds=10))) == LAST
    assert await sent(sinceTime=format_micro_time(START)) == FIRST + LAST
    assert await sent(sinceTime="2026-01-01T00:00:11Z") == ""


async def test_the_time_counts_in_whole_seconds_as_api_servers_pass_it_on() -> None:
    assert await sent(sinceTime="2026-01-01T00:00:10.900000Z") == LAST


@pytest.mark.parametrize(
    "query",
    [{"limitBytes": "0"}, {"limitBytes": "-1"}, {"limitBytes": "x"}, {"sinceTime": "yesterday"}, {"tailLines": "-3"}],
    ids=str,
)
def test_options_that_the_api_does_not_accept_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        LogRange.of(query)


class Kubelet:
    """Answers with the name of the container."""

    async def logs(self, request: Request, target: RequestTarget) -> Reply:
        return Answer(200, request.query["container"].encode(), "text/plain")


@pytest.mark.parametrize(("container", "status"), [("main", 200), ("first", 200), ("other", 400)])
async def test_init_containers_have_logs_and_unknown_containers_are_refused(container: str, status: int) -> None:
    api = api_server()
    api.connect_kubelets(Kubelet())  # type: ignore[arg-type]  # it serves logs only
    caller = Caller(api)
    image = {"image": "busybox"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "main", **image}],
            "initContainers": [{"name": "first", **image}],
        },
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await caller.create("/api/v1/namespaces/default/serviceaccounts", account)
    created = await caller.create("/api/v1/namespaces/default/pods", pod)
    assert created.status == 201, created.body
    found = await caller.get("/api/v1/namespaces/default/pods/p/log", container=container)
    assert found.status == status
    assert status == 400 or found.body == container
