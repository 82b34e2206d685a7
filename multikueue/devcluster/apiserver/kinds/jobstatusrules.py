# SPDX-License-Identifier: Apache-2.0
"""What may not be written into the status of a job.

Owns the rules that a real server has for whoever runs jobs, its own controller or another. Most are asked only when one
of the fields that they are about changes: what stands there already is never a reason to refuse something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from multikueue.core.timestamps import parse_time
from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema.values import quoted

_TERMINAL: Final = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
_COUNTERS: Final = ("active", "failed", "ready", "succeeded", "terminating")
_CONDITIONS: Final = "status.conditions"


class _BadIndexes(ValueError):
    """Text that lists no indexes."""


@dataclass(frozen=True)
class _Status:
    """The status of a job as the rules read it."""

    spec: JsonObject
    fields: JsonObject

    @cached_property
    def true(self) -> frozenset[str]:
        """The types of its conditions that hold."""
        entries = documents.items(self.fields, "conditions")
        return frozenset(str(entry.get("type")) for entry in entries if entry.get("status") == "True")

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return bool(self.true & {"Complete", "Failed"})

    def get(self, name: str) -> JsonValue:
        """A field, of a job that is done or not; or whether a condition holds."""
        if name == "finished":
            return self.finished
        return name in self.true if name in _TERMINAL else self.fields.get(name)

    def count(self, name: str) -> int:
        """A counter, 0 where nobody counted."""
        found = self.fields.get(name)
        return found if isinstance(found, int) else 0


_Rule = Callable[[_Status], list[Cause]]


def problems(value: JsonObject, old: JsonObject) -> list[Cause]:
    """What is wrong with the status of a job that had another one before."""
    spec = documents.child(value, "spec")
    new, before = _Status(spec, documents.child(value, "status")), _Status(spec, documents.child(old, "status"))
    found = [
        words.bad_value(f"status.{name}", new.count(name), "must be greater than or equal to 0")
        for name in _COUNTERS
        if new.count(name) < 0
    ]
    found += _uncounted(new)
    for names, rule in _WHEN_CHANGED:
        if any(new.get(name) != before.get(name) for name in names):
            found += rule(new)
    return found + _taken_back(new, before)


def _taken_back(new: _Status, before: _Status) -> list[Cause]:
    found = []
    # One with as many pods as indexes may grow and shrink, and loses what is done with the indexes.
    elastic = new.spec.get("completionMode") == "Indexed" and new.spec.get("completions") == new.spec.get("parallelism")
    for name in ("failed",) if elastic else ("succeeded", "failed"):
        if new.count(name) < before.count(name):
            found.append(words.bad_value(f"status.{name}", new.count(name), f"cannot decrease the {name} counter"))
    for kind in _TERMINAL:
        if kind in before.true - new.true:
            what = kind if kind == "SuccessCriteriaMet" else f"terminal {kind}"
            found.append(_refused(f"cannot disable the {what}=True condition"))
    start, began = new.get("startTime"), before.get("startTime")
    if began is not None and start != began and not new.spec.get("suspend"):
        found.append(words.bad_value("status.startTime", start, "field is immutable for unsuspended job once set"))
    end, ended = new.get("completionTime"), before.get("completionTime")
    if None not in (end, ended) and end != ended:
        found.append(words.immutable("status.completionTime", end))
    return found


def _refused(detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", _CONDITIONS)


def _uncounted(new: _Status) -> list[Cause]:
    found, seen = [], set()
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(documents.child(new.fields, "uncountedTerminatedPods").get(name) or ()):
            where = f"status.uncountedTerminatedPods.{name}[{index}]"
            if not uid:
                found.append(words.bad_value(where, uid, "must not be empty"))
            elif uid in seen:
                found.append(Cause("FieldValueDuplicate", f"Duplicate value: {quoted(uid)}", where))
            seen.add(uid)
    return found


def _both(one: str, other: str) -> tuple[tuple[str, ...], _Rule]:
    """Two conditions that exclude each other."""
    detail = f"cannot set {one}=True and {other}=true conditions"
    return (one, other), lambda new: [_refused(detail)] if new.true >= {one, other} else []


def _after(kind: str, first: str) -> tuple[tuple[str, ...], _Rule]:
    """A condition that comes after another one."""
    detail = f"cannot set {kind}=True condition without the {first}=true condition"
    return (kind, first), lambda new: [_refused(detail)] if kind in new.true and first not in new.true else []


def _rests(name: str) -> tuple[tuple[str, ...], _Rule]:
    """A counter of pods that a finished job has none of."""

    def rule(new: _Status) -> list[Cause]:
        if not new.finished or new.count(name) <= 0:
            return []
        return [words.bad_value(f"status.{name}", new.count(name), f"{name}>0 is invalid for finished job")]

    return ("finished", name), rule


def _all_counted(new: _Status) -> list[Cause]:
    waiting = documents.child(new.fields, "uncountedTerminatedPods")
    if not new.finished or not any(waiting.values()):
        return []
    shown = {"Succeeded": waiting.get("succeeded"), "Failed": waiting.get("failed")}
    text = json.dumps(shown, separators=(",", ":"))
    detail = f"Invalid value: {text}: must be empty for finished job"
    return [Cause("FieldValueInvalid", detail, "status.uncountedTerminatedPods")]


def _began(new: _Status) -> list[Cause]:
    if not new.finished or new.get("startTime") is not None:
        return []
    return [words.required("status.startTime", "startTime is required for finished job")]


def _end_is_told(new: _Status) -> list[Cause]:
    end = new.get("completionTime")
    if "Complete" in new.true and end is None:
        return [words.required("status.completionTime", "completionTime is required for Complete jobs")]
    if "Complete" not in new.true and end is not None:
        detail = "cannot set completionTime when there is no Complete=True condition"
        return [words.bad_value("status.completionTime", end, detail)]
    return []


def _ends_after_its_start(new: _Status) -> list[Cause]:
    start, end = new.get("startTime"), new.get("completionTime")
    if not isinstance(start, str) or not isinstance(end, str) or parse_time(end) >= parse_time(start):
        return []
    return [words.bad_value("status.completionTime", end, "must be equal to or after `startTime`")]


def _ready(new: _Status) -> list[Cause]:
    if new.count("ready") <= new.count("active"):
        return []
    return [words.bad_value("status.ready", new.count("ready"), "cannot set more ready pods than active")]


def _completed(new: _Status) -> list[Cause]:
    text, where = str(new.get("completedIndexes") or ""), "status.completedIndexes"
    found = []
    if text and new.spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        found.append(words.bad_value(where, text, detail))
    return found + _unreadable(new, "completedIndexes", text)


def _failed(new: _Status) -> list[Cause]:
    text = new.get("failedIndexes")
    if text is None:
        return []
    if new.spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        return [words.bad_value("status.failedIndexes", text, detail)]
    return _unreadable(new, "failedIndexes", str(text))


def _unreadable(new: _Status, name: str, text: str) -> list[Cause]:
    try:
        _indexes(text, new)
    except _BadIndexes as error:
        return [words.bad_value(f"status.{name}", text, f"error parsing {name}: {error}")]
    return []


def _apart(new: _Status) -> list[Cause]:
    failed = new.get("failedIndexes")
    try:
        common = _indexes(str(failed or ""), new) & _indexes(str(new.get("completedIndexes") or ""), new)
    except _BadIndexes:
        return []  # which is told already
    if not common:
        return []
    detail = f"failedIndexes and completedIndexes overlap at index: {min(common)}"
    return [words.bad_value("status.failedIndexes", failed, detail)]


def _indexes(text: str, of: _Status) -> frozenset[int]:
    """The indexes of a text as `1,3-5`. Raises `_BadIndexes`."""
    found: set[int] = set()
    last = -1
    for part in text.split(",") if text else ():
        bounds = part.split("-")
        for number, bound in enumerate(bounds):
            if not bound.isdecimal():
                raise _BadIndexes(f"cannot convert string to integer for index: {quoted(bound)}")
            index = int(bound)
            if index >= int(of.spec.get("completions") or 0):
                raise _BadIndexes(f"too large index: {quoted(bound)}")
            if index <= last:
                raise _BadIndexes(f"non-increasing order, previous: {last}, current: {index}")
            found.update(range(last + 1, index + 1) if number else (index,))
            last = index
    return frozenset(found)


_WHEN_CHANGED: Final[tuple[tuple[tuple[str, ...], _Rule], ...]] = (
    (("completedIndexes",), _completed),
    (("failedIndexes",), _failed),
    (("completedIndexes", "failedIndexes"), _apart),
    _both("Complete", "Failed"),
    _both("Complete", "FailureTarget"),
    _both("SuccessCriteriaMet", "Failed"),
    _both("SuccessCriteriaMet", "FailureTarget"),
    _after("Failed", "FailureTarget"),
    _after("Complete", "SuccessCriteriaMet"),
    _rests("active"),
    _rests("terminating"),
    (("finished", "uncountedTerminatedPods"), _all_counted),
    (("finished", "startTime"), _began),
    (("Complete", "completionTime"), _end_is_told),
    (("startTime", "completionTime"), _ends_after_its_start),
    (("ready", "active"), _ready),
)
