# SPDX-License-Identifier: Apache-2.0
"""A cluster with the manager installed: its pods are processes, which come and go as pods do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from devcluster.federation.federation import Federation
from devcluster.federation.installed import objects
from devcluster.federation.spec import FederationSpec
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ProviderFactory
from devcluster.resources import DEPLOYMENTS
from multikueue.api.resource import CONFIG_MAPS, JOBS, PODS
from multikueue.kube.errors import InternalError
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import eventually, get, is_true, job_manifest

pytestmark = pytest.mark.anyio

SYSTEM = "kueue-system"
SPEC = FederationSpec(name="installed", workers=(), as_kind="t")


@pytest.fixture(
    params=[
        pytest.param("embedded", id="embedded"),
        pytest.param("binaries", marks=[pytest.mark.binaries, pytest.mark.conformance], id="binaries"),
    ]
)
def provider(request: pytest.FixtureRequest) -> ProviderFactory:
    if request.param == "embedded":
        return EmbeddedProvider
    return partial(BinariesProvider, binaries=request.getfixturevalue("kube_binaries"))


@asynccontextmanager
async def installed(provider: ProviderFactory, folder: Path) -> AsyncIterator[tuple[Federation, KubeClient]]:
    """One cluster with its manager, and a client of it; not a fixture, since each test starts tasks in it."""
    async with Federation(SPEC, folder=folder, provider=provider) as made, made.hub.client() as client:
        yield made, client


async def pods(client: KubeClient) -> list[dict[str, Any]]:
    page = await client.list_all(PODS, namespace=SYSTEM, label_selector="control-plane=controller-manager")
    return [orjson.loads(raw) for raw in page.items]


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (pod["status"].get("containerStatuses") or [{}])[0]
    return found


def one_ready(restarts: int) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether one pod is there, ready after that many restarts."""
    return lambda seen: (
        [(is_true(pod, "Ready"), container(pod).get("restartCount")) for pod in seen] == [(True, restarts)]
    )


def without_queue(client: KubeClient) -> Callable[[], Awaitable[bool]]:
    """Whether a Job without a queue is suspended, as `manageJobsWithoutQueueName` makes the manager do."""

    async def probe() -> bool:
        job = job_manifest("probe", namespace="default", queue=None)
        stored = orjson.loads(await client.create(JOBS, job, namespace="default", dry_run=True))
        return bool(stored["spec"].get("suspend"))

    return probe


def without_queue_after_rollout(client: KubeClient) -> Callable[[], Awaitable[bool]]:
    """As `without_queue`; a webhook call on a connection of the pod that is being replaced may fail."""

    async def probe() -> bool:
        try:
            return await without_queue(client)()
        except InternalError:
            return False

    return probe


async def configure(client: KubeClient, more: str, *, restart: str) -> None:
    """Put more into the ConfigMap, and restart the Deployment as `kubectl rollout restart` does."""
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: kueue-system\n{more}\n"
    await client.patch(CONFIG_MAPS, objects.CONFIG_MAP, {"data": {objects.CONFIG_KEY: text}}, namespace=SYSTEM)
    annotations = {"kubectl.kubernetes.io/restartedAt": restart}
    template = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await client.patch(DEPLOYMENTS, objects.DEPLOYMENT, template, namespace=SYSTEM)


async def test_a_restart_takes_the_configuration_that_was_edited(provider: ProviderFactory, tmp_path: Path) -> None:
    async with installed(provider, tmp_path) as (_, client):
        (before,) = await pods(client)
        assert not await without_queue(client)()
        await configure(client, "manageJobsWithoutQueueName: true", restart="1")
        await eventually(without_queue_after_rollout(client), what="the edited configuration holds")
        (after,) = await eventually(lambda: pods(client), what="one pod is left", until=one_ready(0))
        assert after["metadata"]["name"] != before["metadata"]["name"]


async def test_a_bad_configuration_shows_at_the_new_pod_and_the_old_one_keeps_running(
    provider: ProviderFactory, tmp_path: Path
) -> None:
    async with installed(provider, tmp_path) as (_, client):
        (old,) = await pods(client)
        await configure(client, "integrations: {frameworks: [no/such]}", restart="1")

        def crashed(seen: list[dict[str, Any]]) -> bool:
            waiting = [container(pod).get("state", {}).get("waiting", {}) for pod in seen]
            return any(each.get("reason") == "CrashLoopBackOff" for each in waiting)

        seen = await eventually(lambda: pods(client), what="the new pod crashes", until=crashed)
        (new,) = [pod for pod in seen if pod["metadata"]["uid"] != old["metadata"]["uid"]]
        assert "no/such" in container(new)["lastState"]["terminated"]["message"]
        assert container(new)["lastState"]["terminated"]["exitCode"] == 2
        deployment = await get(client, DEPLOYMENTS, objects.DEPLOYMENT, namespace=SYSTEM)
        assert is_true(deployment, "Available")
        assert old["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in await pods(client)}
        assert not await without_queue(client)()

        await configure(client, "manageJobsWithoutQueueName: true", restart="2")
        await eventually(without_queue_after_rollout(client), what="the corrected configuration holds")
        await eventually(lambda: pods(client), what="one pod is left", until=one_ready(0))


async def test_a_manager_that_is_killed_is_started_again_in_its_pod(provider: ProviderFactory, tmp_path: Path) -> None:
    async with installed(provider, tmp_path) as (federation, client):
        (before,) = await pods(client)
        ((_, process),) = [each for each in federation.components() if each[1].name == "manager"]
        process.crash()  # type: ignore[attr-defined]
        (after,) = await eventually(lambda: pods(client), what="it is ready again", until=one_ready(1))
        assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_without_replicas_there_is_no_manager_and_with_one_there_is_again(
    provider: ProviderFactory, tmp_path: Path
) -> None:
    async with installed(provider, tmp_path) as (federation, client):

        def managers() -> int:
            return sum(1 for _, component in federation.components() if component.name == "manager")

        await client.patch(DEPLOYMENTS, objects.DEPLOYMENT, {"spec": {"replicas": 0}}, namespace=SYSTEM)
        await eventually(lambda: pods(client), what="its pods are gone", until=lambda seen: not seen)
        assert managers() == 0
        await client.patch(DEPLOYMENTS, objects.DEPLOYMENT, {"spec": {"replicas": 1}}, namespace=SYSTEM)
        await eventually(lambda: pods(client), what="it is ready", until=one_ready(0))
        assert managers() == 1


async def test_kept_data_come_up_with_the_same_pod(provider: ProviderFactory, tmp_path: Path) -> None:
    async with installed(provider, tmp_path) as (_, client):
        (before,) = await pods(client)
    async with installed(provider, tmp_path) as (_, client):
        (after,) = await eventually(lambda: pods(client), what="it is ready again", until=one_ready(1))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
