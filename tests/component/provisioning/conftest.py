# SPDX-License-Identifier: Apache-2.0
"""API servers with ProvisioningRequests: an embedded one with a garbage collector, and a real one where marked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from devcluster import manifests as manifests_of
from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec, Provider
from devcluster.provisioner.definition import definition
from manager.app import Manager
from multikueue.api.codec import documents
from multikueue.api.crds import manifests
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS
from multikueue.testing.plugin import kube_binaries
from tests.support.across_clusters import Where
from tests.support.managers import eventually, make_namespace, running_manager
from tests.support.provisioning import install_definition
from tests.support.provisioning_sites import EmbeddedServers, RealServers, Servers

__all__ = ["kube_binaries"]

RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that has the mark `also_on_binaries` runs on both."""
    if "cluster" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("also_on_binaries") is not None
        metafunc.parametrize("cluster", list(_servers(marked)), indirect=True, scope="package")


def _servers(on_binaries: bool) -> Iterator[object]:
    yield "embedded"
    if on_binaries:
        yield pytest.param("binaries", marks=[pytest.mark.binaries, pytest.mark.conformance])


@pytest.fixture(scope="package")
async def servers(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Servers]:
    """Embedded API servers, or a hub and two workers of real etcd and kube-apiserver that the session shares."""
    if request.param == "embedded":
        yield EmbeddedServers()
        return
    folder = tmp_path_factory.mktemp("real-sites")
    specs = {"hub": manifests(), "w1": [definition()], "w2": [definition()]}
    binaries = request.getfixturevalue("kube_binaries")
    async with BinariesProvider(folder=folder, binaries=binaries) as provider, AsyncExitStack() as stack:
        made = []
        for name, kinds in specs.items():
            spec = ClusterSpec(controllers=False, scheduler=False, manifests=kinds)
            made.append(await provider.create(name, folder=folder / name, spec=spec))
        for each in made:
            await stack.enter_async_context(each)
        yield RealServers(made[0], made[1:])


@pytest.fixture
def where(servers: Servers, transport: str) -> Where:
    """The servers and the transport of a scene across clusters."""
    return Where(transport, servers)


@pytest.fixture(scope="package")
async def cluster(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with controllers and a manager that has the rights of deploy/rbac, and without nodes."""
    folder = tmp_path_factory.mktemp(f"provisioning-{request.param}")
    spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests())
    if request.param == "binaries":
        provider: Provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    else:
        provider = EmbeddedProvider(folder=folder)
    async with provider:
        made = await provider.create("provisioning", folder=folder / "cluster", spec=spec)
        async with made:
            async with made.client() as client:
                await install_definition(client)
                await make_namespace(client, "kueue-system")
                for obj in documents((RBAC / "manager.yaml").read_text()):
                    metadata = obj["metadata"]
                    resource = await manifests_of.resource_of(client, obj)
                    namespace = metadata.get("namespace")
                    await client.apply(resource, metadata["name"], obj, namespace=namespace, manager="test")
            async with running_manager(made, webhooks=False, user=MANAGER) as manager:
                await eventually(partial(_follows, manager), what="requests and templates are followed")
                yield made


async def _follows(manager: Manager) -> bool:
    """Whether what is followed on demand is followed: tasks that begin within a test would count as its own."""
    return all([manager.caches.demand(PROVISIONING_REQUESTS), manager.caches.demand(POD_TEMPLATES)])
