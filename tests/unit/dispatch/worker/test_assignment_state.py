# SPDX-License-Identifier: Apache-2.0
"""The worker's side of one assignment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.errors import InvalidTransition
from multikueue.dispatch.hub.facts import RemoteEnd
from multikueue.dispatch.protocol.phases import JOB_GONE, TRANSITIONS, PhaseEvent, advance
from multikueue.dispatch.worker.assignment_state import (
    CAPACITY_REVOKED,
    JOB_SUSPENDED,
    LEASE_EXPIRED,
    NAME_CONFLICT,
    NEWER_JOB,
    NO_CAPACITY,
    PROVISIONING_FAILED,
    REMOVING_OLD_JOB,
    AssignmentFacts,
    AssignmentStep,
    JobAction,
    Obstacle,
    ProvisioningProgress,
    RemoteJobFacts,
    ReportedStatus,
    may_start,
    remove,
    step,
    wants_capacity,
)

STATUS = {"active": 1}
DONE = RemoteEnd(reason="Succeeded", message="done")
RESERVED = ReportedStatus(epoch=2, phase=AssignmentPhase.RESERVED)
RUNNING = ReportedStatus(epoch=2, phase=AssignmentPhase.RUNNING, job_uid="j1", job_status=STATUS)


def desired(intent: Intent = Intent.RESERVE, **changes: Any) -> AssignmentFacts:
    return replace(AssignmentFacts(name="a", epoch=2, intent=intent), **changes)


def job(**changes: Any) -> RemoteJobFacts:
    return replace(RemoteJobFacts(uid="j1", ours=True, epoch=2, status=STATUS), **changes)


def reported(found: AssignmentStep) -> tuple[AssignmentPhase, str, JobAction | None]:
    return found.status.phase, found.status.reason, found.action


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            step(desired(), None, reported=ReportedStatus()),
            (AssignmentPhase.RESERVED, "", None),
            id="capacity is held",
        ),
        pytest.param(
            step(desired(), job(ours=False, adoptable=True), reported=ReportedStatus(), shortage="cpu"),
            (AssignmentPhase.RESERVED, "", None),
            id="a copy of a former management cluster has its capacity, and is left as it is before the grant",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(ours=False, adoptable=True, epoch=7), reported=RESERVED),
            (AssignmentPhase.RESERVED, "", JobAction.ADOPT),
            id="granted, it is taken over, whatever its epoch was",
        ),
        pytest.param(
            step(desired(Intent.EVICT), job(ours=False, adoptable=True), reported=RESERVED),
            (AssignmentPhase.RESERVED, "", JobAction.ADOPT),
            id="told to stop before it was taken over, it is taken over first",
        ),
        pytest.param(
            step(desired(), None, reported=ReportedStatus(), shortage="cpu"),
            (AssignmentPhase.PENDING, NO_CAPACITY, None),
            id="there is no capacity",
        ),
        pytest.param(
            step(desired(), None, reported=RESERVED, shortage="node gone"),
            (AssignmentPhase.PENDING, NO_CAPACITY, None),
            id="capacity that was held is lost with its node",
        ),
        pytest.param(
            step(desired(), None, reported=ReportedStatus(), obstacle=Obstacle("NamespaceNotFound", "ns")),
            (AssignmentPhase.REFUSED, "NamespaceNotFound", None),
            id="a missing namespace is refused",
        ),
        pytest.param(
            step(desired(), None, reported=ReportedStatus(epoch=2, phase=AssignmentPhase.REFUSED)),
            (AssignmentPhase.RESERVED, "", None),
            id="a refusal ends with its cause",
        ),
        pytest.param(
            step(desired(Intent.RUN), None, reported=RESERVED),
            (AssignmentPhase.RESERVED, "", JobAction.CREATE),
            id="the job is created when it is granted",
        ),
        pytest.param(
            step(desired(Intent.RUN), None, reported=RESERVED, shortage="cpu"),
            (AssignmentPhase.RESERVED, "", JobAction.CREATE),
            id="granted is granted, with or without capacity",
        ),
        pytest.param(
            step(desired(Intent.RUN), None, reported=RESERVED, obstacle=Obstacle(NAME_CONFLICT, "")),
            (AssignmentPhase.REFUSED, NAME_CONFLICT, None),
            id="a conflict that shows on creation is refused",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(), reported=RESERVED),
            (AssignmentPhase.RUNNING, "", None),
            id="the job is there and runs",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(end=DONE), reported=RESERVED),
            (AssignmentPhase.FINISHED, "", None),
            id="the job ended before it was seen to run",
        ),
        pytest.param(
            step(desired(Intent.RUN), None, reported=RUNNING),
            (AssignmentPhase.EVICTED, JOB_GONE, None),
            id="a job that was removed by hand is not made again",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(ours=False), reported=RESERVED),
            (AssignmentPhase.REFUSED, NAME_CONFLICT, None),
            id="R3 a foreign job of that name is never touched",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(ours=False, former=True, deleting=True), reported=ReportedStatus()),
            (AssignmentPhase.PENDING, REMOVING_OLD_JOB, None),
            id="the copy of a former Job of that name is waited for, as it is being removed",
        ),
        pytest.param(
            step(desired(), job(ours=False, former=True), reported=ReportedStatus()),
            (AssignmentPhase.PENDING, REMOVING_OLD_JOB, None),
            id="the copy of a former Job of that name is waited for before anything is granted",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(ours=False), reported=RUNNING),
            (AssignmentPhase.EVICTED, JOB_GONE, None),
            id="a foreign job in the place of one that ran does not hang the workload",
        ),
        pytest.param(
            step(desired(), None, reported=ReportedStatus(epoch=2, phase=AssignmentPhase.RUNNING)),
            (AssignmentPhase.EVICTED, JOB_GONE, None),
            id="a job that was said to run and is not there is gone",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(epoch=1), reported=ReportedStatus()),
            (AssignmentPhase.PENDING, REMOVING_OLD_JOB, JobAction.DELETE),
            id="a copy of an older epoch goes first",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(epoch=1, deleting=True), reported=ReportedStatus()),
            (AssignmentPhase.PENDING, REMOVING_OLD_JOB, None),
            id="and is waited for",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(epoch=3), reported=ReportedStatus()),
            (AssignmentPhase.REFUSED, NEWER_JOB, JobAction.DELETE),
            id="a hub that has forgotten a newer copy starts nothing beside it",
        ),
        pytest.param(
            step(desired(Intent.EVICT), job(), reported=RUNNING),
            (AssignmentPhase.RUNNING, "", JobAction.SUSPEND),
            id="told to stop",
        ),
        pytest.param(
            step(desired(Intent.EVICT), job(suspended=True), reported=RUNNING),
            (AssignmentPhase.RUNNING, "", None),
            id="told to stop, pods are still ending",
        ),
        pytest.param(
            step(desired(Intent.EVICT), job(suspended=True, active=False), reported=RUNNING),
            (AssignmentPhase.EVICTED, "", None),
            id="stopped when no pod is left",
        ),
        pytest.param(
            step(desired(Intent.EVICT), None, reported=RUNNING),
            (AssignmentPhase.EVICTED, JOB_GONE, None),
            id="removed there while it was told to stop: what it said last is not how it ended",
        ),
        pytest.param(
            step(desired(Intent.EVICT), job(end=DONE), reported=RUNNING),
            (AssignmentPhase.FINISHED, "", None),
            id="it ended before it was stopped",
        ),
        pytest.param(
            step(desired(Intent.EVICT), None, reported=RESERVED),
            (AssignmentPhase.EVICTED, "", None),
            id="stopped before it began",
        ),
        pytest.param(
            step(desired(Intent.RUN, may_run=False), job(), reported=RUNNING),
            (AssignmentPhase.RUNNING, "", JobAction.SUSPEND),
            id="fenced work is stopped when its lease runs out",
        ),
        pytest.param(
            step(desired(Intent.RUN, may_run=False), job(suspended=True, active=False), reported=RUNNING),
            (AssignmentPhase.EVICTED, LEASE_EXPIRED, None),
            id="and then says so",
        ),
        pytest.param(
            step(desired(Intent.RUN), job(suspended=True, active=False), reported=RUNNING),
            (AssignmentPhase.EVICTED, JOB_SUSPENDED, None),
            id="what was stopped there comes again, for its lease may have come back meanwhile",
        ),
        pytest.param(
            step(desired(Intent.RUN, may_run=False), None, reported=RESERVED),
            (AssignmentPhase.RESERVED, "", None),
            id="fenced work is not started without a lease",
        ),
    ],
)
def test_step(found: AssignmentStep, want: tuple[AssignmentPhase, str, JobAction | None]) -> None:
    assert reported(found) == want


@pytest.mark.parametrize("final", [AssignmentPhase.FINISHED, AssignmentPhase.EVICTED])
@pytest.mark.parametrize(
    "seen", [None, job(), job(ours=False), job(deleting=True)], ids=["gone", "there", "other", "going"]
)
@pytest.mark.parametrize("intent", list(Intent))
def test_a_final_status_stays_whatever_becomes_of_the_job(
    final: AssignmentPhase, seen: RemoteJobFacts | None, intent: Intent
) -> None:
    status = ReportedStatus(epoch=2, phase=final, job_status=STATUS, end=DONE)
    assert step(desired(intent), seen, reported=status).status == status


@pytest.mark.parametrize(
    ("seen", "action"),
    [
        pytest.param(job(), JobAction.SUSPEND, id="resumed"),
        pytest.param(job(suspended=True), None, id="suspended"),
        pytest.param(job(deleting=True), None, id="being deleted"),
        pytest.param(job(end=DONE), None, id="ended"),
        pytest.param(job(ours=False), None, id="of another owner"),
        pytest.param(job(epoch=3), None, id="of another epoch"),
    ],
)
@pytest.mark.parametrize("intent", list(Intent))
def test_a_job_that_was_reported_as_stopped_is_stopped_again_if_it_is_resumed(
    seen: RemoteJobFacts, action: JobAction | None, intent: Intent
) -> None:
    stopped = ReportedStatus(epoch=2, phase=AssignmentPhase.EVICTED, job_uid="j1")
    assert step(desired(intent), seen, reported=stopped).action is action
    finished = replace(stopped, phase=AssignmentPhase.FINISHED)
    assert step(desired(intent), seen, reported=finished).action is None


@pytest.mark.parametrize("phase", list(AssignmentPhase))
@pytest.mark.parametrize("intent", list(Intent))
@pytest.mark.parametrize(
    "seen",
    [None, job(), job(end=DONE), job(ours=False), job(epoch=1), job(epoch=3), job(suspended=True, active=False)],
    ids=["none", "runs", "ended", "foreign", "older", "newer", "stopped"],
)
@pytest.mark.parametrize("trouble", ["", "shortage", "obstacle"])
def test_there_is_a_next_step_whatever_is_found(
    phase: AssignmentPhase, intent: Intent, seen: RemoteJobFacts | None, trouble: str
) -> None:
    for epoch in (1, 2):
        for may_run in (True, False):
            found = step(
                desired(intent, may_run=may_run),
                seen,
                reported=ReportedStatus(epoch=epoch, phase=phase),
                shortage=trouble if trouble == "shortage" else "",
                obstacle=Obstacle("x", "y") if trouble == "obstacle" else None,
            )
            assert found.status.epoch == 2, "a status is about the epoch of the assignment"


def test_a_new_epoch_starts_afresh() -> None:
    assert reported(
        step(desired(epoch=3), None, reported=ReportedStatus(epoch=2, phase=AssignmentPhase.FINISHED, end=DONE))
    ) == (
        AssignmentPhase.RESERVED,
        "",
        None,
    )


def test_the_last_status_stays_in_the_status_of_a_job_that_vanished() -> None:
    assert step(desired(Intent.RUN), None, reported=RUNNING).status.job_status == STATUS


def test_capacity_is_asked_for_only_by_what_may_still_start() -> None:
    assert wants_capacity(desired(), ReportedStatus())
    assert not wants_capacity(desired(Intent.EVICT), RESERVED)
    assert not wants_capacity(desired(Intent.RUN), ReportedStatus(epoch=2, phase=AssignmentPhase.FINISHED))
    assert wants_capacity(desired(), ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED))


def test_a_job_whose_assignment_is_gone_is_deleted_once() -> None:
    assert remove(job()) is JobAction.DELETE
    assert remove(job(deleting=True)) is None


def test_the_table_has_a_row_for_each_phase_and_refuses_what_is_not_in_it() -> None:
    assert set(TRANSITIONS) == set(AssignmentPhase)
    assert all(
        set(TRANSITIONS[final].values()) == {final} for final in (AssignmentPhase.FINISHED, AssignmentPhase.EVICTED)
    )
    with pytest.raises(InvalidTransition, match="no transition from Running on CapacityHeld"):
        advance(AssignmentPhase.RUNNING, PhaseEvent.CAPACITY_HELD)


REQUESTED = ProvisioningProgress(message="ETA 12:05")
HERE = ProvisioningProgress(provisioned=True, message="3 nodes")
NONE_LEFT = ProvisioningProgress(failure=Obstacle(PROVISIONING_FAILED, "no machines"))
PROVISIONED = ReportedStatus(epoch=2, phase=AssignmentPhase.PROVISIONED)


@pytest.mark.parametrize(
    ("intent", "progress", "before", "want"),
    [
        pytest.param(
            Intent.PROVISION,
            REQUESTED,
            ReportedStatus(),
            (AssignmentPhase.PROVISIONING, "", None),
            id="capacity is requested, whatever the ledger has",
        ),
        pytest.param(
            Intent.PROVISION, HERE, ReportedStatus(), (AssignmentPhase.PROVISIONED, "", None), id="capacity is there"
        ),
        pytest.param(
            Intent.PROVISION,
            NONE_LEFT,
            ReportedStatus(),
            (AssignmentPhase.REFUSED, PROVISIONING_FAILED, None),
            id="no capacity is provisioned",
        ),
        pytest.param(
            Intent.PROVISION,
            HERE,
            ReportedStatus(epoch=2, phase=AssignmentPhase.REFUSED, reason=PROVISIONING_FAILED),
            (AssignmentPhase.REFUSED, PROVISIONING_FAILED, None),
            id="a refusal is final in its epoch, since another cluster may have been asked",
        ),
        pytest.param(
            Intent.RUN, HERE, PROVISIONED, (AssignmentPhase.PROVISIONED, "", JobAction.CREATE), id="the job is created"
        ),
        pytest.param(
            Intent.RUN,
            NONE_LEFT,
            PROVISIONED,
            (AssignmentPhase.REFUSED, PROVISIONING_FAILED, None),
            id="capacity that is lost before the job exists refuses the grant",
        ),
    ],
)
def test_a_job_with_provisioning_checks_is_created_once_its_capacity_is_there(
    intent: Intent,
    progress: ProvisioningProgress,
    before: ReportedStatus,
    want: tuple[AssignmentPhase, str, JobAction | None],
) -> None:
    found = step(desired(intent), None, reported=before, shortage="cpu", provisioning=progress)
    assert reported(found) == want


def test_the_message_of_a_request_is_reported_and_its_capacity_is_held_once_it_is_there() -> None:
    asked = step(desired(Intent.PROVISION), None, reported=ReportedStatus(), provisioning=REQUESTED)
    there = step(desired(Intent.PROVISION), None, reported=asked.status, provisioning=HERE)
    assert (asked.status.message, asked.keeps_capacity) == ("ETA 12:05", False)
    assert (there.status.message, there.keeps_capacity) == ("3 nodes", True)


def test_an_obstacle_comes_before_provisioning() -> None:
    found = step(
        desired(Intent.PROVISION),
        None,
        reported=ReportedStatus(),
        obstacle=Obstacle("NamespaceNotFound", "no"),
        provisioning=REQUESTED,
    )
    assert reported(found) == (AssignmentPhase.REFUSED, "NamespaceNotFound", None)


def test_a_running_job_whose_capacity_was_revoked_is_stopped_and_then_evicted() -> None:
    halted = desired(Intent.RUN, halt=Obstacle(CAPACITY_REVOKED, "spot"))
    stopping = step(halted, job(), reported=RUNNING)
    assert reported(stopping) == (AssignmentPhase.RUNNING, "", JobAction.SUSPEND)
    stopped = step(halted, job(suspended=True, active=False), reported=stopping.status)
    assert reported(stopped) == (AssignmentPhase.EVICTED, CAPACITY_REVOKED, None)
    assert reported(step(halted, None, reported=stopping.status)) == (AssignmentPhase.EVICTED, JOB_GONE, None)


@pytest.mark.parametrize(
    ("intent", "last", "may"),
    [
        pytest.param(Intent.RESERVE, ReportedStatus(), True, id="a new request"),
        pytest.param(Intent.RESERVE, RESERVED, True, id="a reservation"),
        pytest.param(Intent.RUN, RESERVED, True, id="a grant of what is reserved"),
        pytest.param(
            Intent.RESERVE, ReportedStatus(epoch=2, phase=AssignmentPhase.REFUSED), True, id="a refused request"
        ),
        pytest.param(Intent.RUN, ReportedStatus(epoch=2, phase=AssignmentPhase.REFUSED), False, id="a refused grant"),
        pytest.param(
            Intent.RUN, ReportedStatus(epoch=1, phase=AssignmentPhase.REFUSED), True, id="a grant of the next epoch"
        ),
        pytest.param(Intent.RUN, RUNNING, False, id="a job that has vanished"),
        pytest.param(Intent.EVICT, RESERVED, False, id="an eviction"),
        pytest.param(Intent.RUN, ReportedStatus(epoch=2, phase=AssignmentPhase.FINISHED), False, id="an end"),
    ],
)
def test_what_may_still_start_without_a_job(intent: Intent, last: ReportedStatus, may: bool) -> None:
    assert may_start(desired(intent), last) is may
