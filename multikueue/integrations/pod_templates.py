# SPDX-License-Identifier: Apache-2.0
"""Adding to a pod template what admission decided, and telling whether two templates mean the same.

Owns the merge rules of `docs/spec/kueue-api.md §4.2` step 13: a key that is there with another value is a conflict, a
toleration or gate that is there is not added twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.api.objects import JsonObject
from multikueue.integrations.protocol import InjectionConflict, PodSetInfo


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
                f'pod set "{pod_set}": {field} "{key}" is "{merged[key]}" already and was to become "{value}"'
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
