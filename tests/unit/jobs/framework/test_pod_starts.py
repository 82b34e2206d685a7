# SPDX-License-Identifier: Apache-2.0
"""The cause why no pod of a job has started."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.protocol.job_problems import MAX_MESSAGE, StartProblem
from multikueue.jobs.framework.pod_starts import NO_PODS_SECONDS, needs_events, same_cause, start_problem

Object = dict[str, Any]


def pod(name: str = "j-abcde", *, phase: str = "Pending", waiting: str = "", message: str = "", **more: Any) -> Object:
    """A pod with one container, waiting for a reason if one is given."""
    state = {"waiting": {"reason": waiting, "message": message}} if waiting else {}
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}], **more}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def unscheduled(name: str = "j-abcde", message: str = "0/2 nodes are available") -> Object:
    """A pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"metadata": {"name": name}, "status": {"phase": "Pending", "conditions": [condition]}}


def warning(reason: str, note: str, *, at: str = "2026-01-01T00:00:00Z", **more: Any) -> Object:
    """A warning event about a pod or a job."""
    return {
        "type": "Warning",
        "reason": reason,
        "note": note,
        "regarding": {"name": "j-abcde"},
        "deprecatedLastTimestamp": at,
        **more,
    }


CREATING = pod(waiting="ContainerCreating")
NO_ACCOUNT = warning("FailedCreate", 'Error creating: pods "j-" is forbidden: serviceaccount "x" not found')


def of(*pods: Object, events: tuple[Object, ...] = (), waited: float = 0.0) -> StartProblem | None:
    return start_problem(pods, events, waited=waited)


@pytest.mark.parametrize(
    ("pods", "events", "want"),
    [
        pytest.param(
            [pod(waiting="ImagePullBackOff", message='Back-off pulling image "x"')],
            [],
            StartProblem("ImagePullBackOff", 'pod j-abcde, container main: Back-off pulling image "x"'),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            [pod(waiting="ErrImagePull", message="not found")],
            [],
            StartProblem("ImagePullBackOff", "pod j-abcde, container main: not found"),
            id="the two reasons of one pull are one",
        ),
        pytest.param(
            [pod(waiting="CreateContainerConfigError", message='configmap "c" not found')],
            [],
            StartProblem("CreateContainerConfigError", 'pod j-abcde, container main: configmap "c" not found'),
            id="a missing ConfigMap",
        ),
        pytest.param(
            [pod(waiting="InvalidImageName")],
            [],
            StartProblem("InvalidImageName", "pod j-abcde, container main: InvalidImageName"),
            id="a reason without a message",
        ),
        pytest.param(
            [
                pod(
                    waiting="PodInitializing",
                    initContainerStatuses=[
                        {"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
                    ],
                )
            ],
            [],
            StartProblem("ImagePullBackOff", "pod j-abcde, container init: no"),
            id="an init container",
        ),
        pytest.param(
            [unscheduled()],
            [],
            StartProblem("Unschedulable", "pod j-abcde: 0/2 nodes are available"),
            id="no node fits",
        ),
        pytest.param(
            [unscheduled("j-aaaaa"), pod("j-bbbbb", waiting="ImagePullBackOff", message="no")],
            [],
            StartProblem("ImagePullBackOff", "pod j-bbbbb, container main: no"),
            id="a container that waits comes before a pod without a node",
        ),
        pytest.param(
            [CREATING],
            [warning("FailedMount", 'configmap "c" not found')],
            StartProblem("FailedMount", 'pod j-abcde: configmap "c" not found'),
            id="a volume that is not mounted",
        ),
        pytest.param(
            [CREATING],
            [warning("FailedMount", "older"), warning("FailedCreatePodSandBox", "newer", at="2026-01-01T00:01:00Z")],
            StartProblem("FailedCreatePodSandBox", "pod j-abcde: newer"),
            id="the newest warning counts",
        ),
        pytest.param(
            [CREATING], [{**warning("Pulled", "x"), "type": "Normal"}], None, id="a normal event is no problem"
        ),
        pytest.param([CREATING], [warning("FailedScheduling", "x")], None, id="it was scheduled since"),
        pytest.param([CREATING], [], None, id="a pod that is being created"),
        pytest.param(
            [],
            [NO_ACCOUNT],
            StartProblem("FailedCreate", 'Error creating: pods "j-" is forbidden: serviceaccount "x" not found'),
            id="pods that the API server refuses",
        ),
        pytest.param([], [], None, id="no pod yet"),
        pytest.param(
            [pod(waiting="ImagePullBackOff"), pod("j-zzzzz", phase="Running")], [NO_ACCOUNT], None, id="one pod runs"
        ),
        pytest.param([pod(phase="Failed")], [NO_ACCOUNT], None, id="a pod that failed has started"),
        pytest.param([pod(phase="Running", waiting="CrashLoopBackOff")], [], None, id="a crash loop has started"),
        pytest.param(
            [{**CREATING, "metadata": {"name": "j-abcde", "deletionTimestamp": "2026-01-01T00:00:00Z"}}],
            [NO_ACCOUNT],
            StartProblem("FailedCreate", 'Error creating: pods "j-" is forbidden: serviceaccount "x" not found'),
            id="a pod that is being deleted does not count",
        ),
    ],
)
def test_the_first_cause_is_found(pods: list[Object], events: list[Object], want: StartProblem | None) -> None:
    assert start_problem(pods, events, waited=0.0) == want


def test_a_job_without_pod_and_event_is_a_problem_after_a_while() -> None:
    assert of(waited=NO_PODS_SECONDS - 1) is None
    found = of(waited=NO_PODS_SECONDS)
    assert found is not None
    assert found.reason == "NoPods"


def test_pods_that_may_not_be_read_are_not_missing() -> None:
    assert start_problem(None, (), waited=3600.0) is None
    found = start_problem(None, [NO_ACCOUNT], waited=0.0)
    assert found is not None
    assert found.reason == "FailedCreate"


@pytest.mark.parametrize(
    "strange",
    [
        {},
        {"metadata": None, "status": None},
        {"metadata": [], "status": {"phase": ["Running"], "conditions": "x", "containerStatuses": {"a": 1}}},
        {"status": {"containerStatuses": [None, 1, {"state": []}, {"state": {"waiting": {"reason": {}}}}]}},
        {"metadata": {"name": 5, "uid": 7}, "status": {"conditions": [{"type": "PodScheduled", "status": False}]}},
    ],
)
def test_objects_of_another_shape_have_no_cause(strange: Object) -> None:
    assert of(strange, events=({"type": "Warning", "reason": ["x"], "series": 4}, strange)) in (
        None,
        StartProblem("PodsNotStarted", "pod None: None"),
    )
    assert needs_events([strange]) == ""


def test_megabytes_and_control_characters_of_a_worker_become_a_short_line() -> None:
    found = of(pod(waiting="ImagePullBackOff", message="\x1b[2J\nline\u202e" + "x" * 5_000_000))
    assert found is not None
    assert len(found.message) <= MAX_MESSAGE
    assert found.message.isprintable()
    assert found.message.startswith("pod j-abcde, container main: \\x1b[2J line\\u202exxx")


def test_a_reason_that_no_condition_may_have_is_replaced() -> None:
    for reason in ("\x1b[2J", "two words", "", "a" * 500, None, 5):
        found = of(CREATING, events=(warning("FailedMount", "x") | {"reason": reason},))
        assert found is not None
        assert found.reason == "PodsNotStarted"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("used: cpu=1", "used: cpu=2", True, id="another amount"),
        pytest.param('pods "j-kx2vb" is forbidden', 'pods "j-lmnpq" is forbidden', True, id="another generated name"),
        pytest.param(
            'pods "j-p4p4m" is forbidden', 'pods "j-5d8ll" is forbidden', True, id="a name that begins with a digit"
        ),
        pytest.param('serviceaccount "x" not found', 'exceeded quota "q"', False, id="another cause"),
    ],
)
def test_a_cause_is_the_same_whatever_its_numbers_and_names_of_pods_are(one: str, other: str, *, same: bool) -> None:
    assert same_cause(StartProblem("FailedCreate", one), StartProblem("FailedCreate", other)) is same
    assert not same_cause(StartProblem("FailedCreate", one), StartProblem("NoPods", one))


def test_how_far_a_pull_is_makes_no_other_cause() -> None:
    pulling, backing_off = (
        of(pod(waiting="ErrImagePull", message="a")),
        of(pod(waiting="ImagePullBackOff", message="b")),
    )
    assert pulling is not None
    assert backing_off is not None
    assert same_cause(pulling, backing_off)


def test_events_are_listed_only_for_a_pod_whose_status_has_no_cause() -> None:
    assert needs_events([pod("j-b", waiting="ContainerCreating"), pod("j-a")]) == "uid-j-a"
    assert needs_events([pod(waiting="ImagePullBackOff")]) == ""
    assert needs_events([pod("j-a"), pod("j-b", phase="Running")]) == ""
