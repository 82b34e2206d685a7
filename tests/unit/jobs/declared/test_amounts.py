# SPDX-License-Identifier: Apache-2.0
"""Numbers of declarations."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.declared.amounts import PodAmount

JOB = {"spec": {"two": 2, "three": "3", "list": [1, 2, 4], "big": 2**31 - 1}}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        pytest.param(5, 5, id="a number"),
        pytest.param("$.spec.two", 2, id="a path"),
        pytest.param("$.spec.three", 3, id="a number written as text"),
        pytest.param("$.spec.list[*]", 7, id="several values are added"),
        pytest.param("$.spec.absent", None, id="an absent path"),
        pytest.param({"path": "$.spec.absent", "default": 4}, 4, id="a default"),
        pytest.param({"sum": ["$.spec.two", "$.spec.absent", 1]}, 3, id="a sum of what is there"),
        pytest.param({"sum": ["$.spec.absent"]}, None, id="a sum of nothing"),
        pytest.param({"product": ["$.spec.two", "$.spec.three"]}, 6, id="a product"),
        pytest.param({"product": ["$.spec.two", "$.spec.absent"]}, None, id="a product with nothing"),
        pytest.param({"product": ["$.spec.two", "$.spec.absent"], "default": 1}, 1, id="a default of a product"),
        pytest.param({"min": [{"path": "$.spec.absent", "default": 1}, "$.spec.two"]}, 1, id="a minimum"),
        pytest.param({"min": ["$.spec.absent", "$.spec.two"]}, 2, id="a minimum of what is there"),
        pytest.param({"max": ["$.spec.two", "$.spec.three"]}, 3, id="a maximum"),
        pytest.param({"difference": ["$.spec.three", 1]}, 2, id="a difference"),
        pytest.param({"difference": [1, "$.spec.three"]}, 0, id="a difference is not below 0"),
        pytest.param({"sum": [0, 0]}, 0, id="a sum of zeros"),
    ],
)
def test_a_number(form: Any, value: int | None) -> None:
    assert PodAmount.model_validate(form).of(JOB) == value


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        pytest.param({"sum": ["$.spec.big", 1]}, "at most 2147483647, found 2147483648", id="a sum above 32 bits"),
        pytest.param({"product": ["$.spec.big"] * 50}, "at most 2147483647", id="a product above 32 bits"),
        pytest.param("$.spec.list", r"\$\.spec\.list: expected a whole number", id="a list"),
        pytest.param("$.bad.negative", r"\$\.bad\.negative: expected a whole number from 0", id="a negative number"),
        pytest.param("$.bad.half", r"\$\.bad\.half: expected a whole number", id="a fraction"),
        pytest.param("$.bad.yes", r"\$\.bad\.yes: expected a whole number", id="a boolean"),
    ],
)
def test_a_number_that_a_job_cannot_have(form: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        PodAmount.model_validate(form).of(JOB | {"bad": {"negative": -1, "half": 0.5, "yes": True}})


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        pytest.param({}, "expected one of value, path, .* found none", id="nothing"),
        pytest.param({"value": 1, "path": "$.a"}, "found value and path", id="two forms"),
        pytest.param(-1, "greater than or equal to 0", id="a negative number"),
        pytest.param(True, "valid dictionary", id="a boolean"),
        pytest.param({"difference": [1]}, "at least 2", id="one operand of a difference"),
    ],
)
def test_a_form_that_is_refused(form: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PodAmount.model_validate(form)
