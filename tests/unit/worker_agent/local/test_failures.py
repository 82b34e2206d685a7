# SPDX-License-Identifier: Apache-2.0
"""When the agent reads why a job failed, and what it reports when the worker's API server does not answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any, cast

import orjson
import pytest

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import RemoteEnd
from multikueue.dispatch.protocol.job_problems import MAX_LOG_BYTES, JobFailure
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.kube import errors
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.json_slices import Page
from tests.support.api_refusals import refused
from tests.support.failed_jobs import failed_pod
from worker_agent.local.failures import GIVE_UP_SECONDS, HOLD_SECONDS, FailureReadings

pytestmark = pytest.mark.anyio

JOB = Key("ns", "j")
NAME = "j-1234"
ENDED = ReportedStatus(
    epoch=1, phase=AssignmentPhase.FINISHED, job_uid="u", job_status={"failed": 1}, end=RemoteEnd(reason="Failed")
)


UNANSWERED = {
    "409": refused(errors.Conflict, 409),
    "429": refused(errors.TooManyRequests, 429),
    "500": refused(errors.InternalError, 500),
    "no answer": errors.Unreachable("GET pods: no answer", sent=True, hung=True),
}


class Worker:
    """The worker's API server: `answers` are those of the next requests, before the usual ones."""

    def __init__(self, *pods: dict[str, Any], log: bytes = b"one\ntwo\n") -> None:
        self.pods = pods or (failed_pod("p1", job="j", job_uid="u"),)
        self.log_bytes = log
        self.answers: deque[KubeError] = deque()
        self.always: KubeError | None = None
        self.lists = 0
        self.logs = 0

    def _answer(self) -> None:
        if self.always is not None:
            raise self.always
        if self.answers:
            raise self.answers.popleft()

    async def list_page(self, resource: Any, **query: Any) -> Page:
        self.lists += 1
        assert (query["namespace"], query["label_selector"]) == ("ns", "batch.kubernetes.io/controller-uid=u")
        self._answer()
        return Page([orjson.dumps(pod) for pod in self.pods], "1", None)

    async def log(self, pod: str, **query: Any) -> bytes:
        self.logs += 1
        self._answer()
        return self.log_bytes


class Reading:
    """An agent that reads the failure of one assignment."""

    def __init__(self, worker: Worker, *, lists: bool = True, logs: bool = True) -> None:
        self.clock = ManualClock()
        self.done: list[str] = []
        self.failures = FailureReadings(
            cast(KubeClient, worker),
            may_list_pods=lambda: lists,
            may_read_logs=lambda: logs,
            read=self.done.append,
            clock=self.clock,
            random=Random(1),
        )

    def report(self) -> tuple[ReportedStatus, float]:
        return self.failures.complete(NAME, JOB, ENDED)

    async def until_done(self) -> JobFailure:
        """The failure, after as many tries as the agent makes."""
        for _ in range(100):
            result = await self.failures.collect(NAME)
            if result is None:
                break
            assert result.after is not None
            self.clock.advance(result.after)
        assert self.done == [NAME]
        status, hold = self.report()
        assert hold == 0
        assert status.failure is not None
        return status.failure


async def test_the_end_is_reported_together_with_the_failure() -> None:
    worker = Worker()
    made = Reading(worker)
    assert made.report() == (ENDED, HOLD_SECONDS)
    failure = await made.until_done()
    assert [(each.exit_code, each.log) for each in failure.containers] == [(3, "one\ntwo")]
    assert (worker.lists, worker.logs) == (1, 1)


@pytest.mark.parametrize("error", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_request_that_fails_once_is_repeated(error: KubeError) -> None:
    for position in (0, 1):
        worker = Worker()
        made = Reading(worker)
        made.report()
        if position:
            await made.failures._failed(made.failures._readings[NAME])
        worker.answers.append(error)
        failure = await made.until_done()
        assert [each.log for each in failure.containers] == ["one\ntwo"]


@pytest.mark.parametrize("error", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_server_that_fails_for_a_minute_delays_the_end_by_seconds_only(error: KubeError) -> None:
    worker = Worker()
    worker.always = error
    made = Reading(worker)
    made.report()
    assert await made.failures.collect(NAME) is not None
    made.clock.advance(HOLD_SECONDS)
    assert made.report() == (ENDED, 0.0)
    failure = await made.until_done()
    assert "could not be read within 60 s" in failure.problem
    assert worker.lists < GIVE_UP_SECONDS


async def test_exit_codes_are_reported_when_only_the_logs_fail() -> None:
    worker = Worker()
    made = Reading(worker)
    made.report()
    reading = made.failures._readings[NAME]
    reading.failure = await made.failures._failed(reading)
    worker.always = UNANSWERED["500"]
    (container,) = (await made.until_done()).containers
    assert (container.exit_code, container.log) == (3, "")
    assert "the log could not be read within 60 s" in container.problem


async def test_without_rights_it_says_what_is_missing() -> None:
    worker = Worker()
    made = Reading(worker, logs=False)
    made.report()
    (container,) = (await made.until_done()).containers
    assert (container.exit_code, worker.logs) == (3, 0)
    assert "get pods/log" in container.problem
    made = Reading(worker, lists=False)
    made.report()
    assert "may not list pods" in (await made.until_done()).problem


@pytest.mark.parametrize(
    "error",
    [refused(errors.Forbidden, 403, "no"), refused(errors.NotFound, 404, "no"), refused(errors.BadRequest, 400, "no")],
    ids=["403", "404", "400"],
)
async def test_a_refused_log_is_not_asked_for_again(error: KubeError) -> None:
    worker = Worker()
    made = Reading(worker)
    made.report()
    reading = made.failures._readings[NAME]
    reading.failure = await made.failures._failed(reading)
    worker.always = error
    (container,) = (await made.until_done()).containers
    assert worker.logs == 1
    assert container.problem


async def test_long_lines_are_read_again_with_fewer_of_them() -> None:
    worker = Worker(log=b"x" * 10_000_000)
    made = Reading(worker)
    made.report()
    (container,) = (await made.until_done()).containers
    assert worker.logs == 3
    assert len(container.log.encode()) <= MAX_LOG_BYTES


async def test_six_containers_share_the_limit() -> None:
    pods = [failed_pod(f"p{number}", job="j", job_uid="u") for number in range(3)]
    worker = Worker(*pods, log=b"y" * 60_000)
    made = Reading(worker)
    made.report()
    failure = await made.until_done()
    assert len(failure.containers) == 3
    assert sum(len(each.log.encode()) for each in failure.containers) <= MAX_LOG_BYTES
    assert all(each.log for each in failure.containers)


def statuses() -> Iterable[ReportedStatus]:
    yield ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="u")
    yield ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED, job_uid="u", end=RemoteEnd(reason="Succeeded"))
    yield ReportedStatus(
        epoch=1, phase=AssignmentPhase.FINISHED, job_uid="u", end=RemoteEnd(reason="Failed"), failure=JobFailure()
    )


@pytest.mark.parametrize("status", list(statuses()), ids=["running", "succeeded", "reported before a restart"])
async def test_nothing_is_read_of_a_job_that_has_not_failed_or_whose_failure_is_reported(
    status: ReportedStatus,
) -> None:
    worker = Worker()
    made = Reading(worker)
    assert made.failures.complete(NAME, JOB, status) == (status, 0.0)
    assert await made.failures.collect(NAME) is None
    assert worker.lists == 0


async def test_an_assignment_that_is_gone_is_not_read_for() -> None:
    worker = Worker()
    made = Reading(worker)
    made.report()
    made.failures.forget(NAME)
    assert await made.failures.collect(NAME) is None
    assert (worker.lists, made.done) == (0, [])


async def test_an_agent_that_was_restarted_reads_a_failure_that_was_not_reported() -> None:
    worker = Worker()
    before, after = Reading(worker), Reading(worker)
    before.report()
    after.report()
    assert (await after.until_done()).containers
