# SPDX-License-Identifier: Apache-2.0
"""Workers whose kubeconfig has exactly the rights that Kueue's guide grants."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import orjson
import pytest

from multikueue.api.constants import PRIORITY_CLASS_LABEL
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from multikueue.kube.rest.client import KubeClient
from tests.support.limited_workers import ALL, Pair, hub_managed, limited_scene
from tests.support.managers import ensure, eventually, make_job, make_namespace, workload_of
from tests.support.sites import Transport

pytestmark = [pytest.mark.anyio]

MKCTL = Path(sys.executable).parent / "mkctl"
MISSING = (
    "list nodes",
    "watch nodes",
    "list events.events.k8s.io",
    "get pods/log",
    "list namespaces",
    "watch namespaces",
    "get configmaps",
    "get secrets",
    "get serviceaccounts",
    "get persistentvolumeclaims",
    "get resourceclaims.resource.k8s.io",
    "get resourceclaimtemplates.resource.k8s.io",
    "patch jobs.batch",
)
PREEMPT_LOWER = {"withinClusterQueue": "LowerPriority"}
# With `make test` a part of them, all with `make conformance`.
both_transports = pytest.mark.parametrize(
    "transport", [pytest.param(Transport.PULL, marks=pytest.mark.conformance), Transport.PUSH]
)
with_and_without_queues = pytest.mark.parametrize("queues", [True, False], ids=["queues", "no-queues"])


async def make_priority(client: KubeClient, name: str, value: int) -> None:
    """A WorkloadPriorityClass."""
    body = {
        "apiVersion": WORKLOAD_PRIORITY_CLASSES.api_version,
        "kind": WORKLOAD_PRIORITY_CLASSES.kind,
        "metadata": {"name": name},
        "value": value,
    }
    await ensure(client, WORKLOAD_PRIORITY_CLASSES, body)


@both_transports
@pytest.mark.parametrize(
    "queues",
    [pytest.param(True, id="queues"), pytest.param(False, id="no-queues", marks=pytest.mark.conformance)],
)
async def test_a_job_is_dispatched_runs_is_mirrored_and_leaves_nothing_behind(
    pair: Pair, transport: Transport, queues: bool
) -> None:
    async with limited_scene(pair, "runs", transport=transport, queues=queues) as scene, hub_managed(pair):
        message = await scene.says("True", "Active", *MISSING)
        assert "jobs.batch" not in message.replace("patch jobs.batch", "")
        for kind in ("cohorts", "resourceflavors"):
            message = message.replace(f"{kind}.kueue.x-k8s.io", "")
        assert "kueue" not in message, "the guide grants all else of Kueue"
        await scene.submit()
        await scene.finished()
        await scene.gone()


@pytest.mark.conformance
@both_transports
@with_and_without_queues
async def test_a_job_that_its_user_deletes_on_the_hub_while_it_runs_is_gone_from_the_worker(
    pair: Pair, transport: Transport, queues: bool
) -> None:
    async with limited_scene(pair, "deleted", transport=transport, queues=queues) as scene, hub_managed(pair):
        await scene.submit(run_for="forever")
        await scene.runs()
        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        await scene.gone()


@both_transports
@pytest.mark.parametrize(
    "queues",
    [pytest.param(True, id="queues", marks=pytest.mark.conformance), pytest.param(False, id="no-queues")],
)
async def test_a_job_that_the_hub_evicts_is_stopped_and_runs_again_in_its_next_epoch(
    pair: Pair, transport: Transport, queues: bool
) -> None:
    async with limited_scene(pair, "evicted", transport=transport, queues=queues, cpu="1") as scene, hub_managed(pair):
        await scene.hub.patch(CLUSTER_QUEUES, scene.name, {"spec": {"preemption": PREEMPT_LOWER}})
        await make_priority(scene.hub, "high", 100)
        await scene.submit(run_for="forever")
        first = await scene.runs()
        await scene.submit("urgent", run_for="1s", labels={PRIORITY_CLASS_LABEL: "high"})
        await scene.finished("urgent")
        await scene.gone("urgent")
        # Removed and made anew on the same worker, or suspended first where that is possible.
        second = await scene.runs(epoch=2)
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        await scene.gone()


@pytest.mark.conformance
@with_and_without_queues
async def test_a_manager_that_is_restarted_keeps_what_runs(pair: Pair, queues: bool) -> None:
    async with limited_scene(pair, "restarted", queues=queues) as scene:
        async with hub_managed(pair):
            await scene.submit(run_for="6s")
            before = await scene.runs()
        async with hub_managed(pair):
            await scene.says("True", "Active", *MISSING)
            found = await scene.copy()
            assert found is None or found["metadata"]["uid"] == before["metadata"]["uid"]
            workload = await scene.finished()
            assert not (workload["status"].get("schedulingStats") or {}).get("evictions")
            await scene.gone()


@pytest.mark.conformance
@both_transports
async def test_mkctl_lists_the_rights_that_are_missing_and_what_each_would_give(
    pair: Pair, transport: Transport
) -> None:
    async with limited_scene(pair, "described", transport=transport, queues=False) as scene, hub_managed(pair):
        await scene.says("True", "Active", *MISSING)
        described = [str(MKCTL), "cluster", "describe", scene.name, "--kubeconfig", str(pair.hub.kubeconfig)]
        document = orjson.loads((await anyio.run_process([*described, "-o", "json"])).stdout)
        wanted = [right for right in ALL if right.name in MISSING]
        assert sorted(document["missingRights"], key=str) == sorted(
            (
                {"verb": right.verb, "resource": right.resource, "required": False, "gives": right.gives}
                for right in wanted
            ),
            key=str,
        )
        text = (await anyio.run_process(described)).stdout.decode()
        for right in wanted:
            assert f"{right.name} ({right.gives})" in text


@pytest.mark.conformance
async def test_a_namespace_that_is_missing_on_the_worker_is_reported_after_the_first_attempt(pair: Pair) -> None:
    async with limited_scene(pair, "nowhere", queues=False) as scene, hub_managed(pair):
        await scene.says("True", "Active", *MISSING)
        elsewhere = f"only-{scene.name}"
        await make_namespace(scene.hub, elsewhere)
        local = {
            "apiVersion": LOCAL_QUEUES.api_version,
            "kind": LOCAL_QUEUES.kind,
            "metadata": {"name": scene.name, "namespace": elsewhere},
            "spec": {"clusterQueue": scene.name},
        }
        await scene.hub.create(LOCAL_QUEUES, local, namespace=elsewhere)
        await make_job(scene.hub, "j", namespace=elsewhere, queue=scene.name)
        await eventually(
            lambda: workload_of(scene.hub, "j", namespace=elsewhere),
            what="the workload tells that the namespace is missing",
            until=lambda seen: f'NamespaceNotFound: namespace "{elsewhere}" does not exist' in str(seen),
        )
        await scene.hub.delete(JOBS, "j", namespace=elsewhere, propagation="Background")
