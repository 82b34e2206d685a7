# SPDX-License-Identifier: Apache-2.0
"""Which jobs the agent looks at, and what it reports of them; against a server whose answers the test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest
from aiohttp import web

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import StartProblem
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.pod_starts import PodStarts

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
NAME = "a"
KEY = Key("ns", "j")
RUNNING = ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="u")
REFUSED = {
    "type": "Warning",
    "reason": "FailedCreate",
    "note": 'Error creating: pods "j-kx2vb" is forbidden: exceeded quota: q, used: pods=1',
}


def job(**status: Any) -> Object:
    """A job that is not suspended."""
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    return {
        "metadata": {"namespace": "ns", "name": "j", "uid": "u"},
        "spec": {"selector": selector},
        "status": {"active": 0, **status},
    }


class OneKind:
    """The jobs of one kind, of which there is one."""

    integration = BATCH_JOB

    def __init__(self) -> None:
        self.job = job()

    def get(self, key: Key) -> Object | None:
        """The job, whatever is asked."""
        return self.job


class Worker:
    """The pods and events of a cluster, and the agent's part that looks at them."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.events: list[Object] = [REFUSED]
        self.denied: set[str] = set()
        self.forbidden: set[str] = set()
        self.fails = False
        self.kind = OneKind()
        self.changed: list[str] = []
        self.clock = ManualClock()
        self.starts = cast(PodStarts, None)
        self.stub = cast(StubApi, None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """What the API server answers to a list."""
        plural = request.path.rpartition("/")[2]
        if self.fails:
            return status_answer(500, "InternalError", "not now")
        if plural in self.forbidden:
            return status_answer(403, "Forbidden", f'{plural} is forbidden: User "u" cannot list resource "{plural}"')
        items = {"pods": self.pods, "events": self.events}[plural]
        return json_answer({"metadata": {"resourceVersion": "1"}, "items": items})

    def may_list(self, resource: Resource) -> bool:
        """Whether reviews grant it."""
        return resource.plural not in self.denied

    def reported(self, status: ReportedStatus = RUNNING, *, before: ReportedStatus = RUNNING) -> StartProblem | None:
        """The problem in the status of the next reconcile."""
        kind = cast(RemoteJobs, self.kind)
        return self.starts.complete(NAME, kind, self.kind.job, status, reported=before).start_problem


@asynccontextmanager
async def worker() -> AsyncIterator[Worker]:
    """A worker with a job that no pod is created for."""
    made = Worker()
    async with stub_api(made.answer) as stub, stub.client() as client:
        made.stub = stub
        made.starts = PodStarts(
            client, may_list=made.may_list, changed=made.changed.append, seconds=5.0, clock=made.clock, random=Random(1)
        )
        yield made


async def test_a_problem_is_reported_once_it_was_looked_for() -> None:
    async with worker() as it:
        assert it.reported() is None
        await it.starts.look(NAME)
        assert it.changed == [NAME]
        found = it.reported()
        assert found is not None
        assert (found.reason, found.message) == ("FailedCreate", REFUSED["note"])
        assert it.stub.seen == [
            "GET /api/v1/namespaces/ns/pods?limit=50&labelSelector=batch.kubernetes.io/controller-uid%3Du",
            "GET /apis/events.k8s.io/v1/namespaces/ns/events?limit=50&fieldSelector=regarding.uid%3Du",
        ]


async def test_pauses_grow_to_a_minute() -> None:
    async with worker() as it:
        it.reported()
        pauses = []
        for _ in range(7):
            result = await it.starts.look(NAME)
            assert result is not None
            assert result.after is not None
            pauses.append(result.after)
        assert pauses[:4] == sorted(pauses[:4])
        assert 5.0 <= pauses[0] <= 6.0
        assert all(60.0 <= pause <= 72.0 for pause in pauses[4:])


async def test_pauses_grow_with_the_number_of_jobs() -> None:
    async with worker() as it:
        kind = cast(RemoteJobs, it.kind)
        for number in range(5000):
            it.starts.complete(f"a{number}", kind, it.kind.job, RUNNING, reported=RUNNING)
        result = await it.starts.look("a1")
        assert result is not None
        assert result.after == 500.0


async def test_another_name_or_number_in_the_message_is_no_change() -> None:
    async with worker() as it:
        it.reported()
        await it.starts.look(NAME)
        it.events = [{**REFUSED, "note": REFUSED["note"].replace("kx2vb", "lmnpq").replace("=1", "=2")}]
        await it.starts.look(NAME)
        assert it.changed == [NAME]


@pytest.mark.parametrize(
    "started", [{"ready": 1}, {"succeeded": 1}, {"failed": 1}, {"terminating": 1}], ids=lambda field: next(iter(field))
)
async def test_a_job_with_a_pod_that_has_started_is_looked_at_no_longer(started: dict[str, int]) -> None:
    async with worker() as it:
        it.reported()
        await it.starts.look(NAME)
        it.kind.job = job(**started)
        assert it.reported() is None
        asked = len(it.stub.seen)
        assert await it.starts.look(NAME) is None
        assert len(it.stub.seen) == asked


async def test_work_that_does_not_run_or_is_suspended_is_not_looked_at() -> None:
    async with worker() as it:
        old = ReportedStatus(epoch=1, phase=AssignmentPhase.EVICTED, start_problem=StartProblem("NoPods", "m"))
        assert it.reported(old) is None
        it.kind.job["spec"]["suspend"] = True
        assert it.reported() is None
        assert await it.starts.look(NAME) is None
        assert it.stub.seen == []


async def test_a_new_agent_continues_from_what_the_former_one_reported() -> None:
    async with worker() as it:
        known = StartProblem("FailedCreate", REFUSED["note"])
        former = ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="u", start_problem=known)
        assert it.reported(before=former) == known
        await it.starts.look(NAME)
        assert it.changed == []


async def test_a_new_agent_forgets_what_was_reported_of_another_job() -> None:
    async with worker() as it:
        known = StartProblem("FailedCreate", "m")
        other = ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="another", start_problem=known)
        assert it.reported(before=other) is None


@pytest.mark.parametrize("how", ["by review", "by refusal"])
async def test_without_the_right_to_list_events_no_pod_is_known_after_a_while(how: str) -> None:
    async with worker() as it:
        (it.denied if how == "by review" else it.forbidden).add("events")
        it.reported()
        await it.starts.look(NAME)
        assert it.reported() is None
        it.clock.advance(30.0)
        await it.starts.look(NAME)
        found = it.reported()
        assert found is not None
        assert found.reason == "NoPods"


async def test_without_the_right_to_list_pods_the_events_of_a_job_without_active_pods_count() -> None:
    async with worker() as it:
        it.denied.add("pods")
        it.kind.job = job(active=1)
        it.reported()
        await it.starts.look(NAME)
        assert it.reported() is None, "it has a pod, which cannot be seen"
        it.kind.job = job()
        await it.starts.look(NAME)
        found = it.reported()
        assert found is not None
        assert found.reason == "FailedCreate"


async def test_a_server_that_does_not_answer_changes_nothing() -> None:
    async with worker() as it:
        it.reported()
        await it.starts.look(NAME)
        it.fails = True
        result = await it.starts.look(NAME)
        assert result is not None
        assert it.changed == [NAME]
        found = it.reported()
        assert found is not None
        assert found.reason == "FailedCreate"
