# SPDX-License-Identifier: Apache-2.0
"""The worker's side of one assignment."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.remoteassignment import Intent, Phase
from multikueue.core.errors import InvalidTransition
from multikueue.federation.facts import RemoteEnd
from multikueue.federation.mirror import (
    LEASE_EXPIRED,
    NAME_CONFLICT,
    NEWER_COPY,
    NO_ROOM,
    REMOVING_OLD_COPY,
    SUSPENDED_THERE,
    AssignmentFacts,
    JobAction,
    JobFacts,
    Obstacle,
    Step,
    Word,
    remove,
    step,
    wants_room,
)
from multikueue.federation.phases import JOB_GONE, TRANSITIONS, PhaseEvent, advance

STATUS = {"active": 1}
DONE = RemoteEnd(reason="Succeeded", message="done")
RESERVED = Word(epoch=2, phase=Phase.RESERVED)
RUNNING = Word(epoch=2, phase=Phase.RUNNING, job_uid="j1", job_status=STATUS)


def wish(intent: Intent = Intent.RESERVE, **changes: Any) -> AssignmentFacts:
    return AssignmentFacts(**({"name": "a", "epoch": 2, "intent": intent} | changes))


def job(**changes: Any) -> JobFacts:
    return JobFacts(**({"uid": "j1", "ours": True, "epoch": 2, "status": STATUS} | changes))


def said(found: Step) -> tuple[Phase, str, JobAction | None]:
    return found.word.phase, found.word.reason, found.action


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(step(wish(), None, said=Word()), (Phase.RESERVED, "", None), id="room is held"),
        pytest.param(
            step(wish(), job(ours=False, adoptable=True), said=Word(), shortage="cpu"),
            (Phase.RESERVED, "", None),
            id="a copy of a former management cluster has its room, and is left as it is before the grant",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(ours=False, adoptable=True, epoch=7), said=RESERVED),
            (Phase.RESERVED, "", JobAction.ADOPT),
            id="granted, it is taken over, whatever its epoch was",
        ),
        pytest.param(
            step(wish(Intent.EVICT), job(ours=False, adoptable=True), said=RESERVED),
            (Phase.RESERVED, "", JobAction.ADOPT),
            id="told to stop before it was taken over, it is taken over first",
        ),
        pytest.param(
            step(wish(), None, said=Word(), shortage="cpu"), (Phase.PENDING, NO_ROOM, None), id="there is no room"
        ),
        pytest.param(
            step(wish(), None, said=RESERVED, shortage="node gone"),
            (Phase.PENDING, NO_ROOM, None),
            id="room that was held is lost with its node",
        ),
        pytest.param(
            step(wish(), None, said=Word(), obstacle=Obstacle("NamespaceNotFound", "ns")),
            (Phase.REFUSED, "NamespaceNotFound", None),
            id="a missing namespace is refused",
        ),
        pytest.param(
            step(wish(), None, said=Word(epoch=2, phase=Phase.REFUSED)),
            (Phase.RESERVED, "", None),
            id="a refusal ends with its cause",
        ),
        pytest.param(
            step(wish(Intent.RUN), None, said=RESERVED),
            (Phase.RESERVED, "", JobAction.CREATE),
            id="the job is created when it is granted",
        ),
        pytest.param(
            step(wish(Intent.RUN), None, said=RESERVED, shortage="cpu"),
            (Phase.RESERVED, "", JobAction.CREATE),
            id="granted is granted, with or without room",
        ),
        pytest.param(
            step(wish(Intent.RUN), None, said=RESERVED, obstacle=Obstacle(NAME_CONFLICT, "")),
            (Phase.REFUSED, NAME_CONFLICT, None),
            id="a conflict that shows on creation is refused",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(), said=RESERVED), (Phase.RUNNING, "", None), id="the job is there and runs"
        ),
        pytest.param(
            step(wish(Intent.RUN), job(end=DONE), said=RESERVED),
            (Phase.FINISHED, "", None),
            id="the job ended before it was seen to run",
        ),
        pytest.param(
            step(wish(Intent.RUN), None, said=RUNNING),
            (Phase.EVICTED, JOB_GONE, None),
            id="a job that was removed by hand is not made again",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(ours=False), said=RESERVED),
            (Phase.REFUSED, NAME_CONFLICT, None),
            id="R3 a foreign job of that name is never touched",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(ours=False), said=RUNNING),
            (Phase.EVICTED, JOB_GONE, None),
            id="a foreign job in the place of one that ran does not hang the workload",
        ),
        pytest.param(
            step(wish(), None, said=Word(epoch=2, phase=Phase.RUNNING)),
            (Phase.EVICTED, JOB_GONE, None),
            id="a job that was said to run and is not there is gone",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(epoch=1), said=Word()),
            (Phase.PENDING, REMOVING_OLD_COPY, JobAction.DELETE),
            id="a copy of an older epoch goes first",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(epoch=1, deleting=True), said=Word()),
            (Phase.PENDING, REMOVING_OLD_COPY, None),
            id="and is waited for",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(epoch=3), said=Word()),
            (Phase.REFUSED, NEWER_COPY, JobAction.DELETE),
            id="a hub that has forgotten a newer copy starts nothing beside it",
        ),
        pytest.param(
            step(wish(Intent.EVICT), job(), said=RUNNING), (Phase.RUNNING, "", JobAction.SUSPEND), id="told to stop"
        ),
        pytest.param(
            step(wish(Intent.EVICT), job(suspended=True), said=RUNNING),
            (Phase.RUNNING, "", None),
            id="told to stop, pods are still ending",
        ),
        pytest.param(
            step(wish(Intent.EVICT), job(suspended=True, live=False), said=RUNNING),
            (Phase.EVICTED, "", None),
            id="stopped when no pod is left",
        ),
        pytest.param(
            step(wish(Intent.EVICT), None, said=RUNNING),
            (Phase.EVICTED, JOB_GONE, None),
            id="removed there while it was told to stop: what it said last is not how it ended",
        ),
        pytest.param(
            step(wish(Intent.EVICT), job(end=DONE), said=RUNNING),
            (Phase.FINISHED, "", None),
            id="it ended before it was stopped",
        ),
        pytest.param(
            step(wish(Intent.EVICT), None, said=RESERVED), (Phase.EVICTED, "", None), id="stopped before it began"
        ),
        pytest.param(
            step(wish(Intent.RUN, may_run=False), job(), said=RUNNING),
            (Phase.RUNNING, "", JobAction.SUSPEND),
            id="fenced work is stopped when its lease runs out",
        ),
        pytest.param(
            step(wish(Intent.RUN, may_run=False), job(suspended=True, live=False), said=RUNNING),
            (Phase.EVICTED, LEASE_EXPIRED, None),
            id="and then says so",
        ),
        pytest.param(
            step(wish(Intent.RUN), job(suspended=True, live=False), said=RUNNING),
            (Phase.EVICTED, SUSPENDED_THERE, None),
            id="what was stopped there comes again, for its lease may have come back meanwhile",
        ),
        pytest.param(
            step(wish(Intent.RUN, may_run=False), None, said=RESERVED),
            (Phase.RESERVED, "", None),
            id="fenced work is not started without a lease",
        ),
    ],
)
def test_step(found: Step, want: tuple[Phase, str, JobAction | None]) -> None:
    assert said(found) == want


@pytest.mark.parametrize("final", [Phase.FINISHED, Phase.EVICTED])
@pytest.mark.parametrize(
    "seen", [None, job(), job(ours=False), job(deleting=True)], ids=["gone", "there", "other", "going"]
)
@pytest.mark.parametrize("intent", list(Intent))
def test_a_final_word_stays_whatever_becomes_of_the_job(final: Phase, seen: JobFacts | None, intent: Intent) -> None:
    word = Word(epoch=2, phase=final, job_status=STATUS, end=DONE)
    assert step(wish(intent), seen, said=word) == Step(word)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("intent", list(Intent))
@pytest.mark.parametrize(
    "seen",
    [None, job(), job(end=DONE), job(ours=False), job(epoch=1), job(epoch=3), job(suspended=True, live=False)],
    ids=["none", "runs", "ended", "foreign", "older", "newer", "stopped"],
)
@pytest.mark.parametrize("trouble", ["", "shortage", "obstacle"])
def test_there_is_a_next_step_whatever_is_found(
    phase: Phase, intent: Intent, seen: JobFacts | None, trouble: str
) -> None:
    for epoch in (1, 2):
        for may_run in (True, False):
            step(
                wish(intent, may_run=may_run),
                seen,
                said=Word(epoch=epoch, phase=phase),
                shortage=trouble if trouble == "shortage" else "",
                obstacle=Obstacle("x", "y") if trouble == "obstacle" else None,
            )


def test_a_new_epoch_starts_afresh() -> None:
    assert said(step(wish(epoch=3), None, said=Word(epoch=2, phase=Phase.FINISHED, end=DONE))) == (
        Phase.RESERVED,
        "",
        None,
    )


def test_the_last_status_stays_in_a_word_about_a_job_that_vanished() -> None:
    assert step(wish(Intent.RUN), None, said=RUNNING).word.job_status == STATUS


def test_room_is_asked_for_only_by_what_may_still_start() -> None:
    assert wants_room(wish(), Word())
    assert not wants_room(wish(Intent.EVICT), RESERVED)
    assert not wants_room(wish(Intent.RUN), Word(epoch=2, phase=Phase.FINISHED))
    assert wants_room(wish(), Word(epoch=1, phase=Phase.FINISHED))


def test_a_job_whose_assignment_is_gone_is_deleted_once() -> None:
    assert remove(job()) is JobAction.DELETE
    assert remove(job(deleting=True)) is None


def test_the_table_has_a_row_for_each_phase_and_refuses_what_is_not_in_it() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert all(set(TRANSITIONS[final].values()) == {final} for final in (Phase.FINISHED, Phase.EVICTED))
    with pytest.raises(InvalidTransition, match="no transition from Running on RoomHeld"):
        advance(Phase.RUNNING, PhaseEvent.ROOM_HELD)
