# SPDX-License-Identifier: Apache-2.0
"""Tenants and the kinds whose Workloads another controller makes: no job runs twice, and none without quota."""

from __future__ import annotations

import pytest

from multikueue.api.resource import JOBS
from tests.component.kinds.conftest import Clusters, clusters, kube_binaries
from tests.support.external_scenes import PIPELINES, external_scene
from tests.support.managers import eventually, get, job_manifest
from tests.support.sites import Transport

__all__ = ["clusters", "kube_binaries"]
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transport", list(Transport), ids=str)
async def test_a_second_workload_of_one_external_job_does_not_run_it_again(
    clusters: Clusters, transport: Transport
) -> None:
    async with external_scene(clusters.hub, clusters.worker, "twice", transport=transport) as scene:
        job = await scene.submit("nightly")
        before = await scene.remote("nightly")
        await scene.check("pipeline-nightly", "Ready")
        again = await scene.queue(job, workload="again")
        found = await scene.rejected(again, message='has another Workload, "pipeline-nightly"')
        assert not found["status"].get("clusterName")
        remote = await get(scene.worker, PIPELINES, "nightly", namespace=scene.namespace)
        assert remote is not None
        assert remote["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_job_that_names_an_external_job_of_workers_as_its_owner_is_queued(clusters: Clusters) -> None:
    async with external_scene(clusters.hub, clusters.worker, "owner", transport=Transport.PULL) as scene:
        job = await scene.job("nightly")
        owner = {key: job[key] for key in ("apiVersion", "kind")} | {"name": "nightly", "uid": job["metadata"]["uid"]}
        body = job_manifest("free", namespace=scene.namespace, queue=scene.scene.local_queue, cpu="1000")
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await scene.hub.create(JOBS, body, namespace=scene.namespace)
        workload = await eventually(
            lambda: scene.scene.workload("free"),
            what="it has a Workload, which waits for quota",
            until=lambda seen: seen is not None and "QuotaReserved" in str(seen.get("status")),
        )
        assert workload is not None
        stored = await get(scene.hub, JOBS, "free", namespace=scene.namespace)
        assert stored is not None
        assert stored["spec"]["suspend"] is True
