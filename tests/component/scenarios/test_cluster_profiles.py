# SPDX-License-Identifier: Apache-2.0
"""S11–S16 and Q3, Q4: a cluster that is named by a ClusterProfile, and reached with what a program knows.

Only the push transport can be meant: an agent that dials out needs no credentials for its own cluster on the hub.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from multikueue.api.resource import CLUSTER_PROFILES, CUSTOM_RESOURCE_DEFINITIONS, MULTIKUEUE_CLUSTERS, SECRETS
from multikueue.kube.rest.client import KubeClient
from tests.support.cluster_profiles import (
    DEFINITION,
    READER,
    SLOW,
    access,
    profile,
    secret_reader,
    slow_program,
    with_profiles,
)
from tests.support.managers import ensure
from tests.support.push_workers import SYSTEM
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site

pytestmark = [pytest.mark.anyio, pytest.mark.transports("push")]


@dataclass(frozen=True)
class Profiled:
    """A scene whose manager knows the program, and the profiles of its workers."""

    made: Scene

    @property
    def client(self) -> KubeClient:
        """The hub's administrator."""
        return self.made.client

    async def describe(self, worker: Site, *, namespace: str = SYSTEM, provider: str = READER) -> None:
        """A profile of the worker, named after it, and the Secret with its token."""
        body = profile(worker.name, namespace=namespace)
        await self.client.create(CLUSTER_PROFILES, body, namespace=namespace)
        status = access(f"http://127.0.0.1:{worker.proxy.port}", secret=f"{worker.name}-token", provider=provider)
        patch = {"status": status}
        await self.client.patch(CLUSTER_PROFILES, worker.name, patch, namespace=namespace, subresource="status")
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{worker.name}-token", "namespace": SYSTEM},
            "data": {"token": base64.b64encode(b"first").decode()},
        }
        await ensure(self.client, SECRETS, secret)

    async def refer(self, worker: Site, name: str) -> None:
        """Let the worker's MultiKueueCluster name that profile."""
        source = {"kubeConfig": None, "clusterProfileRef": {"name": name}}
        await self.client.patch(MULTIKUEUE_CLUSTERS, worker.name, {"spec": {"clusterSource": source}})

    async def runs_a_job(self, where: Site, *, seen_as: Site) -> None:
        """A Job goes to the cluster `where`, which the hub knows as `seen_as`, and ends."""
        workload = await self.made.submit()
        await where.admits(workload)
        await where.starts("j")
        assert (await self.made.check("Ready"))["status"]["clusterName"] == seen_as.name
        await where.ends("j")
        await self.made.finished()


@asynccontextmanager
async def profiled(
    stage: Stage, title: str, *, configuration: str, clusters: tuple[int, ...] = (1, 2)
) -> AsyncIterator[Profiled]:
    """A scene on a hub that has the kind."""
    async with stage.hub.client() as client:
        await ensure(client, CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    async with scene(stage, title, configuration=configuration, clusters=clusters) as made:
        yield Profiled(made)


@pytest.fixture
def reading(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Configuration that knows the programs."""
    return with_profiles(secret_reader(stage.hub, _folder(tmp_path_factory)), slow_program())


def _folder(factory: pytest.TempPathFactory) -> Path:
    # One for all tests: a manager is started anew when its Configuration differs.
    folder = factory.getbasetemp() / "cluster-profiles"
    folder.mkdir(exist_ok=True)
    return folder


async def test_s11_q3_a_profile_is_of_no_use_without_access_providers(stage: Stage) -> None:
    async with profiled(stage, "s11", configuration=with_profiles()) as it:
        await it.describe(it.made.w1)
        await it.refer(it.made.w1, it.made.w1.name)
        await it.made.cluster_says(it.made.w1, "False", "BadClusterProfile", part="no access providers are configured")
        await it.made.check_says("True", "SomeActiveClusters")


async def test_q4_a_profile_and_a_program_that_reads_a_secret_reach_a_cluster(stage: Stage, reading: str) -> None:
    async with profiled(stage, "q4", configuration=reading, clusters=(1,)) as it:
        w1 = it.made.w1
        await it.client.delete(SECRETS, w1.name, namespace=SYSTEM)  # the kubeconfig it had
        await it.made.cluster_says(w1, "False", "BadKubeConfig")
        await it.describe(w1)
        await it.refer(w1, w1.name)
        await it.made.cluster_says(w1, "True", "Active")
        await it.runs_a_job(w1, seen_as=w1)


async def test_s12_a_profile_that_is_deleted_and_made_again_is_used_again(stage: Stage, reading: str) -> None:
    async with profiled(stage, "s12", configuration=reading) as it:
        w1 = it.made.w1
        await it.describe(w1)
        await it.refer(w1, w1.name)
        await it.made.cluster_says(w1, "True", "Active")
        await it.client.delete(CLUSTER_PROFILES, w1.name, namespace=SYSTEM)
        await it.made.cluster_says(w1, "False", "BadClusterProfile", part="not found")
        await it.describe(w1)
        await it.made.cluster_says(w1, "True", "Active")


async def test_s13_two_clusters_may_name_one_profile(stage: Stage, reading: str) -> None:
    async with profiled(stage, "s13", configuration=reading) as it:
        w1, w2 = it.made.w1, it.made.w2
        await it.describe(w1)
        await it.refer(w1, w1.name)
        await it.refer(w2, w1.name)
        await it.client.delete(CLUSTER_PROFILES, w1.name, namespace=SYSTEM)
        for worker in (w1, w2):
            await it.made.cluster_says(worker, "False", "BadClusterProfile")
        await it.describe(w1)
        for worker in (w1, w2):
            await it.made.cluster_says(worker, "True", "Active")


async def test_s14_a_profile_of_another_namespace_is_not_found(stage: Stage, reading: str) -> None:
    async with profiled(stage, "s14", configuration=reading) as it:
        w1 = it.made.w1
        await it.describe(w1, namespace=it.made.namespace)
        await it.refer(w1, w1.name)
        await it.made.cluster_says(w1, "False", "BadClusterProfile", part=f"{SYSTEM}/{w1.name}")


async def test_s15_another_profile_leads_to_another_cluster(stage: Stage, reading: str) -> None:
    async with profiled(stage, "s15", configuration=reading, clusters=(1,)) as it:
        w1, w2 = it.made.w1, it.made.w2
        for worker in (w1, w2):
            await it.describe(worker)
        await it.refer(w1, w1.name)
        await it.made.cluster_says(w1, "True", "Active")
        await it.refer(w1, "nowhere")
        await it.made.cluster_says(w1, "False", "BadClusterProfile", part="nowhere")
        await it.refer(w1, w2.name)
        await it.made.cluster_says(w1, "True", "Active")
        await it.runs_a_job(w2, seen_as=w1)


async def test_s16_without_the_gate_a_profile_is_not_read(stage: Stage) -> None:
    async with profiled(stage, "s16", configuration=settings()) as it:
        await it.refer(it.made.w1, "any")
        await it.made.cluster_says(it.made.w1, "False", "MultiKueueClusterProfileFeatureDisabled")


async def test_a_check_hears_of_clusters_that_go_bad_before_they_are_connected(stage: Stage, reading: str) -> None:
    async with profiled(stage, "never", configuration=reading) as it:
        workers = (it.made.w1, it.made.w2)
        for worker in workers:
            await it.describe(worker, provider=SLOW)
            await it.refer(worker, worker.name)
        for worker in workers:
            await it.client.delete(CLUSTER_PROFILES, worker.name, namespace=SYSTEM)
        for worker in workers:
            await it.made.cluster_says(worker, "False", "BadClusterProfile")
        await it.made.check_says("False", "NoUsableClusters")
