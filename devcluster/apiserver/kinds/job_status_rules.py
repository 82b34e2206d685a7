# SPDX-License-Identifier: Apache-2.0
"""Validation of the status of jobs, as a real server does for every controller of jobs.

Most rules are checked only if one of their fields changes, so that an old status never blocks another change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import read_time
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.values import quoted

_TERMINAL: Final = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
_COUNTERS: Final = ("active", "failed", "ready", "succeeded", "terminating")
_CONDITIONS: Final = "status.conditions"


class _BadIndexes(ValueError):
    """Text that is no list of indexes."""


@dataclass(frozen=True)
class _Status:
    """The status of a job, as the rules read it."""

    spec: JsonObject
    fields: JsonObject

    @cached_property
    def true(self) -> frozenset[str]:
        """The types of its true conditions."""
        entries = documents.items(self.fields, "conditions")
        return frozenset(str(entry.get("type")) for entry in entries if entry.get("status") == "True")

    @property
    def finished(self) -> bool:
        """Whether the job is finished."""
        return bool(self.true & {"Complete", "Failed"})

    def get(self, name: str) -> JsonValue:
        """The value of a field, of `finished`, or of a condition by its type."""
        if name == "finished":
            return self.finished
        return name in self.true if name in _TERMINAL else self.fields.get(name)

    def count(self, name: str) -> int:
        """A counter; 0 if absent."""
        found = self.fields.get(name)
        return found if isinstance(found, int) else 0


_Rule = Callable[[_Status], list[StatusCause]]


def problems(value: JsonObject, old: JsonObject) -> list[StatusCause]:
    """The problems of a job's new status, given the old object."""
    spec = documents.child(value, "spec")
    new, before = _Status(spec, documents.child(value, "status")), _Status(spec, documents.child(old, "status"))
    found = [
        field_errors.invalid(f"status.{name}", new.count(name), "must be greater than or equal to 0")
        for name in _COUNTERS
        if new.count(name) < 0
    ]
    found += _uncounted(new)
    for names, rule in _WHEN_CHANGED:
        if any(new.get(name) != before.get(name) for name in names):
            found += rule(new)
    return found + _decreased(new, before)


def _decreased(new: _Status, before: _Status) -> list[StatusCause]:
    found = []
    # An elastic indexed job may lose completed indexes when it shrinks.
    elastic = new.spec.get("completionMode") == "Indexed" and new.spec.get("completions") == new.spec.get("parallelism")
    for name in ("failed",) if elastic else ("succeeded", "failed"):
        if new.count(name) < before.count(name):
            found.append(field_errors.invalid(f"status.{name}", new.count(name), f"cannot decrease the {name} counter"))
    for kind in _TERMINAL:
        if kind in before.true - new.true:
            what = kind if kind == "SuccessCriteriaMet" else f"terminal {kind}"
            found.append(_refused(f"cannot disable the {what}=True condition"))
    start, began = new.get("startTime"), before.get("startTime")
    if began is not None and start != began and not new.spec.get("suspend"):
        found.append(field_errors.invalid("status.startTime", start, "field is immutable for unsuspended job once set"))
    end, ended = new.get("completionTime"), before.get("completionTime")
    if None not in (end, ended) and end != ended:
        found.append(field_errors.immutable("status.completionTime", end))
    return found


def _refused(detail: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f"Invalid value: {detail}", _CONDITIONS)


def _uncounted(new: _Status) -> list[StatusCause]:
    found, seen = [], set()
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(documents.child(new.fields, "uncountedTerminatedPods").get(name) or ()):
            where = f"status.uncountedTerminatedPods.{name}[{index}]"
            if not uid:
                found.append(field_errors.invalid(where, uid, "must not be empty"))
            elif uid in seen:
                found.append(field_errors.duplicate(where, uid))
            seen.add(uid)
    return found


def _both(one: str, other: str) -> tuple[tuple[str, ...], _Rule]:
    """Two mutually exclusive conditions."""
    detail = f"cannot set {one}=True and {other}=true conditions"
    return (one, other), lambda new: [_refused(detail)] if new.true >= {one, other} else []


def _after(kind: str, first: str) -> tuple[tuple[str, ...], _Rule]:
    """A condition that needs another one before it."""
    detail = f"cannot set {kind}=True condition without the {first}=true condition"
    return (kind, first), lambda new: [_refused(detail)] if kind in new.true and first not in new.true else []


def _zero_when_finished(name: str) -> tuple[tuple[str, ...], _Rule]:
    """A counter that must be 0 in a finished job."""

    def rule(new: _Status) -> list[StatusCause]:
        if not new.finished or new.count(name) <= 0:
            return []
        return [field_errors.invalid(f"status.{name}", new.count(name), f"{name}>0 is invalid for finished job")]

    return ("finished", name), rule


def _all_counted(new: _Status) -> list[StatusCause]:
    waiting = documents.child(new.fields, "uncountedTerminatedPods")
    if not new.finished or not any(waiting.values()):
        return []
    shown = {"Succeeded": waiting.get("succeeded"), "Failed": waiting.get("failed")}
    text = json.dumps(shown, separators=(",", ":"))
    detail = f"Invalid value: {text}: must be empty for finished job"
    return [StatusCause("FieldValueInvalid", detail, "status.uncountedTerminatedPods")]


def _start_is_set(new: _Status) -> list[StatusCause]:
    if not new.finished or new.get("startTime") is not None:
        return []
    return [field_errors.required("status.startTime", "startTime is required for finished job")]


def _end_is_set(new: _Status) -> list[StatusCause]:
    end = new.get("completionTime")
    if "Complete" in new.true and end is None:
        return [field_errors.required("status.completionTime", "completionTime is required for Complete jobs")]
    if "Complete" not in new.true and end is not None:
        detail = "cannot set completionTime when there is no Complete=True condition"
        return [field_errors.invalid("status.completionTime", end, detail)]
    return []


def _ends_after_its_start(new: _Status) -> list[StatusCause]:
    start, end = new.get("startTime"), new.get("completionTime")
    if not isinstance(start, str) or not isinstance(end, str) or read_time(end) >= read_time(start):
        return []
    return [field_errors.invalid("status.completionTime", end, "must be equal to or after `startTime`")]


def _ready(new: _Status) -> list[StatusCause]:
    if new.count("ready") <= new.count("active"):
        return []
    return [field_errors.invalid("status.ready", new.count("ready"), "cannot set more ready pods than active")]


def _completed(new: _Status) -> list[StatusCause]:
    text, where = str(new.get("completedIndexes") or ""), "status.completedIndexes"
    found = []
    if text and new.spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        found.append(field_errors.invalid(where, text, detail))
    return found + _unreadable(new, "completedIndexes", text)


def _failed(new: _Status) -> list[StatusCause]:
    text = new.get("failedIndexes")
    if text is None:
        return []
    if new.spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        return [field_errors.invalid("status.failedIndexes", text, detail)]
    return _unreadable(new, "failedIndexes", str(text))


def _unreadable(new: _Status, name: str, text: str) -> list[StatusCause]:
    try:
        _indexes(text, new)
    except _BadIndexes as error:
        return [field_errors.invalid(f"status.{name}", text, f"error parsing {name}: {error}")]
    return []


def _disjoint(new: _Status) -> list[StatusCause]:
    failed = new.get("failedIndexes")
    try:
        one = _indexes(str(failed or ""), new)
        other = _indexes(str(new.get("completedIndexes") or ""), new)
    except _BadIndexes:
        return []  # reported already
    common = _first_common(one, other)
    if common is None:
        return []
    detail = f"failedIndexes and completedIndexes overlap at index: {common}"
    return [field_errors.invalid("status.failedIndexes", failed, detail)]


def _first_common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int | None:
    """The first index in intervals of both lists, which are sorted."""
    ends = [-1, -1]
    for first, last, side in sorted([*((*pair, 0) for pair in one), *((*pair, 1) for pair in other)]):
        if first <= ends[1 - side]:
            return first
        ends[side] = last
    return None


def _indexes(text: str, of: _Status) -> list[tuple[int, int]]:
    """The intervals of a text such as `1,3-5`. Raises `_BadIndexes`."""
    found: list[tuple[int, int]] = []
    last = -1
    for part in text.split(",") if text else ():
        bounds = part.split("-")
        for number, bound in enumerate(bounds):
            if not (bound.isascii() and bound.isdecimal() and len(bound) < 20):
                raise _BadIndexes(f"cannot convert string to integer for index: {quoted(bound)}")
            index = int(bound)
            if index >= int(of.spec.get("completions") or 0):
                raise _BadIndexes(f"too large index: {quoted(bound)}")
            if index <= last:
                raise _BadIndexes(f"non-increasing order, previous: {last}, current: {index}")
            if number:
                found.append((found.pop()[0], index))
            else:
                found.append((index, index))
            last = index
    return found


_WHEN_CHANGED: Final[tuple[tuple[tuple[str, ...], _Rule], ...]] = (
    (("completedIndexes",), _completed),
    (("failedIndexes",), _failed),
    (("completedIndexes", "failedIndexes"), _disjoint),
    _both("Complete", "Failed"),
    _both("Complete", "FailureTarget"),
    _both("SuccessCriteriaMet", "Failed"),
    _both("SuccessCriteriaMet", "FailureTarget"),
    _after("Failed", "FailureTarget"),
    _after("Complete", "SuccessCriteriaMet"),
    _zero_when_finished("active"),
    _zero_when_finished("terminating"),
    (("finished", "uncountedTerminatedPods"), _all_counted),
    (("finished", "startTime"), _start_is_set),
    (("Complete", "completionTime"), _end_is_set),
    (("startTime", "completionTime"), _ends_after_its_start),
    (("ready", "active"), _ready),
)
