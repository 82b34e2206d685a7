# SPDX-License-Identifier: Apache-2.0
"""What the hub keeps of a failed job: one ConfigMap, and two events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.context import ManagerContext
from manager.dispatch.gather import Gathered
from manager.dispatch.reported.failure_records import FailureRecords, event_message, record
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import FailedContainer, JobFailure
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube import errors
from multikueue.kube.errors import Details, KubeError
from tests.unit.dispatch.builders import ended, facts, running

pytestmark = pytest.mark.anyio

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1f0c9a7e-2222", "controller": True}
FAILURE = JobFailure(
    containers=(
        FailedContainer(pod="p", container="main", exit_code=3, reason="Error", log="one\ntwo"),
        FailedContainer(pod="p", container="side", exit_code=1, problem="it wrote nothing"),
    )
)


def refused(kind: type[errors.ApiError], status: int) -> errors.ApiError:
    return kind(request="POST", status=status, reason="", message="refused", details=Details())


class Hub:
    """Its API server and events; `answers` are the errors of the next writes."""

    def __init__(self, *answers: KubeError) -> None:
        self.answers = list(answers)
        self.written: list[dict[str, Any]] = []
        self.notes: list[tuple[str, str]] = []
        self.context = cast(ManagerContext, SimpleNamespace(client=self, recorder=self))

    async def create(self, resource: Any, body: dict[str, Any], *, namespace: str) -> bytes:
        if self.answers:
            raise self.answers.pop(0)
        self.written.append(body)
        return b"{}"

    def event(self, about: Any, kind: str, reason: str, message: str) -> None:
        assert (kind, reason) == ("Warning", "RemoteJobFailed")
        self.notes.append((about.kind, message))


async def recorded(records: FailureRecords, failure: JobFailure | None = FAILURE) -> None:
    metadata = {"name": "wl", "namespace": "ns", "uid": "w", "ownerReferences": [OWNER]}
    gathered = Gathered(
        facts=facts(running()), workload={"metadata": metadata}, integration=BATCH_JOB, job=Key("ns", "j")
    )
    await records.record(gathered, ended(reason="Failed", failure=failure))


async def test_a_failure_is_written_once() -> None:
    hub = Hub()
    records = FailureRecords(hub.context)
    await recorded(records)
    await recorded(records)
    (made,) = hub.written
    assert made["metadata"]["name"] == "j-failure-1f0c9a7e"
    assert made["data"] == {
        "summary": "Job ns/j failed on worker cluster w1\npod p, container main: exit code 3 (Error)\n"
        "pod p, container side: exit code 1\nno lines of p, side: it wrote nothing\n",
        "p_main.log": "one\ntwo\n",
    }
    assert made["immutable"] is True
    assert [kind for kind, _ in hub.notes] == ["Job", "Workload"]
    assert all("j-failure-1f0c9a7e" in message for _, message in hub.notes)


async def test_nothing_is_written_before_the_failure_is_reported() -> None:
    hub = Hub()
    await recorded(FailureRecords(hub.context), None)
    assert (hub.written, hub.notes) == ([], [])


async def test_after_a_restart_a_record_that_exists_is_left_alone_without_events() -> None:
    hub = Hub(refused(errors.AlreadyExists, 409))
    records = FailureRecords(hub.context)
    await recorded(records)
    await recorded(records)
    assert (hub.written, hub.notes) == ([], [])


@pytest.mark.parametrize(
    "error", [refused(errors.Forbidden, 403), refused(errors.Invalid, 422), refused(errors.NotFound, 404)], ids=str
)
async def test_a_record_that_is_not_allowed_leaves_the_exit_codes_in_the_events(error: KubeError) -> None:
    hub = Hub(error)
    records = FailureRecords(hub.context)
    await recorded(records)
    await recorded(records)
    assert hub.written == []
    assert len(hub.notes) == 2
    assert all("exit code 3" in message and "configmap" not in message for _, message in hub.notes)


@pytest.mark.parametrize(
    "error",
    [
        refused(errors.Conflict, 409),
        refused(errors.TooManyRequests, 429),
        refused(errors.InternalError, 500),
        errors.Unreachable("POST: no answer", sent=True),
    ],
    ids=["409", "429", "500", "no answer"],
)
async def test_a_hub_that_cannot_answer_is_asked_again_by_the_next_plan(error: KubeError) -> None:
    hub = Hub(error)
    records = FailureRecords(hub.context)
    with pytest.raises(KubeError):
        await recorded(records)
    assert hub.notes == []
    await recorded(records)
    assert (len(hub.written), len(hub.notes)) == (1, 2)


def test_an_event_is_short_enough_and_ends_with_where_the_lines_are() -> None:
    many = JobFailure(
        containers=tuple(FailedContainer(pod="p" * 253, container="c" * 63, exit_code=1) for _ in range(6)),
    )
    text = event_message(many, cluster="x" * 60, config_map="j-failure-1f0c9a7e")
    assert len(text.encode()) <= 1024
    assert text.endswith("kubectl get configmap j-failure-1f0c9a7e -o yaml")


def test_a_record_of_the_longest_names_is_valid() -> None:
    container = FailedContainer(pod="p" * 253, container="c" * 63, exit_code=1, log="x")
    made = record(JobFailure(containers=(container,)), job=Key("ns", "j" * 63), owner=OWNER, cluster="w")
    assert len(made["metadata"]["name"]) <= 253
    assert max(map(len, made["data"])) <= 253
