# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job (`docs/spec/kueue-api.md §3.4` to `§3.6`)."""

from __future__ import annotations

from collections.abc import Iterator

from multikueue.api import constants, featuregates
from multikueue.api.featuregates import Gate
from multikueue.api.job import Job
from multikueue.api.validation import formats, queued_job
from multikueue.api.validation.errors import FieldError, forbidden, invalid
from multikueue.api.validation.formats import ANNOTATIONS, at
from multikueue.api.validation.queued_job import QueuedJob
from multikueue.api.validation.topology import AnnotatedPodSet, topologies

_TEMPLATE_ANNOTATIONS = "spec.template.metadata.annotations"


def validate_job(
    new: Job, old: Job | None = None, *, has_default_queue: bool = False, gate: Gate = featuregates.default
) -> list[FieldError]:
    """Everything that is wrong with `new`; `old` is what it replaces.

    `has_default_queue` is whether the namespace has a LocalQueue named `default`.
    """
    errors = [*queued_job.names_of(_queued(new)), *_minimum(new, old), *_completions(new), *_elastic(new)]
    errors += formats.admission_gates(new.metadata.annotations, None if old is None else old.metadata.annotations)
    errors += formats.elastic(new.metadata.annotations, None if old is None else old.metadata.annotations, gate=gate)
    before = [] if old is None else [*topologies([_annotated(old)])]
    errors += (error for error in topologies([_annotated(new)]) if error not in before)
    if old is not None:
        errors += _update(new, old, has_default_queue=has_default_queue, gate=gate)
    return errors


def pod_count(job: Job) -> int:
    """How many pods run at once at most."""
    completions = job.spec.completions
    return job.spec.parallelism if completions is None else min(job.spec.parallelism, completions)


def _annotated(job: Job) -> AnnotatedPodSet:
    """A Job of another object, such as a JobSet, is only a part of a pod set, or one pod set of a group."""
    asked = job.spec.template.metadata.annotations
    owned = any(owner.controller for owner in job.metadata.owner_references)
    return AnnotatedPodSet(path=_TEMPLATE_ANNOTATIONS, annotations=asked, count=None if owned else pod_count(job))


def _is_elastic(job: Job) -> bool:
    return job.metadata.annotations.get(constants.ELASTIC_JOB_ANNOTATION) == "true"


def _minimum(job: Job, old: Job | None) -> Iterator[FieldError]:
    least = job.metadata.annotations.get(constants.JOB_MIN_PARALLELISM_ANNOTATION)
    if least is None:
        return
    path = at(ANNOTATIONS, constants.JOB_MIN_PARALLELISM_ANNOTATION)
    # A job that is admitted partly may have no more pods than its minimum, so only a new minimum is compared.
    changed = old is None or old.metadata.annotations.get(constants.JOB_MIN_PARALLELISM_ANNOTATION) != least
    number = formats.parse_count(least)
    if changed and (number is None or not 1 <= number < job.spec.parallelism):
        yield invalid(path, least, f"should be between 1 and {job.spec.parallelism - 1}")
    if _is_elastic(job):
        yield forbidden(path, "may not be combined with an elastic job")


def _completions(job: Job) -> Iterator[FieldError]:
    equal = job.metadata.annotations.get(constants.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION)
    if equal is None:
        return
    path = at(ANNOTATIONS, constants.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION)
    if equal not in ("true", "false"):
        yield invalid(path, equal, "must be a boolean value")
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


def _update(new: Job, old: Job, *, has_default_queue: bool, gate: Gate) -> Iterator[FieldError]:
    yield from queued_job.update(
        _queued(new), _queued(old), has_default_queue=has_default_queue, elastic=_is_elastic(new)
    )
    yield from formats.elastic_kept(new.metadata.annotations, old.metadata.annotations, gate=gate)
    if _partially_admitted(new, old):
        yield forbidden(
            "spec.parallelism", "cannot change when partial admission is enabled and the job is not suspended"
        )


def _partially_admitted(new: Job, old: Job) -> bool:
    # The start and the stop of a job by its admission change parallelism and suspend together.
    running = not new.spec.suspend and not old.spec.suspend
    partial = constants.JOB_MIN_PARALLELISM_ANNOTATION in new.metadata.annotations
    return running and partial and new.spec.parallelism != old.spec.parallelism


def _queued(job: Job) -> QueuedJob:
    return QueuedJob(job.metadata.labels, job.metadata.annotations, suspended=job.spec.suspend)
