# SPDX-License-Identifier: Apache-2.0
"""Adding what admission decided to a pod template, and comparing templates.

Owns the merge rules of `docs/spec/kueue-api.md §4.2` step 13: an existing key with another value is a conflict; an
existing toleration or gate is not added twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from multikueue.api.constants import (
    CLUSTER_QUEUE_LABEL,
    CONSUME_PROVISIONING_REQUEST_ANNOTATION,
    ELASTIC_JOB_POD_LABEL,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    PROVISIONING_CLASS_NAME_ANNOTATION,
    WORKER_WORKLOAD_POD_LABEL,
    WORKLOAD_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo

INJECTED_KEYS: Final = frozenset(
    {
        WORKER_WORKLOAD_POD_LABEL,
        CLUSTER_QUEUE_LABEL,
        LOCAL_QUEUE_LABEL,
        POD_SET_LABEL,
        WORKLOAD_ANNOTATION,
        ELASTIC_JOB_POD_LABEL,
    }
)
"""Labels and annotations that admission sets on pods, with values of that one Workload."""
PROVISIONED_KEYS: Final = frozenset({CONSUME_PROVISIONING_REQUEST_ANNOTATION, PROVISIONING_CLASS_NAME_ANNOTATION})
"""Annotations of provisioned capacity: the next admission may have another request, and must be able to set them."""
_INJECTED_FIELDS: Final = ("nodeSelector", "tolerations", "schedulingGates")


def injected(template: JsonObject, info: PodSetInfo) -> JsonObject:
    """The template with labels, annotations, node selector, tolerations and gates added. Raises `InjectionConflict`."""
    metadata: JsonObject = dict(template.get("metadata") or {})
    spec: JsonObject = dict(template.get("spec") or {})
    _add(metadata, "labels", info.labels, info.name)
    _add(metadata, "annotations", info.annotations, info.name)
    _add(spec, "nodeSelector", info.node_selector, info.name)
    _append(spec, "tolerations", info.tolerations)
    _append(spec, "schedulingGates", info.scheduling_gates)
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": spec}


def restored_spec(spec: JsonObject, original: JsonObject) -> JsonObject:
    """A pod spec with the fields that admission changes as in `original`, and all others unchanged."""
    kept = {name: value for name, value in spec.items() if name not in _INJECTED_FIELDS}
    return {**kept, **{name: original[name] for name in _INJECTED_FIELDS if original.get(name)}}


def restored_metadata(metadata: JsonObject, original: JsonObject) -> JsonObject:
    """The metadata of a template with labels and annotations as in `original`.

    If `original` has neither, as in a Workload that a user created, only those of the admission are removed. The
    template of a Job always has labels.
    """
    kept = {name: value for name, value in metadata.items() if name not in ("labels", "annotations")}
    if original:
        return {**kept, **original}
    own = {name: _without_injected(metadata.get(name) or {}) for name in ("labels", "annotations")}
    return {**kept, **{name: value for name, value in own.items() if value}}


def _without_injected(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in INJECTED_KEYS | PROVISIONED_KEYS}


def same(one: object, other: object) -> bool:
    """Whether two pieces of JSON mean the same: absent, null and empty are alike."""
    return one == other or _stripped(one) == _stripped(other)


def _add(target: JsonObject, field: str, extra: Mapping[str, str], pod_set: str) -> None:
    if not extra:
        return
    merged: dict[str, str] = dict(target.get(field) or {})
    for key, value in extra.items():
        if merged.setdefault(key, value) != value:
            raise InjectionConflict(
                f'pod set "{pod_set}": {field} "{key}" is already "{merged[key]}", cannot set "{value}"'
            )
    target[field] = merged


def _append(target: JsonObject, field: str, extra: Iterable[JsonObject]) -> None:
    present: list[JsonObject] = list(target.get(field) or ())
    added = [item for item in extra if item not in present]
    if added:
        target[field] = present + added


def _stripped(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: item for key, item in ((k, _stripped(v)) for k, v in value.items()) if item not in (None, {}, [])}
    if isinstance(value, list | tuple):
        return [_stripped(item) for item in value]
    return value
