# SPDX-License-Identifier: Apache-2.0
"""What an elastic Job and its slices need next (docs/jobs/elastic.md)."""

from __future__ import annotations

from manager.controllers.job_steps import CreateWorkload, DeleteWorkload, ResizeWorkload, SetPriority, WriteJob
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.reasons import FinishedReason
from multikueue.jobs.framework.slices import slice_annotations
from multikueue.jobs.framework.workloads import Priority
from tests.unit.manager.builders import NOW, Object, admitted, evicted, pending, reserved
from tests.unit.manager.controllers.job_builders import decide, job, kinds, started, workload

REPLACED = FinishedReason.WORKLOAD_SLICE_REPLACED


def slice_of(size: int, value: Status, *, name: str = "own", older: Object | None = None) -> Object:
    annotations = slice_annotations(name, older)
    return workload(job(parallelism=size), value, name=name, uid=f"uid-{name}", annotations=annotations)


def running(size: int, by: Object) -> Object:
    """The Job that was started by that slice, and has another size since."""
    found = started(job(parallelism=by["spec"]["podSets"][0]["count"]), by, active=1)
    found["spec"] |= {"parallelism": size, "completions": size}
    return found


def replaced(value: Status) -> Status:
    return changes.finish(value, reason=REPLACED, message="replaced", now=NOW)


def test_a_job_that_runs_on_grows_by_another_slice() -> None:
    own = slice_of(2, admitted())
    assert decide(running(5, own), own, elastic=True) == (CreateWorkload(replaces=own),)


def test_a_job_that_runs_on_shrinks_in_place() -> None:
    own = slice_of(3, admitted())
    (step,) = decide(running(1, own), own, elastic=True)
    assert isinstance(step, ResizeWorkload)
    assert step.pod_sets == ({**own["spec"]["podSets"][0], "count": 1},)


def test_a_slice_that_waits_gets_a_further_size_and_another_priority() -> None:
    own = slice_of(2, admitted())
    more = slice_of(4, pending(), name="more", older=own)
    high = Priority(value=9, group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name="high")
    found = decide(running(5, own), own, more, elastic=True, priority=high)
    (resized, *_) = [step for step in found if isinstance(step, ResizeWorkload)]
    assert (resized.workload, resized.pod_sets[0]["count"]) == (more, 5)
    assert SetPriority(more, high) in found


def test_a_slice_that_is_not_needed_is_deleted_and_the_job_runs_on() -> None:
    own = slice_of(2, admitted())
    more = slice_of(4, pending(), name="more", older=own)
    assert decide(running(2, own), own, more, elastic=True) == (DeleteWorkload(more),)


def test_a_job_runs_on_while_the_slice_that_took_over_waits_for_its_checks() -> None:
    own = slice_of(2, replaced(admitted()))
    more = slice_of(4, reserved(), name="own-2", older=own)
    assert "WriteJob" not in kinds(decide(running(4, own), own, more, elastic=True))


def test_the_eviction_of_a_slice_stops_the_job_and_keeps_its_size() -> None:
    own = slice_of(2, evicted(admitted(), "Preempted", message="preempted"))
    more = slice_of(4, pending(), name="more", older=own)
    removal, stop = decide(running(4, own), own, more, elastic=True)
    assert removal == DeleteWorkload(more)
    assert isinstance(stop, WriteJob)
    assert stop.write.body["spec"] == {"suspend": True}


def test_a_job_that_ended_finishes_the_slice_it_ran_by_and_deletes_the_one_that_waits() -> None:
    own = slice_of(2, admitted())
    more = slice_of(4, pending(), name="more", older=own)
    ended = running(4, own) | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert kinds(decide(ended, own, more, elastic=True)) == ["DeleteWorkload", "WriteStatus"]


def test_a_former_slice_is_not_taken_for_the_end_of_the_job_after_the_feature_was_switched_off() -> None:
    own = slice_of(2, replaced(admitted()))
    more = slice_of(2, admitted(), name="more", older=own)
    assert DeleteWorkload(more) not in decide(running(2, own), own, more)
