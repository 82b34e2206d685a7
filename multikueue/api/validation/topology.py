# SPDX-License-Identifier: Apache-2.0
"""What pod sets ask of topology aware scheduling, in annotations of their templates (`docs/spec/kueue-api.md §3.5`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.api import constants, names
from multikueue.api.validation.errors import FieldError, forbidden, invalid, required
from multikueue.api.validation.formats import at, parse_count
from multikueue.core.parsing import MAX_INT32
from multikueue.core.printable import excerpt

MAX_CONSTRAINTS: Final = 3
_REQUIRED: Final = constants.POD_SET_REQUIRED_TOPOLOGY_ANNOTATION
_PREFERRED: Final = constants.POD_SET_PREFERRED_TOPOLOGY_ANNOTATION
_UNCONSTRAINED: Final = constants.POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION
_GROUP: Final = constants.POD_SET_GROUP_NAME_ANNOTATION
_SLICE: Final = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION
_SIZE: Final = constants.POD_SET_SLICE_SIZE_ANNOTATION
_LAYERS: Final = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION
_TOPOLOGIES: Final = (_REQUIRED, _PREFERRED, _UNCONSTRAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedPodSet:
    """The annotations of the template of one pod set."""

    path: str
    """Of the annotations, such as `spec.template.metadata.annotations`."""
    annotations: Mapping[str, str]
    count: int | None = None
    """Its pods; None where the object does not say how many there are, as a pod of a group does not."""


def topologies(pod_sets: Iterable[AnnotatedPodSet]) -> Iterator[FieldError]:
    """Everything that is wrong with each of a job's pod sets, and with the groups that they form."""
    pod_sets = tuple(pod_sets)
    for each in pod_sets:
        yield from topology(each)
    yield from _groups(pod_sets)


def topology(pod_set: AnnotatedPodSet) -> Iterator[FieldError]:
    """Everything that is wrong with one pod set, whatever the others are."""
    values, path = pod_set.annotations, pod_set.path
    given = [key for key in _TOPOLOGIES if key in values]
    if len(given) > 1:
        yield invalid(path, ", ".join(given), "must not contain more than one topology annotation")
    for key in (_REQUIRED, _PREFERRED, _SLICE):
        if key in values:
            for problem in names.label_key(values[key]):
                yield invalid(at(path, key), values[key], problem)
    if values.get(_UNCONSTRAINED) not in (None, "true", "false"):
        yield invalid(at(path, _UNCONSTRAINED), values[_UNCONSTRAINED], "must be a boolean value")
    yield from _group_name(values, path)
    yield from _slices(values, path, count=pod_set.count)


def _group_name(values: Mapping[str, str], path: str) -> Iterator[FieldError]:
    name = values.get(_GROUP)
    if name is None:
        return
    if name.isdigit():
        yield invalid(at(path, _GROUP), name, "must not be a number")
    if _REQUIRED not in values and _PREFERRED not in values:
        yield forbidden(at(path, _GROUP), f"may not be set when neither '{_PREFERRED}' nor '{_REQUIRED}' is specified")
    for other in (_SIZE, _SLICE):
        if other in values:
            yield forbidden(at(path, _GROUP), f"may not be set when '{other}' is specified")


def _groups(pod_sets: Iterable[AnnotatedPodSet]) -> Iterator[FieldError]:
    members: dict[str, list[AnnotatedPodSet]] = {}
    for each in pod_sets:
        if _GROUP in each.annotations:
            members.setdefault(each.annotations[_GROUP], []).append(each)
    for name, group in members.items():
        if any(each.count is None for each in group):
            continue  # what the others of the group are is not known either
        for each in group:
            path = at(each.path, _GROUP)
            if len(group) != 2:
                yield invalid(path, name, f"can only define groups of exactly 2 pod sets, got: {len(group)} pod set(s)")
            elif all(member.count != 1 for member in group):
                counts = " and ".join(f"{member.count} replica(s)" for member in group)
                yield invalid(
                    path,
                    name,
                    f"can only define groups where at least one pod set has only 1 replica, got: {counts} in the group",
                )
        if len(group) == 2 and len({_asked(each) for each in group}) == 2:
            for each, other in (group, group[::-1]):
                yield invalid(
                    each.path,
                    ", ".join(f"{key}={value}" for key, value in _asked(each)),
                    f"must specify '{_REQUIRED}' or '{_PREFERRED}' topology consistent with '{other.path}'"
                    f" in group '{name}'",
                )


def _asked(pod_set: AnnotatedPodSet) -> tuple[tuple[str, str], ...]:
    return tuple((key, pod_set.annotations[key]) for key in (_REQUIRED, _PREFERRED) if key in pod_set.annotations)


def _slices(values: Mapping[str, str], path: str, *, count: int | None) -> Iterator[FieldError]:
    if _SLICE in values and _SIZE not in values:
        yield required(at(path, _SIZE), f"must be set when '{_SLICE}' is specified")
    if _SIZE in values:
        size = parse_count(values[_SIZE])
        if _SLICE not in values:
            yield forbidden(at(path, _SIZE), f"may not be set when '{_SLICE}' is not specified")
        if size is None or size < 1:
            yield invalid(at(path, _SIZE), values[_SIZE], "must be greater than or equal to 1")
        elif count is not None and size > count:
            yield invalid(at(path, _SIZE), values[_SIZE], f"must not be greater than pod set count {count}")
    if _LAYERS in values:
        if _SLICE in values or _SIZE in values:
            yield forbidden(at(path, _LAYERS), f"may not be combined with {_SLICE} or {_SIZE}")
        yield from _constraints(values[_LAYERS], at(path, _LAYERS))


def _constraints(text: str, path: str) -> Iterator[FieldError]:
    limit = constants.MAX_TOPOLOGY_CONSTRAINTS_LENGTH
    if len(text) > limit:
        yield invalid(path, f"{len(text)} characters", f"must have at most {limit} characters")
        return
    try:
        layers = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield invalid(path, text, f"must be JSON: {error}")
        return
    if not isinstance(layers, list) or not 1 <= len(layers) <= MAX_CONSTRAINTS:
        yield invalid(path, text, f"must be a list of 1 to {MAX_CONSTRAINTS} entries")
        return
    outer: int | None = None
    for index, layer in enumerate(layers):
        size = layer.get("size") if isinstance(layer, dict) else None
        if not isinstance(size, int) or isinstance(size, bool) or size < 1 or not layer.get("topology"):
            yield invalid(f"{path}[{index}]", json.dumps(layer), "must have a topology and a size of at least 1")
            return
        if size > MAX_INT32:
            yield invalid(f"{path}[{index}].size", excerpt(size), f"must be at most {MAX_INT32}")
            return
        if outer is not None and outer % size:
            yield invalid(f"{path}[{index}].size", size, f"must divide the size {outer} of the layer around it")
        outer = size
