# SPDX-License-Identifier: Apache-2.0
"""Workloads that only look like replicas choose no worker cluster for a LeaderWorkerSet (ADR 0022)."""

from __future__ import annotations

import pytest

from multikueue.api.constants import CLUSTERS_ANNOTATION, COMPONENT_WORKLOAD_INDEX_ANNOTATION, JOB_UID_LABEL
from multikueue.api.resource import WORKLOADS
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.leader_worker_set import LeaderWorkerSetIntegration
from multikueue.testing.plugin import kube_binaries
from tests.component.kinds.conftest import Clusters, clusters
from tests.support.leader_worker_sets import leader_worker_set
from tests.support.managers import Object
from tests.support.replica_scenes import ReplicaScene, replica_scene
from tests.support.sites import Transport

__all__ = ["clusters", "kube_binaries"]

pytestmark = pytest.mark.anyio

SETS = LeaderWorkerSetIntegration()


async def workloads_of(scene: ReplicaScene, owner: Object) -> list[Object]:
    uid = owner["metadata"]["uid"]
    found = await scene.hub.listed(WORKLOADS)
    return [each for each in found if each["metadata"]["ownerReferences"][0]["uid"] == uid]


def cluster_of(workload: Object) -> str:
    return str((workload.get("status") or {}).get("clusterName") or "")


async def test_workloads_that_look_like_replicas_choose_no_cluster_for_a_leader_worker_set(clusters: Clusters) -> None:
    workers = (clusters.worker, clusters.plain)
    async with replica_scene(clusters.hub, workers, "forged", transport=Transport.PULL) as scene:
        first, second = scene.workers
        await scene.set_availability(first, cordoned=True)
        theirs = await scene.create("theirs")
        await scene.hub.workloads(
            lambda found: [cluster_of(each) for each in found] == [second], what="theirs is on the second worker"
        )
        body = leader_worker_set("llm", scene.queue, replicas=2)
        body["metadata"]["annotations"] = {CLUSTERS_ANNOTATION: first}
        llm = await scene.hub.create(body)
        await scene.waits(1, f"{first}: is cordoned and takes no new work")
        # Their Workload, which runs on the second worker, says of itself that it is the first replica of llm.
        [forged] = await workloads_of(scene, theirs)
        marks = {
            "labels": {JOB_UID_LABEL: llm["metadata"]["uid"]},
            "annotations": {COMPONENT_WORKLOAD_INDEX_ANNOTATION: "0"},
            "ownerReferences": [
                *forged["metadata"]["ownerReferences"],
                {"apiVersion": llm["apiVersion"], "kind": llm["kind"], "name": "llm", "uid": llm["metadata"]["uid"]},
            ],
        }
        await scene.hub.change(WORKLOADS, forged["metadata"]["name"], metadata=marks)
        # Two more, one of a replica that llm is not to have, and one under another name.
        for index, name in ((7, ""), (0, "leaderworkerset-llm-0-00000")):
            made = workload_for(SETS.replica(llm, index), SETS, priority=Priority(value=1000))
            made["metadata"]["annotations"][CLUSTERS_ANNOTATION] = second
            made["metadata"]["name"] = name or made["metadata"]["name"]
            await scene.hub.client.create(WORKLOADS, made, namespace=scene.hub.namespace)
        await scene.hub.workloads(lambda found: len(found) == 3, what="those that are no replica of it are deleted")
        await scene.set_availability(first, cordoned=False)
        names = {
            workload_for(SETS.replica(llm, index), SETS, priority=Priority())["metadata"]["name"] for index in (0, 1)
        }
        await scene.hub.workloads(
            lambda found: [cluster_of(each) for each in found if each["metadata"]["name"] in names] == [first] * 2,
            what="both replicas of llm are where its own annotation says",
        )
