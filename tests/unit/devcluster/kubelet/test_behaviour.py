# SPDX-License-Identifier: Apache-2.0
"""What a pod is to do is read from its annotations, and nothing is guessed at."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.kubelet.behaviour import behaviour_of, parse_seconds, work_of
from devcluster.kubelet.containers.programs import FOREVER
from multikueue.core.errors import BadInput


def pod(annotations: dict[str, str] | None = None, *, owner: str | None = "Job") -> dict[str, Any]:
    owners = [{"kind": owner, "name": "j", "uid": "owner-uid", "controller": True}] if owner else []
    return {
        "metadata": {"name": "p", "uid": "pod-uid", "annotations": annotations or {}, "ownerReferences": owners},
        "spec": {"restartPolicy": "Never", "containers": []},
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("90", 90.0),
        ("0.25", 0.25),
        ("0", 0.0),
        ("forever", FOREVER),
    ],
)
def test_durations_are_read(text: str, want: float) -> None:
    assert parse_seconds(text) == want


@pytest.mark.parametrize("text", ["", "soon", "-1", "-2s", "2 s", "inf", "nan", "1d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_seconds(text)


def test_a_pod_of_a_job_runs_two_seconds_by_default() -> None:
    assert behaviour_of(pod()).run_for == 2.0
    assert behaviour_of(pod({"multikueue.io/run-for": "7s"})).run_for == 7.0


@pytest.mark.parametrize("owner", [None, "ReplicaSet"])
def test_a_pod_of_no_job_runs_until_it_is_deleted(owner: str | None) -> None:
    assert behaviour_of(pod(owner=owner)).run_for == FOREVER


def test_a_pod_that_is_never_ready_has_no_time_of_readiness() -> None:
    assert behaviour_of(pod({"multikueue.io/never-ready": "true"})).ready_after == FOREVER


def test_the_pull_of_an_image_fails_on_request_only() -> None:
    assert behaviour_of(pod({"multikueue.io/pull-fails": "true"})).pull_fails
    assert not behaviour_of(pod()).pull_fails


@pytest.mark.parametrize(
    ("annotations", "failed_before", "want"),
    [
        pytest.param({}, False, 0, id="a pod without annotations succeeds"),
        pytest.param({"multikueue.io/exit-code": "3"}, True, 3, id="exit-code holds for every try"),
        pytest.param({"multikueue.io/fail-once": "true"}, False, 1, id="the first try of fail-once fails"),
        pytest.param({"multikueue.io/fail-once": "true"}, True, 0, id="the second try of fail-once succeeds"),
        pytest.param(
            {"multikueue.io/fail-once": "true", "multikueue.io/exit-code": "42"},
            False,
            42,
            id="the first try of fail-once ends with exit-code",
        ),
    ],
)
def test_exit_codes(annotations: dict[str, str], failed_before: bool, want: int) -> None:
    assert behaviour_of(pod(annotations)).exit_code_of(failed_before=failed_before) == want


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("multikueue.io/run-for", "soon"),
        ("multikueue.io/exit-code", "256"),
        pytest.param("multikueue.io/exit-code", "9" * 5000, id="exit-code of 5000 digits"),
        ("multikueue.io/exit-code", "-1"),
        ("multikueue.io/fail-once", "yes"),
        ("multikueue.io/ready-after", "x"),
    ],
)
def test_a_bad_value_names_its_annotation(annotation: str, value: str) -> None:
    with pytest.raises(BadInput, match=annotation):
        behaviour_of(pod({annotation: value}))


def test_tries_of_one_index_of_a_job_are_the_same_work() -> None:
    index = {"batch.kubernetes.io/job-completion-index": "4"}
    assert work_of(pod(index)) == work_of(pod(index)) != work_of(pod())
