# SPDX-License-Identifier: Apache-2.0
"""Work whose pods need an object that only one cluster has runs there, and is not evicted on the way."""

from __future__ import annotations

import pytest

from devcluster.federation.spec import FederationSpec, WorkerSpec
from devcluster.kubelet.node import several
from multikueue.api.constants import AVOIDED_ANNOTATION
from multikueue.api.resource import JOBS, SECRETS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import InProcessFederation, embedded_federation
from tests.support.managers import (
    Object,
    eventually,
    job_manifest,
    make_namespace,
    make_queue,
    wait_condition,
    workload_of,
)
from tests.support.workers import check_of, make_check

pytestmark = [pytest.mark.anyio]

NAMESPACE = "team"
NAMES = ("worker-1", "worker-2", "worker-3")
WORKERS = tuple(WorkerSpec(name=name, nodes=several(1)) for name in NAMES)


async def prepare(federation: InProcessFederation, hub: KubeClient) -> None:
    """A queue over all workers, which have its namespace."""
    for worker in federation.workers.values():
        async with worker.client() as client:
            await make_namespace(client, NAMESPACE)
    await make_check(hub, "check", NAMES)
    await make_queue(hub, "q", namespace=NAMESPACE, checks=("check",))


async def give_secret(federation: InProcessFederation, worker: str) -> None:
    async with federation.workers[worker].client() as client:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "license"}}
        await client.create(SECRETS, secret, namespace=NAMESPACE)


def needing_the_secret() -> Object:
    manifest = job_manifest("j", namespace=NAMESPACE, queue="q")
    manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "license"}}]
    return manifest


async def test_only_the_cluster_that_has_the_secret_runs_the_job() -> None:
    async with embedded_federation(FederationSpec(workers=WORKERS)) as federation, federation.hub.client() as hub:
        await prepare(federation, hub)
        await give_secret(federation, "worker-3")
        await hub.create(JOBS, needing_the_secret(), namespace=NAMESPACE)
        ended = await wait_condition(hub, "j", "Finished", namespace=NAMESPACE, reason="Succeeded")
        assert ended["status"]["clusterName"] == "worker-3"
        assert not (ended["status"].get("schedulingStats") or {}).get("evictions")
        assert AVOIDED_ANNOTATION not in (ended["metadata"].get("annotations") or {})


@pytest.mark.conformance
async def test_if_no_cluster_has_it_each_of_them_is_named_and_the_first_that_gets_it_runs_the_job() -> None:
    async with embedded_federation(FederationSpec(workers=WORKERS)) as federation, federation.hub.client() as hub:
        await prepare(federation, hub)
        await hub.create(JOBS, needing_the_secret(), namespace=NAMESPACE)

        async def message() -> str:
            return str(check_of(await workload_of(hub, "j", namespace=NAMESPACE), "check").get("message", ""))

        lacking = 'not found in namespace "team": Secret "license"'
        await eventually(
            message,
            what="each cluster is named with its reason",
            until=lambda text: all(f"{name}: {lacking}" in text for name in NAMES),
        )
        await give_secret(federation, "worker-2")
        ended = await wait_condition(hub, "j", "Finished", namespace=NAMESPACE, reason="Succeeded")
        assert ended["status"]["clusterName"] == "worker-2"
        assert not (ended["status"].get("schedulingStats") or {}).get("evictions")
        assert len((await hub.list_all(WORKLOADS, namespace=NAMESPACE)).items) == 1
