# SPDX-License-Identifier: Apache-2.0
"""Questions of declarations."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.declared.checks import JobCheck

JOB = {
    "spec": {"mode": "fast", "one": 1, "off": False, "empty": [], "list": ["a", "b"]},
    "status": {
        "conditions": [
            "not an object",
            {"type": "Done", "status": "True"},
            {"type": "Ready", "status": "False"},
        ]
    },
}


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        pytest.param({"condition": "Done"}, True, id="a true condition"),
        pytest.param({"condition": "Ready"}, False, id="a false condition"),
        pytest.param({"condition": "Ready", "is": "False"}, True, id="a condition that has to be false"),
        pytest.param({"condition": "Absent"}, False, id="an absent condition"),
        pytest.param({"path": "$.spec.mode", "in": ["slow", "fast"]}, True, id="one of several values"),
        pytest.param({"path": "$.spec.mode", "in": ["slow"]}, False, id="none of the values"),
        pytest.param({"path": "$.spec.list[*]", "in": ["b"]}, True, id="one of the list"),
        pytest.param({"path": "$.spec.one", "in": [True]}, False, id="1 is not true"),
        pytest.param({"path": "$.spec.off", "in": [False]}, True, id="false is false"),
        pytest.param({"path": "$.spec.mode"}, True, id="a value"),
        pytest.param({"path": "$.spec.empty"}, False, id="an empty list"),
        pytest.param({"path": "$.spec.off"}, False, id="false"),
        pytest.param({"path": "$.spec.absent"}, False, id="nothing"),
        pytest.param({"positive": "$.spec.one"}, True, id="a number above 0"),
        pytest.param({"positive": "$.spec.absent"}, False, id="an absent number"),
        pytest.param({"atLeast": ["$.spec.one", 1]}, True, id="at least as much"),
        pytest.param({"atLeast": ["$.spec.absent", 1]}, False, id="less"),
        pytest.param({"all": [{"condition": "Done"}, {"condition": "Ready"}]}, False, id="not all"),
        pytest.param({"any": [{"condition": "Done"}, {"condition": "Ready"}]}, True, id="any"),
        pytest.param({"not": {"condition": "Ready"}}, True, id="not"),
    ],
)
def test_an_answer(form: Any, answer: bool) -> None:
    assert JobCheck.model_validate(form).holds(JOB) is answer


@pytest.mark.parametrize("status", [None, "text", [], {"conditions": 5}, {"conditions": {"type": "Done"}}])
def test_a_status_of_another_shape_has_no_condition(status: Any) -> None:
    assert not JobCheck.model_validate({"condition": "Done"}).holds({"status": status})


def test_an_answer_that_depends_on_a_count_that_is_none() -> None:
    check = JobCheck.model_validate({"positive": "$.spec.mode"})
    with pytest.raises(BadInput, match=r"\$\.spec\.mode: expected a whole number"):
        check.holds(JOB)
    assert check.answer(JOB, unreadable=True)
    assert not check.answer(JOB, unreadable=False)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        pytest.param({}, "found none", id="nothing"),
        pytest.param({"condition": "A", "path": "$.a"}, "found condition and path", id="two forms"),
        pytest.param({"condition": "A", "in": ["x"]}, "in belongs to path", id="in without a path"),
        pytest.param({"path": "$.a", "is": "False"}, "is belongs to condition", id="is without a condition"),
        pytest.param({"path": "$.a", "in": []}, "at least 1", id="in nothing"),
        pytest.param({"at_least": [1, 2]}, "Extra inputs", id="an unknown field"),
    ],
)
def test_a_form_that_is_refused(form: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JobCheck.model_validate(form)
