# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job (`docs/spec/kueue-api.md §3.4` to `§3.6`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from multikueue.api import constants, names
from multikueue.api.job import Job
from multikueue.api.validation import formats
from multikueue.api.validation.errors import FieldError, forbidden, invalid, required
from multikueue.api.validation.formats import ANNOTATIONS, at

_LABELS = "metadata.labels"
_TEMPLATE_ANNOTATIONS = "spec.template.metadata.annotations"


def validate_job(new: Job, old: Job | None = None, *, has_default_queue: bool = False) -> list[FieldError]:
    """Everything that is wrong with `new`; `old` is what it replaces.

    `has_default_queue` says whether the namespace has a LocalQueue named `default`.
    """
    errors = [*_names(new), *_parallelism(new), *_elastic(new), *_ungrouped(new)]
    errors += formats.admission_gates(new.metadata.annotations, None if old is None else old.metadata.annotations)
    errors += formats.topology(new.spec.template.metadata.annotations, path=_TEMPLATE_ANNOTATIONS, count=pod_count(new))
    if old is not None:
        errors += _update(new, old, has_default_queue=has_default_queue)
    return errors


def pod_count(job: Job) -> int:
    """How many pods run at once at most."""
    completions = job.spec.completions
    return job.spec.parallelism if completions is None else min(job.spec.parallelism, completions)


def prebuilt_name(job: Job) -> str:
    """The Workload that the job brings along, or nothing."""
    return job.metadata.labels.get(constants.PREBUILT_WORKLOAD_LABEL) or job.metadata.annotations.get(
        constants.PREBUILT_WORKLOAD_ANNOTATION, ""
    )


def _is_elastic(job: Job) -> bool:
    return job.metadata.annotations.get(constants.ELASTIC_JOB_ANNOTATION) == "true"


def _names(job: Job) -> Iterator[FieldError]:
    labels = job.metadata.labels
    for key in (constants.QUEUE_NAME_LABEL, constants.PRIORITY_CLASS_LABEL):
        if labels.get(key):
            for problem in names.dns_subdomain(labels[key]):
                yield invalid(at(_LABELS, key), labels[key], problem)
    prebuilt = prebuilt_name(job)
    if prebuilt:
        for problem in names.dns_subdomain(prebuilt):
            yield invalid(at(_LABELS, constants.PREBUILT_WORKLOAD_LABEL), prebuilt, problem)
    limit = labels.get(constants.MAX_EXEC_TIME_LABEL)
    if limit is not None and (formats.parse_int32(limit) or 0) < 1:
        yield invalid(at(_LABELS, constants.MAX_EXEC_TIME_LABEL), limit, "should be a positive integer")


def _parallelism(job: Job) -> Iterator[FieldError]:
    values = job.metadata.annotations
    least = values.get(constants.JOB_MIN_PARALLELISM_ANNOTATION)
    if least is not None:
        path = at(ANNOTATIONS, constants.JOB_MIN_PARALLELISM_ANNOTATION)
        number = formats.parse_int32(least)
        if number is None or not 1 <= number < job.spec.parallelism:
            yield invalid(path, least, f"should be between 1 and {job.spec.parallelism - 1}")
        if _is_elastic(job):
            yield forbidden(path, "may not be combined with an elastic job")
    equal = values.get(constants.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION)
    if equal is None:
        return
    path = at(ANNOTATIONS, constants.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION)
    if equal not in ("true", "false"):
        yield invalid(path, equal, "must be a boolean")
    elif equal == "true":
        if job.spec.completion_mode != "Indexed":
            yield invalid("spec.completionMode", job.spec.completion_mode, f"should be Indexed when {path} is true")
        if job.spec.completions != job.spec.parallelism:
            yield invalid(
                "spec.completions", job.spec.completions, f"should be equal to parallelism when {path} is true"
            )


def _elastic(job: Job) -> Iterator[FieldError]:
    if not _is_elastic(job):
        return
    template = job.spec.template.metadata.annotations
    for key in (
        constants.POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
        constants.POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    ):
        if key in template:
            yield forbidden(at(_TEMPLATE_ANNOTATIONS, key), "may not be combined with an elastic job")


def _ungrouped(job: Job) -> Iterator[FieldError]:
    key = constants.POD_SET_GROUP_NAME_ANNOTATION
    if key in job.spec.template.metadata.annotations:
        yield forbidden(at(_TEMPLATE_ANNOTATIONS, key), "a group needs two pod sets, and a Job has one")


def _update(new: Job, old: Job, *, has_default_queue: bool) -> Iterator[FieldError]:
    queue = at(_LABELS, constants.QUEUE_NAME_LABEL)
    before, after = _label(old, constants.QUEUE_NAME_LABEL), _label(new, constants.QUEUE_NAME_LABEL)
    if before != after and not new.spec.suspend:
        yield invalid(queue, after, "field is immutable while the job is not suspended")
    if before and not after and has_default_queue:
        yield required(queue, "cannot be removed in a namespace with a default LocalQueue")
    if not new.spec.suspend and not _is_elastic(new) and prebuilt_name(new) != prebuilt_name(old):
        path = at(_LABELS, constants.PREBUILT_WORKLOAD_LABEL)
        yield invalid(path, prebuilt_name(new), "field is immutable while the job is not suspended")
    limits = _label(old, constants.MAX_EXEC_TIME_LABEL), _label(new, constants.MAX_EXEC_TIME_LABEL)
    if limits[0] != limits[1] and not (new.spec.suspend and old.spec.suspend):
        path = at(_LABELS, constants.MAX_EXEC_TIME_LABEL)
        yield invalid(path, limits[1], "field is immutable while the job is not suspended")
    yield from _priority_class(new, old)
    key = constants.ELASTIC_JOB_ANNOTATION
    if _is_elastic(new) != _is_elastic(old):
        yield invalid(at(ANNOTATIONS, key), new.metadata.annotations.get(key, ""), "field is immutable")
    if _partially_admitted(new, old):
        yield forbidden(
            "spec.parallelism", "cannot change when partial admission is enabled and the job is not suspended"
        )


def _priority_class(new: Job, old: Job) -> Iterator[FieldError]:
    path = at(_LABELS, constants.PRIORITY_CLASS_LABEL)
    before, after = _label(old, constants.PRIORITY_CLASS_LABEL), _label(new, constants.PRIORITY_CLASS_LABEL)
    if before and not after:
        yield invalid(path, after, "can be changed but not removed")
    elif after and not before and not new.spec.suspend:
        yield invalid(path, after, "cannot be added while the job is not suspended")


def _partially_admitted(new: Job, old: Job) -> bool:
    # The start and the stop of a job by its admission change parallelism and suspend together.
    running = not new.spec.suspend and not old.spec.suspend
    partial = constants.JOB_MIN_PARALLELISM_ANNOTATION in new.metadata.annotations
    return running and partial and new.spec.parallelism != old.spec.parallelism


def _label(job: Job, key: str) -> str:
    labels: Mapping[str, str] = job.metadata.labels
    return labels.get(key, "")
