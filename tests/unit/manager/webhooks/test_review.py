# SPDX-License-Identifier: Apache-2.0
"""Reviews in and out, and the patches between."""

from __future__ import annotations

import base64
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.webhooks.review import (
    AdmissionRequest,
    ReviewAnswer,
    convert_review,
    json_patch,
    read_admission,
    write_admission,
)
from multikueue.core.errors import BadInput

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=3), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_patch_turns_the_old_object_into_the_new_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert jsonpatch.apply_patch(old, json_patch(old, new)) == new


@given(OBJECTS)
def test_nothing_to_change_is_an_empty_patch(obj: dict[str, Any]) -> None:
    assert json_patch(obj, obj) == []


def review(**changes: Any) -> bytes:
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "team",
        "name": "j",
        "userInfo": {"username": "kim"},
        "object": {"a": 1},
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | changes})


def test_a_review_is_read() -> None:
    request = read_admission(review(subResource="status", oldObject={"a": 0}))
    assert request == AdmissionRequest(
        uid="u",
        operation="CREATE",
        namespace="team",
        name="j",
        subresource="status",
        user="kim",
        user_info={"username": "kim"},
        object={"a": 1},
        old_object={"a": 0},
    )
    assert request.creates


@pytest.mark.parametrize("body", [b"no", b"{}", b"[]", b'{"request": {}}', b'{"request": 3}'])
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput, match="not an AdmissionReview"):
        read_admission(body)
    with pytest.raises(BadInput, match="not a ConversionReview"):
        convert_review(body, lambda obj, version: obj)


def answered(answer: ReviewAnswer) -> dict[str, Any]:
    body = write_admission(read_admission(review()), answer, kind="Job.batch")
    response: dict[str, Any] = orjson.loads(body)["response"]
    assert response["uid"] == "u"
    return response


def test_an_unchanged_object_is_allowed_without_a_patch() -> None:
    assert answered(ReviewAnswer(object={"a": 1})) == {"uid": "u", "allowed": True}


def test_a_changed_object_comes_as_a_patch() -> None:
    response = answered(ReviewAnswer(object={"a": 2}, warnings=("careful",)))
    assert orjson.loads(base64.b64decode(response["patch"])) == [{"op": "replace", "path": "/a", "value": 2}]
    assert response["warnings"] == ["careful"]


@pytest.mark.parametrize(
    ("refusals", "want"),
    [
        pytest.param(("spec: no",), 'Job.batch "j" is invalid: spec: no', id="one reason"),
        pytest.param(("a", "b"), 'Job.batch "j" is invalid: [a, b]', id="several reasons"),
    ],
)
def test_a_refusal_is_forbidden_and_names_every_field(refusals: tuple[str, ...], want: str) -> None:
    response = answered(ReviewAnswer(refusals=refusals))
    assert not response["allowed"]
    assert response["status"] == {"code": 403, "reason": "Forbidden", "message": want}


def test_objects_are_converted_together_or_not_at_all() -> None:
    body = orjson.dumps({"request": {"uid": "u", "desiredAPIVersion": "v2", "objects": [{"n": 1}, {"n": 2}]}})
    good = orjson.loads(convert_review(body, lambda obj, version: obj | {"to": version}))["response"]
    assert good["convertedObjects"] == [{"n": 1, "to": "v2"}, {"n": 2, "to": "v2"}]

    def broken(obj: dict[str, Any], version: str) -> dict[str, Any]:
        raise BadInput("not that one")

    bad = orjson.loads(convert_review(body, broken))["response"]
    assert bad == {"uid": "u", "result": {"status": "Failure", "message": "to v2: not that one"}}
