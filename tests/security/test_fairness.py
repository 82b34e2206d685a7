# SPDX-License-Identifier: Apache-2.0
"""deploy/fairness on a real API server: whose requests share seats, and whose do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from devcluster.cluster import Cluster
from devcluster.manifests import create_all, read, resource_of
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import AGENT_GROUP
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

FAIRNESS = Path(__file__).parents[2] / "deploy" / "fairness" / "fairness.yaml"
MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"
ACCOUNTS = ("system:serviceaccounts", "system:serviceaccounts:kueue-system")
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture(scope="module")
async def fair_cluster(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A real API server with the limits that Kubernetes has by default, and deploy/fairness."""
    spec = ClusterSpec(fairness=True, controllers=False, scheduler=False)
    cluster = await binaries_provider.create("fair", folder=tmp_path_factory.mktemp("fair"), spec=spec)
    async with cluster, cluster.client() as client:
        await create_all(client, read(FAIRNESS))
        yield cluster


async def ask(cluster: Cluster, user: str, groups: Sequence[str], *, method: str, path: str) -> tuple[str, str]:
    """The uid of the FlowSchema that the API server chose for a request, and the body of its answer."""
    config = credentials.from_dict(cluster.issue_client_certificate(user, groups))
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, config.server + path, json={}, ssl=config.tls.context()) as answer,
    ):
        return answer.headers["X-Kubernetes-PF-FlowSchema-UID"], await answer.text()


async def uid_of(client: KubeClient, name: str) -> str:
    (manifest,) = [each for each in read(FAIRNESS) if each["kind"] == "FlowSchema" and each["metadata"]["name"] == name]
    found = await client.get_object(await resource_of(client, manifest), name)
    return str(found["metadata"]["uid"])


async def test_writes_of_tenants_share_seats_and_those_of_the_manager_and_agents_have_their_own(
    fair_cluster: Cluster,
) -> None:
    async with fair_cluster.client() as client:
        tenants, ours = await uid_of(client, "multikueue-tenants"), await uid_of(client, "multikueue")

        async def schema(user: str, groups: Sequence[str], method: str, path: str) -> str:
            return (await ask(fair_cluster, user, groups, method=method, path=path))[0]

        async def is_in_use() -> bool:
            return await schema("ann", (), "POST", JOBS) == tenants

        await eventually(is_in_use, what="the API server uses the new schemas")

        robot = ("system:serviceaccount:team:robot", ("system:serviceaccounts", "system:serviceaccounts:team"))
        assert await schema(*robot, "DELETE", f"{JOBS}/any") == tenants
        assert await schema("ann", (), "PATCH", "/api/v1/namespaces/default/pods/any/status") == tenants
        assert await schema("ann", (), "GET", JOBS) not in (tenants, ours), "what a tenant reads is not limited"
        for method in ("GET", "POST"):
            assert await schema(MANAGER, ACCOUNTS, method, JOBS) == ours
            assert await schema("system:mk:cluster:one", (AGENT_GROUP,), method, "/version") == ours
        kube_system = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
        for user, groups in (
            ("system:serviceaccount:kube-system:job-controller", kube_system),
            ("system:kube-controller-manager", ()),
            ("system:node:worker-1", ("system:nodes",)),
            ("root", ("system:masters",)),
        ):
            assert await schema(user, groups, "PUT", f"{JOBS}/any/status") not in (tenants, ours), user


async def test_the_seats_of_tenants_are_few(fair_cluster: Cluster) -> None:
    metric = "apiserver_flowcontrol_nominal_limit_seats{"

    async def seats() -> dict[str, int]:
        _, text = await ask(fair_cluster, "root", ("system:masters",), method="GET", path="/metrics")
        lines = [line for line in text.splitlines() if line.startswith(metric)]
        found = {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in lines}
        return found if {"multikueue", "multikueue-tenants"} <= set(found) else {}

    found = await eventually(seats, what="the API server knows the new levels")
    assert found["multikueue-tenants"] <= 4
    assert found["multikueue"] >= 20 * found["multikueue-tenants"]
