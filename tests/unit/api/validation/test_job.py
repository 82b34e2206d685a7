# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api import codec, featuregates
from multikueue.api.job import Job
from multikueue.api.meta import OwnerReference
from multikueue.api.validation import validate_job

K = "kueue.x-k8s.io/"


def elastic(gate: str) -> bool:
    """The default gates, with elastic jobs on."""
    return gate == featuregates.ELASTIC_JOBS or featuregates.default(gate)


def _job(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    template: dict[str, str] | None = None,
    **spec: Any,
) -> Job:
    body = {
        "metadata": {
            "name": "j",
            "labels": {K + key: value for key, value in (labels or {}).items()},
            "annotations": {K + key: value for key, value in (annotations or {}).items()},
        },
        "spec": {
            "parallelism": 4,
            "template": {"metadata": {"annotations": {K + key: value for key, value in (template or {}).items()}}},
            **spec,
        },
    }
    return codec.load_as(Job, body)


def _start(got: list[Any], want: list[str]) -> None:
    texts = [str(error) for error in got]
    assert len(texts) == len(want), texts
    assert all(text.startswith(start) for text, start in zip(texts, want, strict=True)), texts


LABEL = f"metadata.labels[{K}"
ANNOTATION = f"metadata.annotations[{K}"
LAYERS = "podset-slice-required-topology-constraints"
TEMPLATE = f"spec.template.metadata.annotations[{K}"


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(_job({"queue-name": "q"}), [], id="a plain one"),
        pytest.param(
            _job({"queue-name": "No Queue"}), [f"{LABEL}queue-name]: Invalid value"], id="an illegal name of a queue"
        ),
        pytest.param(
            _job({"prebuilt-workload-name": "W"}),
            [f"{LABEL}prebuilt-workload-name]: Invalid value"],
            id="of a workload",
        ),
        pytest.param(
            _job({"max-exec-time-seconds": "0"}),
            [f'{LABEL}max-exec-time-seconds]: Invalid value: "0": should be a positive integer'],
            id="no time to run",
        ),
        pytest.param(_job(annotations={"job-min-parallelism": "3"}), [], id="partial admission"),
        pytest.param(
            _job(annotations={"job-min-parallelism": "4"}),
            [f'{ANNOTATION}job-min-parallelism]: Invalid value: "4": should be between 1 and 3'],
            id="a least parallelism that is the whole",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "x"}),
            [f"{ANNOTATION}job-min-parallelism]: Invalid"],
            id="no number",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2", "elastic-job": "true"}),
            [f"{ANNOTATION}job-min-parallelism]: Forbidden"],
            id="elastic and partial at once",
        ),
        pytest.param(
            _job(annotations={"job-completions-equal-parallelism": "true"}, completions=4, completionMode="Indexed"),
            [],
            id="completions that follow parallelism",
        ),
        pytest.param(
            _job(annotations={"job-completions-equal-parallelism": "true"}, completions=5),
            ['spec.completionMode: Invalid value: "NonIndexed"', "spec.completions: Invalid value: 5"],
            id="completions that cannot follow parallelism",
        ),
        pytest.param(
            _job(annotations={"elastic-job": "true"}, template={"podset-required-topology": "rack"}),
            [f"{TEMPLATE}podset-required-topology]: Forbidden"],
            id="an elastic job with a topology",
        ),
        pytest.param(
            _job(template={"podset-required-topology": "rack", "podset-preferred-topology": "block"}),
            ["spec.template.metadata.annotations: Invalid value"],
            id="two topologies",
        ),
        pytest.param(
            _job(template={"podset-unconstrained-topology": "maybe"}),
            [f'{TEMPLATE}podset-unconstrained-topology]: Invalid value: "maybe": must be a boolean'],
            id="a boolean that is none",
        ),
        pytest.param(
            _job(template={"podset-slice-required-topology": "rack"}),
            [f"{TEMPLATE}podset-slice-size]: Required value"],
            id="slices without a size",
        ),
        pytest.param(
            _job(template={"podset-slice-required-topology": "rack", "podset-slice-size": "5"}),
            [f'{TEMPLATE}podset-slice-size]: Invalid value: "5": must not be greater than pod set count 4'],
            id="slices larger than the job",
        ),
        pytest.param(
            _job(template={LAYERS: '[{"topology":"a","size":4},{"topology":"b","size":3}]'}),
            [f"{TEMPLATE}{LAYERS}][1].size: Invalid value: 3: must divide the size 4"],
            id="nested slices that do not divide",
        ),
        pytest.param(
            _job(template={"podset-slice-required-topology-constraints": "{"}),
            [f"{TEMPLATE}podset-slice-required-topology-constraints]: Invalid value"],
            id="nested slices that are no JSON",
        ),
        pytest.param(
            _job(template={"podset-group-name": "g", "podset-required-topology": "rack"}),
            [f'{TEMPLATE}podset-group-name]: Invalid value: "g": can only define groups of exactly 2 pod sets'],
            id="a group of one",
        ),
    ],
)
def test_a_job_by_itself(job: Job, want: list[str]) -> None:
    _start(validate_job(job, gate=elastic), want)


def test_the_job_of_a_job_set_has_a_topology_of_which_other_jobs_have_the_rest() -> None:
    """A JobSet with a group of leader and workers could not start where our webhooks are."""
    job_set = OwnerReference(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="s", uid="u", controller=True)
    for template in (
        {"podset-group-name": "g", "podset-required-topology": "rack"},
        {"podset-required-topology": "rack", "podset-slice-required-topology": "host", "podset-slice-size": "8"},
    ):
        job = _job(template=template)
        assert validate_job(job)
        owned = job.model_copy(update={"metadata": job.metadata.model_copy(update={"owner_references": (job_set,)})})
        assert not validate_job(owned)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            _job({"queue-name": "a"}, suspend=True), _job({"queue-name": "b"}, suspend=True), [], id="queue, suspended"
        ),
        pytest.param(
            _job({"queue-name": "a"}),
            _job({"queue-name": "b"}),
            [f'{LABEL}queue-name]: Invalid value: "b": field is immutable while the job is not suspended'],
            id="queue, running",
        ),
        pytest.param(
            _job({"prebuilt-workload-name": "a"}),
            _job({"prebuilt-workload-name": "b"}),
            [f'{LABEL}prebuilt-workload-name]: Invalid value: "b"'],
            id="prebuilt workload, running",
        ),
        pytest.param(
            _job({"max-exec-time-seconds": "5"}, suspend=True),
            _job({"max-exec-time-seconds": "6"}),
            [f'{LABEL}max-exec-time-seconds]: Invalid value: "6"'],
            id="time to run, while it starts",
        ),
        pytest.param(
            _job({"priority-class": "a"}),
            _job({"priority-class": "b"}),
            [],
            id="priority class, running",
        ),
        pytest.param(
            _job({"priority-class": "a"}, suspend=True),
            _job(suspend=True),
            [f'{LABEL}priority-class]: Invalid value: "": can be changed but not removed'],
            id="priority class, removed",
        ),
        pytest.param(
            _job(),
            _job({"priority-class": "b"}),
            [f'{LABEL}priority-class]: Invalid value: "b": cannot be added'],
            id="priority class, added to a running job",
        ),
        pytest.param(
            _job(suspend=True),
            _job(annotations={"elastic-job": "true"}, suspend=True),
            [f'{ANNOTATION}elastic-job]: Invalid value: "true": field is immutable'],
            id="elastic, switched on",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2"}),
            _job(annotations={"job-min-parallelism": "2"}, parallelism=3),
            ["spec.parallelism: Forbidden"],
            id="parallelism of a job that was admitted partly",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2"}, suspend=True),
            _job(annotations={"job-min-parallelism": "2"}, parallelism=3),
            [],
            id="parallelism at the start",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2"}, suspend=True),
            _job(annotations={"job-min-parallelism": "2"}, parallelism=2),
            [],
            id="the minimum at the start",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2"}, parallelism=2),
            _job({"other": "x"}, annotations={"job-min-parallelism": "2"}, parallelism=2),
            [],
            id="another label, while the minimum runs",
        ),
        pytest.param(
            _job(annotations={"job-min-parallelism": "2"}, suspend=True),
            _job(annotations={"job-min-parallelism": "4"}, suspend=True),
            [f'{ANNOTATION}job-min-parallelism]: Invalid value: "4": should be between 1 and 3'],
            id="another minimum that is too large",
        ),
        pytest.param(
            _job(template={"podset-group-name": "g", "podset-required-topology": "rack"}),
            _job({"other": "x"}, template={"podset-group-name": "g", "podset-required-topology": "rack"}),
            [],
            id="another label, and a topology that it had before",
        ),
    ],
)
def test_a_job_that_changes(old: Job, new: Job, want: list[str]) -> None:
    _start(validate_job(new, old, gate=elastic), want)


def test_a_queue_cannot_be_given_up_where_there_is_a_default_one() -> None:
    old, new = _job({"queue-name": "a"}, suspend=True), _job(suspend=True)
    assert validate_job(new, old) == []
    _start(validate_job(new, old, has_default_queue=True), [f"{LABEL}queue-name]: Required value"])
