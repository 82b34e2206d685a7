# SPDX-License-Identifier: Apache-2.0
"""Logs through the agent: only for those who may read them, only of their namespace, and bounded whoever writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from manager.dispatch.log_relay import AHEAD, NO_CLUSTER
from multikueue.api.constants import LOG_REQUEST_SEAL_ANNOTATION
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import JOB_LOG_REQUESTS, REMOTE_ASSIGNMENTS
from multikueue.cli.logs.command import show
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_logs import MAX_CHUNK_BYTES, MAX_REQUESTS
from multikueue.kube.errors import Forbidden, Invalid
from multikueue.kube.rest.client import KubeClient, PatchKind
from tests.support.logged_jobs import add_pod, hub_of, log_request, relayed, writing
from tests.support.managers import Object, eventually, get, make_namespace
from tests.support.scenes import Stage, scene
from tests.support.tenant_hubs import allow, tenant

pytestmark = [pytest.mark.anyio, pytest.mark.also_on_binaries]

REQUESTS = {"apiGroups": ["multikueue.io"], "resources": ["joblogrequests"], "verbs": ["*"]}
LOGS = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
JOBS = {"apiGroups": ["batch", "kueue.x-k8s.io"], "resources": ["jobs", "workloads"], "verbs": ["get", "list"]}


async def answered(client: KubeClient, namespace: str, name: str = "r", cursor: int = 1) -> Object:
    """The status of the request once it has that chunk."""
    found = await eventually(
        lambda: get(client, JOB_LOG_REQUESTS, name, namespace=namespace),
        what=f"{name} has chunk {cursor}",
        until=lambda seen: seen is not None and (seen.get("status") or {}).get("cursor", 0) >= cursor,
    )
    assert found is not None
    status: Object = found["status"]
    return status


async def test_only_a_user_who_may_read_logs_gets_them(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(stage, "who may") as made:
        writing(made.w1, p1=["a line"])
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        forged = {"metadata": {"name": "forged", "annotations": {LOG_REQUEST_SEAL_ANNOTATION: "0" * 64}}}
        async with tenant(stage.hub, made.client, f"eve-{made.name}", rules=[REQUESTS, JOBS]) as eve:
            for body in (log_request(), log_request() | forged):
                with pytest.raises(Forbidden, match="may not get pods/log"):
                    await eve.create(JOB_LOG_REQUESTS, body, namespace=made.namespace)
            with pytest.raises(BadInput, match="needs the right to create joblogrequests"):
                await show(hub_of(stage.hub, tmp_path, user=f"eve-{made.name}"), relayed(made))
        user = f"ann-{made.name}"
        await allow(made.client, user, [REQUESTS, JOBS, LOGS])
        assert await show(hub_of(stage.hub, tmp_path, user=user), relayed(made)) == 0
        assert capsys.readouterr().out == "a line\n"


async def test_a_request_reads_the_job_of_its_own_namespace_only_and_never_another_one(stage: Stage) -> None:
    async with scene(stage, "own namespace") as made:
        writing(made.w1, p1=["a secret line"])
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        other = f"{made.namespace}-other"
        await make_namespace(made.client, other)
        await made.client.create(JOB_LOG_REQUESTS, log_request(), namespace=other)
        status = await answered(made.client, other)
        assert (status["ended"], status["message"], status.get("chunk", "")) == (True, NO_CLUSTER, "")
        await made.client.create(JOB_LOG_REQUESTS, log_request("another"), namespace=made.namespace)
        for change in ({"job": {"name": "j"}}, {"container": "side"}, {"tailLines": 3}, {"cursor": -1}):
            with pytest.raises(Invalid):
                await made.client.patch(JOB_LOG_REQUESTS, "r", {"spec": change}, namespace=made.namespace)


@pytest.mark.attacks
async def test_a_namespace_has_few_requests_and_one_with_a_cursor_ahead_ends(stage: Stage) -> None:
    async with scene(stage, "few") as made:
        writing(made.w1, p1=["a line"])
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        names = [f"r{number}" for number in range(MAX_REQUESTS)]
        for name in names:
            await made.client.create(JOB_LOG_REQUESTS, log_request(name=name), namespace=made.namespace)
            await answered(made.client, made.namespace, name)
        with pytest.raises(Forbidden, match=f"has {MAX_REQUESTS} JobLogRequests already"):
            await made.client.create(JOB_LOG_REQUESTS, log_request(name="more"), namespace=made.namespace)
        for name, cursor in zip(names, (2, 10**6, 2**62, 2**63 - 1, 1), strict=True):
            await made.client.patch(JOB_LOG_REQUESTS, name, {"spec": {"cursor": cursor}}, namespace=made.namespace)

        async def left() -> list[Object]:
            page = await made.client.list_all(JOB_LOG_REQUESTS, namespace=made.namespace)
            return [orjson.loads(raw) for raw in page.items]

        await eventually(left, what="all have ended", until=lambda seen: not seen)
        await made.client.create(JOB_LOG_REQUESTS, log_request(cursor=7), namespace=made.namespace)
        await eventually(left, what=f"it ends: {AHEAD}", until=lambda seen: not seen)


@pytest.mark.attacks
async def test_only_pods_of_the_job_are_read(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user of the worker gives another pod the labels of the Job's pods."""
    async with scene(stage, "other pods") as made:
        writing(made.w1, p1=["own"], p2=["of another"])
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        await add_pod(made, made.w1, "p2", owner="11111111-2222-3333-4444-555555555555")
        assert await show(hub_of(stage.hub, tmp_path), relayed(made, all_pods=True)) == 0
        assert capsys.readouterr().out == "[p1/main] own\n"


@pytest.mark.attacks
async def test_a_pod_with_a_forged_owner_shows_its_own_lines_and_only_in_the_namespace_of_the_job(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user of the worker gives pods of its own the labels and the owner of the job, here and in another namespace.

    In the namespace of the job that is as if its own lines were those of the job; those of other pods stay unread.
    """
    async with scene(stage, "forged owners") as made:
        writing(made.w1, p1=["own"], forged=["of the forger"], elsewhere=["a secret"], other=["of another"])
        await made.running(made.w1)
        uid = await add_pod(made, made.w1, "p1")
        await add_pod(made, made.w1, "forged")
        await add_pod(made, made.w1, "other", owner="11111111-2222-3333-4444-555555555555", owner_kind="RayCluster")
        await make_namespace(made.w1.client, f"{made.namespace}-other")
        await add_pod(made, made.w1, "elsewhere", owner=uid, namespace=f"{made.namespace}-other")
        assert await show(hub_of(stage.hub, tmp_path), relayed(made, all_pods=True)) == 0
        assert sorted(capsys.readouterr().out.splitlines()) == ["[forged/main] of the forger", "[p1/main] own"]


@pytest.mark.attacks
async def test_a_hostile_log_is_printable_and_comes_in_bounded_chunks(stage: Stage) -> None:
    async with scene(stage, "hostile lines") as made:
        writing(made.w1, p1=["\x1b[2J\x07\u202e" * 5_000, "x" * 3 * MAX_CHUNK_BYTES])
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        await made.client.create(JOB_LOG_REQUESTS, log_request(), namespace=made.namespace)
        text, cursor = "", 0
        while True:
            status = await answered(made.client, made.namespace, cursor=cursor + 1)
            chunk, cursor = status.get("chunk", ""), status["cursor"]
            assert len(chunk.encode()) <= MAX_CHUNK_BYTES
            assert all(character.isprintable() or character in "\n\t" for character in chunk)
            text += chunk
            if status["ended"]:
                break
            await made.client.patch(JOB_LOG_REQUESTS, "r", {"spec": {"cursor": cursor}}, namespace=made.namespace)
        assert text.count("x" * MAX_CHUNK_BYTES * 2) == 1
        assert text.count("\\x1b[2J") == 5_000


@pytest.mark.transports("pull")
async def test_an_agent_that_writes_anything_reaches_its_own_requests_only_and_bounded(stage: Stage) -> None:
    async with scene(stage, "lying agent") as made:
        workload = await made.running(made.w1)
        await made.w1.cut()
        created = orjson.loads(await made.client.create(JOB_LOG_REQUESTS, log_request(), namespace=made.namespace))
        uid = created["metadata"]["uid"]
        name, mailbox = assignment_name(Key(made.namespace, workload)), mailbox_namespace(made.w1.name)
        await eventually(
            lambda: get(made.client, REMOTE_ASSIGNMENTS, name, namespace=mailbox),
            what="the request is passed on",
            until=lambda seen: seen is not None and bool(seen["spec"].get("logs")),
        )

        async def write(*entries: Any) -> None:
            patch: list[dict[str, Any]] = [{"op": "add", "path": "/status/logs", "value": list(entries)}]
            await made.client.patch(
                REMOTE_ASSIGNMENTS, name, patch, namespace=mailbox, kind=PatchKind.JSON, subresource="status"
            )

        own = {"request": uid, "cursor": 1, "pod": "p", "container": "c"}
        for refused in ([{**own, "chunk": "x" * (MAX_CHUNK_BYTES + 1)}], [own] * 6, ["text"], [{**own, "cursor": -1}]):
            with pytest.raises(Invalid):
                await write(*refused)
        other = {**own, "request": "11111111-2222-3333-4444-555555555555", "chunk": "for another"}
        await write(other, {**own, "cursor": 10**9, "chunk": "ahead"})
        await write(
            {**own, "pod": "../p", "container": "\x1b", "chunk": "\x1b]0;x\x07" * 9_000, "message": "\x9b" * 999}
        )
        status = await answered(made.client, made.namespace)
        assert (status["cursor"], status.get("pod", ""), status.get("container", "")) == (1, "", "")
        shown = status["chunk"] + status["message"]
        assert shown.isprintable()
        assert len(shown.encode()) <= MAX_CHUNK_BYTES + 1024
        assert "for another" not in shown
        await made.w1.mend()
