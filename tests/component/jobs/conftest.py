# SPDX-License-Identifier: Apache-2.0
"""An API server with our definitions and one of every declared kind, which keeps fields that it does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.providers.binaries import acquire
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.kube.rest.client import KubeClient
from tests.unit.jobs.declared.builders import blocks


def definitions() -> list[dict[str, Any]]:
    """The definition of the page, and that of every declared kind with the same schema."""
    (page,) = (yaml.safe_load(text) for text in blocks("your-own-kind") if "CustomResourceDefinition" in text)
    (version,) = page["spec"]["versions"]
    made = [page]
    for each in declared_integrations().values():
        resource = each.resource
        names = {"kind": resource.kind, "listKind": resource.list_kind, "plural": resource.plural}
        spec = {
            "group": resource.group,
            "names": names | {"singular": resource.singular},
            "scope": "Namespaced",
            "versions": [version | {"name": resource.version}],
        }
        # A server wants it for groups below k8s.io.
        annotations = {"api-approved.kubernetes.io": "unapproved, for tests"}
        made.append({**page, "metadata": {"name": resource.qualified, "annotations": annotations}, "spec": spec})
    return made


@pytest.fixture(scope="module", params=["embedded", pytest.param("binaries", marks=pytest.mark.binaries)])
async def cluster(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """The API server alone."""
    folder = tmp_path_factory.mktemp("kinds")
    if request.param == "binaries" and acquire.find() is None:
        pytest.skip("no etcd and kube-apiserver here: run `mkctl binaries` or set KUBEBUILDER_ASSETS")
    provider = BinariesProvider(folder=folder) if request.param == "binaries" else EmbeddedProvider(folder=folder)
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=[*manifests(), *definitions()])
    async with provider:
        cluster = await provider.create("kinds", folder=folder / "kinds", spec=spec)
        async with cluster:
            yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    """Its administrator."""
    async with cluster.client() as client:
        yield client
