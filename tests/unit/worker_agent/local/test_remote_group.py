# SPDX-License-Identifier: Apache-2.0
"""The pods of one assignment, while some of them are deleted on the worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.jobs.kinds.pod import PodIntegration
from worker_agent.local.remote_group import RemoteGroup, remote_group

POD = PodIntegration()
Object = dict[str, Any]
ANNOTATIONS = {"multikueue.io/assignment": "a", "multikueue.io/epoch": "1", "multikueue.io/manager-uid": "hub"}
RUNNING = {"phase": "Running"}


class Pods:
    """The pods of the assignment on the worker."""

    def __init__(self, *pods: Object) -> None:
        self._pods = {Key("ns", pod["metadata"]["name"]): pod for pod in pods}

    def of_assignment(self, name: str) -> Iterable[Key]:
        return tuple(self._pods)

    def get(self, key: Key) -> Object | None:
        return self._pods.get(key)

    def manager_uid(self, job: Object) -> str:
        return str(job["metadata"]["annotations"]["multikueue.io/manager-uid"])


def member(name: str) -> Object:
    """A pod as the hub sends it."""
    annotations = {
        **ANNOTATIONS,
        "kueue.x-k8s.io/multikueue-origin-uid": f"hub-{name}",
        "kueue.x-k8s.io/pod-group-total-count": "2",
    }
    metadata = {"name": name, "namespace": "ns", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}


def pod(name: str, phase: str = "Running", *, deleting: bool = False) -> Object:
    """The same pod on the worker."""
    made = member(name)
    deletion = {"deletionTimestamp": "2026-11-23T00:00:00Z"} if deleting else {}
    metadata = {**made["metadata"], "uid": f"worker-{name}", **deletion}
    return {**made, "metadata": metadata, "spec": {**made["spec"], "nodeName": "n"}, "status": {"phase": phase}}


def of_another(name: str, **how: Any) -> Object:
    """A pod on the worker that was made for another pod of that name on the hub."""
    made = pod(name, **how)
    annotations = {**made["metadata"]["annotations"], "kueue.x-k8s.io/multikueue-origin-uid": "former"}
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


def composed(
    *pods: Object,
    reported: dict[str, Object],
    phase: AssignmentPhase = AssignmentPhase.RUNNING,
    stopping: bool = False,
    serving: bool = False,
) -> RemoteGroup:
    """The group of g-0 and g-1 with these pods on the worker and these statuses reported before."""
    entries = [{"name": name, "uid": f"hub-{name}", "status": status} for name, status in reported.items()]
    before = ReportedStatus(epoch=1, phase=phase, job_status={"pods": entries})
    members = (member("g-0"), member("g-1"))
    if serving:
        for each in members:
            each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-serving"] = "true"
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "g"}, "members": list(members)}
    return remote_group(
        Pods(*pods),
        manifest,
        members,
        assignment="a",
        epoch=1,
        manager_uid="hub",
        reported=before,
        stopping=stopping,
        marked=lambda member: member,
    )


def statuses(group: RemoteGroup) -> dict[str, Object]:
    """What is reported of each pod."""
    assert group.job is not None
    found = POD.remote_status(group.job)
    assert found is not None
    return {each["name"]: each["status"] for each in found["pods"]}


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
def test_a_pod_that_is_being_deleted_keeps_the_status_that_was_reported_last(phase: str) -> None:
    deleting = composed(pod("g-0"), pod("g-1", phase, deleting=True), reported={"g-0": RUNNING, "g-1": RUNNING})
    assert statuses(deleting) == {"g-0": RUNNING, "g-1": RUNNING}
    assert deleting.missing == ()


def test_it_has_failed_once_it_is_gone_and_is_not_created_again() -> None:
    deleting = composed(pod("g-0"), pod("g-1", deleting=True), reported={"g-0": RUNNING, "g-1": RUNNING})
    gone = composed(pod("g-0"), reported=statuses(deleting))
    assert statuses(gone)["g-1"]["reason"] == "PodDeleted"
    assert gone.missing == ()


def test_what_had_ended_before_it_was_deleted_keeps_its_end() -> None:
    ended = {"phase": "Succeeded"}
    deleting = composed(pod("g-0"), pod("g-1", "Succeeded", deleting=True), reported={"g-0": RUNNING, "g-1": ended})
    gone = composed(pod("g-0"), reported=statuses(deleting))
    assert statuses(gone)["g-1"] == ended
    assert gone.missing == ()


def test_one_that_is_gone_while_another_is_being_deleted_is_not_created_again() -> None:
    one_gone = composed(pod("g-0", deleting=True), reported={"g-0": RUNNING, "g-1": RUNNING})
    assert statuses(one_gone) == {"g-0": RUNNING, "g-1": RUNNING}
    assert one_gone.missing == ()


def test_one_that_was_never_reported_and_is_being_deleted_is_not_reported() -> None:
    deleting = composed(pod("g-0"), pod("g-1", deleting=True), reported={"g-0": RUNNING})
    assert set(statuses(deleting)) == {"g-0"}


def test_a_group_that_is_stopped_has_stopped_when_its_pods_have_ended_though_they_are_still_there() -> None:
    ended = (pod("g-0", "Failed", deleting=True), pod("g-1", "Failed", deleting=True))
    group = composed(*ended, reported={"g-0": RUNNING, "g-1": RUNNING}, stopping=True)
    assert group.job is not None
    assert POD.remotely_stopped(group.job)


def test_pods_of_former_pods_of_the_same_names_are_in_the_place_of_a_group_that_does_not_run_yet() -> None:
    """A hub that was restored has other pods of these names, and grants them the same epoch."""
    before = AssignmentPhase.RESERVED
    group = composed(of_another("g-0"), of_another("g-1", deleting=True), reported={}, phase=before)
    assert group.job is None
    assert group.replaced == ((Key("ns", "g-0"), "worker-g-0"),)
    assert group.missing == (), "neither name is free yet"


def test_a_group_is_composed_with_the_total_count_of_the_hub_whatever_its_pods_have_in_a_queue_here() -> None:
    queued = pod("g-1")
    queued["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "1"
    found = composed(queued, reported={"g-0": {"phase": "Succeeded"}, "g-1": {"phase": "Running"}})
    assert found.job is not None
    totals = [each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for each in found.job["members"]]
    assert totals == ["2", "2"]
    assert POD.remote_end(found.job) is None


def test_pods_that_serve_and_were_all_replaced_on_the_hub_are_created_anew_in_their_place() -> None:
    """As by a rolling update of a StatefulSet with one pod, which the hub must not send elsewhere for that."""
    ends = composed(of_another("g-0"), reported={}, serving=True)
    assert ends.job is not None
    assert ends.replaced == ((Key("ns", "g-0"), "worker-g-0"),)
    assert statuses(ends) == {}, "the former pod is not one of the hub any more"
    gone = composed(reported={}, serving=True)
    assert gone.job is not None
    assert not POD.remotely_stopped(gone.job)
    assert [each["metadata"]["name"] for each in gone.missing] == ["g-0", "g-1"]


def test_pods_that_serve_and_were_deleted_on_the_worker_are_gone() -> None:
    assert composed(reported={"g-0": RUNNING}, serving=True).job is None


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("deleting", [True, False])
def test_no_group_has_stopped_while_a_pod_of_it_runs_that_the_hub_has_no_longer(serving: bool, deleting: bool) -> None:
    former = of_another("g-0", deleting=deleting)
    group = composed(former, reported={"g-1": RUNNING}, stopping=True, serving=serving)
    assert group.job is not None
    assert not POD.remotely_stopped(group.job)
    assert group.present == (() if deleting else ((Key("ns", "g-0"), "worker-g-0"),))
    both = composed(former, pod("g-1", deleting=True), reported={"g-1": RUNNING}, stopping=True, serving=serving)
    assert both.job is not None
    assert not POD.remotely_stopped(both.job)
    assert composed(reported={"g-1": RUNNING}, stopping=True, serving=serving).job is None


def test_a_group_is_not_gone_while_a_pod_of_it_runs_that_the_hub_has_no_longer() -> None:
    group = composed(of_another("g-0"), reported={"g-1": RUNNING})
    assert group.job is not None
    assert group.missing == ()
    assert composed(reported={"g-1": RUNNING}).job is None
