# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/jobs on a hub: each is applied as it is, and queued with the pod sets that its page names."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import yaml

from devcluster import manifests as applied
from devcluster.operators.definitions import SPECS, shipped_definition
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.crds import manifests
from multikueue.api.resource import WORKLOADS
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import eventually, get, make_namespace, running_manager
from tests.unit.jobs.declared.builders import PAGES, PAGES_OF_KINDS, blocks

pytestmark = [pytest.mark.anyio]

QUEUED = [*PAGES_OF_KINDS, "job", "leaderworkerset"]
SETTINGS = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "featureGates": {"SparkApplicationIntegration": True},
    "integrations": {"frameworks": ["batch/job", "pod", LEADER_WORKER_SET_FRAMEWORK, *sorted(declared_integrations())]},
}


def named_pod_sets(page: str) -> list[tuple[str, int]]:
    """The pod sets in the sentence below the example."""
    text = (PAGES / f"{page}.md").read_text()
    (sentence,) = re.findall(r"^(?:Its Workload|Each Workload) has the pod sets (.*)\.$", text, re.MULTILINE)
    return [(name, int(count)) for name, count in re.findall(r"`([^`]+)` × (\d+)", sentence)]


@pytest.fixture(scope="module")
async def hub(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeClient]:
    """The hub with the definitions of every kind, and a manager with its webhooks that serves all of them."""
    folder = tmp_path_factory.mktemp("pages")
    provider = EmbeddedProvider(folder=folder)
    definitions = [shipped_definition(each) for each in SPECS]
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=[*manifests(), *definitions])
    async with provider:
        cluster = await provider.create("hub", folder=folder / "hub", spec=spec)
        async with (
            cluster,
            cluster.client() as client,
            running_manager(cluster, settings=orjson.dumps(SETTINGS).decode()),
        ):
            await make_namespace(client, "team-a")
            api, local = "kueue.x-k8s.io/v1beta2", {"name": "user-queue", "namespace": "team-a"}
            spec_of_local = {"clusterQueue": "later"}
            queue = {"apiVersion": api, "kind": "LocalQueue", "metadata": local, "spec": spec_of_local}
            await applied.apply_all(client, [queue])
            yield client


@pytest.mark.parametrize("page", QUEUED)
async def test_an_example_is_queued_with_the_pod_sets_that_its_page_names(page: str, hub: KubeClient) -> None:
    (text,) = blocks(page)
    job: dict[str, Any] = yaml.safe_load(text)
    await applied.create_all(hub, [job])

    async def workload() -> dict[str, Any] | None:
        found = [orjson.loads(raw) for raw in (await hub.list_all(WORKLOADS, namespace="team-a")).items]
        owner = (job["kind"], job["metadata"]["name"])
        return next(
            (
                each
                for each in found
                if owner in [(one["kind"], one["name"]) for one in each["metadata"]["ownerReferences"]]
            ),
            None,
        )

    found = await eventually(workload, what=f"a Workload of {page}", until=lambda each: each is not None)
    assert found is not None
    assert found["spec"]["queueName"] == job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    made = [(each["name"], each["count"]) for each in found["spec"]["podSets"]]
    assert made == named_pod_sets(page)


async def test_the_pods_of_the_page_of_pods_are_one_group_with_a_pod_set_for_each_demand(hub: KubeClient) -> None:
    (text,) = blocks("pod")
    pods: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    # No controller of the hub makes it.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "team-a"}}
    await applied.create_all(hub, [account, *pods])
    found = await eventually(
        lambda: get(hub, WORKLOADS, "pod-sample", namespace="team-a"),
        what="the Workload of the group",
        until=lambda each: each is not None,
    )
    assert found is not None
    assert [each["count"] for each in found["spec"]["podSets"]] == [1, 1]
    assert {owner["name"] for owner in found["metadata"]["ownerReferences"]} == {"pod-sample-0", "pod-sample-1"}
    assert "Its Workload is named `pod-sample` and has two pod sets of one pod each" in (PAGES / "pod.md").read_text()
