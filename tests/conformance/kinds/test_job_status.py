# SPDX-License-Identifier: Apache-2.0
"""Validation of the status of jobs, which decides whether a remote job's end can be copied to the local one."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange

pytestmark = pytest.mark.binaries

CASES = Cases("job status")
Document = dict[str, Any]

_JOBS: Final = "/apis/batch/v1/namespaces/{ns}/jobs"
_EARLY: Final = "2026-01-01T10:00:00Z"
_LATE: Final = "2026-01-01T11:00:00Z"
_RUNS: Final[Document] = {"startTime": _EARLY, "active": 1, "ready": 1}


def _conditions(*kinds: str) -> list[Document]:
    return [
        {"type": kind, "status": "True", "lastProbeTime": _LATE, "lastTransitionTime": _LATE, "reason": "Test"}
        for kind in kinds
    ]


_DONE: Final[Document] = {
    "startTime": _EARLY,
    "completionTime": _LATE,
    "succeeded": 1,
    "conditions": _conditions("SuccessCriteriaMet", "Complete"),
}
_FAILED: Final[Document] = {"startTime": _EARLY, "failed": 1, "conditions": _conditions("FailureTarget", "Failed")}
_INDEXED: Final[Document] = {"completionMode": "Indexed", "completions": 5, "parallelism": 2}


def _without(status: Document, *names: str) -> Document:
    return {name: value for name, value in status.items() if name not in names}


# The old status, and the new one.
_WRITTEN: Final[dict[str, tuple[Document, Document]]] = {
    "it runs": ({}, _RUNS),
    "it is done": (_RUNS, _DONE),
    "it is done at once": ({}, _DONE),
    "it has failed": (_RUNS, _FAILED),
    "it is suspended": (_RUNS, {"conditions": _conditions("Suspended")}),
    "nothing changes": (_DONE, _DONE),
    "a negative number of pods": ({}, {"active": -1, "succeeded": -2, "failed": -3, "ready": -4, "terminating": -5}),
    "more pods are ready than there are": ({}, {**_RUNS, "ready": 2}),
    "fewer have succeeded": ({**_RUNS, "succeeded": 3}, {**_RUNS, "succeeded": 2}),
    "fewer have failed": ({**_RUNS, "failed": 3}, {**_RUNS, "failed": 2}),
    "it is done and has failed": (
        _RUNS,
        {**_DONE, "conditions": _conditions("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")},
    ),
    "it is done and about to fail": (
        _RUNS,
        {**_DONE, "conditions": _conditions("SuccessCriteriaMet", "Complete", "FailureTarget")},
    ),
    "it has failed and met its criteria": (
        _RUNS,
        {**_FAILED, "conditions": _conditions("SuccessCriteriaMet", "FailureTarget", "Failed")},
    ),
    "it is about to fail and has met its criteria": (
        _RUNS,
        {**_RUNS, "conditions": _conditions("SuccessCriteriaMet", "FailureTarget")},
    ),
    "it has failed without having been about to": (_RUNS, {**_FAILED, "conditions": _conditions("Failed")}),
    "it is done without having met its criteria": (_RUNS, {**_DONE, "conditions": _conditions("Complete")}),
    "it is done at no time": (_RUNS, _without(_DONE, "completionTime")),
    "it is done before it began": (_RUNS, {**_DONE, "completionTime": "2025-01-01T00:00:00Z"}),
    "it ends at a time and is not done": (_RUNS, {**_RUNS, "completionTime": _LATE}),
    "it is done and never began": ({}, _without(_DONE, "startTime")),
    "it has failed and never began": ({}, _without(_FAILED, "startTime")),
    "it is done and runs": (_RUNS, {**_DONE, "active": 1}),
    "it has failed and runs": (_RUNS, {**_FAILED, "active": 1, "ready": 1}),
    "it is done and pods end": (_RUNS, {**_DONE, "terminating": 1}),
    "it is done and pods are not counted yet": (
        _RUNS,
        {**_DONE, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}},
    ),
    "pods are not counted yet": (_RUNS, {**_RUNS, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}}),
    "pods are listed twice": (
        _RUNS,
        {**_RUNS, "uncountedTerminatedPods": {"succeeded": ["a", "a"], "failed": ["a", ""]}},
    ),
    "it is not done any more": (_DONE, {**_DONE, "conditions": _conditions("SuccessCriteriaMet")}),
    "it has not failed any more": (_FAILED, {**_FAILED, "conditions": _conditions("FailureTarget")}),
    "it is not about to fail any more": (
        {**_RUNS, "conditions": _conditions("FailureTarget")},
        {**_RUNS, "conditions": []},
    ),
    "it has not met its criteria any more": (
        {**_RUNS, "conditions": _conditions("SuccessCriteriaMet")},
        _RUNS,
    ),
    "everything is taken back": (_DONE, {}),
    "it began at another time": (_RUNS, {**_RUNS, "startTime": _LATE}),
    "it never began": (_RUNS, _without(_RUNS, "startTime")),
    "it was done at another time": (_DONE, {**_DONE, "completionTime": "2026-01-01T12:00:00Z"}),
    "a finished one gets its old status again": (_DONE, {**_DONE, "ready": 0}),
    "indexes are done of a job without any": (_RUNS, {**_RUNS, "completedIndexes": "1-3"}),
    "indexes have failed of a job without any": (_RUNS, {**_RUNS, "failedIndexes": "1-3"}),
}
_OF_INDEXED: Final[dict[str, tuple[Document, Document]]] = {
    "indexes are done": (_RUNS, {**_RUNS, "completedIndexes": "0,2-4"}),
    "fewer indexes are done": (
        {**_RUNS, "completedIndexes": "0-2", "succeeded": 3},
        {**_RUNS, "completedIndexes": "0", "succeeded": 1},
    ),
    "fewer pods have failed": ({**_RUNS, "failed": 3}, {**_RUNS, "failed": 1}),
    "an index is done twice": (_RUNS, {**_RUNS, "completedIndexes": "0,0"}),
    "indexes are done in no order": (_RUNS, {**_RUNS, "completedIndexes": "3,1"}),
    "an index is done that is none": (_RUNS, {**_RUNS, "completedIndexes": "7"}),
    "an index is done that is no number": (_RUNS, {**_RUNS, "completedIndexes": "x"}),
    "a range of indexes is empty": (_RUNS, {**_RUNS, "completedIndexes": "3-3"}),
    "a range of indexes goes back": (_RUNS, {**_RUNS, "completedIndexes": "3-1"}),
    "a range of indexes has no end": (_RUNS, {**_RUNS, "completedIndexes": "1-"}),
    "indexes have failed without limits": (_RUNS, {**_RUNS, "failedIndexes": "1"}),
}
_OF_LIMITED: Final[dict[str, tuple[Document, Document]]] = {
    "indexes have failed": (_RUNS, {**_RUNS, "failedIndexes": "1,3"}),
    "an index has failed and is done": (_RUNS, {**_RUNS, "completedIndexes": "0-2", "failedIndexes": "2-3"}),
    "an index has failed that is none": (_RUNS, {**_RUNS, "failedIndexes": "9"}),
}


def _add(
    name: str,
    spec: Document,
    before: Document,
    after: Document,
    *,
    suspend: bool = False,
    meanwhile: Document | None = None,
) -> None:
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    # Managed by another controller, so that no other one writes between.
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "{id}"},
        "spec": {"template": template, "managedBy": "example.com/test", "suspend": suspend, **spec},
    }
    merge = "application/merge-patch+json"
    path = f"{_JOBS}/{{id}}/status"
    steps = [Exchange("POST", _JOBS, job)]
    if before:
        steps.append(Exchange("PATCH", path, {"status": before}, content_type=merge))
    if meanwhile:
        steps.append(Exchange("PATCH", f"{_JOBS}/{{id}}", meanwhile, content_type=merge))
    gone = {field: None for field in before if field not in after}
    steps.append(Exchange("PATCH", path, {"status": {**gone, **after}}, content_type=merge))
    CASES.exchanges(name, *steps)


for _name, (_before, _after) in _WRITTEN.items():
    _add(_name, {}, _before, _after)
for _name, (_before, _after) in _OF_INDEXED.items():
    _add(_name, _INDEXED, _before, _after)
for _name, (_before, _after) in _OF_LIMITED.items():
    _add(_name, {**_INDEXED, "backoffLimitPerIndex": 1}, _before, _after)
_ELASTIC: Final[Document] = {**_INDEXED, "parallelism": 5}
_THREE: Final[Document] = {**_RUNS, "completedIndexes": "0,3-4", "succeeded": 3}
_SHRUNK: Final[Document] = {"spec": {"completions": 2, "parallelism": 2}}
_add(
    "fewer indexes are done of one that can grow", _ELASTIC, _THREE, {**_THREE, "completedIndexes": "0", "succeeded": 1}
)
_add("fewer pods have failed of one that can grow", _ELASTIC, {**_RUNS, "failed": 3}, {**_RUNS, "failed": 1})
for _name, _after in {
    "indexes that are gone": {**_RUNS, "completedIndexes": "0", "succeeded": 1},
    "more indexes than are gone": {**_RUNS, "completedIndexes": "", "succeeded": 0},
    "a number alone": {**_THREE, "succeeded": 2},
    "indexes that stay": {**_RUNS, "completedIndexes": "0", "succeeded": 3},
}.items():
    _add(f"of one that shrank are taken back {_name}", _ELASTIC, _THREE, _after, meanwhile=_SHRUNK)
_add("a suspended one never began", {}, _RUNS, {"active": 0}, suspend=True)
_add("a suspended one began at another time", {}, _RUNS, {**_RUNS, "startTime": _LATE}, suspend=True)


@pytest.mark.parametrize("case", CASES.params())
async def test_the_status_of_a_job_is_judged_as_on_a_real_server(judge: Judge, case: Case) -> None:
    await judge(case)
