# SPDX-License-Identifier: Apache-2.0
"""Logs through the agent of kinds whose pods are not those of a Job: of a JobSet, whose Jobs own them, and of Pods.

The kubelets of these clusters have no logs, so that the answer names the pod that was read, and why it has no lines.
"""

from __future__ import annotations

import pytest

from multikueue.api.resource import JOB_LOG_REQUESTS, PODS, Resource
from multikueue.cli.logs.log_sources import place_of, pods_of
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import known_integrations
from multikueue.kube.rest.client import KubeClient
from tests.component.kinds.conftest import Clusters
from tests.support.crds.kinds import JOB_SETS
from tests.support.kind_scenes import RIGHTS_TO_JOB_SETS, RIGHTS_TO_JOBS, kind_scene
from tests.support.managers import Object, eventually, get
from tests.support.pod_scenes import pod_scene
from tests.support.sites import Transport

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance
push_apart = pytest.mark.parametrize("transport", [Transport.PULL, pytest.param(Transport.PUSH, marks=apart)], ids=str)


async def asked(client: KubeClient, resource: Resource, name: str, *, namespace: str) -> Object:
    """The first answer of the agent to a request for the logs of the job."""
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
    status: Object = found["status"]
    return status


async def read_directly(hub: KubeClient, worker: KubeClient, framework: str, key: Key) -> list[str]:
    """The pods that `mkctl logs` reads with a kubeconfig of the worker."""
    place = await place_of(hub, known_integrations()[framework], key)
    assert place.cluster
    return [pod["metadata"]["name"] for pod in await pods_of(worker, place)]


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
