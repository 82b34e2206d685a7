# SPDX-License-Identifier: Apache-2.0
"""J: Jobs through the federation, and what happens to them when links, workers and the manager fail."""

from __future__ import annotations

import pytest

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, WORKLOADS
from tests.support.managers import condition, eventually, get, is_true, make_job
from tests.support.scenes import Stage, scene, settings

pytestmark = pytest.mark.anyio


async def test_j1_b6_a_job_runs_on_the_worker_that_admits_it_and_leaves_nothing_on_any(stage: Stage) -> None:
    async with scene(stage, "j1") as made:
        workload = await made.submit()
        await made.w1.asked(workload)
        await made.w2.asked(workload)
        await made.w2.admits(workload)
        found = await made.check("Ready", message=f'The workload was admitted on "{made.w2.name}"')
        assert found["status"]["clusterName"] == made.w2.name
        await made.w1.relieved(workload)
        await made.w2.starts("j")
        await made.w2.ends("j")
        found = await made.finished()
        assert condition(found, "Finished")["message"] == "done"
        job = await made.job()
        assert job is not None
        assert job["status"]["succeeded"] == 1
        await made.w2.cleaned("j")
        await made.w2.relieved(workload)
        assert await made.w1.job("j", namespace=made.namespace) is None
        await eventually(
            lambda: get(made.client, CLUSTER_QUEUES, made.name),
            what="the quota is given back",
            until=lambda seen: seen is not None and seen["status"].get("reservingWorkloads") == 0,
        )


async def test_j3_the_status_of_a_job_that_runs_elsewhere_is_seen_while_it_runs(stage: Stage) -> None:
    async with scene(stage, "j3") as made:
        workload = await made.submit()
        waiting = await made.job()
        assert waiting is not None
        assert (waiting["spec"]["managedBy"], waiting["spec"]["suspend"]) == (MULTIKUEUE_MANAGED_BY, True)
        await made.w1.admits(workload)
        copy = await made.w1.starts("j")
        assert "managedBy" not in copy["spec"]
        job = await made.job_says("active", 1)
        assert job["status"]["ready"] == 1
        assert job["status"]["startTime"]
        assert job["spec"]["suspend"] is False
        await made.w1.ends("j")
        await made.finished()


async def test_a_workload_that_is_deleted_stops_before_its_job_is_sent_again(stage: Stage) -> None:
    async with scene(stage, "deleted workload") as made:
        workload = await made.running(made.w1)
        await made.w2.relieved(workload)  # of the clone that asked before w1 was granted
        before = await made.workload()
        assert before is not None
        await made.client.delete(WORKLOADS, workload, namespace=made.namespace)
        await made.w1.told_to_evict(workload)
        assert await made.workload(), "it holds its quota until the pods are gone"
        assert await made.w2.clone(workload) is None
        await made.w1.evicts(workload, "j", reason="Deactivated", message="deactivated")
        again = await eventually(
            made.workload,
            what="the job has a new Workload",
            until=lambda seen: seen is not None and seen["metadata"]["uid"] != before["metadata"]["uid"],
        )
        assert again is not None
        assert again["metadata"]["name"] == workload
        await made.w2.admits(workload)
        await made.w2.starts("j")
        await made.w2.ends("j")
        await made.finished()


async def test_a_job_that_gets_another_size_stops_where_it_runs_before_it_is_queued_again(stage: Stage) -> None:
    async with scene(stage, "another size") as made:
        workload = await made.running(made.w1, parallelism=2)
        before = await made.workload()
        assert before is not None
        await made.client.patch(JOBS, "j", {"spec": {"parallelism": 1}}, namespace=made.namespace)
        await made.w1.told_to_evict(workload)
        assert await made.workload(), "it holds its quota until the pods are gone"
        await made.w1.evicts(workload, "j", reason="Deactivated", message="deactivated")
        again = await eventually(
            made.workload,
            what="the job has a Workload of its new size",
            until=lambda seen: seen is not None and seen["metadata"]["uid"] != before["metadata"]["uid"],
        )
        assert again is not None
        assert again["spec"]["podSets"][0]["count"] == 1


async def test_a_job_that_runs_continues_when_its_queue_loses_the_check(stage: Stage) -> None:
    async with scene(stage, "lost check") as made:
        workload = await made.running(made.w1)
        without = {"spec": {"admissionChecksStrategy": None}}
        await made.client.patch(CLUSTER_QUEUES, made.name, without)
        await eventually(
            made.status,
            what="the Workload has no check any more",
            until=lambda status: not status.get("admissionChecks"),
        )
        await made.w1.ends("j")
        await made.finished()
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)


async def test_what_a_worker_evicts_after_the_queue_lost_its_check_is_admitted_anew(stage: Stage) -> None:
    async with scene(stage, "evicted lost check") as made:
        workload = await made.running(made.w1)
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"admissionChecksStrategy": None}})
        await eventually(
            made.status,
            what="the Workload has no check any more",
            until=lambda status: not status.get("admissionChecks"),
        )
        await made.w1.evicts(workload, "j")
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)
        found = await eventually(
            made.workload,
            what="the queue has admitted it anew, which asks for no cluster now",
            until=lambda seen: is_true(seen, "Admitted") and not is_true(seen, "Evicted"),
        )
        assert found is not None
        (eviction,) = found["status"]["schedulingStats"]["evictions"]
        assert (eviction["reason"], eviction["count"]) == ("AdmissionCheck", 1)
        assert not found["status"].get("clusterName")


async def test_j2_a_copy_that_is_out_of_sync_is_retried_elsewhere_and_never_finishes_the_workload(stage: Stage) -> None:
    async with scene(stage, "j2") as made:
        workload = await made.running(made.w1)
        await made.w1.says_out_of_sync(workload)
        await made.w1.told_to_stop("j")
        await made.w1.stops("j")
        await made.w2.asked(workload, epoch=2)
        found = await made.check("Pending", retries=1)
        assert not is_true(found, "Finished")
        assert await made.w1.clone(workload) is None, "it is passed over for a while"

        async def told() -> list[bytes]:
            page = await made.client.list_all(EVENTS, namespace=made.namespace)
            return [raw for raw in page.items if b"is out of sync with its user job" in raw]

        assert any(b'"type":"Warning"' in raw.replace(b": ", b":") for raw in await eventually(told, what="it is told"))
        await made.w2.admits(workload, epoch=2)
        await made.w2.starts("j", epoch=2)
        await made.w2.ends("j")
        await made.finished()


async def test_j4_what_was_deleted_while_the_worker_was_away_is_removed_when_it_is_back(stage: Stage) -> None:
    async with scene(stage, "j4") as made:
        workload = await made.running(made.w1)
        await made.w1.cut()
        await made.cluster_says(made.w1, "False", "ClientConnectionFailed")
        await made.client.delete(JOBS, "j", namespace=made.namespace, propagation="Background")
        await eventually(made.workload, what="the Workload is gone", until=lambda seen: seen is None)
        assert await made.w1.clone(workload) is not None
        await made.w1.mend()
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)


async def test_j5_a_copy_on_a_worker_that_was_away_at_the_end_is_cleaned_when_it_is_back(stage: Stage) -> None:
    async with scene(stage, "j5") as made:
        workload = await made.submit()
        await made.w2.asked(workload)
        await made.w2.cut()
        await made.cluster_says(made.w2, "False", "ClientConnectionFailed")
        await made.w1.admits(workload)
        await made.w1.starts("j")
        await made.w1.ends("j")
        await made.finished()
        await made.w1.relieved(workload)
        assert await made.w2.clone(workload) is not None
        await made.w2.mend()
        await made.w2.relieved(workload)


async def test_j6_a_worker_that_is_lost_for_long_is_given_up_and_its_copy_goes_when_it_is_back(stage: Stage) -> None:
    async with scene(stage, "j6") as made:
        workload = await made.running(made.w1)
        await made.w1.cut()
        await made.check_says("True", "SomeActiveClusters")
        await made.w2.asked(workload, epoch=2)
        await made.check("Pending", retries=1)
        assert await made.evictions() == 1
        await made.w2.admits(workload, epoch=2)
        await made.w2.starts("j", epoch=2)
        await made.w1.mend()
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)
        await made.w2.ends("j")
        found = await made.finished()
        assert found["status"]["clusterName"] == made.w2.name


async def test_j7_a_short_loss_is_waited_out(stage: Stage) -> None:
    async with scene(stage, "j7") as made:
        await made.running(made.w1)
        await made.w1.cut()
        await made.cluster_says(made.w1, "False", "ClientConnectionFailed")
        await made.w1.ends("j")
        await made.w1.mend()
        found = await made.finished()
        assert found["status"]["clusterName"] == made.w1.name
        assert await made.evictions() == 0


async def test_j8_a_manager_that_restarts_while_the_worker_is_away_waits_and_then_retries(stage: Stage) -> None:
    async with scene(stage, "j8") as made:
        workload = await made.running(made.w1)
        await made.w1.cut()
        await made.cluster_says(made.w1, "False", "ClientConnectionFailed")
        await stage.restart(settings(workerLostTimeout="1h"))
        await made.cluster_says(made.w2, "True", "Active")
        assert await made.evictions() == 0
        await made.check("Ready")
        await stage.restart(settings())
        await made.w2.asked(workload, epoch=2)
        await made.check("Pending", retries=1)


async def test_j9_b8_an_eviction_on_the_worker_starts_admission_over(stage: Stage) -> None:
    async with scene(stage, "j9") as made:
        workload = await made.running(made.w1)
        await made.w1.evicts(workload, "j")
        await made.w2.asked(workload, epoch=2)
        found = await made.check("Pending", retries=1)
        (eviction,) = found["status"]["schedulingStats"]["evictions"]
        assert (eviction["reason"], eviction["count"]) == ("AdmissionCheck", 1)
        assert "Workload evicted on worker cluster" in condition(found, "Evicted")["message"]
        assert not found["status"].get("clusterName")
        await made.w2.admits(workload, epoch=2)
        await made.w1.cleaned("j")
        await made.w2.starts("j", epoch=2)
        await made.w2.ends("j")
        await made.finished()
        # Admitted twice, and counted twice.
        text = await stage.manager.read_metrics()
        admitted = f'multikueue_workloads_admitted_total{{cluster="{made.name}-'
        counted = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(admitted)]
        assert counted == [1.0, 1.0], "once for each cluster"


async def test_j10_the_check_is_listed_before_the_workload_is_admitted(stage: Stage) -> None:
    async with scene(stage, "j10", checks=("other",)) as made:
        await make_job(made.client, "big", namespace=made.namespace, queue=made.name, cpu="1000")
        found = await made.check("Pending", job="big")
        assert not is_true(found, "QuotaReserved")


async def test_j11_with_another_check_beside_it_the_check_stays_listed_when_the_worker_is_lost(stage: Stage) -> None:
    async with scene(stage, "j11", checks=("other",)) as made:
        workload = await made.submit()
        await made.pass_check("other")
        await made.w1.admits(workload)
        await made.w1.starts("j")
        await made.job_says("ready", 1)
        await made.w1.cut()
        await made.check("Pending", retries=1)
        await made.pass_check("other")
        await made.w2.asked(workload, epoch=2)
        await made.w1.mend()
        await made.w1.cleaned("j")
        await made.w1.relieved(workload)
        await made.check("Pending", retries=1)


async def test_nothing_is_sent_before_all_other_checks_are_ready(stage: Stage) -> None:
    async with scene(stage, "others", checks=("other",)) as made:
        workload = await made.submit()
        await made.check("Pending")
        assert (await made.status()).get("nominatedClusterNames") is None
        assert await made.w1.clone(workload) is None
        await made.pass_check("other")
        await made.w1.asked(workload)
