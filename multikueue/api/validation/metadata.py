# SPDX-License-Identifier: Apache-2.0
"""Labels, annotations, selectors, taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from multikueue.api import names
from multikueue.api.meta import WireLabelSelector, WireTaint, WireToleration
from multikueue.api.validation.errors import FieldError, duplicate, forbidden, invalid, not_supported, required

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SET_OPERATORS: Final = ("In", "NotIn")
_PRESENCE_OPERATORS: Final = ("Exists", "DoesNotExist")


def labels(values: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Keys and values of labels or of a node selector."""
    for key, value in values.items():
        for problem in names.label_key(key):
            yield invalid(path, key, problem)
        for problem in names.label_value(value):
            yield invalid(path, value, problem)


def annotation_keys(values: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Keys of annotations; their case does not matter."""
    for key in values:
        for problem in names.label_key(key.lower()):
            yield invalid(path, key, problem)


def selector(value: WireLabelSelector, path: str) -> Iterator[FieldError]:
    """A label selector."""
    yield from labels(value.match_labels, f"{path}.matchLabels")
    for index, expression in enumerate(value.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        if expression.operator in _SET_OPERATORS:
            if not expression.values:
                yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif expression.operator in _PRESENCE_OPERATORS:
            if expression.values:
                yield forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        else:
            yield not_supported(f"{where}.operator", expression.operator, (*_SET_OPERATORS, *_PRESENCE_OPERATORS))
        for problem in names.label_key(expression.key):
            yield invalid(f"{where}.key", expression.key, problem)
        for position, item in enumerate(expression.values):
            for problem in names.label_value(item):
                yield invalid(f"{where}.values[{position}]", item, problem)


def taints(values: Sequence[WireTaint], path: str) -> Iterator[FieldError]:
    """Taints of a flavor; key and effect together are unique."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(values):
        where = f"{path}[{index}]"
        for problem in names.label_key(taint.key):
            yield invalid(f"{where}.key", taint.key, problem)
        for problem in names.label_value(taint.value):
            yield invalid(f"{where}.value", taint.value, problem)
        if taint.effect not in EFFECTS:
            yield not_supported(f"{where}.effect", taint.effect, EFFECTS)
        if (taint.key, taint.effect) in seen:
            yield duplicate(where, f"{taint.key}:{taint.effect}")
        seen.add((taint.key, taint.effect))


def tolerations(values: Sequence[WireToleration], path: str) -> Iterator[FieldError]:
    """Tolerations of a flavor or of a check's update."""
    for index, toleration in enumerate(values):
        where = f"{path}[{index}]"
        if toleration.key:
            for problem in names.label_key(toleration.key):
                yield invalid(f"{where}.key", toleration.key, problem)
        elif toleration.operator != "Exists":
            yield invalid(
                f"{where}.operator",
                toleration.operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield invalid(
                f"{where}.effect", toleration.effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
            )
        if toleration.operator not in ("", "Equal", "Exists"):
            yield not_supported(f"{where}.operator", toleration.operator, ("Equal", "Exists"))
        elif toleration.operator == "Exists" and toleration.value:
            yield invalid(f"{where}.operator", toleration.value, "value must be empty when `operator` is 'Exists'")
        for problem in names.label_value(toleration.value):
            yield invalid(f"{where}.value", toleration.value, problem)
        if toleration.effect and toleration.effect not in EFFECTS:
            yield not_supported(f"{where}.effect", toleration.effect, EFFECTS)
