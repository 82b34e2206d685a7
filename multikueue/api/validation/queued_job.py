# SPDX-License-Identifier: Apache-2.0
"""What holds for a queued job of any kind: its labels and annotations (`docs/spec/kueue-api.md §3.4`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.api import constants, featuregates, names
from multikueue.api.featuregates import Gate
from multikueue.api.validation import formats
from multikueue.api.validation.errors import FieldError, invalid, required
from multikueue.api.validation.formats import at

_LABELS: Final = "metadata.labels"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """The labels and annotations of a job, and whether it is held."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    suspended: bool

    @property
    def prebuilt(self) -> str:
        """The Workload that the job brings along, or nothing."""
        return self.labels.get(constants.PREBUILT_WORKLOAD_LABEL) or self.annotations.get(
            constants.PREBUILT_WORKLOAD_ANNOTATION, ""
        )


def validate_queued_job(
    new: QueuedJob, old: QueuedJob | None, *, has_default_queue: bool = False, gate: Gate = featuregates.default
) -> list[FieldError]:
    """Everything that is wrong with `new`, apart from the rules of its kind; `old` is what it replaces."""
    before = None if old is None else old.annotations
    errors = [*names_of(new), *formats.admission_gates(new.annotations, before)]
    errors += formats.elastic(new.annotations, before, gate=gate)
    errors += formats.elastic_kept(new.annotations, before, gate=gate)
    if old is not None:
        errors += update(new, old, has_default_queue=has_default_queue)
    return errors


def names_of(job: QueuedJob) -> Iterator[FieldError]:
    """The names and the number in its labels are well formed."""
    for key in (constants.QUEUE_NAME_LABEL, constants.PRIORITY_CLASS_LABEL):
        if job.labels.get(key):
            for problem in names.dns_subdomain(job.labels[key]):
                yield invalid(at(_LABELS, key), job.labels[key], problem)
    if job.prebuilt:
        for problem in names.dns_subdomain(job.prebuilt):
            yield invalid(at(_LABELS, constants.PREBUILT_WORKLOAD_LABEL), job.prebuilt, problem)
    limit = job.labels.get(constants.MAX_EXEC_TIME_LABEL)
    if limit is not None and (formats.parse_count(limit) or 0) < 1:
        yield invalid(at(_LABELS, constants.MAX_EXEC_TIME_LABEL), limit, "should be a positive integer")


def update(new: QueuedJob, old: QueuedJob, *, has_default_queue: bool, elastic: bool = False) -> Iterator[FieldError]:
    """The labels that a job that runs keeps."""
    queue = at(_LABELS, constants.QUEUE_NAME_LABEL)
    before, after = (job.labels.get(constants.QUEUE_NAME_LABEL, "") for job in (old, new))
    if before != after and not new.suspended:
        yield invalid(queue, after, "field is immutable while the job is not suspended")
    if before and not after and has_default_queue:
        yield required(queue, "cannot be removed in a namespace with a default LocalQueue")
    if not new.suspended and not elastic and new.prebuilt != old.prebuilt:
        path = at(_LABELS, constants.PREBUILT_WORKLOAD_LABEL)
        yield invalid(path, new.prebuilt, "field is immutable while the job is not suspended")
    limits = [job.labels.get(constants.MAX_EXEC_TIME_LABEL, "") for job in (old, new)]
    if limits[0] != limits[1] and not (new.suspended and old.suspended):
        path = at(_LABELS, constants.MAX_EXEC_TIME_LABEL)
        yield invalid(path, limits[1], "field is immutable while the job is not suspended")
    yield from _priority_class(new, old)


def _priority_class(new: QueuedJob, old: QueuedJob) -> Iterator[FieldError]:
    path = at(_LABELS, constants.PRIORITY_CLASS_LABEL)
    before, after = (job.labels.get(constants.PRIORITY_CLASS_LABEL, "") for job in (old, new))
    if before and not after:
        yield invalid(path, after, "can be changed but not removed")
    elif after and not before and not new.suspended:
        yield invalid(path, after, "cannot be added while the job is not suspended")
