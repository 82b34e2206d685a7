# SPDX-License-Identifier: Apache-2.0
"""A management cluster with our kinds and its access rules, embedded and real, for tests with tenants on it.

Owns the fixture of both servers and a tenant's client, whose rights are those of the roles that a test binds to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries import acquire
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SUBJECT_ACCESS_REVIEWS
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import eventually

EDITS_JOBS: Sequence[dict[str, Any]] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch", "update", "delete"]},
)


@pytest.fixture(scope="module", params=["embedded", pytest.param("binaries", marks=pytest.mark.binaries)])
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with its controllers, on which only its administrator has rights yet."""
    folder = tmp_path_factory.mktemp("tenants")
    spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
    if request.param == "binaries" and acquire.find() is None:
        pytest.skip("no etcd and kube-apiserver here: run `mkctl binaries` or set KUBEBUILDER_ASSETS")
    provider = BinariesProvider(folder=folder) if request.param == "binaries" else EmbeddedProvider(folder=folder)
    async with provider:
        cluster = await provider.create("hub", folder=folder / "hub", spec=spec)
        async with cluster:
            yield cluster


async def allow(client: KubeClient, user: str, rules: Sequence[dict[str, Any]], *, name: str = "") -> None:
    """Give the user these rights in all namespaces; a real API server has them a moment after they were written."""
    name = name or f"rights-of-{user}"
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await client.apply(CLUSTER_ROLES, name, role, manager="test")
    await client.apply(CLUSTER_ROLE_BINDINGS, name, binding, manager="test")
    for rule in rules:
        await eventually(partial(_may, client, user, rule), what=f"{user} has the rights that were given")


async def _may(client: KubeClient, user: str, rule: dict[str, Any]) -> bool:
    """Whether the API server knows the first right of a rule."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "verb": rule["verbs"][0]}
    named = {"name": rule["resourceNames"][0]} if rule.get("resourceNames") else {}
    body = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"user": user, "resourceAttributes": {**asked, **named}},
    }
    answer = await client.request("POST", SUBJECT_ACCESS_REVIEWS.path(), body=body)
    return bool(answer.json()["status"]["allowed"])


@asynccontextmanager
async def tenant(
    hub: Cluster, admin: KubeClient, user: str, *, rules: Sequence[dict[str, Any]] = EDITS_JOBS
) -> AsyncIterator[KubeClient]:
    """The hub as that user sees it, who has these rights and no others."""
    await allow(admin, user, rules)
    async with KubeClient(credentials.from_dict(hub.issue_client_certificate(user))) as client:
        yield client
