# SPDX-License-Identifier: Apache-2.0
"""The agent on a real API server, told what to do by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
)
from multikueue.api.resource import CLUSTER_REPORTS, JOBS, LEASES, NAMESPACES, NODES, PODS, ROLE_BINDINGS
from multikueue.core.timestamps import parse_time
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import Mailbox, make_mailbox, make_node, running_agent
from tests.support.managers import Object, eventually, finish_pods, get, job_manifest, make_namespace
from tests.support.names import unique_name

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


@pytest.fixture
async def mailbox(client: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[Mailbox]:
    """A mailbox, a namespace and a node of 4 cpu that belong to this test alone."""
    name = unique_name(request.node.name)
    await make_mailbox(client, name)
    await make_namespace(client, f"team-{name}")
    await make_node(client, name, labels={"for": name})
    yield Mailbox(client, name, f"team-{name}")
    await client.delete(NODES, name)


async def job(mailbox: Mailbox, name: str) -> Object | None:
    return await get(mailbox.client, JOBS, name, namespace=mailbox.namespace)


async def gone(mailbox: Mailbox, name: str) -> None:
    await eventually(lambda: job(mailbox, name), what=f"job {name} is gone", until=lambda seen: seen is None)


async def test_a_job_is_reserved_run_reported_and_removed(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster) as agent:
        await mailbox.assign("a", parallelism=2)
        said = await mailbox.says("a", "Reserved")
        assert said["epoch"] == 1
        assert await job(mailbox, "a") is None, "nothing runs before the grant"

        await mailbox.change("a", intent="Run")
        await mailbox.says("a", "Running")
        made = await job(mailbox, "a")
        assert made is not None
        assert made["metadata"]["labels"][ORIGIN_LABEL] == "multikueue"
        assert "ownerReferences" not in made["metadata"]
        assert made["spec"]["suspend"] is False

        await eventually(
            lambda: mailbox.status("a"),
            what="active pods are reported",
            until=lambda seen: (seen.get("jobStatus") or {}).get("active") == 2,
        )
        await eventually(lambda: finish_pods(mailbox.client, "a", namespace=mailbox.namespace), what="pods to end")
        said = await mailbox.says("a", "Finished")
        assert said["finished"]["reason"] == "Succeeded"
        assert said["jobStatus"]["succeeded"] == 2
        assert said["bootID"] == agent.boot_id
        assert said["jobUID"] == made["metadata"]["uid"]

        await mailbox.remove("a")
        await gone(mailbox, "a")
        assert not list(agent.capacity.ledger.owners)


async def test_a_final_status_stays_when_the_job_is_removed_by_hand(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await eventually(lambda: finish_pods(mailbox.client, "a", namespace=mailbox.namespace), what="pods to end")
        await mailbox.says("a", "Finished")
        await mailbox.client.delete(JOBS, "a", namespace=mailbox.namespace, propagation="Background")
        await gone(mailbox, "a")
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
        assert (await mailbox.status("a"))["phase"] == "Finished"
        assert await job(mailbox, "a") is None


async def test_a_running_job_removed_by_hand_is_reported_and_not_created_again(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
        await mailbox.client.delete(JOBS, "a", namespace=mailbox.namespace, propagation="Background")
        await mailbox.says("a", "Evicted", reason="JobNotFound")
        assert await job(mailbox, "a") is None


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param({"labels": {ORIGIN_LABEL: None}}, id="label"),
        pytest.param({"annotations": {ASSIGNMENT_ANNOTATION: None}}, id="assignment"),
        pytest.param({"annotations": {CLUSTER_LABEL: None, MANAGER_UID_ANNOTATION: None}}, id="cluster and manager"),
        pytest.param({"annotations": {EPOCH_ANNOTATION: None}}, id="epoch"),
    ],
)
async def test_what_marks_a_running_job_is_restored_and_the_job_is_not_gone(
    cluster: Cluster, mailbox: Mailbox, taken: Object
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
        before = (await job(mailbox, "a") or {})["metadata"]
        await mailbox.client.patch(JOBS, "a", {"metadata": taken}, namespace=mailbox.namespace)
        found = await eventually(
            lambda: job(mailbox, "a"),
            what="it is marked again",
            until=lambda seen: (
                seen is not None
                and seen["metadata"]["annotations"] == before["annotations"]
                and seen["metadata"]["labels"] == before["labels"]
            ),
        )
        assert found is not None
        assert (found["metadata"]["uid"], found["spec"]["suspend"]) == (before["uid"], False)
        await mailbox.change("a", intent="Evict")
        await mailbox.says("a", "Evicted")
        stopped = await job(mailbox, "a")
        assert stopped is not None
        assert stopped["spec"]["suspend"] is True, "it was not reported as gone"


async def test_an_eviction_is_reported_when_no_pod_is_left(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run", parallelism=2)
        await eventually(
            lambda: mailbox.status("a"),
            what="active pods are reported",
            until=lambda seen: (seen.get("jobStatus") or {}).get("active") == 2,
        )
        await mailbox.change("a", intent="Evict")
        said = await mailbox.says("a", "Evicted")
        assert not said["jobStatus"].get("active")
        stopped = await job(mailbox, "a")
        assert stopped is not None
        assert stopped["spec"]["suspend"] is True


async def test_an_assignment_that_cannot_be_read_any_more_is_refused_when_nothing_of_it_runs(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    stays: Object = {"metadata": {"finalizers": ["example.com/stays"]}}
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
        await mailbox.client.patch(JOBS, "a", stays, namespace=mailbox.namespace)
        await mailbox.change("a", intent="Provision")  # and nothing to provision for
        await eventually(
            lambda: job(mailbox, "a"),
            what="it is being deleted",
            until=lambda seen: seen is not None and "deletionTimestamp" in seen["metadata"],
        )
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
        assert (await mailbox.status("a"))["phase"] == "Running", "the hub would send it elsewhere"
        stays["metadata"]["finalizers"] = None
        await mailbox.client.patch(JOBS, "a", stays, namespace=mailbox.namespace)
        await mailbox.says("a", "Refused", reason="BadAssignment")
        assert await job(mailbox, "a") is None


async def test_an_agent_that_serves_the_kind_of_a_running_job_no_more_does_not_report_it_as_gone(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
    async with running_agent(cluster, mailbox.cluster, integrations=(BARE_POD,)):
        await mailbox.says("a", "Running", reason="KindNotSupported")
        await mailbox.change("a", intent="Evict")
        await mailbox.assign("b")
        await mailbox.says("b", "Refused", reason="KindNotSupported")
        assert (await mailbox.status("a"))["phase"] == "Running", "the hub would send it elsewhere"
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.says("a", "Evicted")


async def test_the_end_of_a_job_stays_when_its_assignment_cannot_be_read_any_more(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await eventually(lambda: finish_pods(mailbox.client, "a", namespace=mailbox.namespace), what="pods to end")
        await mailbox.says("a", "Finished")
        await mailbox.change("a", intent="Provision")
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
        assert (await mailbox.status("a"))["phase"] == "Finished"


async def test_r3_a_job_that_is_there_already_is_refused_and_never_touched(cluster: Cluster, mailbox: Mailbox) -> None:
    foreign = job_manifest("a", namespace=mailbox.namespace, queue=None, suspend=True)
    stored = orjson.loads(await mailbox.client.create(JOBS, foreign, namespace=mailbox.namespace))
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        said = await mailbox.says("a", "Refused", reason="NameConflict")
        assert f"{mailbox.namespace}/a" in said["message"]
        await mailbox.change("a", epoch=2, intent="Reserve")
        await eventually(
            lambda: mailbox.status("a"),
            what="it is refused at once the next time",
            until=lambda seen: (seen.get("epoch"), seen.get("phase")) == (2, "Refused"),
        )
        await mailbox.remove("a")
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
    after = await job(mailbox, "a")
    assert after is not None
    assert (after["metadata"]["uid"], after["spec"]) == (stored["metadata"]["uid"], stored["spec"])


async def test_a_missing_namespace_is_refused_until_it_appears(
    cluster: Cluster, client: KubeClient, mailbox: Mailbox
) -> None:
    elsewhere = Mailbox(client, mailbox.cluster, f"new-{mailbox.cluster}")
    async with running_agent(cluster, mailbox.cluster):
        await elsewhere.assign("a")
        said = await elsewhere.says("a", "Refused", reason="NamespaceNotFound")
        assert elsewhere.namespace in said["message"]
        await make_namespace(client, elsewhere.namespace)
        await elsewhere.says("a", "Reserved")


async def test_a_job_that_the_api_server_rejects_is_refused_with_its_message(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a")
        await mailbox.says("a", "Reserved")
        template: dict[str, Any] = {"spec": {"containers": []}}
        await mailbox.change("a", intent="Run", job={"manifest": {"spec": {"template": template}}})
        said = await mailbox.says("a", "Refused", reason="CreateRejected")
        assert "containers" in said["message"]


async def test_without_capacity_it_waits_and_reports_the_shortage(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("big", cpu="3")
        await mailbox.says("big", "Reserved")
        await mailbox.assign("more", cpu="2")
        said = await mailbox.says("more", "Pending", reason="NoRoom")
        assert said["message"] == "cpu: 2 requested, at most 1 free"
        await mailbox.remove("big")
        await mailbox.says("more", "Reserved")


async def test_after_a_restart_capacity_is_reserved_again_and_a_running_job_is_recognised(
    cluster: Cluster, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("runs", cpu="2", intent="Run")
        await mailbox.says("runs", "Running")
        await mailbox.assign("held", cpu="2")
        await mailbox.says("held", "Reserved")
    await mailbox.assign("late", cpu="1")
    before = await job(mailbox, "runs")
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.says("late", "Pending", reason="NoRoom")
        assert (await mailbox.status("held"))["phase"] == "Reserved"
        await eventually(lambda: finish_pods(mailbox.client, "runs", namespace=mailbox.namespace), what="pods to end")
        await mailbox.says("runs", "Finished")
        await mailbox.says("late", "Reserved")
    after = await job(mailbox, "runs")
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]


async def test_an_older_job_is_gone_before_a_newer_one_is_created(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
        old = await job(mailbox, "a")
        newer = {"metadata": {"annotations": {"multikueue.io/epoch": "2"}}}
        await mailbox.change("a", epoch=2, intent="Run", job={"manifest": newer})

        async def new_copy() -> Object | None:
            pods = await mailbox.client.list_all(PODS, namespace=mailbox.namespace)
            for raw in pods.items:  # nobody runs them here, so nobody else ends them
                pod = orjson.loads(raw)
                if "deletionTimestamp" in pod["metadata"]:
                    await mailbox.client.delete(
                        PODS, pod["metadata"]["name"], namespace=mailbox.namespace, grace_seconds=0
                    )
            return await job(mailbox, "a")

        new = await eventually(
            new_copy,
            what="the copy of the new epoch",
            until=lambda seen: bool(seen and old and seen["metadata"]["uid"] != old["metadata"]["uid"]),
        )
        assert new is not None
        assert new["metadata"]["annotations"]["multikueue.io/epoch"] == "2"
        await mailbox.says("a", "Running")


async def test_a_job_that_a_restored_hub_lost_is_replaced_by_its_assignment(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run", epoch=3)
        await mailbox.says("a", "Running")
    await mailbox.remove("a")
    await mailbox.assign("a", epoch=2)
    async with running_agent(cluster, mailbox.cluster):
        await eventually(
            lambda: job(mailbox, "a"),
            what="the copy of the forgotten epoch is being removed",
            until=lambda seen: seen is None or "deletionTimestamp" in seen["metadata"],
        )


async def test_an_emptied_mailbox_of_another_manager_does_not_kill_work(
    cluster: Cluster, client: KubeClient, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
    rebuilt = {"metadata": {"annotations": {MANAGER_UID_ANNOTATION: "another"}}}
    await client.patch(NAMESPACES, f"mk-{mailbox.cluster}", rebuilt)
    await mailbox.remove("a")
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
        left = await job(mailbox, "a")
        assert left is not None
        assert "deletionTimestamp" not in left["metadata"]


async def test_an_orphan_is_removed_by_an_agent_that_was_away(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("a", intent="Run")
        await mailbox.says("a", "Running")
    await mailbox.remove("a")
    async with running_agent(cluster, mailbox.cluster):
        await eventually(
            lambda: job(mailbox, "a"),
            what="the orphan is being removed",
            until=lambda seen: seen is None or "deletionTimestamp" in seen["metadata"],
        )


async def test_the_lease_is_renewed_and_the_cluster_reported(cluster: Cluster, mailbox: Mailbox) -> None:
    space = f"mk-{mailbox.cluster}"
    async with running_agent(cluster, mailbox.cluster) as agent:
        first = await mailbox.client.get_object(LEASES, "agent", namespace=space)
        assert first["spec"]["leaseDurationSeconds"] == 2
        assert first["spec"]["holderIdentity"] == f"{mailbox.cluster}/{agent.boot_id}"
        await eventually(
            lambda: mailbox.client.get_object(LEASES, "agent", namespace=space),
            what="the lease is renewed",
            until=lambda seen: parse_time(seen["spec"]["renewTime"]) > parse_time(first["spec"]["renewTime"]),
        )
        await mailbox.assign("a", cpu="3")
        await mailbox.says("a", "Reserved")

        async def cpu() -> Object:
            report = await mailbox.client.get_object(CLUSTER_REPORTS, "agent", namespace=space)
            capacity = (report.get("status") or {}).get("capacity") or []
            return {**report, "cpu": next((entry for entry in capacity if entry["name"] == "cpu"), {})}

        report = await eventually(
            cpu, what="the free cpu is reported", until=lambda seen: seen["cpu"].get("largestFree") == "1"
        )
        assert report["status"]["kinds"] == [{"apiVersion": "batch/v1", "kind": "Job"}]
        assert report["status"]["kubernetesVersion"].startswith("v1.")
        assert report["status"]["clusterUID"]


async def test_an_unchanged_status_is_not_written(cluster: Cluster, mailbox: Mailbox) -> None:
    async with running_agent(cluster, mailbox.cluster) as agent:
        await mailbox.assign("a")
        await mailbox.says("a", "Reserved")
        writes = agent.status_reporter.writes
        await mailbox.change("a", priority=7)
        await mailbox.assign("b")
        await mailbox.says("b", "Reserved")
        assert agent.status_reporter.writes == writes + 1


async def test_fenced_work_is_stopped_when_the_lease_runs_out(
    cluster: Cluster, client: KubeClient, mailbox: Mailbox
) -> None:
    async with running_agent(cluster, mailbox.cluster):
        await mailbox.assign("fenced", intent="Run", policy="fenced")
        await mailbox.assign("kept", intent="Run")
        await mailbox.says("fenced", "Running")
        await mailbox.says("kept", "Running")
        # The hub turns its back on the agent: the Lease cannot be renewed any more.
        await client.delete(ROLE_BINDINGS, "multikueue-agent", namespace=f"mk-{mailbox.cluster}")
        await eventually(
            lambda: job(mailbox, "fenced"),
            what="fenced work is stopped",
            until=lambda seen: bool(seen and seen["spec"]["suspend"]),
        )
        kept = await job(mailbox, "kept")
        assert kept is not None
        assert kept["spec"]["suspend"] is False
