# SPDX-License-Identifier: Apache-2.0
"""The formats of annotations on jobs, pod templates and Workloads (`docs/spec/kueue-api.md §3.5`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from multikueue.api import constants, featuregates, names
from multikueue.api.featuregates import Gate
from multikueue.api.validation.errors import FieldError, duplicate, forbidden, invalid, required
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_signed, parse_unsigned
from multikueue.core.printable import excerpt

ANNOTATIONS: Final = "metadata.annotations"
MAX_GATE: Final = 63
MAX_CONSTRAINTS: Final = 3
_INT32: Final = 2**31
_TOPOLOGIES: Final = (
    constants.POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    constants.POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    constants.POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION,
)


def at(path: str, key: str) -> str:
    """The path of one key of a map."""
    return f"{path}[{key}]"


def gates(values: Mapping[str, str]) -> list[str]:
    """The gates that hold the admission; none when the annotation is absent or empty."""
    text = values.get(constants.ADMISSION_GATED_BY_ANNOTATION, "")
    return text.split(",") if text else []


def admission_gates(new: Mapping[str, str], old: Mapping[str, str] | None) -> Iterator[FieldError]:
    """The gates are well formed, and after creation they only get fewer."""
    path = at(ANNOTATIONS, constants.ADMISSION_GATED_BY_ANNOTATION)
    seen: set[str] = set()
    for gate in gates(new):
        domain, slash, rest = gate.partition("/")
        if not slash or not rest or [*names.dns_subdomain(domain), *names.label_key(gate)]:
            yield invalid(path, gate, "must be a domain-prefixed path, such as example.com/gate")
        if len(gate) > MAX_GATE:
            yield invalid(path, gate, f"must be no more than {MAX_GATE} characters")
        if gate in seen:
            yield duplicate(path, gate)
        seen.add(gate)
    if old is not None:
        added = sorted(seen - set(gates(old)))
        if added:
            yield forbidden(path, f"gates can be added only at creation; added: {', '.join(added)}")


def priority_boost(values: Mapping[str, str]) -> Iterator[FieldError]:
    """The boost is an int32."""
    text = values.get(constants.PRIORITY_BOOST_ANNOTATION)
    if text is not None and parse_int32(text) is None:
        yield invalid(at(ANNOTATIONS, constants.PRIORITY_BOOST_ANNOTATION), text, "must be a 32-bit integer")


def parse_int32(text: str) -> int | None:
    """The number, or None where `text` is none or too large."""
    try:
        value = parse_signed(text, field="")
    except BadInput:
        return None
    return value if -_INT32 <= value < _INT32 else None


def parse_count(text: str) -> int | None:
    """The number as the job reconciler reads it, without a sign; None where `text` is none or too large."""
    try:
        return parse_unsigned(text, field="", maximum=MAX_INT32)
    except BadInput:
        return None


def elastic(new: Mapping[str, str], old: Mapping[str, str] | None, *, gate: Gate) -> Iterator[FieldError]:
    """Nothing becomes a part of an elastic job while the feature is off; what is one already may still be changed."""
    if gate(featuregates.ELASTIC_JOBS):
        return
    before = {} if old is None else old
    for key in (constants.ELASTIC_JOB_ANNOTATION, constants.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION):
        wanted = key in new and (key != constants.ELASTIC_JOB_ANNOTATION or new[key] == "true")
        if wanted and before.get(key) != new[key]:
            yield forbidden(
                at(ANNOTATIONS, key),
                f"elastic jobs are not supported while the feature gate {featuregates.ELASTIC_JOBS} is off;"
                " remove the annotation",
            )


def elastic_kept(new: Mapping[str, str], old: Mapping[str, str] | None, *, gate: Gate) -> Iterator[FieldError]:
    """A job becomes elastic when it is created or never; with the feature off the annotation may be taken away."""
    key = constants.ELASTIC_JOB_ANNOTATION
    if old is not None and gate(featuregates.ELASTIC_JOBS) and (new.get(key) == "true") != (old.get(key) == "true"):
        yield invalid(at(ANNOTATIONS, key), new.get(key, ""), "field is immutable")


def topology(values: Mapping[str, str], *, path: str, count: int) -> Iterator[FieldError]:
    """What a pod template of `count` pods asks of topology aware scheduling."""
    given = [key for key in _TOPOLOGIES if key in values]
    if len(given) > 1:
        yield invalid(path, ", ".join(given), "must not contain more than one topology annotation")
    for key in (*_TOPOLOGIES[:2], constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION):
        if key in values:
            for problem in names.label_key(values[key]):
                yield invalid(at(path, key), values[key], problem)
    unconstrained = values.get(constants.POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION)
    if unconstrained not in (None, "true", "false"):
        yield invalid(at(path, constants.POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION), unconstrained, "must be a boolean")
    yield from _group(values, path=path, given=given)
    yield from _slices(values, path=path, count=count)


def _group(values: Mapping[str, str], *, path: str, given: list[str]) -> Iterator[FieldError]:
    key = constants.POD_SET_GROUP_NAME_ANNOTATION
    name = values.get(key)
    if name is None:
        return
    if name.isdigit():
        yield invalid(at(path, key), name, "must not be a number")
    if not set(given) & set(_TOPOLOGIES[:2]):
        yield forbidden(at(path, key), "may be set only with a required or preferred topology")
    slices = (constants.POD_SET_SLICE_SIZE_ANNOTATION, constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION)
    if any(other in values for other in slices):
        yield forbidden(at(path, key), "may not be combined with slices")


def _slices(values: Mapping[str, str], *, path: str, count: int) -> Iterator[FieldError]:
    topology_key = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION
    size_key = constants.POD_SET_SLICE_SIZE_ANNOTATION
    constraints_key = constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION
    if topology_key in values and size_key not in values:
        yield required(at(path, size_key), f"must be set when {topology_key} is specified")
    if size_key in values:
        size = parse_count(values[size_key])
        if topology_key not in values:
            yield forbidden(at(path, size_key), f"may not be set when {topology_key} is not specified")
        if size is None or size < 1:
            yield invalid(at(path, size_key), values[size_key], "must be greater than or equal to 1")
        elif size > count:
            yield invalid(at(path, size_key), values[size_key], f"must not be greater than pod set count {count}")
    if constraints_key in values:
        if topology_key in values or size_key in values:
            yield forbidden(at(path, constraints_key), f"may not be combined with {topology_key} or {size_key}")
        yield from _constraints(values[constraints_key], at(path, constraints_key))


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
        if size >= _INT32:
            yield invalid(f"{path}[{index}].size", excerpt(size), f"must be at most {_INT32 - 1}")
            return
        if outer is not None and outer % size:
            yield invalid(f"{path}[{index}].size", size, f"must divide the size {outer} of the layer around it")
        outer = size
