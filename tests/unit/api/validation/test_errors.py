# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.api.validation import FieldError, join
from multikueue.api.validation.errors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)


@pytest.mark.parametrize(
    ("error", "want", "reason"),
    [
        pytest.param(invalid("a.b", "x", "bad"), 'a.b: Invalid value: "x": bad', "FieldValueInvalid", id="text"),
        pytest.param(invalid("a", 3, "bad"), "a: Invalid value: 3: bad", "FieldValueInvalid", id="a number"),
        pytest.param(invalid("a", None, "bad"), "a: Invalid value: null: bad", "FieldValueInvalid", id="nothing"),
        pytest.param(required("a"), "a: Required value", "FieldValueRequired", id="missing"),
        pytest.param(duplicate("a", "x"), 'a: Duplicate value: "x"', "FieldValueDuplicate", id="twice"),
        pytest.param(forbidden("a", "not now"), "a: Forbidden: not now", "FieldValueForbidden", id="forbidden"),
        pytest.param(not_found("a", "x"), 'a: Not found: "x"', "FieldValueNotFound", id="a dangling reference"),
        pytest.param(
            not_supported("a", "x", ("b", "c")),
            'a: Unsupported value: "x": supported values: "b", "c"',
            "FieldValueNotSupported",
            id="outside of a closed set",
        ),
        pytest.param(
            too_many("a", count=9, limit=8), "a: Too many: 9: must have at most 8 items", "FieldValueTooMany", id="long"
        ),
    ],
)
def test_an_error_prints_as_kubernetes_prints_it(error: FieldError, want: str, reason: str) -> None:
    assert str(error) == want
    assert error.reason == reason


def test_several_errors_are_one_message_without_repeats() -> None:
    errors = [required("a"), required("b"), required("a")]
    assert join(errors[:1]) == "a: Required value"
    assert join(errors) == "[a: Required value, b: Required value]"
