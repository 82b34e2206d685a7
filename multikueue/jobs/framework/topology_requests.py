# SPDX-License-Identifier: Apache-2.0
"""`topologyRequest` of a pod set, from the annotations of its template (`docs/spec/kueue-api.md §1.1`, §2.2, §3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from multikueue.api.constants import (
    MAX_TOPOLOGY_CONSTRAINTS_LENGTH,
    POD_SET_GROUP_NAME_ANNOTATION,
    POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION,
    POD_SET_SLICE_SIZE_ANNOTATION,
    POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION,
)
from multikueue.api.objects import JsonObject
from multikueue.api.validation.topology import AnnotatedPodSet, topologies
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned

_TEXTS = (
    (POD_SET_REQUIRED_TOPOLOGY_ANNOTATION, "required"),
    (POD_SET_PREFERRED_TOPOLOGY_ANNOTATION, "preferred"),
    (POD_SET_GROUP_NAME_ANNOTATION, "podSetGroupName"),
    (POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION, "podSetSliceRequiredTopology"),
)


def topology_request(annotations: Mapping[str, str], *, pod_index_label: str = "") -> JsonObject | None:
    """The request; None if the template requests no topology. Raises `BadInput`."""
    request: JsonObject = {field: annotations[key] for key, field in _TEXTS if annotations.get(key)}
    if POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION in annotations:
        request["unconstrained"] = annotations[POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION] == "true"
    if POD_SET_SLICE_SIZE_ANNOTATION in annotations:
        request["podSetSliceSize"] = parse_unsigned(
            annotations[POD_SET_SLICE_SIZE_ANNOTATION],
            field=f"annotation {POD_SET_SLICE_SIZE_ANNOTATION}",
            maximum=MAX_INT32,
        )
    if POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION in annotations:
        request["podsetSliceRequiredTopologyConstraints"] = _constraints(
            annotations[POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION]
        )
    if not request:
        return None
    if pod_index_label:
        request["podIndexLabel"] = pod_index_label
    return request


def topology_refusals(new: Iterable[AnnotatedPodSet], old: Iterable[AnnotatedPodSet] = ()) -> tuple[str, ...]:
    """What the pod sets ask for and cannot have; a job that was taken with it before may still be changed."""
    before = set(map(str, topologies(old)))
    return tuple(text for text in map(str, topologies(new)) if text not in before)


def _constraints(text: str) -> list[JsonObject]:
    field = f"annotation {POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION}"
    if len(text) > MAX_TOPOLOGY_CONSTRAINTS_LENGTH:
        raise BadInput(f"{field}: expected at most {MAX_TOPOLOGY_CONSTRAINTS_LENGTH} characters, found {len(text)}")
    try:
        constraints = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{field}: not JSON: {error}") from error
    if not isinstance(constraints, list) or not all(isinstance(item, dict) for item in constraints):
        raise BadInput(f"{field}: expected a list of objects")
    for index, item in enumerate(constraints):
        parse_unsigned(item.get("size"), field=f"{field}: [{index}].size", maximum=MAX_INT32)
    return constraints
