# SPDX-License-Identifier: Apache-2.0
"""The formats of annotations on jobs, pod templates and Workloads (`docs/spec/kueue-api.md §3.5`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from multikueue.api import constants, featuregates, names
from multikueue.api.featuregates import Gate
from multikueue.api.validation.errors import FieldError, duplicate, forbidden, invalid
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_signed, parse_unsigned

ANNOTATIONS: Final = "metadata.annotations"
MAX_GATE: Final = 63
_INT32: Final = 2**31


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
