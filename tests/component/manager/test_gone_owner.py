# SPDX-License-Identifier: Apache-2.0
"""A Workload whose job is gone, without a garbage collector."""

from __future__ import annotations

import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import JOB_UID_LABEL, ORIGIN_LABEL
from multikueue.api.resource import JOBS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    condition,
    eventually,
    get,
    is_true,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

_COLLECTOR = "controller-manager"


async def test_a_workload_whose_job_was_deleted_without_a_manager_is_removed(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "gone", namespace="team-gone")
        await make_job(client, "gone", namespace="team-gone", queue="gone")
        await wait_condition(client, "gone", "Admitted", namespace="team-gone")
    workload = await workload_of(client, "gone", namespace="team-gone")
    assert workload is not None
    name = workload["metadata"]["name"]
    hub.pause(_COLLECTOR)
    try:
        await client.delete(JOBS, "gone", namespace="team-gone", propagation="Background")
        async with running_manager(hub):
            await eventually(
                lambda: get(client, WORKLOADS, name, namespace="team-gone"),
                what="the workload is gone",
                until=lambda seen: seen is None,
            )
    finally:
        hub.resume(_COLLECTOR)


async def test_a_workload_that_outlives_its_job_on_purpose_is_left_alone(hub: Cluster, client: KubeClient) -> None:
    hub.pause(_COLLECTOR)
    try:
        async with running_manager(hub):
            await make_queue(client, "kept", namespace="team-kept")
            await make_job(client, "kept", namespace="team-kept", queue="kept")
            await wait_condition(client, "kept", "Admitted", namespace="team-kept")
            workload = await workload_of(client, "kept", namespace="team-kept")
            assert workload is not None
            name = workload["metadata"]["name"]
            # As the collector orphans it: the owner is taken off before the job goes.
            await client.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}}, namespace="team-kept")
            await client.delete(JOBS, "kept", namespace="team-kept", propagation="Background")
            left = await eventually(
                lambda: get(client, WORKLOADS, name, namespace="team-kept"),
                what="the workload reports that its owner is gone, or is deleted",
                until=lambda seen: seen is None or is_true(seen, "Finished"),
            )
            assert left is not None
            assert condition(left, "Finished")["reason"] == "OwnerNotFound"
    finally:
        hub.resume(_COLLECTOR)


@pytest.mark.parametrize("propagation", ["Orphan", None], ids=["kubectl --cascade=orphan", "no propagation policy"])
async def test_a_workload_that_its_job_left_behind_reports_that_and_can_be_deleted(
    hub: Cluster, client: KubeClient, propagation: str | None
) -> None:
    """What `kueuectl delete workload` and other clients do that name no policy: a Job's dependents are kept then."""
    namespace = f"team-left-{'orphan' if propagation else 'default'}"
    async with running_manager(hub):
        await make_queue(client, namespace, namespace=namespace)
        await make_job(client, "j", namespace=namespace, queue=namespace)
        await wait_condition(client, "j", "Admitted", namespace=namespace)
        workload = await workload_of(client, "j", namespace=namespace)
        assert workload is not None
        name = workload["metadata"]["name"]
        await client.delete(JOBS, "j", namespace=namespace, propagation=propagation)
        left = await eventually(
            lambda: get(client, WORKLOADS, name, namespace=namespace),
            what="it is finished and nothing holds it back, or it is gone",
            until=lambda seen: seen is None or (is_true(seen, "Finished") and not seen["metadata"].get("finalizers")),
        )
        if left is not None:
            found = condition(left, "Finished")
            assert found["reason"] == "OwnerNotFound"
            assert f"kubectl delete workloads.kueue.x-k8s.io {name} -n {namespace}" in found["message"]
            await client.delete(WORKLOADS, name, namespace=namespace)
        await eventually(
            lambda: get(client, WORKLOADS, name, namespace=namespace),
            what="the workload is gone",
            until=lambda seen: seen is None,
        )


async def test_a_workload_that_was_made_by_hand_can_be_deleted(hub: Cluster, client: KubeClient) -> None:
    async with running_manager(hub):
        await make_queue(client, "hand", namespace="team-hand")
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {"name": "w", "namespace": "team-hand"},
            "spec": {"queueName": "hand", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]},
        }
        await client.create(WORKLOADS, body, namespace="team-hand")
        await eventually(
            lambda: get(client, WORKLOADS, "w", namespace="team-hand"),
            what="the workload is admitted",
            until=lambda seen: is_true(seen, "Admitted"),
        )
        await client.delete(WORKLOADS, "w", namespace="team-hand")
        await eventually(
            lambda: get(client, WORKLOADS, "w", namespace="team-hand"),
            what="the workload is gone",
            until=lambda seen: seen is None,
        )


@pytest.mark.parametrize("origin", [{ORIGIN_LABEL: "hub"}, {}], ids=["sent by a hub", "of a job that is gone"])
async def test_a_workload_of_kueue_on_another_cluster_waits_for_its_job(
    hub: Cluster, client: KubeClient, origin: dict[str, str]
) -> None:
    """Kueue sends it with the label of the job on the hub, and the job once it is admitted here."""
    namespace = f"team-{'sent' if origin else 'alone'}"
    async with running_manager(hub):
        await make_queue(client, namespace, namespace=namespace)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        labels = {JOB_UID_LABEL: "0a0a0a0a-0000-0000-0000-000000000000", **origin}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {"name": "w", "namespace": namespace, "labels": labels},
            "spec": {"queueName": namespace, "podSets": [{"name": "main", "count": 1, "template": template}]},
        }
        await client.create(WORKLOADS, body, namespace=namespace)
        found = await eventually(
            lambda: get(client, WORKLOADS, "w", namespace=namespace),
            what="it is admitted, or has ended",
            until=lambda seen: is_true(seen, "Admitted") or is_true(seen, "Finished"),
        )
        ended, expected = condition(found, "Finished") or {}, None if origin else "OwnerNotFound"
        assert ended.get("reason") == expected
