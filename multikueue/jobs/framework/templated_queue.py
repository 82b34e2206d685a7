# SPDX-License-Identifier: Apache-2.0
"""The queue of a kind whose controller makes pods, in its pod templates, and what the webhooks refuse in these.

The pods get queue and priority class from there, and the annotation `kueue.x-k8s.io/pod-suspending-parent` names the
framework of their owner, as with Kueue. Annotations of the owner that hold for each pod are repeated there as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from multikueue.api import constants
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.capabilities import PodHoldingKind
from multikueue.jobs.framework.protocol import JobIntegration

TemplatePath: TypeAlias = tuple[str, ...]
"""Where a pod template is in an object, by the names of the fields."""
TEMPLATE: Final[TemplatePath] = ("spec", "template")
"""That of the kinds of apps/v1."""
_COPIED: Final = (constants.QUEUE_NAME_LABEL, constants.PRIORITY_CLASS_LABEL)
_GROUP_LABELS: Final = (constants.POD_GROUP_NAME_LABEL, constants.PREBUILT_WORKLOAD_LABEL)
_GROUP_ANNOTATIONS: Final = (
    *_GROUP_LABELS,
    constants.POD_GROUP_TOTAL_COUNT_ANNOTATION,
    constants.POD_GROUP_FAST_ADMISSION_ANNOTATION,
)
"""Without these `pod-group-serving` has no effect; Kueue's webhook adds it to the templates of LeaderWorkerSets."""


def labels_of(obj: JsonObject) -> dict[str, str]:
    """The labels of an object, or of a pod template."""
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: JsonObject) -> dict[str, str]:
    """The annotations of an object, or of a pod template."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def template_of(job: JsonObject, path: TemplatePath = TEMPLATE) -> JsonObject:
    """The pod template there; empty if there is none. Raises `BadInput` where it is no object."""
    found = job
    for index, name in enumerate(path):
        found = found.get(name) or {}
        if not isinstance(found, dict):
            raise BadInput(f"{'.'.join(path[: index + 1])}: expected an object, found {excerpt(found)}")
    return found


def with_queue(job: JsonObject, framework: str, *, paths: Sequence[TemplatePath] = (TEMPLATE,)) -> JsonObject:
    """The job with its own queue and priority class in its pod templates."""
    copied = {key: labels_of(job)[key] for key in _COPIED if labels_of(job).get(key)}
    for path in paths:
        job = _with_template(job, path, copied, {constants.POD_SUSPENDING_PARENT_ANNOTATION: framework})
    return job


def without_queue(job: JsonObject, *, paths: Sequence[TemplatePath] = (TEMPLATE,)) -> JsonObject:
    """The job that has left its queue: its pods have none either."""
    for path in paths:
        job = _with_template(job, path, dict.fromkeys(_COPIED), {constants.POD_SUSPENDING_PARENT_ANNOTATION: None})
    return job


def with_annotations(job: JsonObject, keys: Sequence[str], *, old: JsonObject | None = None) -> JsonObject:
    """The job with its own values of these annotations in its pod template.

    After an update that takes one off the job, the value that was repeated goes; one that only the template has stays.
    """
    own, former = annotations_of(job), annotations_of(old or {})
    there = annotations_of(template_of(job))
    changes: dict[str, str | None] = {key: own[key] for key in keys if key in own}
    changes |= {key: None for key in keys if key not in own and key in former and there.get(key) == former[key]}
    return _with_template(job, TEMPLATE, {}, changes) if changes else job


def is_left(new: JsonObject, old: JsonObject) -> bool:
    """Whether an update removes the queue."""
    return bool(labels_of(old).get(constants.QUEUE_NAME_LABEL) and not labels_of(new).get(constants.QUEUE_NAME_LABEL))


def template_refusals(
    new: JsonObject,
    old: JsonObject | None,
    integration: JobIntegration,
    *,
    why: str,
    paths: Sequence[TemplatePath] = (TEMPLATE,),
) -> Iterator[str]:
    """What the pod templates of a queued job must not have, unless they have it already; `why` is that of groups."""
    kind = integration.resource.kind
    for path in paths:
        template, before = (template_of(each or {}, path) for each in (new, old))
        at = f"{'.'.join(path)}.metadata"
        for field, keys in (("labels", _GROUP_LABELS), ("annotations", _GROUP_ANNOTATIONS)):
            values, former = ((each.get("metadata") or {}).get(field) or {} for each in (template, before))
            for key in keys:
                if key in values and (key, values[key]) not in former.items():
                    yield f"{at}.{field}[{key}]: Forbidden: {why}"
        queue, wanted = (labels_of(each).get(constants.QUEUE_NAME_LABEL) for each in (template, new))
        if wanted and queue != wanted:
            label = f"{at}.labels[{constants.QUEUE_NAME_LABEL}]"
            yield f"{label}: Invalid value: {excerpt(queue or '')}: must be {excerpt(wanted)}, the queue of the {kind}"


def prebuilt_refusals(job: JsonObject, kind: str) -> Iterator[str]:
    """That a job names a Workload, of a kind that cannot have one of its user."""
    prebuilt = constants.PREBUILT_WORKLOAD_LABEL
    for field in ("labels", "annotations"):
        if prebuilt in ((job.get("metadata") or {}).get(field) or {}):
            yield f"metadata.{field}[{prebuilt}]: Forbidden: a {kind} cannot use a Workload that its user made"


def named_by(pod: JsonObject, kind: JobIntegration | PodHoldingKind) -> str:
    """The job of that kind that a pod names by what its template gave it; empty if it names none.

    Other objects may be between the two. Whoever may create pods can write that, so it can only hold a pod back.
    """
    label = kind.traits.pod_label
    if not label or not kind.traits.holds_pods:
        return ""
    metadata: JsonObject = pod.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(constants.POD_SUSPENDING_PARENT_ANNOTATION) != kind.framework:
        return ""
    return str((metadata.get("labels") or {}).get(label) or "")


def _with_template(
    job: JsonObject, path: TemplatePath, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
) -> JsonObject:
    template = template_of(job, path)
    metadata = dict(template.get("metadata") or {})
    for field, changes in (("labels", labels), ("annotations", annotations)):
        values: dict[str, object] = {**(metadata.get(field) or {}), **changes}
        kept = {key: value for key, value in values.items() if value is not None}
        if kept:
            metadata[field] = kept
        else:
            metadata.pop(field, None)
    return _replaced(job, path, {**template, "metadata": metadata})


def _replaced(obj: JsonObject, path: TemplatePath, value: JsonObject) -> JsonObject:
    if not path:
        return value
    name, *rest = path
    return {**obj, name: _replaced(obj.get(name) or {}, tuple(rest), value)}
