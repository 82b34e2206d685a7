# SPDX-License-Identifier: Apache-2.0
"""The queue of a Deployment or StatefulSet in its pod template, and what the webhooks refuse in the template.

The pods get queue and priority class from there, and the annotation `kueue.x-k8s.io/pod-suspending-parent` names the
framework of their owner, as with Kueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from multikueue.api import constants
from multikueue.api.objects import JsonObject
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.protocol import JobIntegration

_TEMPLATE: Final = "spec.template.metadata"
_COPIED: Final = (constants.QUEUE_NAME_LABEL, constants.PRIORITY_CLASS_LABEL)
_GROUP_LABELS: Final = (constants.POD_GROUP_NAME_LABEL, constants.PREBUILT_WORKLOAD_LABEL)
_GROUP_ANNOTATIONS: Final = (
    *_GROUP_LABELS,
    constants.POD_GROUP_TOTAL_COUNT_ANNOTATION,
    constants.POD_GROUP_FAST_ADMISSION_ANNOTATION,
    constants.POD_GROUP_SERVING_ANNOTATION,
)


def labels_of(obj: JsonObject) -> dict[str, str]:
    """The labels of an object, or of a pod template."""
    return (obj.get("metadata") or {}).get("labels") or {}


def template_of(job: JsonObject) -> JsonObject:
    """`spec.template`."""
    return (job.get("spec") or {}).get("template") or {}


def with_queue(job: JsonObject, framework: str) -> JsonObject:
    """The job with its own queue and priority class in its pod template."""
    return _with_template(job, {key: labels_of(job)[key] for key in _COPIED if labels_of(job).get(key)}, framework)


def without_queue(job: JsonObject) -> JsonObject:
    """The job that has left its queue: its pods have none either."""
    return _with_template(job, dict.fromkeys(_COPIED), None)


def is_left(new: JsonObject, old: JsonObject) -> bool:
    """Whether an update removes the queue."""
    return bool(labels_of(old).get(constants.QUEUE_NAME_LABEL) and not labels_of(new).get(constants.QUEUE_NAME_LABEL))


def template_refusals(job: JsonObject, integration: JobIntegration, *, why: str) -> Iterator[str]:
    """What a queued job must not have in its labels and its pod template; `why` is the reason for groups."""
    kind = integration.resource.kind
    prebuilt = constants.PREBUILT_WORKLOAD_LABEL
    for field in ("labels", "annotations"):
        if prebuilt in ((job.get("metadata") or {}).get(field) or {}):
            yield f"metadata.{field}[{prebuilt}]: Forbidden: a {kind} cannot use a Workload that its user made"
    metadata = template_of(job).get("metadata") or {}
    for field, keys in (("labels", _GROUP_LABELS), ("annotations", _GROUP_ANNOTATIONS)):
        for key in keys:
            if key in (metadata.get(field) or {}):
                yield f"{_TEMPLATE}.{field}[{key}]: Forbidden: {why}"
    queue, wanted = (labels_of(each).get(constants.QUEUE_NAME_LABEL) for each in (template_of(job), job))
    if wanted and queue != wanted:
        path = f"{_TEMPLATE}.labels[{constants.QUEUE_NAME_LABEL}]"
        yield f"{path}: Invalid value: {excerpt(queue or '')}: must be {excerpt(wanted)}, the queue of the {kind}"


def _with_template(job: JsonObject, labels: Mapping[str, str | None], framework: str | None) -> JsonObject:
    spec: JsonObject = job.get("spec") or {}
    template = template_of(job)
    metadata = dict(template.get("metadata") or {})
    for field, changes in (
        ("labels", labels),
        ("annotations", {constants.POD_SUSPENDING_PARENT_ANNOTATION: framework}),
    ):
        values: dict[str, object] = {**(metadata.get(field) or {}), **changes}
        kept = {key: value for key, value in values.items() if value is not None}
        if kept:
            metadata[field] = kept
        else:
            metadata.pop(field, None)
    return {**job, "spec": {**spec, "template": {**template, "metadata": metadata}}}
