# SPDX-License-Identifier: Apache-2.0
"""A hub with virtual nodes that queues Deployments and StatefulSets, and short builders of these.

The hub is embedded or of real binaries; its controllers make the pods, its nodes run them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec, Provider
from manager.dispatch.controller import DispatchController
from multikueue.api.codec import documents
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    EVENTS,
    LEADER_WORKER_SETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.rest.client import KubeClient
from tests.support.both_providers import BOTH_PROVIDERS, provider_of
from tests.support.managers import eventually, get, make_namespace, running_manager
from tests.support.virtual_pods import virtual_pods_apart

MANAGER: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
_ROLES: Final = ("manager.yaml", "manager-pods.yaml")
_RIGHTS: Final = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)
_RBAC: Final = Path(__file__).parents[2] / "deploy" / "rbac"
K: Final = "kueue.x-k8s.io/"
QUEUE: Final = K + "queue-name"
_SETTINGS: Final = "integrations: {{frameworks: [batch/job, {}]}}"
_FRAMEWORKS: Final = ("deployment", "statefulset")
_SETS_ROLE: Final = "manager-statefulsets.yaml"
_KINDS: Final = (DEPLOYMENTS, STATEFUL_SETS, LEADER_WORKER_SETS, PODS)
Object = dict[str, Any]


@asynccontextmanager
async def app_hub(provider: Provider, folder: Path) -> AsyncIterator[Cluster]:
    """A hub of that provider whose pods run. An embedded one runs them in a process of their own, as its API server."""
    spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests())
    async with provider:
        cluster = await provider.create("apps", folder=folder / "hub", spec=spec)
        async with cluster:
            if isinstance(provider, EmbeddedProvider):
                async with virtual_pods_apart(cluster):
                    yield cluster
                return
            async with cluster.client() as client, anyio.create_task_group() as tasks:
                tasks.start_soon(VirtualNodes(client, nodes=several(2)).run)
                yield cluster
                tasks.cancel_scope.cancel()


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A hub of each provider whose pods run; its module needs the fixture `kube_binaries`."""
    folder = tmp_path_factory.mktemp(f"apps-{request.param}")
    async with app_hub(provider_of(request, folder), folder) as cluster:
        yield cluster


@asynccontextmanager
async def app_client(
    hub: Cluster, *, frameworks: Sequence[str] = _FRAMEWORKS, role: str = _SETS_ROLE
) -> AsyncIterator[KubeClient]:
    """The client of an administrator of a hub with a manager that has the roles for these frameworks."""
    async with hub.client() as client:
        await grant_roles(client, *_ROLES, role)
        async with running_manager(
            hub, settings=_SETTINGS.format(", ".join(frameworks)), user=MANAGER, dispatch=DispatchController
        ):
            yield client


async def grant_roles(client: KubeClient, *files: str) -> None:
    """Apply these of deploy/rbac."""
    await make_namespace(client, "kueue-system")
    for name in files:
        for obj in documents((_RBAC / name).read_text()):
            metadata = obj["metadata"]
            resource = next(each for each in _RIGHTS if each.kind == obj["kind"])
            await client.apply(resource, metadata["name"], obj, namespace=metadata.get("namespace"), manager="test")


def app(
    resource: Resource,
    name: str,
    queue: str | None,
    *,
    replicas: int = 1,
    cpu: str = "100m",
    labels: dict[str, str] | None = None,
    template: Object | None = None,
    **spec: Any,
) -> Object:
    """One of either kind; `template` is metadata of its pods."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {**(template or {}), "labels": {"app": name, **((template or {}).get("labels") or {})}}
    more = {"serviceName": name, "podManagementPolicy": "Parallel"} if resource == STATEFUL_SETS else {}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {**({QUEUE: queue} if queue else {}), **(labels or {})}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": metadata,
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
            **more,
            **spec,
        },
    }


class Apps:
    """What is done and seen in one namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, body: Object) -> Object:
        """Create one; as it is stored."""
        resource = next(each for each in _KINDS if each.kind == body["kind"])
        stored: Object = orjson.loads(await self.client.create(resource, body, namespace=self.namespace))
        return stored

    async def change(self, resource: Resource, name: str, **change: Any) -> Object:
        """Change it by a merge patch; as it is stored."""
        stored: Object = orjson.loads(await self.client.patch(resource, name, change, namespace=self.namespace))
        return stored

    async def scale(self, resource: Resource, name: str, replicas: int) -> None:
        """Scale it through the subresource, as kubectl does."""
        body = {"spec": {"replicas": replicas}}
        await self.client.patch(resource, name, body, namespace=self.namespace, subresource="scale")

    async def get(self, resource: Resource, name: str) -> Object | None:
        """The object, if it is there."""
        return await get(self.client, resource, name, namespace=self.namespace)

    async def listed(self, resource: Resource) -> list[Object]:
        """All objects of a kind, by name."""
        page = await self.client.list_all(resource, namespace=self.namespace)
        return sorted((orjson.loads(raw) for raw in page.items), key=lambda each: str(each["metadata"]["name"]))

    async def pods(self, holds: Callable[[list[Object]], bool], *, what: str) -> list[Object]:
        """The pods, once they are so."""
        return await eventually(lambda: self.listed(PODS), what=what, until=holds)

    async def running(self, count: int, *, gated: int = 0) -> list[Object]:
        """The pods, once so many run, so many are gated, and there are no others."""

        def holds(pods: list[Object]) -> bool:
            return (len([p for p in pods if runs(p)]), len([p for p in pods if is_gated(p)]), len(pods)) == (
                count,
                gated,
                count + gated,
            )

        return await self.pods(holds, what=f"{count} pods run and {gated} are gated")

    async def workloads(self, holds: Callable[[list[Object]], bool], *, what: str) -> list[Object]:
        """The Workloads, once they are so."""
        return await eventually(lambda: self.listed(WORKLOADS), what=what, until=holds)

    async def noted(self, reason: str, *, about: str) -> str:
        """The text of an event with that reason about an object of that kind."""

        async def probe() -> str:
            for event in await self.listed(EVENTS):
                if event.get("reason") == reason and event["regarding"]["kind"] == about:
                    return str(event.get("note"))
            return ""

        return await eventually(probe, what=f"an event {reason} about a {about}")


def runs(pod: Object) -> bool:
    """Whether a pod runs and is not being deleted."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_gated(pod: Object) -> bool:
    """Whether a pod waits for admission."""
    return bool(pod["spec"].get("schedulingGates")) and "deletionTimestamp" not in pod["metadata"]
