# SPDX-License-Identifier: Apache-2.0
"""Strategic merge of pod templates: lists whose entries have a key are merged by it, all others are replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from multikueue.api.objects import JsonObject

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
}


def patched(template: JsonObject, change: JsonObject, *, adds: bool = False) -> JsonObject:
    """The template with the fields of `change`; with `adds` it keeps its own tolerations as well.

    Both have the types of pod templates.
    """
    made: JsonObject = _merged(template, change)
    own, others = _tolerations(template), _tolerations(change)
    if not adds or not own or not others:
        return made
    kept = [*own, *(each for each in others if each not in own)]
    return {**made, "spec": {**made["spec"], "tolerations": kept}}


def with_container(
    template: JsonObject,
    name: str,
    change: JsonObject,
    *,
    environment: Sequence[JsonObject] = (),
    sources: Sequence[JsonObject] = (),
) -> JsonObject:
    """The template in whose container of that name these fields are replaced, and variables and their sources added.

    Unchanged if it has no such container.
    """
    spec: JsonObject = template.get("spec") or {}
    containers: list[JsonObject] = spec.get("containers") or []
    if all(each.get("name") != name for each in containers):
        return template

    def changed(found: JsonObject) -> JsonObject:
        made = {**found, **change}
        if environment:
            made["env"] = _with_variables(found.get("env") or [], environment)
        if sources:
            made["envFrom"] = [*(found.get("envFrom") or ()), *sources]
        return made

    made = [changed(each) if each.get("name") == name else each for each in containers]
    return {**template, "spec": {**spec, "containers": made}}


def _with_variables(own: Sequence[JsonObject], others: Sequence[JsonObject]) -> list[JsonObject]:
    """The variables, each name once, in the place that it had first."""
    return list({each.get("name"): each for each in (*own, *others)}.values())


def _merged(value: Any, change: Any, *, field: str = "") -> Any:
    if isinstance(value, dict) and isinstance(change, dict):
        made = {name: _merged(value.get(name), each, field=name) for name, each in change.items()}
        return {**value, **made}
    if isinstance(value, list) and isinstance(change, list) and field in _MERGE_KEYS:
        return _merged_list(value, change, key=_MERGE_KEYS[field])
    return change


def _merged_list(own: Sequence[JsonObject], change: Sequence[JsonObject], *, key: str) -> list[JsonObject]:
    """The entries of both: in the order of the change, with those that only `own` has before what comes later there."""
    order = {each.get(key): index for index, each in enumerate(own)}
    by_key = {each.get(key): each for each in own}
    named = {each.get(key) for each in change}
    left = [each for each in own if each.get(key) not in named]
    made: list[JsonObject] = []
    for each in change:
        place = order.get(each.get(key))
        while left and place is not None and order[left[0].get(key)] < place:
            made.append(left.pop(0))
        made.append(_merged(by_key.get(each.get(key), {}), each))
    return [*made, *left]


def _tolerations(template: JsonObject) -> list[JsonObject]:
    return (template.get("spec") or {}).get("tolerations") or []
