# SPDX-License-Identifier: Apache-2.0
"""A pod that is queued, or in a group (`docs/spec/kueue-api.md §3.6`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from multikueue.api import constants, names
from multikueue.api.objects import JsonObject
from multikueue.api.validation import formats
from multikueue.api.validation.errors import FieldError, forbidden, invalid, required
from multikueue.api.validation.formats import ANNOTATIONS, at
from multikueue.api.validation.topology import AnnotatedPodSet, topologies

_LABELS: Final = "metadata.labels"
_GROUP: Final = constants.POD_GROUP_NAME_LABEL
_TOTAL: Final = constants.POD_GROUP_TOTAL_COUNT_ANNOTATION
_RETRIABLE: Final = constants.RETRIABLE_IN_GROUP_ANNOTATION


def pod_errors(new: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Everything that is wrong with the labels and annotations of `new`; `old` is what it replaces."""
    labels, annotations = _texts(new, "labels"), _texts(new, "annotations")
    managed = labels.get(constants.MANAGED_LABEL)
    if managed not in (None, constants.MANAGED_LABEL_VALUE):
        yield forbidden(at(_LABELS, constants.MANAGED_LABEL), "managed label value can only be 'true'")
    group, total = _group(new), annotations.get(_TOTAL)
    if group:
        for problem in names.dns_subdomain(group):
            yield invalid(at(_LABELS, _GROUP), group, problem)
        if total is None:
            yield required(at(ANNOTATIONS, _TOTAL), "both the group's name and its total count have to be set")
    elif total is not None:
        yield required(at(_LABELS, _GROUP), "both the group's name and its total count have to be set")
    if total is not None and (formats.parse_count(total) or 0) < 1:
        yield invalid(at(ANNOTATIONS, _TOTAL), total, "should be a positive integer")
    before = [] if old is None else [*topologies([_asked(old)])]
    yield from (error for error in topologies([_asked(new)]) if error not in before)
    prebuilt = labels.get(constants.PREBUILT_WORKLOAD_LABEL) or annotations.get(constants.PREBUILT_WORKLOAD_ANNOTATION)
    if group and prebuilt and prebuilt != group:
        yield invalid(at(_LABELS, constants.PREBUILT_WORKLOAD_LABEL), prebuilt, "must be the name of the pod group")
    if old is None:
        return
    if managed is None and _texts(old, "labels").get(constants.MANAGED_LABEL) == constants.MANAGED_LABEL_VALUE:
        yield forbidden(at(_LABELS, constants.MANAGED_LABEL), "managed label cannot be removed")
    if group != _group(old):
        yield invalid(at(_LABELS, _GROUP), group, "field is immutable")
    if _texts(old, "annotations").get(_RETRIABLE) == "false" and annotations.get(_RETRIABLE) != "false":
        path = at(ANNOTATIONS, _RETRIABLE)
        yield forbidden(path, "unretriable pod group can't be converted to retriable")


def _asked(pod: JsonObject) -> AnnotatedPodSet:
    return AnnotatedPodSet(path=ANNOTATIONS, annotations=_texts(pod, "annotations"))


def _group(pod: JsonObject) -> str:
    return _texts(pod, "labels").get(_GROUP) or _texts(pod, "annotations").get(_GROUP, "")


def _texts(pod: JsonObject, field: str) -> dict[str, str]:
    found: dict[str, str] = (pod.get("metadata") or {}).get(field) or {}
    return found
