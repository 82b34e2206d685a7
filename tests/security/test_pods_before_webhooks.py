# SPDX-License-Identifier: Apache-2.0
"""Pods in the name of a queued owner that no webhook has seen are reported, and not stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.embedded.provider import EmbeddedProvider
from manager.app import Manager
from manager.owners import running_pods
from multikueue.api.resource import NAMESPACES, PODS
from multikueue.cli.hub_options import HubOptions
from multikueue.cli.inspect import owners
from multikueue.core.clock import SystemClock
from multikueue.kube.rest.client import KubeClient
from tests.security.test_app_owners import a_pod, owned_by
from tests.support.app_sets import QUEUE, Apps, Object, app_hub
from tests.support.crds import kinds
from tests.support.managers import eventually, is_true, make_queue, running_manager
from tests.support.operators.samples import job_set, pod_template

pytestmark = pytest.mark.anyio

SETTINGS = """
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}
managedJobsNamespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}
    - {key: queued, operator: NotIn, values: ["no"]}
"""
SERIES = "multikueue_pods_outside_quota"


@pytest.fixture(scope="module")
async def hub(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("before")
    async with app_hub(EmbeddedProvider(folder=folder), folder) as cluster:
        async with cluster.client() as client:
            await kinds.install(client, kinds.JOB_SETS)
        yield cluster


@pytest.fixture(scope="module")
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with hub.client() as client:
        yield client


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is looked at again at once."""
    monkeypatch.setattr(running_pods, "CONFIRM_SECONDS", 0.2)


async def an_admitted_set(admin: KubeClient, name: str) -> tuple[Apps, Object]:
    """A namespace with a JobSet that has 500m of its queue."""
    await make_queue(admin, name, namespace=name, cpu="20")
    apps = Apps(admin, name)
    body = job_set("top", pod_template({}))
    body["metadata"] |= {"namespace": name, "labels": {QUEUE: name}}
    stored: Object = orjson.loads(await admin.create(kinds.JOB_SETS, body, namespace=name))
    await apps.workloads(lambda found: [is_true(each, "Admitted") for each in found] == [True], what="it is admitted")
    return apps, stored


async def outside_quota(manager: Manager, namespace: str, count: int | None) -> None:
    """Wait until the series of that namespace says so; None: there is none."""

    async def probe() -> float | None:
        labels = {"namespace": namespace, "replica_role": "standalone"}
        return manager.metrics.registry.get_sample_value(SERIES, labels)

    await eventually(probe, what=f"{count} pods of {namespace} are reported", until=lambda seen: seen == count)


def configuration(folder: Path) -> Path:
    """The Configuration of the manager, for `mkctl`."""
    file = folder / "manager.yaml"
    file.write_text(SETTINGS)
    return file


async def test_a_manager_that_starts_reports_pods_that_run_beyond_the_quota_of_their_owner(
    hub: Cluster, admin: KubeClient, tmp_path: Path
) -> None:
    async with running_manager(hub, settings=SETTINGS):
        apps, owner = await an_admitted_set(admin, "before")
    references = owned_by(owner, kinds.JOB_SETS)
    await apps.create(a_pod("fits", cpu="500m", owners=references))
    await apps.running(1)
    await apps.create(a_pod("beyond", cpu="4", owners=references))
    async with running_manager(hub, settings=SETTINGS) as manager:
        note = await apps.noted("OutsideQuota", about="Pod")
        assert "JobSet top, its owner, has less quota than its pods request: cpu 4" in note
        await outside_quota(manager, "before", 1)
        assert [pod["metadata"]["name"] for pod in await apps.running(2)] == ["beyond", "fits"]
    options = HubOptions(kubeconfig=str(hub.kubeconfig), configuration=configuration(tmp_path))
    found = await owners.uncovered(options, namespace="", now=SystemClock().now())
    assert [str(each.key) for each in found] == ["before/beyond"]


async def test_pods_of_a_namespace_that_becomes_managed_are_reported(
    hub: Cluster, admin: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_pods, "AGAIN_SECONDS", 0.2)
    async with running_manager(hub, settings=SETTINGS) as manager:
        apps, owner = await an_admitted_set(admin, "later")
        await admin.patch(NAMESPACES, "later", {"metadata": {"labels": {"queued": "no"}}})
        await eventually(
            lambda: _managed(manager, "later"), what="it is not managed any more", until=lambda seen: not seen
        )
        await apps.create(a_pod("free", cpu="4", owners=owned_by(owner, kinds.JOB_SETS)))
        await apps.running(1)
        await admin.patch(NAMESPACES, "later", {"metadata": {"labels": {"queued": "yes"}}})
        await outside_quota(manager, "later", 1)
        await admin.delete(PODS, "free", namespace="later")
        await outside_quota(manager, "later", None)


async def _managed(manager: Manager, namespace: str) -> bool:
    return manager.namespaces.manages(namespace)
