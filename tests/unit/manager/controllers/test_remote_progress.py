# SPDX-License-Identifier: Apache-2.0
"""What a remote job has done counts for its own cluster only: on another one it starts anew, with all its pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manager.controllers.job_steps import Step, WriteReclaimable, WriteStatus
from manager.workload.status import Status
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import TRUE
from tests.unit.manager.builders import Object, admitted, evicted, pending, reserved
from tests.unit.manager.controllers.job_builders import decide, job, kinds, started, workload

PODS = 3


def sent(status: Status, *, cluster: str = "w1", reclaimable: int = 0) -> Object:
    """The Workload of three pods, on that cluster."""
    known = workload(remote_job(), replace(status, cluster_name=cluster))
    if assigned := (known["status"].get("admission") or {}).get("podSetAssignments"):
        assigned[0]["count"] = PODS
    if reclaimable:
        known["status"]["reclaimablePods"] = [{"name": "main", "count": reclaimable}]
    return known


def remote_job(**status: Any) -> Object:
    made = job(parallelism=PODS, status=status)
    return {**made, "spec": {**made["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}}


def decided(known: Object, *, shows: Object, reported: Object | None, **changes: Any) -> tuple[Step, ...]:
    """The steps for a Job whose status is `shows`, and whose present remote job has the status `reported`."""
    made = started(remote_job(), known, **shows) if known["status"].get("clusterName") else remote_job(**shows)
    return decide(made, known, remote_status=lambda workload: reported, **changes)


def reclaimed(steps: tuple[Step, ...]) -> list[tuple[str, int]]:
    (step,) = (each for each in steps if isinstance(each, WriteReclaimable))
    return [(pod.name, pod.count) for pod in step.pods]


def test_pods_that_have_succeeded_on_the_cluster_release_their_quota() -> None:
    steps = decided(sent(admitted()), shows={"succeeded": 2}, reported={"active": 1, "succeeded": 2})
    assert reclaimed(steps) == [("main", 2)]


def test_pods_that_had_succeeded_on_a_former_cluster_run_again_and_hold_quota() -> None:
    # The API server refuses a smaller `succeeded` of the Job here.
    assert decided(sent(admitted()), shows={"succeeded": 2}, reported={"active": 3}) == ()
    steps = decided(sent(admitted()), shows={"succeeded": 2}, reported={"active": 2, "succeeded": 1})
    assert reclaimed(steps) == [("main", 1)]


def test_quota_that_was_released_stays_with_others_when_the_job_is_restarted_as_a_whole() -> None:
    """The webhook refuses fewer reclaimable pods while quota is held, and nothing else may wait for that."""
    assert decided(sent(admitted(), reclaimable=2), shows={"active": 3}, reported={"active": 3}) == ()
    here = sent(admitted(), reclaimable=2, cluster="")
    assert decide(started(job(parallelism=PODS), here, active=3), here) == ()


@pytest.mark.parametrize("reclaimable", [0, 2])
def test_nothing_changes_until_the_cluster_has_reported(reclaimable: int) -> None:
    assert decided(sent(admitted(), reclaimable=reclaimable), shows={"succeeded": 2}, reported=None) == ()


@pytest.mark.parametrize("value", [pending(), reserved()], ids=["waits for quota", "waits for a cluster"])
def test_a_job_that_is_on_no_cluster_needs_quota_for_all_its_pods(value: Status) -> None:
    """Also if its user has deleted the Workload that it had."""
    assert decided(sent(value, cluster=""), shows={"succeeded": 2}, reported=None) == ()


def test_a_job_that_waits_after_an_older_version_evicted_it_needs_quota_for_all_its_pods() -> None:
    assert reclaimed(decided(sent(pending(), cluster="", reclaimable=2), shows={"succeeded": 2}, reported=None)) == []


def test_an_eviction_ends_with_quota_for_all_pods_before_others_may_have_it() -> None:
    known = sent(evicted(admitted(), "Preempted"), cluster="", reclaimable=2)
    waits = decided(known, shows={"succeeded": 2}, reported=None, may_run_elsewhere=lambda workload: True)
    assert "WriteReclaimable" not in kinds(waits), "what still runs needs no more than before"
    steps = decide(remote_job(succeeded=2), known)
    assert kinds(steps) == ["WriteReclaimable", "WriteStatus"]
    assert reclaimed(steps) == []


def test_a_job_that_runs_here_keeps_what_it_has_done() -> None:
    """Its controller continues where it was stopped."""
    known = sent(evicted(admitted(), "Preempted"), cluster="", reclaimable=2)
    assert kinds(decide(job(parallelism=PODS, status={"succeeded": 2}), known)) == ["WriteStatus"]


def test_a_worker_that_reports_nonsense_changes_no_quota() -> None:
    steps = decided(sent(admitted(), reclaimable=1), shows={}, reported={"succeeded": "many"})
    assert kinds(steps) == ["WarnOwner"]


def test_pods_that_had_succeeded_on_a_former_cluster_are_not_ready_on_this_one() -> None:
    def ready(reported: Object) -> str:
        shows = {"active": 1, "ready": 1, "succeeded": 2}
        steps = decided(sent(admitted()), shows=shows, reported=reported, tracks_pods=True, reclaims=False)
        (step,) = (each for each in steps if isinstance(each, WriteStatus))
        found = step.change(admitted()).condition(WorkloadCondition.PODS_READY)
        assert found is not None
        return found.status

    assert ready({"active": 1, "ready": 1}) != TRUE
    assert ready({"active": 3, "ready": 3}) == TRUE
