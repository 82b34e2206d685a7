# SPDX-License-Identifier: Apache-2.0
"""Provisioning on one cluster, from the Job to the request and back: docs/spec/kueue-api.md §5.2.

A test plays the autoscaler. Those marked `also_on_binaries` run on a real API server too, with `make conformance`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.cache import followed_kind
from multikueue.api.constants import FORMER_PROVISIONING_CONTROLLER
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from tests.support.hubs import running_hub
from tests.support.managers import condition, eventually, get, running_manager
from tests.support.provisioning import CLASS, ProvisioningScene, install_definition, provisioning_scene

pytestmark = pytest.mark.anyio

MKCTL: Final = Path(sys.executable).parent / "mkctl"
KEEPING: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {CleanupProvisioningRequestsOnEviction: false}
"""


@asynccontextmanager
async def defined_hub() -> AsyncIterator[Cluster]:
    """An API server of its own, with ProvisioningRequests."""
    async with running_hub() as hub:
        async with hub.client() as client:
            await install_definition(client)
        yield hub.as_cluster


def annotations_of(job: dict[str, Any]) -> dict[str, str]:
    """Those of the pods."""
    found: dict[str, str] = job["spec"]["template"]["metadata"]["annotations"]
    return found


@pytest.mark.also_on_binaries
async def test_pv1_a_job_starts_when_its_capacity_is_provisioned_and_its_pods_consume_it(cluster: Cluster) -> None:
    selector = {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}]}
    given = {"podSetUpdates": selector, "parameters": {"mode": "fast", "zone": "a"}}
    async with provisioning_scene(cluster, "pv1", **given) as scene:
        await scene.active()
        await scene.submit(parallelism=3, annotations={"provreq.kueue.x-k8s.io/zone": "b"})
        request = await scene.request()
        name = request["metadata"]["name"]
        assert request["spec"] == {
            "provisioningClassName": CLASS,
            "parameters": {"mode": "fast", "zone": "b"},
            "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 3}],
        }
        (template,) = await scene.templates()
        assert template["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
        await scene.check(until="Pending", message=name)
        await scene.answer(request, "Accepted", Accepted="ETA: 12:05, 3 nodes")
        await scene.check(until="Pending", message="ETA: 12:05, 3 nodes")
        await scene.answer(request, "Provisioned", details={"Pool": "pool-7"})
        job = await scene.started()
        annotations = annotations_of(job)
        assert annotations["autoscaling.x-k8s.io/consume-provisioning-request"] == name
        assert annotations["autoscaling.x-k8s.io/provisioning-class-name"] == CLASS
        assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "pool-7"}


@pytest.mark.also_on_binaries
async def test_pv2_a_failed_request_is_retried_with_another_after_the_delay(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv2") as scene:
        await scene.submit()
        first = await scene.request()
        await scene.answer(first, "Failed", Failed="no quota in the cloud")
        second = await scene.request(attempt=2)
        check = await scene.check(until="Pending", message="attempt 2")
        # It was evicted for a second at most, which a look at intervals may miss; the message stays.
        workload = await scene.condition("QuotaReserved")
        assert "Retrying after failure: no quota in the cloud" in condition(workload, "Evicted")["message"]
        assert [each["count"] for each in workload["status"]["schedulingStats"]["evictions"]] == [1]
        assert (check["retryCount"], check["requeueAfterSeconds"]) == (1, 1)
        assert [each["metadata"]["name"] for each in await scene.requests()] == [second["metadata"]["name"]]
        await scene.answer(second, "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv3_a_workload_is_deactivated_when_no_attempt_is_left_and_starts_anew_when_reactivated(
    cluster: Cluster,
) -> None:
    async with provisioning_scene(cluster, "pv3") as scene:
        await scene.submit()
        await scene.answer(await scene.request(), "Failed")
        await scene.answer(await scene.request(attempt=2), "Failed", Failed="still none")
        workload = await scene.condition("Evicted", reason="DeactivatedDueToAdmissionCheck")
        assert "No attempt is left after attempt 2: still none" in condition(workload, "Evicted")["message"]
        assert workload["spec"]["active"] is False
        await scene.no_request()
        name = workload["metadata"]["name"]
        await scene.client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=scene.name)
        await scene.answer(await scene.request(attempt=1), "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv4_a_booking_that_expires_before_admission_is_retried(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv4") as scene:
        await scene.submit()
        await scene.answer(await scene.request(), "BookingExpired", BookingExpired="after 10 minutes")
        second = await scene.request(attempt=2)
        workload = await scene.condition("QuotaReserved")  # as in pv2, the eviction may be over
        assert "Retrying after booking expired: after 10 minutes" in condition(workload, "Evicted")["message"]
        await scene.answer(second, "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv5_a_booking_that_expires_after_admission_leaves_the_job_and_a_revocation_ends_it(
    cluster: Cluster,
) -> None:
    async with provisioning_scene(cluster, "pv5") as scene:
        await scene.submit()
        request = await scene.request()
        await scene.answer(request, "Provisioned")
        await scene.condition("Admitted")
        await scene.answer(request, "BookingExpired")
        await scene.answer(request, "CapacityRevoked", CapacityRevoked="spot nodes went away")
        # The revocation comes later: the expiry that was seen before it had no effect of its own.
        workload = await scene.condition("Evicted", reason="DeactivatedDueToAdmissionCheck")
        assert "spot nodes went away" in condition(workload, "Evicted")["message"]
        evictions = workload["status"]["schedulingStats"]["evictions"]
        counted = [(each["reason"], each["underlyingCause"], each["count"]) for each in evictions]
        assert counted == [("Deactivated", "AdmissionCheck", 1)]
        await scene.no_request()


@pytest.mark.also_on_binaries
async def test_pv6_a_job_that_is_deleted_while_it_waits_leaves_no_request_and_no_template(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv6") as scene:
        await scene.submit()
        await scene.answer(await scene.request(), "Accepted")
        await scene.delete_job()
        await scene.no_request()
        await eventually(scene.templates, what="no template is left", until=lambda found: not found)


@pytest.mark.also_on_binaries
async def test_pv7_a_changed_class_or_parameter_replaces_the_request(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv7") as scene:
        await scene.submit()
        first = await scene.request()
        await scene.configure(parameters={"mode": "fast"})
        second = await scene.request(without=first["metadata"]["uid"])
        assert second["spec"]["parameters"] == {"mode": "fast"}
        await scene.configure(provisioningClassName="other.example.com")
        third = await scene.request(without=second["metadata"]["uid"])
        assert third["spec"]["provisioningClassName"] == "other.example.com"
        await scene.answer(third, "Provisioned")
        job = await scene.started()
        assert annotations_of(job)["autoscaling.x-k8s.io/provisioning-class-name"] == "other.example.com"


@pytest.mark.also_on_binaries
async def test_pv8_the_request_of_a_finished_workload_is_deleted(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv8") as scene:
        await scene.submit()
        await scene.answer(await scene.request(), "Provisioned")
        await scene.condition("Admitted")
        workload = await scene.workload()
        finished = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "by the test",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
        conditions = [*workload["status"]["conditions"], finished]
        await scene.client.patch(
            WORKLOADS,
            workload["metadata"]["name"],
            {"status": {"conditions": conditions}},
            namespace=scene.name,
            subresource="status",
        )
        await scene.no_request()


async def test_pv9_an_eviction_keeps_the_request_where_the_gate_is_off_and_it_is_used_again() -> None:
    async with (
        defined_hub() as hub,
        running_manager(hub, webhooks=False, settings=KEEPING),
        provisioning_scene(hub, "pv9") as scene,
    ):
        await scene.submit()
        request = await scene.request()
        await scene.answer(request, "Provisioned")
        await scene.condition("Admitted")
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await scene.condition("QuotaReserved", status="False")
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "None"}})
        await scene.condition("Admitted")
        (left,) = await scene.requests()
        assert left["metadata"]["uid"] == request["metadata"]["uid"]


@pytest.mark.also_on_binaries
async def test_pv10_an_eviction_deletes_the_request_and_the_next_reservation_makes_another(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv10") as scene:
        await scene.submit()
        request = await scene.request()
        await scene.answer(request, "Provisioned")
        await scene.condition("Admitted")
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await scene.no_request()
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "None"}})
        await scene.answer(await scene.request(without=request["metadata"]["uid"]), "Provisioned")
        await scene.condition("Admitted")


@pytest.mark.also_on_binaries
async def test_pv11_a_check_that_is_removed_from_the_queue_takes_its_request_with_it(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv11") as scene:
        await scene.submit()
        await scene.request()
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"admissionChecksStrategy": None}})
        await scene.started()
        await scene.no_request()


@pytest.mark.also_on_binaries
async def test_pv12_a_check_without_a_usable_config_is_not_active_and_says_why(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv12") as scene:
        await scene.active()
        await scene.client.delete(PROVISIONING_REQUEST_CONFIGS, scene.name)
        missing = await scene.active(status="False", reason="BadParametersRef")
        assert missing["message"] == 'ProvisioningRequestConfig "pv12" of spec.parameters not found'
        await scene.client.patch(ADMISSION_CHECKS, scene.name, {"spec": {"parameters": None}})
        await eventually(
            lambda: get(scene.client, ADMISSION_CHECKS, scene.name),
            what="the parameters are asked for",
            until=lambda seen: "must name a ProvisioningRequestConfig" in condition(seen, "Active")["message"],
        )


@pytest.mark.also_on_binaries
async def test_pv13_the_former_name_of_the_controller_is_accepted(cluster: Cluster) -> None:
    former = {"controller": FORMER_PROVISIONING_CONTROLLER}
    async with provisioning_scene(cluster, "pv13", **former) as scene:
        await scene.submit()
        await scene.answer(await scene.request(), "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv14_a_job_without_managed_resources_starts_without_a_request(cluster: Cluster) -> None:
    managed = {"managedResources": ["nvidia.com/gpu"]}
    async with provisioning_scene(cluster, "pv14", **managed) as scene:
        await scene.submit()
        await scene.started()
        await scene.check(until="Ready", message="the provisioning request is not needed")
        assert await scene.requests() == []


@pytest.mark.also_on_binaries
async def test_pv15_a_template_that_was_deleted_is_created_again(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv15") as scene:
        await scene.submit()
        await scene.request()
        (template,) = await scene.templates()
        await scene.client.delete(POD_TEMPLATES, template["metadata"]["name"], namespace=scene.name)
        await eventually(
            scene.templates,
            what="another template",
            until=lambda found: [each["metadata"]["uid"] != template["metadata"]["uid"] for each in found] == [True],
        )


@pytest.mark.also_on_binaries
async def test_pv16_five_hundred_parameters_of_a_tenant_deactivate_its_own_workload_only(cluster: Cluster) -> None:
    hostile = {f"provreq.kueue.x-k8s.io/p{number}": "x" * 100 for number in range(500)}
    async with provisioning_scene(cluster, "pv16") as scene:
        await scene.submit("hostile", annotations=hostile)
        workload = await scene.condition("Evicted", job="hostile", reason="DeactivatedDueToAdmissionCheck")
        assert "expected at most 100 parameters" in condition(workload, "Evicted")["message"]
        await scene.submit()
        await scene.answer(await scene.request(), "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv17_large_pod_templates_and_messages_are_handled_as_any_other(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv17") as scene:
        await scene.submit(argument="x" * 500_000)
        request = await scene.request()
        (template,) = await scene.templates()
        assert len(template["template"]["spec"]["containers"][0]["args"][0]) == 500_000
        await scene.answer(request, "Provisioned", Provisioned="\x1b[31m" + "y" * 20_000)
        check = await scene.check(until="Ready")
        assert len(check["message"]) < 5000
        assert "\x1b" not in check["message"]


async def foreign_request(scene: ProvisioningScene, name: str) -> None:
    """A request of a tenant who wants another's Workload to use it."""
    body = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {"name": name, "namespace": scene.name, "labels": {"kueue.x-k8s.io/managed": "true"}},
        "spec": {"provisioningClassName": "free", "podSets": [{"podTemplateRef": {"name": "x"}, "count": 1}]},
    }
    await scene.client.create(PROVISIONING_REQUESTS, body, namespace=scene.name)


@pytest.mark.also_on_binaries
async def test_pv18_a_request_of_another_owner_is_neither_used_nor_deleted(cluster: Cluster) -> None:
    async with provisioning_scene(cluster, "pv18") as scene:
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "Hold"}})
        await scene.submit()
        await scene.condition("QuotaReserved", status="False")
        name = f"{(await scene.workload())['metadata']['name']}-pv18-1"
        await foreign_request(scene, name)
        await scene.client.patch(CLUSTER_QUEUES, scene.name, {"spec": {"stopPolicy": "None"}})
        await scene.check(until="Pending", message=f"{name} exists and does not belong to this Workload")
        (left,) = await scene.requests()
        assert left["spec"]["provisioningClassName"] == "free"


async def test_pv19_without_the_definition_the_check_is_not_active_until_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_kind, "_MISSING_SECONDS", 0.1)
    async with (
        running_hub() as hub,
        running_manager(hub.as_cluster, webhooks=False),
        provisioning_scene(hub.as_cluster, "pv19") as scene,
    ):
        missing = await scene.active(status="False", reason="ProvisioningRequestNotInstalled")
        assert "install the CustomResourceDefinition of the cluster autoscaler" in missing["message"]
        await scene.submit()
        workload = await scene.condition("QuotaReserved", status="False")
        assert condition(workload, "QuotaReserved")["message"] == "ClusterQueue pv19 is inactive"
        await install_definition(scene.client)
        await scene.answer(await scene.request(), "Provisioned")
        await scene.started()


@pytest.mark.also_on_binaries
async def test_pv20_explain_and_timeline_show_the_request_the_eta_what_failed_and_the_next_attempt(
    cluster: Cluster,
) -> None:
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 30, "backoffMaxSeconds": 30}
    async with provisioning_scene(cluster, "pv20", retryStrategy=retry) as scene:
        await scene.submit()
        request = await scene.request()
        await scene.answer(request, "Accepted", Accepted="ETA: 12:05")
        await scene.check(until="Pending", message="ETA: 12:05")
        shown = await mkctl("explain", "job/pv20/j", cluster)
        name = request["metadata"]["name"]
        assert "has quota and waits for pv20: ETA: 12:05" in shown
        assert f"ProvisioningRequest {name} of class {CLASS}, attempt 1, since" in shown
        assert "Accepted since 2026-01-01T12:00:00Z: ETA: 12:05" in shown
        await scene.answer(request, "Failed", Failed="no quota in the cloud")
        await scene.condition("QuotaReserved", status="False")
        await scene.no_request()
        shown = await mkctl("explain", "job/pv20/j", cluster)
        assert "Retrying after failure: no quota in the cloud" in shown
        assert "Attempt 2 begins when it has quota again, not before" in shown
        timeline = await mkctl("timeline", "job/pv20/j", cluster)
        assert f'Created ProvisioningRequest: "{name}"' in timeline
        assert "updated state from Pending to Retry with message: Retrying after failure: no quota in" in timeline


async def mkctl(command: str, target: str, cluster: Cluster) -> str:
    """What a command prints on a terminal, with its lines joined."""
    arguments = [MKCTL, command, target, "--kubeconfig", cluster.kubeconfig]
    done = await anyio.run_process(list(map(str, arguments)), env={**os.environ, "COLUMNS": "400"})
    return " ".join(done.stdout.decode().split())


async def test_pv21_what_an_autoscaler_answers_while_the_manager_is_away_counts_when_it_is_back() -> None:
    async with defined_hub() as hub, provisioning_scene(hub, "pv21") as scene:
        async with running_manager(hub, webhooks=False):
            await scene.submit()
            first = await scene.request()
        await scene.answer(first, "Failed")
        async with running_manager(hub, webhooks=False):
            second = await scene.request(attempt=2)
        await scene.answer(second, "Provisioned")
        async with running_manager(hub, webhooks=False):
            await scene.started()
            (left,) = await scene.requests()
            assert left["metadata"]["uid"] == second["metadata"]["uid"]
