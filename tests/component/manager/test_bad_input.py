# SPDX-License-Identifier: Apache-2.0
"""User errors: each is reported where its user sees it, and nothing else stops working."""

from __future__ import annotations

import logging

import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


async def notes_about(client: KubeClient, name: str, *, namespace: str) -> list[str]:
    page = await client.list_all(EVENTS, namespace=namespace)
    found = [orjson.loads(raw) for raw in page.items]
    return [event["note"] for event in found if event["regarding"]["name"] == name]


async def test_a_job_for_a_queue_that_does_not_exist_reports_that_and_runs_once_it_does(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub):
        await make_queue(client, "found", namespace="team-lost")
        await make_job(client, "lost", namespace="team-lost", queue="nowhere")
        workload = await wait_condition(client, "lost", "QuotaReserved", namespace="team-lost", status="False")
        assert condition(workload, "QuotaReserved")["reason"] == "Misconfigured"
        assert condition(workload, "QuotaReserved")["message"] == "LocalQueue nowhere doesn't exist"
        wanted = "LocalQueue team-lost/nowhere doesn't exist; create it or correct the label kueue.x-k8s.io/queue-name"
        await eventually(
            lambda: notes_about(client, "lost", namespace="team-lost"),
            what="an event about the job",
            until=lambda notes: any(note.startswith(wanted) for note in notes),
        )
        await client.create(
            LOCAL_QUEUES,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "LocalQueue",
                "metadata": {"name": "nowhere", "namespace": "team-lost"},
                "spec": {"clusterQueue": "found"},
            },
            namespace="team-lost",
        )
        await wait_condition(client, "lost", "Admitted", namespace="team-lost")


async def test_a_cluster_queue_naming_a_missing_flavor_reports_which_and_works_once_it_exists(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub):
        await make_queue(client, "flavorless", namespace="team-flavor", flavor="arm")
        await eventually(
            lambda: get(client, RESOURCE_FLAVORS, "arm"),
            what="the flavor is protected",
            until=lambda seen: bool(seen and seen["metadata"].get("finalizers")),
        )
        await client.delete(RESOURCE_FLAVORS, "arm")
        # The flavor is held by the queue that names it, so another queue names one that never was.
        await client.create(
            CLUSTER_QUEUES,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "ClusterQueue",
                "metadata": {"name": "missing-flavor"},
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": "gone", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
                        }
                    ],
                },
            },
        )
        queue = await eventually(
            lambda: get(client, CLUSTER_QUEUES, "missing-flavor"),
            what="the queue is inactive",
            until=lambda seen: condition(seen, "Active").get("reason") == "FlavorNotFound",
        )
        assert condition(queue, "Active")["message"] == (
            "Can't admit new workloads: references missing ResourceFlavor(s): gone."
        )
        await client.create(
            RESOURCE_FLAVORS,
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "gone"}},
        )
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, "missing-flavor"),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        held = await get(client, RESOURCE_FLAVORS, "arm")
        assert held is not None, "a flavor that a queue names is kept until the queue is gone"
        await client.delete(LOCAL_QUEUES, "flavorless", namespace="team-flavor")
        await client.delete(CLUSTER_QUEUES, "flavorless")
        await eventually(
            lambda: get(client, RESOURCE_FLAVORS, "arm"),
            what="the flavor goes with the last queue that named it",
            until=lambda seen: seen is None,
        )


async def test_a_cluster_queue_that_breaks_a_rule_is_refused_with_the_path(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        group: Object = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1", "lendingLimit": "1"}]}],
        }
        queue: Object = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "lender"},
            "spec": {"resourceGroups": [group]},
        }
        with pytest.raises(Forbidden, match=r"spec\.resourceGroups\[0\]\.flavors\[0\]\.resources\[0\]\.lendingLimit"):
            await client.create(CLUSTER_QUEUES, queue)


async def test_v1beta1_manifests_work_through_the_conversion_webhook(hub: Cluster, client: KubeClient) -> None:
    old: Resource = CLUSTER_QUEUES.at("v1beta1")
    async with running_manager(hub):
        await client.create(
            old,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "ClusterQueue",
                "metadata": {"name": "older"},
                "spec": {"cohort": "everybody", "namespaceSelector": {}},
            },
        )
        stored = await client.get_object(CLUSTER_QUEUES, "older")
        assert stored["spec"]["cohortName"] == "everybody"
        assert (await client.get_object(old, "older"))["spec"]["cohort"] == "everybody"


async def test_a_missing_crd_is_one_line_and_the_rest_works(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    definitions = [crd for crd in manifests() if crd["metadata"]["name"] != "cohorts.kueue.x-k8s.io"]
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=definitions)
    cluster = await binaries_provider.create("bare", folder=tmp_path_factory.mktemp("bare"), spec=spec)
    async with cluster, cluster.client() as client:
        with caplog.at_level(logging.ERROR):
            async with running_manager(cluster, webhooks=False):
                await make_queue(client, "bare", namespace="team-bare")
                await make_job(client, "works", namespace="team-bare", queue="bare", suspend=True)
                await wait_condition(client, "works", "Admitted", namespace="team-bare")
        lines = [record.getMessage() for record in caplog.records if "cohorts" in record.getMessage()]
        assert lines == [
            f"CustomResourceDefinition not installed, apply crds/ crd=cohorts.kueue.x-k8s.io cluster={cluster.name}"
        ]


async def test_a_job_that_was_never_suspended_is_stopped_until_it_is_admitted(hub: Cluster, client: KubeClient) -> None:
    await make_namespace(client, "team-eager")
    async with running_manager(hub, webhooks=False):
        await make_queue(client, "eager", namespace="team-eager", cpu="1")
        await make_job(client, "big", namespace="team-eager", queue="eager", cpu="5", suspend=False)
        await wait_condition(
            client, "big", "QuotaReserved", namespace="team-eager", status="False", reason="ExceedsMaxQuota"
        )
        job = await get(client, JOBS, "big", namespace="team-eager")
        assert job is not None
        assert job["spec"]["suspend"] is True


async def test_an_empty_workload_stops_no_other(hub: Cluster, client: KubeClient) -> None:
    empty = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "empty", "namespace": "team-empty"},
    }
    async with running_manager(hub, webhooks=False):
        await make_queue(client, "beside", namespace="team-empty")
        await client.create(WORKLOADS, empty, namespace="team-empty")
        await make_job(client, "fine", namespace="team-empty", queue="beside", suspend=True)
        await wait_condition(client, "fine", "Admitted", namespace="team-empty")
        found = await eventually(
            lambda: get(client, WORKLOADS, "empty", namespace="team-empty"),
            what="the empty one has an event",
            until=lambda seen: condition(seen, "QuotaReserved") != {},
        )
        assert condition(found, "QuotaReserved")["message"] == "LocalQueue  doesn't exist"


async def test_equal_jobs_that_do_not_fit_all_show_why(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub, webhooks=False):
        await make_queue(client, "small", namespace="team-equal", cpu="1")
        for name in ("first", "second", "third"):
            await make_job(client, name, namespace="team-equal", queue="small", cpu="5", suspend=True)
            await wait_condition(
                client, name, "QuotaReserved", namespace="team-equal", status="False", reason="ExceedsMaxQuota"
            )
        queue = await eventually(
            lambda: get(client, CLUSTER_QUEUES, "small"),
            what="all three are counted",
            until=lambda seen: seen is not None and (seen.get("status") or {}).get("pendingWorkloads") == 3,
        )
        assert queue is not None
