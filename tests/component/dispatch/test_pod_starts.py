# SPDX-License-Identifier: Apache-2.0
"""Work whose pods do not start on one cluster runs on another one."""

from __future__ import annotations

import pytest

from devcluster.federation.spec import FederationSpec, WorkerSpec
from devcluster.kubelet.node import several
from devcluster.resources import RESOURCE_QUOTAS
from multikueue.api.constants import AVOIDED_ANNOTATION
from multikueue.api.resource import JOBS
from multikueue.cli.cluster.lifecycle import set_availability
from multikueue.testing.in_process import embedded_federation
from tests.support.managers import (
    Object,
    condition,
    eventually,
    job_manifest,
    make_namespace,
    make_queue,
    wait_condition,
    workload_of,
)
from tests.support.workers import make_check

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

NAMESPACE = "team"


async def test_work_whose_pods_one_cluster_forbids_runs_on_the_other() -> None:
    workers = (WorkerSpec(name="worker-1", nodes=several(1)), WorkerSpec(name="worker-2", nodes=several(1)))
    # Long enough for the reason to be seen before the work leaves the cluster, on a busy machine too.
    spec = FederationSpec(workers=workers, configuration={"multiKueue": {"podsStartTimeout": "10s"}})
    async with embedded_federation(spec) as federation, federation.hub.client() as hub:
        for worker in federation.workers.values():
            async with worker.client() as client:
                await make_namespace(client, NAMESPACE)
        async with federation.workers["worker-1"].client() as client:
            quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
            body = {"apiVersion": "v1", "kind": "ResourceQuota", **quota}
            await client.create(RESOURCE_QUOTAS, body, namespace=NAMESPACE)
        await make_check(hub, "check", ("worker-1", "worker-2"))
        # The other one is chosen first.
        await set_availability(hub, "worker-2", {"cordoned": True})
        await make_queue(hub, "q", namespace=NAMESPACE, checks=("check",))
        manifest = job_manifest("j", namespace=NAMESPACE, queue="q")
        await hub.create(JOBS, manifest, namespace=NAMESPACE)

        async def workload() -> Object | None:
            return await workload_of(hub, "j", namespace=NAMESPACE)

        found = await eventually(
            workload,
            what="the reason of worker-1 is shown",
            until=lambda seen: condition(seen, "PodsStarted").get("reason") == "FailedCreate",
        )
        assert 'Worker cluster "worker-1"' in condition(found, "PodsStarted")["message"]
        await set_availability(hub, "worker-2", {"cordoned": False})
        ended = await wait_condition(hub, "j", "Finished", namespace=NAMESPACE, reason="Succeeded")
        assert ended["status"]["clusterName"] == "worker-2"
        assert ended["metadata"]["annotations"][AVOIDED_ANNOTATION].startswith("worker-1=")
        assert not condition(ended, "PodsStarted")
        assert [each["count"] for each in ended["status"]["schedulingStats"]["evictions"]] == [1]
