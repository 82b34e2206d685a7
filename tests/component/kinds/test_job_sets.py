# SPDX-License-Identifier: Apache-2.0
"""JobSets, a kind that is only declared, through hub and worker, by an agent and by a kubeconfig."""

from __future__ import annotations

import re

import pytest

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, JOBS, MULTIKUEUE_CLUSTERS
from tests.component.kinds.conftest import Clusters
from tests.support.crds.kinds import JOB_SETS, install
from tests.support.kind_scenes import (
    LABELS,
    RIGHTS_TO_JOB_SETS,
    RIGHTS_TO_JOBS,
    counts,
    has,
    is_ready,
    kind_scene,
    selectors,
)
from tests.support.managers import condition, eventually, get, is_true, make_job, wait_condition
from tests.support.operators.job_sets import JobSetOperator
from tests.support.operators.operator import operating
from tests.support.sites import Transport
from tests.support.workers import check_of

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport))
apart = pytest.mark.conformance


@both_transports
async def test_a_job_set_is_queued_dispatched_shown_finished_and_cleaned_up(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "dispatched", transport=transport) as scene:
        stored = await scene.submit("set", run_for="2s")
        assert (stored["spec"]["suspend"], stored["spec"]["managedBy"]) == (True, "kueue.x-k8s.io/multikueue")
        remote = await scene.runs("set")
        workload = await scene.workload("set")
        assert workload is not None
        pod_sets = [(each["name"], each["count"]) for each in workload["spec"]["podSets"]]
        assert pod_sets == [("leader", 1), ("workers", 4)]
        assert workload["status"]["clusterName"] == scene.name
        assert selectors(remote) == [LABELS, LABELS]
        assert "managedBy" not in remote["spec"]
        assert "ownerReferences" not in remote["metadata"]
        pods = await eventually(lambda: scene.pods(scene.worker, "set"), what="it has pods", until=bool)
        assert {tuple(sorted(each["spec"]["nodeSelector"].items())) for each in pods} == {tuple(sorted(LABELS.items()))}
        await scene.finished("set")
        ended = await scene.shown("set", "completed", has("Completed"))
        assert counts(ended, "succeeded") == [1, 2]
        await scene.gone("set")
        assert not await scene.pods(scene.hub, "set")


@apart
@both_transports
async def test_a_job_set_that_fails_on_the_worker_has_failed(clusters: Clusters, transport: Transport) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "failed", transport=transport) as scene:
        # Virtual nodes have no logs here, which would be asked for again and again.
        await scene.grant(*(rule for rule in RIGHTS_TO_JOBS if rule["resources"] != ["pods/log"]), *RIGHTS_TO_JOB_SETS)
        await scene.submit("set", fails=True)
        workload = await scene.finished("set", reason="Failed")
        assert condition(workload, "Finished")["message"] == "JobSet: FailedJobs"
        ended = await scene.shown("set", "failed", has("Failed"))
        assert ended["status"]["terminalState"] == "Failed"
        kept = await eventually(lambda: scene.kept_failures("set"), what="the exit codes are kept on the hub")
        assert re.search(r"set-(leader|workers)-\d-", kept[0]["data"]["summary"])


@apart
@both_transports
async def test_a_preempted_job_set_is_suspended_removed_and_dispatched_again(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "preempted", transport=transport, cpu="500m") as scene:
        await scene.submit("low", run_for="forever")
        await scene.runs("low")
        await scene.submit("high", run_for="forever", priority="high")
        await wait_condition(scene.hub, "low", "Evicted", namespace=scene.namespace, reason="Preempted")
        await scene.gone("low")
        stopped = await scene.shown("low", "without pods", lambda seen: not any(counts(seen, "ready")))
        assert stopped["spec"]["suspend"] is True
        await scene.runs("high")
        await scene.hub.delete(JOB_SETS, "high", namespace=scene.namespace)
        await scene.runs("low", epoch=2)


@apart
@both_transports
async def test_a_deactivated_job_set_stops_and_its_quota_is_free(clusters: Clusters, transport: Transport) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "deactivated", transport=transport, cpu="500m") as scene:
        await scene.submit("set", run_for="forever")
        await scene.runs("set")
        workload = await scene.workload("set")
        assert workload is not None
        await scene.deactivate(workload)
        await scene.gone("set")
        await scene.submit("next")
        await scene.finished("next")


@apart
@both_transports
async def test_a_job_set_that_is_deleted_on_the_hub_is_removed_from_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "deleted", transport=transport) as scene:
        await scene.submit("set", run_for="forever")
        await scene.runs("set")
        await scene.hub.delete(JOB_SETS, "set", namespace=scene.namespace)
        await scene.gone("set")
        await eventually(lambda: scene.workload("set"), what="its Workload is gone", until=lambda seen: seen is None)


@apart
async def test_a_fenced_job_set_is_stopped_when_the_lease_expires(clusters: Clusters) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "fenced", transport=Transport.PULL, lease_seconds=5) as scene:
        await scene.submit("set", run_for="forever", annotations={PARTITION_POLICY_ANNOTATION: "fenced"})
        await scene.runs("set")
        await scene.link.refuse()
        await scene.remote("set", "suspended", lambda seen: seen["spec"]["suspend"] is True)
        await eventually(lambda: scene.pods(scene.worker, "set"), what="no pod runs", until=lambda seen: not seen)
        await scene.link.start()


@apart
@both_transports
async def test_a_job_set_and_a_job_of_one_name_run_beside_each_other(clusters: Clusters, transport: Transport) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "names", transport=transport) as scene:
        await scene.submit("same", run_for="forever")
        await scene.runs("same")
        await make_job(scene.hub, "same", namespace=scene.namespace, queue=scene.name)
        job = await eventually(
            lambda: get(scene.worker, JOBS, "same", namespace=scene.namespace),
            what="the Job runs too",
            until=lambda seen: seen is not None and (seen.get("status") or {}).get("ready") == 1,
        )
        assert job is not None
        await scene.hub.delete(JOBS, "same", namespace=scene.namespace)
        await eventually(
            lambda: get(scene.worker, JOBS, "same", namespace=scene.namespace),
            what="the remote Job is gone",
            until=lambda seen: seen is None,
        )
        await scene.runs("same")


@apart
@both_transports
async def test_a_worker_without_the_kind_runs_jobs_and_then_job_sets_once_it_is_installed(
    clusters: Clusters, transport: Transport
) -> None:
    scene_of = kind_scene(clusters.hub, clusters.plain, "late", transport=transport, operator=False)
    async with scene_of as scene:
        await make_job(scene.hub, "plain", namespace=scene.namespace, queue=scene.name)
        await eventually(
            lambda: get(scene.worker, JOBS, "plain", namespace=scene.namespace), what="a Job is dispatched meanwhile"
        )
        await scene.submit("set")
        await eventually(
            lambda: scene.workload("set"),
            what="the check tells that the kind is not served",
            until=lambda seen: (
                "kind JobSet is not served by the cluster's agent" in str(check_of(seen, scene.name).get("message"))
            ),
        )
        assert is_true(await get(scene.hub, MULTIKUEUE_CLUSTERS, scene.name), "Active")
        await install(scene.worker, JOB_SETS)
        async with operating(JobSetOperator(scene.worker)):
            await scene.finished("set")
    async with clusters.plain.client() as client:
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, JOB_SETS.qualified)


@apart
@both_transports
async def test_a_restart_without_the_rights_to_a_kind_leaves_its_jobs_alone_and_serves_the_others(
    clusters: Clusters, transport: Transport
) -> None:
    async with kind_scene(clusters.hub, clusters.worker, "revoked", transport=transport) as scene:
        await scene.submit("set", run_for="forever")
        before = await scene.runs("set")
        await scene.grant(*RIGHTS_TO_JOBS)
        await scene.restart()
        await make_job(scene.hub, "plain", namespace=scene.namespace, queue=scene.name)
        await eventually(
            lambda: get(scene.worker, JOBS, "plain", namespace=scene.namespace), what="a Job is dispatched meanwhile"
        )
        lacks = "jobs of this kind can run there, as those of others can"
        await eventually(
            lambda: get(scene.hub, MULTIKUEUE_CLUSTERS, scene.name),
            what="the cluster is Active and names the missing rights",
            until=lambda seen: is_true(seen, "Active") and lacks in condition(seen, "Active")["message"],
        )
        await scene.grant(*RIGHTS_TO_JOBS, *RIGHTS_TO_JOB_SETS)
        await eventually(
            lambda: get(scene.hub, MULTIKUEUE_CLUSTERS, scene.name),
            what="no rights are missing",
            until=lambda seen: is_true(seen, "Active") and lacks not in condition(seen, "Active")["message"],
        )
        after = await scene.runs("set")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        workload = await scene.workload("set")
        assert workload is not None
        assert not is_true(workload, "Evicted")
        await scene.hub.delete(JOB_SETS, "set", namespace=scene.namespace)
        await scene.gone("set")


@apart
async def test_a_job_set_of_a_local_queue_runs_on_the_hub_and_is_preempted_there(clusters: Clusters) -> None:
    scene_of = kind_scene(clusters.hub, clusters.worker, "local", transport=Transport.PUSH, cpu="500m", local=True)
    async with scene_of as scene:
        stored = await scene.submit("low", run_for="forever", local=True)
        assert "managedBy" not in stored["spec"]
        running = await scene.shown("low", "ready", is_ready)
        assert selectors(running) == [LABELS, LABELS]
        await scene.submit("high", run_for="1s", priority="high", local=True)
        stopped = await scene.shown("low", "suspended", lambda seen: seen["spec"]["suspend"] is True)
        assert selectors(stopped) == [{}, {}]
        await scene.finished("high")
        await scene.shown("low", "ready again", is_ready)
        assert not await scene.left("low")
