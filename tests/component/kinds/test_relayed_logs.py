# SPDX-License-Identifier: Apache-2.0
"""Logs through the agent of kinds whose pods are not those of a Job: JobSets, whose Jobs own them, Pods and groups.

Most kubelets of these clusters have no logs, so that the answer names the pod that was read, and why it has no lines.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from multikueue.api.resource import JOB_LOG_REQUESTS, PODS, Resource
from multikueue.cli.logs.command import LogOptions, show
from multikueue.cli.logs.log_sources import place_of, pods_of
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import known_integrations
from multikueue.kube.rest.client import KubeClient
from tests.component.kinds.conftest import Clusters
from tests.support.both_providers import push_apart
from tests.support.crds.kinds import JOB_SETS
from tests.support.kind_scenes import RIGHTS_TO_JOB_SETS, RIGHTS_TO_JOBS, kind_scene
from tests.support.logged_jobs import hub_of
from tests.support.managers import Object, eventually, get
from tests.support.pod_scenes import pod_scene
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance


async def asked(client: KubeClient, resource: Resource, name: str, *, namespace: str) -> Object:
    """The first answer of the agent to a request for the logs of the job, which is removed then."""
    job = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name}
    body = {
        "apiVersion": JOB_LOG_REQUESTS.api_version,
        "kind": JOB_LOG_REQUESTS.kind,
        "metadata": {"name": f"of-{name}"},
        "spec": {"job": job},
    }
    await client.create(JOB_LOG_REQUESTS, body, namespace=namespace)
    found = await eventually(
        lambda: get(client, JOB_LOG_REQUESTS, f"of-{name}", namespace=namespace),
        what=f"the request for {name} is answered",
        until=lambda seen: seen is None or bool((seen.get("status") or {}).get("cursor")),
    )
    assert found is not None
    await client.delete(JOB_LOG_REQUESTS, f"of-{name}", namespace=namespace)
    status: Object = found["status"]
    return status


async def read_directly(
    hub: KubeClient, worker: KubeClient, framework: str, key: Key, *, all_pods: bool = False
) -> list[str]:
    """The pods that `mkctl logs` reads with a kubeconfig of the worker."""
    place = await place_of(hub, known_integrations()[framework], key)
    assert place.cluster
    return [pod["metadata"]["name"] for pod in await pods_of(worker, place, all_pods=all_pods)]


@push_apart
async def test_the_pods_of_a_job_set_are_read(clusters: Clusters, transport: Transport) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "logs", transport=transport) as scene:
        await scene.submit("set", run_for="forever")
        await scene.runs("set")
        status = await asked(scene.hub, JOB_SETS, "set", namespace=scene.namespace)
        assert status["pod"].startswith("set-"), status
        key = Key(scene.namespace, "set")
        assert len(await read_directly(scene.hub, scene.worker, "jobset.x-k8s.io/jobset", key)) == 5


@apart
@both_transports
async def test_the_pods_of_a_job_set_are_read_by_an_agent_that_may_not_read_their_jobs(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "labels", transport=transport) as scene:
        rights = [rule for rule in RIGHTS_TO_JOBS if rule["resources"] != ["jobs"]]
        assert len(rights) < len(RIGHTS_TO_JOBS)
        await scene.submit("set", run_for="forever")
        await scene.runs("set")
        await scene.grant(*rights, *RIGHTS_TO_JOB_SETS)
        status = await asked(scene.hub, JOB_SETS, "set", namespace=scene.namespace)
        assert status["pod"].startswith("set-"), status


@push_apart
async def test_a_pod_is_read(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "logs", transport=transport) as scene:
        await scene.submit(scene.manifest("one"))
        await scene.runs("one")
        status = await asked(scene.hub, PODS, "one", namespace=scene.namespace)
        assert status["pod"] == "one", status
        assert await read_directly(scene.hub, scene.worker, "pod", Key(scene.namespace, "one")) == ["one"]


@push_apart
async def test_each_pod_of_a_group_is_read_and_all_of_them_together(
    clusters: Clusters, transport: Transport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "logs of a group", transport=transport, has_logs=True) as scene:
        await scene.group("g", pods=3)
        await scene.submit(scene.manifest("alone"))
        for name in ("g-0", "g-1", "g-2", "alone"):
            await scene.runs(name)
        for name in ("g-2", "g-0", "alone"):
            status = await asked(scene.hub, PODS, name, namespace=scene.namespace)
            assert status["pod"] == name, status
        key = Key(scene.namespace, "g-1")
        assert await read_directly(scene.hub, scene.worker, "pod", key) == ["g-1"]
        assert await read_directly(scene.hub, scene.worker, "pod", key, all_pods=True) == ["g-0", "g-1", "g-2"]

        configuration = tmp_path / "manager.yaml"
        configuration.write_text("integrations: {frameworks: [batch/job, pod]}")
        hub = replace(hub_of(clusters.hub, tmp_path), configuration=configuration)

        async def printed(name: str, *, all_pods: bool = False, relay: bool = True) -> list[str]:
            """The lines that `mkctl logs` prints: the first one of each pod."""
            worker = "" if relay else str(clusters.worker.kubeconfig)
            wanted = LogOptions(
                job=Key(scene.namespace, name),
                kind="pod",
                relay=relay,
                all_pods=all_pods,
                worker_kubeconfig=worker or None,
            )
            assert await show(hub, wanted) == 0
            return sorted(capsys.readouterr().out.splitlines())

        for relay in (True, False):
            (line,) = await printed("g-1", relay=relay)
            assert line.startswith("c started on virtual node"), line
            every = await printed("g-1", all_pods=True, relay=relay)
            assert [each.split()[0] for each in every] == ["[g-0/c]", "[g-1/c]", "[g-2/c]"]
            assert await printed("g", all_pods=True, relay=relay) == every
            assert await printed("g", relay=relay) == await printed("g-2", relay=relay)


@apart
@both_transports
async def test_the_pod_that_replaced_another_one_of_a_group_is_read(clusters: Clusters, transport: Transport) -> None:
    async with pod_scene(clusters.hub, clusters.worker, "logs of a new pod", transport=transport) as scene:
        await scene.group("g", pods=2)
        await scene.runs("g-0")
        await scene.runs("g-1")
        await scene.hub.delete(PODS, "g-1", namespace=scene.namespace)
        await scene.gone(scene.worker, "g-1")
        await scene.submit(scene.manifest("g-2", group="g", total=2))
        await scene.runs("g-2")
        status = await asked(scene.hub, PODS, "g-2", namespace=scene.namespace)
        assert status["pod"] == "g-2", status
