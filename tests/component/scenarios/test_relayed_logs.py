# SPDX-License-Identifier: Apache-2.0
"""`mkctl logs` through the agent of a cluster that the user cannot reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import orjson
import pytest
import yaml

from multikueue.api.constants import FAILED_JOB_LABEL
from multikueue.api.resource import CONFIG_MAPS, JOB_LOG_REQUESTS, REMOTE_ASSIGNMENTS
from multikueue.cli.logs.command import show
from multikueue.dispatch.protocol.job_logs import MAX_CHUNK_BYTES
from tests.support.failed_jobs import fail_job, failed_pod, make_failed_pod
from tests.support.logged_jobs import add_pod, hub_of, relayed, writing
from tests.support.managers import Object, eventually, wait_condition
from tests.support.push_workers import kubeconfigs_of
from tests.support.scenes import Scene, Stage, scene
from tests.support.sites import OWN

pytestmark = pytest.mark.anyio
apart = pytest.mark.attacks
"""`make test` has no time for it."""


async def requests(made: Scene) -> list[Object]:
    """The JobLogRequests of the namespace."""
    page = await made.client.list_all(JOB_LOG_REQUESTS, namespace=made.namespace)
    return [orjson.loads(raw) for raw in page.items]


async def assigned_logs(made: Scene) -> list[Object]:
    """The requests in the assignments on the hub."""
    page = await made.client.list_all(REMOTE_ASSIGNMENTS)
    specs = [orjson.loads(raw)["spec"] for raw in page.items]
    return [
        entry for spec in specs if spec["workload"]["namespace"] == made.namespace for entry in spec.get("logs") or ()
    ]


@pytest.mark.also_on_binaries
async def test_the_log_of_a_pod_is_printed_whole_and_nothing_is_left_behind(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"line {number} " + "x" * 60 for number in range(2 * MAX_CHUNK_BYTES // 60)]
    async with scene(stage, "relayed") as made:
        writing(made.w1, p1=lines)
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        assert await show(hub_of(stage.hub, tmp_path), relayed(made)) == 0
        printed = capsys.readouterr()
        assert printed.out.splitlines() == lines
        assert f"# reading cluster {made.w1.name} through its agent" in printed.err
        assert await requests(made) == []
        await eventually(lambda: assigned_logs(made), what="nothing is asked any more", until=lambda seen: not seen)
        assert await show(hub_of(stage.hub, tmp_path), relayed(made, tail=2)) == 0
        assert capsys.readouterr().out.splitlines() == lines[-2:]


@apart
async def test_lines_are_followed_until_the_job_ends(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(stage, "followed") as made:
        pods = writing(made.w1, p1=["one"])
        pods.open = True
        workload = await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        shown = ""

        async def printed(text: str) -> None:
            nonlocal shown
            shown += capsys.readouterr().out

            async def probe() -> str:
                nonlocal shown
                shown += capsys.readouterr().out
                return shown

            await eventually(probe, what=f"{text} is printed", until=lambda seen: text in seen)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show, hub_of(stage.hub, tmp_path), relayed(made, follow=True, all_pods=True))
            await printed("[p1/main] one")
            pods.write("p1", "two")
            await printed("[p1/main] two")
            pods.lines["p2"] = ["from another pod"]
            await add_pod(made, made.w1, "p2")
            await printed("[p2/main] from another pod")
            pods.write("p1", "the last line")
            pods.finish()
            await made.w1.ends("j")
            await made.finished()
        shown += capsys.readouterr().out
        assert sorted(shown.splitlines()) == [
            "[p1/main] one",
            "[p1/main] the last line",
            "[p1/main] two",
            "[p2/main] from another pod",
            "[p2/main] the last line",
        ]
        await eventually(
            lambda: made.w1.job("j", namespace=made.namespace),
            what="the Job is removed once the last line was read",
            until=lambda seen: seen is None,
        )
        assert await requests(made) == [], workload


@apart
@pytest.mark.transports("pull")
async def test_mkctl_chooses_between_the_cluster_the_agent_and_what_the_hub_keeps(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(stage, "chosen") as made:
        writing(made.w1, p1=["a line"])
        await made.running(made.w1)
        uid = await add_pod(made, made.w1, "p1")
        hub = hub_of(stage.hub, tmp_path)
        wanted = replace(relayed(made), relay=False)
        assert await show(hub, wanted) == 0
        assert capsys.readouterr() == ("a line\n", f"# reading cluster {made.w1.name} through its agent\n")
        own = tmp_path / "own.yaml"
        content = {**kubeconfigs_of(made.w1.url), "users": [{"name": "own", "user": {"token": OWN}}]}
        own.write_text(yaml.safe_dump(content))
        assert await show(replace(hub, workers={made.w1.name: str(own)}), wanted) == 0
        assert capsys.readouterr() == ("a line\n", f"# reading cluster {made.w1.name} with a kubeconfig of it\n")
        gone = tmp_path / "gone.yaml"
        gone.write_text(
            yaml.safe_dump({**kubeconfigs_of("http://127.0.0.1:9"), "users": [{"name": "own", "user": {"token": "x"}}]})
        )
        assert await show(replace(hub, workers={made.w1.name: str(gone)}), wanted) == 0
        printed = capsys.readouterr()
        assert printed.out == "a line\n"
        assert f"# cannot read cluster {made.w1.name} directly" in printed.err
        pod = failed_pod("p2", job="j", job_uid=uid)
        await make_failed_pod(made.w1.client, pod, namespace=made.namespace)
        await fail_job(made.w1.client, "j", namespace=made.namespace)
        await wait_condition(made.client, "j", "Finished", namespace=made.namespace, reason="Failed")
        await eventually(
            lambda: made.client.list_all(CONFIG_MAPS, namespace=made.namespace, label_selector=FAILED_JOB_LABEL),
            what="the failure is recorded",
            until=lambda page: bool(page.items),
        )
        assert await show(hub, wanted) == 0
        assert "the last lines that the hub keeps" in capsys.readouterr().err
        assert await show(hub, relayed(made)) == 0
        assert capsys.readouterr() == ("a line\n", f"# reading cluster {made.w1.name} through its agent\n")


@apart
async def test_a_follower_loses_no_line_when_the_manager_is_restarted(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(stage, "followed through a restart") as made:
        pods = writing(made.w1, p1=["line 0"])
        pods.open = True
        await made.running(made.w1)
        await add_pod(made, made.w1, "p1")
        shown: list[str] = []

        async def printed() -> list[str]:
            shown.extend(capsys.readouterr().out.splitlines())
            return shown

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show, hub_of(stage.hub, tmp_path), relayed(made, follow=True))
            await eventually(printed, what="it is followed", until=lambda seen: "line 0" in seen)
            pods.write("p1", *(f"line {number}" for number in range(1, 100)))
            await stage.restart()
            pods.write("p1", "the last one")
            await eventually(printed, what="all is printed", until=lambda seen: "the last one" in seen)
            tasks.cancel_scope.cancel()
        assert shown == [*(f"line {number}" for number in range(100)), "the last one"]
