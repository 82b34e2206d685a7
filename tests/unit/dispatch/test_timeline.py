# SPDX-License-Identifier: Apache-2.0
"""The lines of a story, from objects as they stand on hub and workers."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.timeline import Timeline, TimelineObjects, WorkerObjects, timeline

Object = dict[str, Any]


def at(second: int, micro: int = 0) -> str:
    return f"2026-01-01T12:00:{second:02}{f'.{micro:06}' if micro else ''}Z"


def workload(**status: Any) -> Object:
    metadata = {"namespace": "ns", "name": "wl", "uid": "u1", "creationTimestamp": at(1)}
    return {"metadata": metadata, "spec": {"queueName": "q", "priority": 5}, "status": status}


def condition(kind: str, second: int, *, status: str = "True", reason: str = "R", message: str = "m") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(second)}


def event(reason: str, time: str, note: str = "", *, kind: str = "Workload", name: str = "wl", **more: Any) -> Object:
    return {
        "metadata": {"creationTimestamp": time},
        "regarding": {"kind": kind, "name": name, "uid": "u1"},
        "reason": reason,
        "note": note,
        "eventTime": time,
        **more,
    }


def copy(cluster: str = "w1", **changes: Any) -> Object:
    fields = [{"manager": "mk-manager", "time": at(4)}, {"manager": "agent", "subresource": "status", "time": at(6)}]
    return {
        "metadata": {
            "name": "wl-1",
            "namespace": f"mk-{cluster}",
            "creationTimestamp": at(4),
            "annotations": {"multikueue.io/cluster": cluster, "multikueue.io/verdicts": f"{cluster}: score 1.50"},
            "managedFields": fields,
        },
        "spec": {"workload": {"namespace": "ns", "name": "wl", "uid": "u1"}, "epoch": 1, "intent": "Run"},
        "status": {"epoch": 1, "phase": "Running"},
        **changes,
    }


def cluster(name: str, *, active: str, second: int) -> Object:
    said = condition("Active", second, status=active, reason="ClientConnectionFailed", message="silent")
    return {"metadata": {"name": name}, "status": {"conditions": [said]}}


def told(of: Object, **more: Any) -> list[tuple[str, str, str]]:
    return [(entry.cluster, entry.what, entry.why) for entry in tell(of, **more).entries]


def tell(of: Object, **more: Any) -> Timeline:
    return timeline(TimelineObjects(workload=of, **more))


def test_a_job_that_went_well_is_reported_from_hub_to_worker_in_order() -> None:
    there = {"metadata": {"creationTimestamp": at(5), "annotations": {"multikueue.io/epoch": "1"}}, "status": {}}
    found = told(
        workload(clusterName="w1", conditions=[condition("QuotaReserved", 2), condition("Finished", 9)]),
        job={
            "metadata": {
                "creationTimestamp": at(0),
                "managedFields": [{"manager": "kubectl-create", "time": at(0), "fieldsV1": {}}],
            }
        },
        assignments=(copy(),),
        workers={"w1": WorkerObjects(job=there, events=(event("Scheduled", at(5, 7), kind="Pod", name="j-x"),))},
    )
    assert found == [
        ("hub", "Job created", "by kubectl-create"),
        ("hub", "Workload created", "for LocalQueue q, priority 5"),
        ("hub", "Workload QuotaReserved", "R: m"),
        ("hub", "assignment sent to w1: Run, epoch 1", "w1: score 1.50"),
        ("w1", "Job created", "epoch 1"),
        ("w1", "Pod j-x Scheduled", ""),
        ("w1", "reports Running, epoch 1", ""),
        ("hub", "Workload Finished", "R: m"),
    ]


@pytest.mark.parametrize(
    ("entry", "event_said", "lines"),
    [
        pytest.param(
            {"conditions": [condition("Admitted", 3)]}, event("Admitted", at(3, 400), "longer"), 1, id="a condition"
        ),
        pytest.param(
            {"conditions": [condition("Evicted", 3, reason="AdmissionCheck", message="at least one")]},
            event("EvictedDueToAdmissionCheck", at(3, 400), "at least one"),
            1,
            id="an eviction",
        ),
        pytest.param(
            {
                "admissionChecks": [
                    {"name": "mk", "state": "Ready", "message": "on w1", "lastTransitionTime": at(3)},
                ]
            },
            event("MultiKueue", at(3, 400), "on w1"),
            1,
            id="a check",
        ),
        pytest.param({"conditions": [condition("Admitted", 3)]}, event("Admitted", at(9, 1)), 2, id="another moment"),
        pytest.param(
            {"conditions": [condition("Admitted", 3, status="False")]},
            event("Admitted", at(3, 1)),
            2,
            id="the contrary",
        ),
    ],
)
def test_what_an_event_repeats_is_shown_once(entry: Object, event_said: Object, lines: int) -> None:
    found = tell(workload(**entry), events=(event_said,)).entries
    assert len(found) == 1 + lines
    assert any(each.evidence == "event" for each in found)


def test_a_failover_is_reported_with_the_loss_between() -> None:
    of = workload(
        clusterName="w2",
        schedulingStats={"evictions": [{"reason": "AdmissionCheck", "underlyingCause": "", "count": 1}]},
        conditions=[condition("Evicted", 30, status="False", reason="QuotaReserved")],
    )
    of["metadata"]["annotations"] = {"multikueue.io/avoided-clusters": f"w1={at(59)}"}
    found = tell(
        of,
        events=(
            event("MultiKueue", at(2, 1), 'The workload was admitted on "w1"'),
            event("MultiKueue", at(29, 1), 'Admitting remote lost: cluster "w1" is not available'),
        ),
        assignments=(copy("w2"),),
        clusters=(
            cluster("w1", active="False", second=20),
            cluster("w2", active="True", second=0),
            cluster("w3", active="False", second=20),
        ),
    )
    assert (found.epoch, found.cluster_name, found.evictions) == (2, "w2", (("AdmissionCheck", 1),))
    lines = [(entry.cluster, entry.what) for entry in found.entries]
    assert lines.index(("w1", "the cluster is not available")) < lines.index(("hub", "Workload not Evicted"))
    assert lines[-1] == ("hub", "w1 is avoided until here")
    assert not any(name == "w3" for name, _ in lines), "a cluster that plays no part is left out"
    assert ("w2", "the cluster is connected") not in lines, "it was connected before any of this"


def test_an_assignment_that_changed_more_than_once_has_a_line_for_each() -> None:
    obj = copy(status={"epoch": 1, "phase": "Finished", "finished": {"reason": "Succeeded", "time": at(8)}})
    obj["metadata"]["managedFields"][0]["time"] = at(5)
    assert [line[:2] for line in told(workload(), assignments=(obj,))][1:] == [
        ("hub", "assignment sent to w1"),
        ("hub", "assignment of w1 changed: Run, epoch 1"),
        ("w1", "reports Finished, epoch 1"),
        ("w1", "the job ended: Succeeded"),
    ]


def test_who_else_wrote_it_is_reported_with_the_fields() -> None:
    of = workload()
    fields = {"f:spec": {"f:active": {}, "f:priority": {}}, "f:metadata": {"f:annotations": {".": {}, "f:a/b": {}}}}
    of["metadata"]["managedFields"] = [
        {"manager": "kubectl-patch", "time": at(7), "fieldsV1": fields},
        {"manager": "kueue-admission", "time": at(7), "fieldsV1": fields},
    ]
    (_, line) = told(of)
    assert line == ("hub", "Workload written by kubectl-patch", "spec.active, spec.priority, metadata.annotations")


def test_a_series_of_events_is_reported_when_it_began_and_ended() -> None:
    many = event("Pending", at(3), "no quota", series={"count": 7, "lastObservedTime": at(40, 5)})
    assert told(workload(), events=(many,))[1:] == [
        ("hub", "Workload Pending", "no quota"),
        ("hub", "Workload Pending", "no quota (the last of 7)"),
    ]


def test_events_of_an_earlier_job_of_that_name_are_left_out() -> None:
    old = event("SuccessfulCreate", "2026-01-01T11:00:00Z", kind="Job", name="j")
    assert len(told(workload(), workers={"w1": WorkerObjects(events=(old,))})) == 1


def test_what_is_still_to_come_is_shown_too() -> None:
    of = workload(requeueState={"count": 3, "requeueAt": at(50)})
    of["metadata"]["annotations"] = {
        "multikueue.io/dispatch-round": f"1 6 {at(20)}",
        "multikueue.io/preemption-gate-opened": f"1 w2 {at(30)}",
    }
    assert told(of)[1:] == [
        ("hub", "round with 6 clusters began", "epoch 1"),
        ("hub", "w2 may preempt from here", "its preemption gate was opened, epoch 1"),
        ("hub", "Workload may be queued again", "back-off after 3 requeues"),
    ]
