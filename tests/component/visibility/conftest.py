# SPDX-License-Identifier: Apache-2.0
"""A management cluster, embedded and of real binaries, with the roles of manager and users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.provider import ClusterSpec
from multikueue.api.codec import documents
from multikueue.api.crds import manifests
from multikueue.api.resource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of
from tests.support.managers import connections_closed, make_namespace

__all__ = ["kube_binaries"]

RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
RESOURCES = {
    found.kind: found for found in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)
}


@pytest.fixture(scope="package", params=BOTH_PROVIDERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """The cluster."""
    folder = tmp_path_factory.mktemp(f"visibility-{request.param}")
    async with provider_of(request, folder) as provider:
        spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
        async with (
            await provider.create("hub", folder=folder / "hub", spec=spec) as cluster,
            cluster.client() as client,
        ):
            await make_namespace(client, "kueue-system")
            for manifest in ("manager.yaml", "users.yaml"):
                for obj in documents((RBAC / manifest).read_text()):
                    metadata = obj["metadata"]
                    await client.apply(
                        RESOURCES[obj["kind"]], metadata["name"], obj, namespace=metadata.get("namespace"), manager="t"
                    )
            yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator."""
    async with connections_closed(), hub.client() as client:
        yield client
