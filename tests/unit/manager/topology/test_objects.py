# SPDX-License-Identifier: Apache-2.0
"""Nodes and pods are read once a flavor has a topology, and what this process wrote of a pod counts at once."""

from __future__ import annotations

import logging
from urllib.parse import unquote

import anyio
import orjson
import pytest

from multikueue.core.keys import Key
from tests.unit.manager.topology.builders import GATE, KEY, RACK, Site, names, node, pod, site

pytestmark = pytest.mark.anyio


async def until_asked(at: Site, *wanted: str) -> None:
    with anyio.fail_after(10):
        while at.asked() != [*wanted]:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("flavors", [[], [""]], ids=["no flavor", "a flavor without a topology"])
async def test_nothing_is_listed_while_no_flavor_has_a_topology(flavors: list[str]) -> None:
    async with site() as at, anyio.create_task_group() as tasks:
        for each in flavors:
            at.has_flavor(each)
        await at.objects.prepare()
        tasks.start_soon(at.objects.run)
        await anyio.sleep(0.05)
        assert at.api.seen == []
        at.has_flavor("")
        await anyio.sleep(0.05)
        assert at.api.seen == []
        tasks.cancel_scope.cancel()


async def test_the_first_flavor_with_a_topology_has_pods_followed_and_nodes_after_them() -> None:
    async with site() as at, anyio.create_task_group() as tasks:
        at.server.nodes, at.server.pods = {"n": node("n")}, {"a": pod("a")}
        await at.objects.prepare()
        tasks.start_soon(at.objects.run)
        at.has_flavor()
        with anyio.fail_after(10):
            await at.objects.pods.synced.wait()
            assert not at.objects.nodes.store
            await at.objects.nodes.synced.wait()
        assert [kind for kind in at.asked() if "watch" not in kind] == ["pods", "nodes"]
        assert [row.key.name for row in at.objects.nodes.store.list()] == ["n"]
        assert names(at.objects.pods_of(KEY)) == ["a"]
        tasks.cancel_scope.cancel()


async def test_if_there_is_such_a_flavor_both_are_read_before_anything_is_decided_and_only_watched_then() -> None:
    async with site() as at, anyio.create_task_group() as tasks:
        at.server.nodes, at.server.pods = {"n": node("n")}, {"a": pod("a")}
        at.has_flavor()
        await at.objects.prepare()
        assert at.asked() == ["pods", "nodes"]
        assert len(at.objects.nodes.store) == len(at.objects.pods.store) == 1
        tasks.start_soon(at.objects.run)
        await until_asked(at, "pods", "nodes", "pods watch", "nodes watch")
        tasks.cancel_scope.cancel()


async def test_pods_that_have_ended_are_not_asked_for() -> None:
    async with site() as at:
        at.has_flavor()
        await at.objects.prepare()
        living = "fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
        assert [unquote(entry).endswith(living) for entry in at.api.seen] == [True, False]


@pytest.mark.parametrize("forbidden", ["pods", "nodes"])
async def test_a_server_that_forbids_one_of_them_stops_nothing_and_is_asked_again(
    forbidden: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as at, anyio.create_task_group() as tasks:
        at.server.nodes, at.server.pods = {"n": node("n")}, {"a": pod("a")}
        at.server.forbidden.add(forbidden)
        at.has_flavor()
        with caplog.at_level(logging.WARNING):
            await at.objects.prepare()
            assert "nodes and pods of topologies cannot be read" in caplog.text
            assert not at.objects.nodes.store, "nothing is placed"
            tasks.start_soon(at.objects.run)
            with anyio.fail_after(10):
                while at.asked().count(forbidden) < 2:
                    await anyio.sleep(0.01)
        at.server.forbidden.clear()
        with anyio.fail_after(10):
            await at.objects.pods.synced.wait()
            await at.objects.nodes.synced.wait()
        assert names(at.objects.pods_of(KEY)) == ["a"]
        tasks.cancel_scope.cancel()


async def test_a_server_that_does_not_answer_holds_up_the_manager_no_longer_than_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("manager.topology.objects._READY_SECONDS", 0.05)
    async with site() as at:

        async def silent(request: object) -> None:
            await anyio.sleep(60)

        at.api.answer = silent  # type: ignore[assignment]
        at.has_flavor()
        with anyio.fail_after(10):
            await at.objects.prepare()
        assert not at.objects.pods.synced.is_set()


async def test_what_is_read_of_them_is_kept_and_nothing_else() -> None:
    async with site() as at:
        taint = {"key": "k", "effect": "NoSchedule"}
        bound = pod("a", managedFields=[{"manager": "m"}])
        bound["spec"] |= {"nodeName": "n", "volumes": [{"name": "v"}], "initContainers": [{"name": "i", "image": "x"}]}
        at.server.nodes = {"n": node("n", taints=[taint], unschedulable=True)}
        at.server.pods = {"a": bound}
        at.has_flavor()
        await at.objects.prepare()
        assert at.objects.nodes.store.object(Key("", "n")) == {
            "metadata": {"name": "n", "uid": "uid-n", "resourceVersion": "1", "labels": {RACK: "r1"}},
            "spec": {"taints": [taint], "unschedulable": True},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        metadata = {name: value for name, value in bound["metadata"].items() if name != "managedFields"}
        assert at.objects.pods.store.object(Key("team", "a")) == {
            "metadata": metadata,
            "spec": {
                "nodeName": "n",
                "schedulingGates": [GATE],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"name": "i"}],
            },
            "status": {"phase": "Pending"},
        }


async def test_the_pods_of_a_workload_are_those_that_name_it() -> None:
    async with site() as at:
        other = pod("c", of="w")
        other["metadata"]["namespace"] = "others"
        await at.has_pods(pod("a"), pod("b", of="another"), other, pod("d", of=""))
        assert names(at.objects.pods_of(KEY)) == ["a"]


async def test_a_written_pod_is_shown_until_the_watch_has_a_later_one_or_it_is_gone() -> None:
    async with site() as at:
        await at.has_pods(pod("a"), pod("b"))
        at.objects.on_write(orjson.dumps(pod("a", started_in={RACK: "r1"}, version="3")))
        await at.has_pods(pod("a", version="2"), pod("b"))
        shown = {each["metadata"]["name"]: each["spec"].get("nodeSelector") for each in at.objects.pods_of(KEY)}
        assert shown == {"a": {RACK: "r1"}, "b": None}
        await at.has_pods(pod("a", started_in={RACK: "r2"}, version="4"), pod("b"))
        assert at.objects.pods_of(KEY)[0]["spec"]["nodeSelector"] == {RACK: "r2"}
        at.objects.on_write(orjson.dumps(pod("a", started_in={RACK: "r3"}, version="5")))
        await at.has_pods(pod("b"))
        assert names(at.objects.pods_of(KEY)) == ["b"]
