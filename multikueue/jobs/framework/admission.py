# SPDX-License-Identifier: Apache-2.0
"""What the webhooks set in a job of any kind, and what they refuse, by the traits of its kind."""

from __future__ import annotations

from collections.abc import Iterator

from multikueue.api import featuregates
from multikueue.api.constants import ADOPTS_ANNOTATION, ELASTIC_JOB_ANNOTATION, MULTIKUEUE_MANAGED_BY
from multikueue.api.defaulting import JobSurroundings, default_gated, default_job, default_labels, is_queued
from multikueue.api.featuregates import ELASTIC_JOBS, Gate
from multikueue.api.objects import JsonObject
from multikueue.api.validation.queued_job import QueuedJob, validate_queued_job
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.capabilities import DefaultedKind, GroupedKind, ValidatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import elastic_problem, is_elastic
from multikueue.jobs.framework.traits import Hold


def defaulted(
    job: JsonObject,
    integration: JobIntegration,
    surroundings: JobSurroundings,
    *,
    gate: Gate = featuregates.default,
) -> JsonObject:
    """The job as it is created: with a queue and a priority class, and held; itself if it is not queued."""
    traits = integration.traits
    if isinstance(integration, DefaultedKind):
        if not is_queued(job, surroundings):
            return job
        return integration.defaulted(default_labels(job, surroundings, gate=gate), surroundings)
    if traits.pods_are_jobs:
        return job
    if traits.hold is Hold.GATE:
        return default_gated(job, surroundings, gate=gate)
    return default_job(
        job,
        surroundings,
        suspend=traits.suspend_path if traits.hold is Hold.SUSPEND else (),
        suspended=traits.suspended_value,
        managed_by=traits.managed_by_path if traits.has_managed_by else (),
        own_controller=traits.own_controller,
        gate=gate,
    )


def recreation(job: JsonObject, integration: JobIntegration) -> str:
    """When a job whose queue did not exist has to be created again, to be added to an advice; empty if never.

    Who runs it is set by the webhook when it is created, by the queue of that time, and cannot be changed.
    """
    if not integration.traits.has_managed_by:
        return ""
    has = "no" if integration.managed_by(job) == MULTIKUEUE_MANAGED_BY else "a"
    kind = integration.resource.kind
    return f"; if that queue has {has} MultiKueue check, then delete the {kind} and create it again"


def refusals(
    new: JsonObject,
    old: JsonObject | None,
    integration: JobIntegration,
    *,
    has_default_queue: bool,
    gate: Gate = featuregates.default,
) -> tuple[str, ...]:
    """Why a job is refused, each text once; `old` is what it replaces."""
    if isinstance(integration, ValidatedKind):
        found = integration.refusals(new, old, has_default_queue=has_default_queue, gate=gate)
    else:
        found = common_refusals(new, old, integration, has_default_queue=has_default_queue, gate=gate)
    # One that has become elastic already may still be changed.
    problem = elastic_problem(new, integration) if gate(ELASTIC_JOBS) and (old is None or not is_elastic(old)) else ""
    field = f"metadata.annotations[{ELASTIC_JOB_ANNOTATION}]"
    return (*found, f"{field}: Forbidden: {problem}") if problem else found


def common_refusals(
    new: JsonObject,
    old: JsonObject | None,
    integration: JobIntegration,
    *,
    has_default_queue: bool,
    gate: Gate = featuregates.default,
) -> tuple[str, ...]:
    """Why a job is refused by the rules that hold for every kind."""
    try:
        queued = queued_job(new, integration)
        before = None if old is None else queued_job(old, integration)
    except BadInput as error:
        return (str(error),)
    errors = validate_queued_job(queued, before, has_default_queue=has_default_queue, gate=gate)
    found = [*map(str, errors)]
    wanted = queued.annotations.get(ADOPTS_ANNOTATION)
    if wanted is not None and (before is None or before.annotations.get(ADOPTS_ANNOTATION) != wanted):
        found.extend(_adoption_refusals(new, integration))
    return tuple(dict.fromkeys(found))


def _adoption_refusals(job: JsonObject, integration: JobIntegration) -> Iterator[str]:
    """Why no remote job can be adopted by a job like this."""
    field, kind = f"metadata.annotations[{ADOPTS_ANNOTATION}]: Forbidden", integration.resource.kind
    if integration.traits.sent_as is not None or integration.traits.pods_are_jobs:
        yield f"{field}: a {kind} cannot adopt a remote job: its pods are sent to workers, and not itself"
    elif not integration.traits.dispatched:
        yield f"{field}: a {kind} is not sent to workers, so that it cannot adopt a remote job"
    elif isinstance(integration, GroupedKind) and integration.group_of(job):
        yield f"{field}: a {kind} of a group cannot adopt a remote job; submit the group again without the annotation"


def queued_job(job: JsonObject, integration: JobIntegration) -> QueuedJob:
    """The labels and annotations of a job. Raises `BadInput` where they are no texts."""
    metadata: JsonObject = job.get("metadata") or {}
    return QueuedJob(
        _texts(metadata, "labels"), _texts(metadata, "annotations"), suspended=integration.is_suspended(job)
    )


def _texts(metadata: JsonObject, field: str) -> dict[str, str]:
    found = metadata.get(field) or {}
    if not isinstance(found, dict):
        raise BadInput(f"metadata.{field}: expected an object, found {excerpt(found)}")
    for key, value in found.items():
        if not isinstance(value, str):
            raise BadInput(f"metadata.{field}[{excerpt(key)}]: expected text, found {excerpt(value)}")
    return found
