# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets in queues, on an embedded hub and on a real one; an operator in the test makes their pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    LEADER_WORKER_SETS,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.jobs.kinds.leader_worker_set import LeaderWorkerSetIntegration
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.app_sets import QUEUE, Apps, K, Object, is_gated, runs
from tests.support.leader_worker_sets import (
    LABELS,
    NOT_OPERATED,
    leader_worker_client,
    leader_worker_set,
    made_pod,
    pod_template,
)
from tests.support.managers import condition, ensure, eventually, is_true, make_queue
from tests.support.sent_by_kueue import sent, workloads_of

pytestmark = pytest.mark.anyio

FRAMEWORK = "leaderworkerset.x-k8s.io/leaderworkerset"
INDEX = K + "component-workload-index"
INTEGRATION = LeaderWorkerSetIntegration()


@pytest.fixture(scope="module")
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with leader_worker_client(hub) as client:
        yield client


async def place(client: KubeClient, name: str, *, cpu: str = "1", flavor: str = "default", **queue: object) -> Apps:
    """A namespace with a queue of its name."""
    await make_queue(client, name, namespace=name, cpu=cpu, flavor=flavor)
    if queue:
        await client.patch(CLUSTER_QUEUES, name, {"spec": queue})
    return Apps(client, name)


def names(pods: list[Object]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


async def replicas(apps: Apps, *indices: int) -> list[Object]:
    """The Workloads by the index of their replica, once there are those and no others."""

    def found(seen: list[Object]) -> list[int]:
        return sorted(int(each["metadata"]["annotations"][INDEX]) for each in seen)

    seen = await apps.workloads(lambda seen: found(seen) == list(indices), what=f"Workloads of replicas {indices}")
    return sorted(seen, key=lambda each: int(each["metadata"]["annotations"][INDEX]))


async def running(apps: Apps, *wanted: str, gated: tuple[str, ...] = ()) -> list[Object]:
    """The pods once those run, those are gated, and there are no others."""

    def holds(pods: list[Object]) -> bool:
        waiting = names([each for each in pods if is_gated(each)])
        started = names([each for each in pods if runs(each)])
        return (started, waiting) == (list(wanted), list(gated)) and len(pods) == len(wanted) + len(gated)

    return await apps.pods(holds, what=f"{wanted} run and {gated} are gated")


async def emptied(apps: Apps, name: str) -> None:
    """Wait until it counts no replicas."""
    await eventually(
        lambda: apps.get(LEADER_WORKER_SETS, name),
        what="no replica is counted",
        until=lambda seen: seen is not None and not seen["status"].get("readyReplicas"),
    )


async def test_each_replica_has_a_workload_of_its_leader_and_its_workers_which_get_the_selectors_of_the_flavor(
    client: KubeClient,
) -> None:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "spot"},
        "spec": {"nodeLabels": {"kubernetes.io/os": "linux"}},
    }
    await ensure(client, RESOURCE_FLAVORS, flavor)
    apps = await place(client, "one", cpu="2", flavor="spot")
    stored = await apps.create(leader_worker_set("llm", "one", replicas=2, size=3, leader="200m"))
    for role in ("leaderTemplate", "workerTemplate"):
        metadata = stored["spec"]["leaderWorkerTemplate"][role]["metadata"]
        assert metadata["labels"][QUEUE] == "one"
        assert metadata["annotations"] == {K + "pod-suspending-parent": FRAMEWORK}
    pods = await running(apps, "llm-0", "llm-0-1", "llm-0-2", "llm-1", "llm-1-1", "llm-1-2")
    for pod in pods:
        leads = pod["metadata"]["labels"][LABELS + "/worker-index"] == "0"
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert pod["metadata"]["labels"][K + "podset"] == ("leader" if leads else "worker")
        assert not pod["metadata"].get("finalizers"), "its controller makes it again, so nothing may keep it"
    workloads = await replicas(apps, 0, 1)
    for index, workload in enumerate(workloads):
        assert workload["metadata"]["name"].startswith(f"leaderworkerset-llm-{index}-")
        assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("leader", 1), ("worker", 2)]
        assert [(each["kind"], each["name"]) for each in workload["metadata"]["ownerReferences"]] == [
            ("LeaderWorkerSet", "llm")
        ]
        [leader, worker] = workload["status"]["admission"]["podSetAssignments"]
        assert (leader["resourceUsage"]["cpu"], worker["resourceUsage"]["cpu"]) == ("200m", "200m")
    queue = await eventually(
        lambda: client.get_object(CLUSTER_QUEUES, "one"),
        what="both are counted",
        until=lambda seen: seen["status"].get("admittedWorkloads") == 2,
    )
    assert queue["status"]["reservingWorkloads"] == 2


async def test_one_without_a_template_for_the_leader_has_one_pod_set(client: KubeClient) -> None:
    apps = await place(client, "alike")
    await apps.create(leader_worker_set("llm", "alike", size=3, leader=None))
    await running(apps, "llm-0", "llm-0-1", "llm-0-2")
    [workload] = await replicas(apps, 0)
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 3)]


async def test_a_replica_waits_as_a_whole_and_the_next_one_starts_when_quota_is_free(client: KubeClient) -> None:
    apps = await place(client, "whole", cpu="300m")
    await apps.create(leader_worker_set("llm", "whole", replicas=2))
    pods = await apps.running(2, gated=2)
    first, second = ({pod["metadata"]["labels"][LABELS + "/group-index"] for pod in each} for each in split(pods))
    assert len(first) == len(second) == 1, "no replica has a pod that runs and one that waits"
    assert first != second
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "600m"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    await client.patch(CLUSTER_QUEUES, "whole", {"spec": {"resourceGroups": groups}})
    await running(apps, "llm-0", "llm-0-1", "llm-1", "llm-1-1")


def split(pods: list[Object]) -> tuple[list[Object], list[Object]]:
    return [pod for pod in pods if runs(pod)], [pod for pod in pods if is_gated(pod)]


async def test_scaled_up_and_down_other_replicas_run_on_and_quota_follows(client: KubeClient) -> None:
    apps = await place(client, "scaled", cpu="600m")
    await apps.create(leader_worker_set("llm", "scaled"))
    before = {each["metadata"]["uid"] for each in await running(apps, "llm-0", "llm-0-1")}
    await apps.scale(LEADER_WORKER_SETS, "llm", 3)
    await apps.running(6)
    [kept, *_] = await replicas(apps, 0, 1, 2)
    await apps.change(LEADER_WORKER_SETS, "llm", spec={"replicas": 1})
    after = await running(apps, "llm-0", "llm-0-1")
    assert {each["metadata"]["uid"] for each in after} == before
    [left] = await replicas(apps, 0)
    assert left["metadata"]["uid"] == kept["metadata"]["uid"]
    await apps.scale(LEADER_WORKER_SETS, "llm", 0)
    await running(apps)
    await replicas(apps)
    await apps.scale(LEADER_WORKER_SETS, "llm", 2)
    await apps.running(4)
    await replicas(apps, 0, 1)


async def test_a_replica_that_is_preempted_is_gated_again_while_the_other_one_runs(client: KubeClient) -> None:
    for name, value in (("low-lws", 1), ("high-lws", 9)):
        body = {
            "apiVersion": WORKLOAD_PRIORITY_CLASSES.api_version,
            "kind": WORKLOAD_PRIORITY_CLASSES.kind,
            "metadata": {"name": name},
            "value": value,
        }
        await ensure(client, WORKLOAD_PRIORITY_CLASSES, body)
    apps = await place(client, "preempted", cpu="400m", preemption={"withinClusterQueue": "LowerPriority"})
    low = {K + "priority-class": "low-lws"}
    stored = await apps.create(leader_worker_set("low", "preempted", replicas=2, labels=low))
    template = stored["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert template["metadata"]["labels"][K + "priority-class"] == "low-lws"
    await apps.running(4)
    workloads = {each["metadata"]["uid"] for each in await replicas(apps, 0, 1)}
    await apps.create(leader_worker_set("high", "preempted", labels={K + "priority-class": "high-lws"}))

    def is_over(pods: list[Object]) -> bool:
        run, wait = split(pods)
        return {"high-0", "high-0-1"} < set(names(run)) and (len(run), len(wait), len(pods)) == (4, 2, 6)

    _, wait = split(await apps.pods(is_over, what="the other one runs in place of a replica"))
    assert len({each["metadata"]["labels"][LABELS + "/group-index"] for each in wait}) == 1
    [evicted] = [each for each in await apps.listed(WORKLOADS) if is_true(each, "Evicted")]
    assert condition(evicted, "Evicted")["reason"] == "Preempted"
    await client.delete(LEADER_WORKER_SETS, "high", namespace="preempted")
    await running(apps, "low-0", "low-0-1", "low-1", "low-1-1")
    assert {each["metadata"]["uid"] for each in await replicas(apps, 0, 1)} == workloads


async def test_a_deleted_one_leaves_no_pods_and_no_quota(client: KubeClient) -> None:
    apps = await place(client, "deleted")
    await apps.create(leader_worker_set("llm", "deleted", replicas=2))
    await apps.running(4)
    await client.delete(LEADER_WORKER_SETS, "llm", namespace="deleted")
    await apps.workloads(lambda found: not found, what="the Workloads go")
    await apps.running(0)


async def test_pods_that_outlive_it_are_stopped(client: KubeClient) -> None:
    apps = await place(client, "orphaned")
    await apps.create(leader_worker_set("llm", "orphaned"))
    await apps.running(2)
    await client.delete(LEADER_WORKER_SETS, "llm", namespace="orphaned", propagation="Orphan")
    await apps.running(0)
    [workload] = await apps.workloads(lambda found: is_true(found[0], "Finished"), what="no quota is held")
    assert condition(workload, "Finished")["reason"] == "OwnerNotFound"


async def test_a_workload_that_kueue_has_made_with_its_pods_as_owners_stays(client: KubeClient) -> None:
    """This manager may take the place of Kueue's, which gives those pods the label of managed ones as well."""
    apps = await place(client, "taken")
    await apps.create(leader_worker_set("llm", "taken"))
    pods = await apps.running(2)
    [workload] = await replicas(apps, 0)
    (owner,) = workload["metadata"]["ownerReferences"]
    shared = {"apiVersion": "v1", "kind": "Pod"}
    owners = [shared | {"name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods]
    not_controlled = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    change = {"metadata": {"ownerReferences": [not_controlled, *owners]}}
    await client.patch(WORKLOADS, workload["metadata"]["name"], change, namespace="taken")
    for each in pods:
        managed = {"metadata": {"labels": {K + "managed": "true"}}}
        await client.patch(PODS, each["metadata"]["name"], managed, namespace="taken")
    await client.patch(LEADER_WORKER_SETS, "llm", {"spec": {"replicas": 2}}, namespace="taken")
    later = await apps.running(4)
    kept, _ = await replicas(apps, 0, 1)
    assert kept["metadata"]["uid"] == workload["metadata"]["uid"]
    assert {each["metadata"]["uid"] for each in pods} < {each["metadata"]["uid"] for each in later}


async def test_pods_of_a_former_one_hold_its_quota_until_they_are_gone(client: KubeClient) -> None:
    apps = await place(client, "former", cpu="200m")
    await apps.create(leader_worker_set("llm", "former"))
    await apps.running(2)
    [before] = await replicas(apps, 0)
    await client.delete(LEADER_WORKER_SETS, "llm", namespace="former")
    await eventually(lambda: apps.get(LEADER_WORKER_SETS, "llm"), what="it is gone", until=lambda seen: seen is None)
    await apps.create(leader_worker_set("llm", "former"))
    after = await apps.workloads(
        lambda found: (
            [each["metadata"]["uid"] for each in found] not in ([], [before["metadata"]["uid"]]) and len(found) == 1
        ),
        what="the new one has a Workload",
    )
    assert after[0]["metadata"]["name"] != before["metadata"]["name"]
    await running(apps, "llm-0", "llm-0-1")


async def test_templates_and_the_size_of_a_group_change_at_zero_replicas_only(client: KubeClient) -> None:
    apps = await place(client, "fixed")
    await apps.create(leader_worker_set("llm", "fixed"))
    await apps.running(2)
    for change, refusal in (
        ({"workerTemplate": pod_template("200m")}, r"workerTemplate: Invalid value: can be changed only"),
        ({"leaderTemplate": pod_template("100m", image="newer")}, r"leaderTemplate: Invalid value: can be changed"),
        ({"size": 3}, r"leaderWorkerTemplate\.size: Invalid value: 3: can be changed only while spec\.replicas is 0"),
    ):
        with pytest.raises(Forbidden, match=refusal):
            await apps.change(LEADER_WORKER_SETS, "llm", spec={"leaderWorkerTemplate": change})
    await apps.scale(LEADER_WORKER_SETS, "llm", 0)
    await apps.running(0)
    made = {"size": 3, "workerTemplate": pod_template("200m")}
    await apps.change(LEADER_WORKER_SETS, "llm", spec={"replicas": 1, "leaderWorkerTemplate": made})
    await apps.running(3)
    [workload] = await replicas(apps, 0)
    usage = [each["resourceUsage"]["cpu"] for each in workload["status"]["admission"]["podSetAssignments"]]
    assert usage == ["100m", "400m"]


async def test_its_queue_changes_while_no_replica_is_ready(client: KubeClient) -> None:
    apps = await place(client, "moved")
    await make_queue(client, "moved-2", namespace="moved")
    await apps.create(leader_worker_set("llm", "moved"))
    await eventually(
        lambda: apps.get(LEADER_WORKER_SETS, "llm"),
        what="it is ready",
        until=lambda seen: seen is not None and (seen.get("status") or {}).get("readyReplicas") == 1,
    )
    with pytest.raises(Forbidden, match="immutable while the job is not suspended"):
        await apps.change(LEADER_WORKER_SETS, "llm", metadata={"labels": {QUEUE: "moved-2"}})
    with pytest.raises(Forbidden, match="can be removed only while"):
        await apps.change(LEADER_WORKER_SETS, "llm", metadata={"labels": {QUEUE: None}})
    await apps.scale(LEADER_WORKER_SETS, "llm", 0)
    await apps.running(0)
    await emptied(apps, "llm")
    stored = await apps.change(LEADER_WORKER_SETS, "llm", metadata={"labels": {QUEUE: "moved-2"}})
    made = stored["spec"]["leaderWorkerTemplate"]
    assert {made[each]["metadata"]["labels"][QUEUE] for each in ("leaderTemplate", "workerTemplate")} == {"moved-2"}
    await apps.scale(LEADER_WORKER_SETS, "llm", 1)
    await apps.running(2)
    [workload] = await replicas(apps, 0)
    assert workload["status"]["admission"]["clusterQueue"] == "moved-2"


async def test_more_replicas_than_workloads_that_one_object_may_have_are_refused(client: KubeClient) -> None:
    apps = await place(client, "many")
    with pytest.raises(Forbidden, match=r"spec\.replicas: expected at most 1000"):
        await apps.create(leader_worker_set("llm", "many", replicas=2_000_000_000))
    await apps.create(leader_worker_set("llm", "many", replicas=0))
    with pytest.raises(Forbidden, match=r"spec\.replicas: expected at most 1000"):
        await apps.scale(LEADER_WORKER_SETS, "llm", 1001)


async def test_a_group_in_a_template_is_refused(client: KubeClient) -> None:
    apps = await place(client, "grouped")
    body = leader_worker_set("llm", "grouped", template={"labels": {K + "pod-group-name": "g"}})
    with pytest.raises(Forbidden, match=r"workerTemplate\.metadata\.labels.*have one Workload"):
        await apps.create(body)


async def test_the_label_of_the_namespace_gives_it_its_queue(client: KubeClient) -> None:
    await place(client, "labelled")
    await client.patch(NAMESPACES, "labelled", {"metadata": {"labels": {K + "default-queue": "labelled"}}})

    async def queue() -> str | None:
        body = leader_worker_set("llm", None)
        stored = orjson.loads(await client.create(LEADER_WORKER_SETS, body, namespace="labelled", dry_run=True))
        template = stored["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        found: str | None = (template["metadata"].get("labels") or {}).get(QUEUE)
        return found

    assert await eventually(queue, what="the label is known") == "labelled"


async def test_one_without_a_queue_is_left_alone(client: KubeClient) -> None:
    apps = await place(client, "plain")
    await apps.create(leader_worker_set("llm", None))
    [pod, _] = await running(apps, "llm-0", "llm-0-1")
    assert K + "managed" not in pod["metadata"]["labels"]
    await apps.change(LEADER_WORKER_SETS, "llm", spec={"leaderWorkerTemplate": {"size": 3}})
    await apps.running(3)
    assert await apps.listed(WORKLOADS) == []


async def test_a_pod_that_is_deleted_by_hand_is_made_again_and_started(client: KubeClient) -> None:
    apps = await place(client, "again")
    await apps.create(leader_worker_set("llm", "again"))
    [first, _] = await apps.running(2)
    await client.delete(PODS, "llm-0", namespace="again")
    await apps.pods(
        lambda pods: (
            names([pod for pod in pods if runs(pod)]) == ["llm-0", "llm-0-1"]
            and first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods}
        ),
        what="both run",
    )


async def test_pods_whose_owners_are_stateful_sets_in_between_are_known_by_what_their_template_gave_them(
    client: KubeClient,
) -> None:
    apps = await place(client, "between")
    stored = await apps.create(leader_worker_set("llm", "between", managedBy=NOT_OPERATED))
    for name in ("llm-0", "llm-0-1"):
        await apps.create(made_pod(stored, name))
    await running(apps, "llm-0", "llm-0-1")
    await replicas(apps, 0)
    # Others that a tenant makes in its name are not started: beyond the group, beyond the replicas, of no such name.
    for name in ("llm-0-2", "llm-1", "llm-0-x"):
        await apps.create(made_pod(stored, name))
    await running(apps, "llm-0", "llm-0-1", gated=("llm-0-2", "llm-0-x", "llm-1"))
    # Whoever removes their gate finds them deleted.
    for name in ("llm-0-2", "llm-0-x", "llm-1"):
        await client.patch(PODS, name, {"spec": {"schedulingGates": []}}, namespace="between")
    await running(apps, "llm-0", "llm-0-1")
    assert len(await apps.listed(WORKLOADS)) == 1


async def test_a_pod_that_requests_more_than_its_template_stays_gated(client: KubeClient) -> None:
    apps = await place(client, "larger")
    stored = await apps.create(leader_worker_set("llm", "larger", managedBy=NOT_OPERATED))
    await apps.create(made_pod(stored, "llm-0-1", cpu="500m"))
    await apps.create(made_pod(stored, "llm-0"))
    await running(apps, "llm-0", gated=("llm-0-1",))
    text = await apps.noted("PodNotStarted", about="LeaderWorkerSet")
    assert "pod llm-0-1 stays gated: it requests more than the pod template" in text


async def test_a_pod_that_names_one_that_does_not_exist_stays_gated_and_gets_no_workload(client: KubeClient) -> None:
    apps = await place(client, "absent")
    template = {"metadata": {"labels": {QUEUE: "absent"}, "annotations": {K + "pod-suspending-parent": FRAMEWORK}}}
    stored = {"metadata": {"name": "llm"}, "spec": {"leaderWorkerTemplate": {"workerTemplate": template}}}
    await apps.create(made_pod(stored, "llm-0"))
    await running(apps, gated=("llm-0",))
    assert await apps.listed(WORKLOADS) == []
    await apps.create(leader_worker_set("llm", "absent", managedBy=NOT_OPERATED))
    await running(apps, "llm-0")


async def test_a_workload_that_a_tenant_gives_to_another_replica_is_made_again(client: KubeClient) -> None:
    apps = await place(client, "forged")
    await apps.create(leader_worker_set("llm", "forged", replicas=2))
    await apps.running(4)
    [_, second] = await replicas(apps, 0, 1)
    name = second["metadata"]["name"]
    await client.patch(WORKLOADS, name, {"metadata": {"annotations": {INDEX: "0"}}}, namespace="forged")
    await apps.workloads(
        lambda found: len(found) == 2 and all(is_true(each, "Admitted") for each in found), what="both are admitted"
    )
    await apps.running(4)


async def test_one_that_kueue_sends_from_a_hub_runs_by_the_workloads_made_for_it(
    client: KubeClient,
) -> None:
    apps = await place(client, "sent", cpu="400m")
    body = leader_worker_set("llm", "sent", replicas=2)
    first, second = workloads_of(body, INTEGRATION)
    await client.create(WORKLOADS, first, namespace="sent")
    await apps.create(sent(body, INTEGRATION))
    await running(apps, "llm-0", "llm-0-1", gated=("llm-1", "llm-1-1"))
    await client.create(WORKLOADS, second, namespace="sent")
    await running(apps, "llm-0", "llm-0-1", "llm-1", "llm-1-1")
    found = await replicas(apps, 0, 1)
    assert [each["metadata"]["name"] for each in found] == [each["metadata"]["name"] for each in (first, second)]
    await client.delete(LEADER_WORKER_SETS, "llm", namespace="sent", propagation="Background")
    await apps.running(0)
    await apps.workloads(lambda seen: not seen, what="its quota is free")
