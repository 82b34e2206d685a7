# SPDX-License-Identifier: Apache-2.0
"""What a Job needs next, by its spec, its status and its pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from devcluster.controllers import job_sync
from devcluster.controllers.job_parallelism import Failures
from devcluster.controllers.job_pods import PodRequest
from devcluster.controllers.job_sync import JobPlan
from multikueue.api.objects import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.core.timestamps import format_time
from tests.unit.devcluster.controllers.job_builders import NOW, job, pod

BACKOFF = Backoff(base=10.0, factor=2.0, cap=600.0)


def plan(of: JsonObject, *pods: JsonObject, failures: Failures | None = None) -> JobPlan:
    return job_sync.plan(of, pods, now=NOW, backoff=BACKOFF, failures=failures or Failures())


def indexed(**spec: Any) -> JsonObject:
    return job(**{"completions": 3, "parallelism": 3, **spec}, completionMode="Indexed")


def conditions(made: JobPlan) -> list[tuple[str, str, str]]:
    return [(c["type"], c["status"], c["reason"]) for c in made.status.get("conditions", [])]


@pytest.mark.parametrize(
    ("of", "pods", "wanted"),
    [
        pytest.param(job(parallelism=3, completions=5), [], 3, id="no more than run side by side"),
        pytest.param(job(parallelism=3, completions=2), [], 2, id="no more than are to complete"),
        pytest.param(job({"succeeded": 4}, parallelism=3, completions=5), [], 1, id="no more than are left"),
        pytest.param(job(parallelism=2, completions=None), [], 2, id="a work queue is filled"),
        pytest.param(
            job({"succeeded": 1}, parallelism=2, completions=None), [pod("a")], 0, id="a drained work queue is not"
        ),
        pytest.param(job(), [pod("a", deleting=True, tracked=False)], 1, id="a pod that goes, once counted"),
        pytest.param(
            job(podReplacementPolicy="Failed"),
            [pod("a", deleting=True, tracked=False)],
            0,
            id="a pod that goes is replaced when it has failed, if so wanted",
        ),
        pytest.param(job(parallelism=0), [], 0, id="none when none may run"),
    ],
)
def test_pods_are_made(of: JsonObject, pods: list[JsonObject], wanted: int) -> None:
    assert plan(of, *pods).create == (PodRequest(),) * wanted


def test_free_indexes_are_filled_from_the_lowest() -> None:
    made = plan(indexed(parallelism=2), pod("a", index=1))
    assert made.create == (PodRequest(index=0),)
    assert made.status["active"] == 2


def test_pods_that_are_too_many_go_the_least_advanced_first_and_do_not_count_as_failed() -> None:
    made = plan(job(parallelism=1, completions=3), pod("ready", ready=True), pod("new", "Pending", node=""), pod("b"))
    assert made.discard == ("new", "b")
    assert made.status["active"] == 1
    assert "failed" not in made.status


def test_a_pod_without_a_use_goes_whatever_the_parallelism() -> None:
    made = plan(indexed(), pod("a", index=0), pod("twin", index=0), pod("far", index=7), pod("none"))
    assert set(made.discard) == {"twin", "far", "none"}


def test_an_end_is_written_down_before_the_pod_is_let_go() -> None:
    made = plan(job(completions=2), pod("a", "Succeeded"), pod("b"))
    assert made.status["uncountedTerminatedPods"] == {"succeeded": ["a"]}
    assert "succeeded" not in made.status
    assert made.release == ("a",)


def test_a_written_end_is_counted_when_the_pod_has_been_let_go() -> None:
    status = {"startTime": format_time(NOW), "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["gone"]}}
    made = plan(job(status, completions=2), pod("a", "Succeeded", tracked=False), pod("b"))
    assert (made.status["succeeded"], made.status["failed"]) == (1, 1)
    assert made.status["uncountedTerminatedPods"] == {}


def test_the_successes_of_an_indexed_job_are_its_indexes() -> None:
    made = plan(indexed(), pod("a", "Succeeded", index=0), pod("b", "Succeeded", index=1), pod("c", index=2))
    assert (made.status["completedIndexes"], made.status["succeeded"]) == ("0,1", 2)
    assert made.status["uncountedTerminatedPods"] == {}
    assert made.release == ("a", "b")


def test_status_counts_what_runs_is_ready_and_goes() -> None:
    made = plan(job(parallelism=2, completions=4), pod("a", ready=True), pod("b"), pod("c", deleting=True))
    assert (made.status["active"], made.status["ready"], made.status["terminating"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("of", "pods", "reason"),
    [
        pytest.param(job(backoffLimit=0), [pod("a", "Failed")], "BackoffLimitExceeded", id="too many failures"),
        pytest.param(
            job({"failed": 2}, backoffLimit=2), [pod("a", "Failed")], "BackoffLimitExceeded", id="one too many in all"
        ),
        pytest.param(
            job(restartPolicy="OnFailure", backoffLimit=3),
            [pod("a", restarts=3)],
            "BackoffLimitExceeded",
            id="too many restarts in place",
        ),
        pytest.param(job(activeDeadlineSeconds=60), [pod("a")], "DeadlineExceeded", id="the time is over"),
        pytest.param(
            indexed(backoffLimitPerIndex=0, maxFailedIndexes=0),
            [pod("a", "Failed", index=0), pod("b", index=1)],
            "MaxFailedIndexesExceeded",
            id="too many indexes have failed",
        ),
        pytest.param(
            indexed(backoffLimitPerIndex=0, completions=2),
            [pod("a", "Failed", index=0), pod("b", "Succeeded", index=1)],
            "FailedIndexes",
            id="every index has ended and one has failed",
        ),
    ],
)
def test_a_job_is_going_to_fail(of: JsonObject, pods: list[JsonObject], reason: str) -> None:
    made = plan(of, *pods)
    assert conditions(made) == [("FailureTarget", "True", reason)]
    assert not made.create


def test_a_failing_job_stops_its_pods_and_counts_them_as_failed() -> None:
    made = plan(job(backoffLimit=0, parallelism=2, completions=2), pod("a", "Failed"), pod("b"))
    assert made.delete == ("b",)
    assert made.status["uncountedTerminatedPods"] == {"failed": ["a", "b"]}
    assert "active" not in made.status


def test_a_succeeding_job_stops_its_pods_and_does_not_count_them() -> None:
    of = indexed(successPolicy={"rules": [{"succeededIndexes": "0"}]})
    made = plan(of, pod("a", "Succeeded", index=0), pod("b", index=1))
    assert conditions(made) == [("SuccessCriteriaMet", "True", "SuccessPolicy")]
    assert (made.discard, made.delete) == (("b",), ())
    assert "failed" not in made.status


def target(kind: str, **status: Any) -> JsonObject:
    entry = {"type": kind, "status": "True", "reason": "Why", "message": "because"}
    return {"startTime": format_time(NOW), "conditions": [entry], **status}


@pytest.mark.parametrize(
    ("kind", "final", "event"),
    [
        pytest.param("FailureTarget", "Failed", ("Warning", "Why"), id="it has failed"),
        pytest.param("SuccessCriteriaMet", "Complete", ("Normal", "Completed"), id="it is complete"),
    ],
)
def test_when_all_is_counted(kind: str, final: str, event: tuple[str, str]) -> None:
    made = plan(job(target(kind, succeeded=1)), pod("a", "Succeeded", tracked=False))
    assert conditions(made) == [(kind, "True", "Why"), (final, "True", "Why")]
    assert [(entry.type, entry.reason) for entry in made.events] == [event]
    assert ("completionTime" in made.status) is (final == "Complete")


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(pod("a", deleting=True, tracked=False), id="a pod that still ends"),
        pytest.param(pod("a", "Failed"), id="a pod that is not let go"),
    ],
)
def test_the_end_waits_for(left: JsonObject) -> None:
    assert [entry[0] for entry in conditions(plan(job(target("FailureTarget")), left))] == ["FailureTarget"]


def test_a_suspended_job_has_no_pods_and_no_start() -> None:
    made = plan(job(suspend=True), pod("a"))
    assert conditions(made) == [("Suspended", "True", "JobSuspended")]
    assert made.discard == ("a",)
    assert "startTime" not in made.status
    assert [entry.reason for entry in made.events] == ["Suspended"]


def test_a_resumed_job_starts_anew() -> None:
    made = plan(job(target("Suspended", startTime="2020-01-01T00:00:00Z")))
    assert conditions(made) == [("Suspended", "False", "JobResumed")]
    assert made.status["startTime"] == format_time(NOW)
    assert made.create == (PodRequest(),)


def test_a_job_that_is_being_deleted_makes_and_stops_nothing() -> None:
    of = job(parallelism=2, completions=2)
    of["metadata"]["deletionTimestamp"] = format_time(NOW)
    made = plan(of, pod("a"), pod("b", deleting=True))
    assert (made.create, made.delete, made.discard) == ((), (), ())
    assert made.release == ("b",)


def test_a_failed_pod_is_replaced_after_a_pause_that_doubles() -> None:
    first = plan(job(), pod("a", "Failed", ended=4))
    assert first.create == ()
    assert first.after == pytest.approx(6)
    second = plan(job(), failures=Failures(2, NOW - timedelta(seconds=5)))
    assert second.after == pytest.approx(15)


def test_a_success_forgets_the_failures_before_it() -> None:
    made = plan(job(completions=2), pod("a", "Succeeded", ended=0), failures=Failures(3, NOW - timedelta(seconds=1)))
    assert made.failures == Failures()
    assert made.create == (PodRequest(),)


def test_a_failed_index_waits_uncounted_for_its_replacement() -> None:
    of = indexed(backoffLimitPerIndex=2, completions=1)
    waiting = plan(of, pod("a", "Failed", index=0, ended=3))
    assert (waiting.release, waiting.create) == ((), ())
    assert waiting.after == pytest.approx(7)
    due = plan(of, pod("a", "Failed", index=0, ended=11))
    assert due.create == (PodRequest(index=0, failures=1),)
    replaced = plan(of, pod("a", "Failed", index=0, ended=11), pod("b", index=0, failures=1))
    assert replaced.release == ("a",)
    assert replaced.status["uncountedTerminatedPods"] == {"failed": ["a"]}


def test_an_index_that_failed_too_often_is_tried_no_more() -> None:
    made = plan(indexed(backoffLimitPerIndex=1), pod("a", "Failed", index=1, failures=1, ended=99), pod("b", index=0))
    assert made.status["failedIndexes"] == "1"
    assert made.create == (PodRequest(index=2, failures=0),)


def test_the_deadline_is_looked_at_in_time() -> None:
    assert plan(job(activeDeadlineSeconds=90), pod("a")).after == pytest.approx(30)


def test_a_deadline_after_the_last_year_of_the_calendar_is_none() -> None:
    made = plan(job(activeDeadlineSeconds=2**63 - 1), pod("a"))
    assert made.after is not None
    assert made.after > 365 * 86_400
    assert made.status["active"] == 1


@pytest.mark.parametrize(
    ("manager", "is_managed"),
    [
        pytest.param(None, True, id="nobody is named"),
        pytest.param("kubernetes.io/job-controller", True, id="the built-in controller is named"),
        pytest.param("kueue.x-k8s.io/multikueue", False, id="another one is named"),
    ],
)
def test_whose_job_it_is(manager: str | None, is_managed: bool) -> None:
    assert job_sync.is_managed(job(managedBy=manager)) is is_managed
