# SPDX-License-Identifier: Apache-2.0
"""What mutations make of values and objects, and which mutators run twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devcluster.apiserver.admission.policies.mutation_values import MutationFailed, as_configuration, as_patch_value
from devcluster.apiserver.admission.policies.patch_problems import PatchTestFailed, operate
from devcluster.apiserver.admission.rounds import Rounds
from devcluster.apiserver.cel.values import CelMessage, MadeMap, Optional
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.node import ANY
from multikueue.core.quantity import Quantity

CONFIG_MAP = builtin.node("io.k8s.api.core.v1.ConfigMap")
UNAPPLIED = "operation does not apply: doc is missing"
DOCUMENT: dict[str, Any] = {"a": {"b": 1}, "l": [1, 2]}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/c", "value": 2}, {"a": {"b": 1, "c": 2}, "l": [1, 2]}),
        ({"op": "add", "path": "/l/-", "value": 3}, {"a": {"b": 1}, "l": [1, 2, 3]}),
        ({"op": "add", "path": "/l/-1", "value": 3}, {"a": {"b": 1}, "l": [1, 2, 3]}),
        ({"op": "replace", "path": "/a/c", "value": 2}, {"a": {"b": 1, "c": 2}, "l": [1, 2]}),
        ({"op": "remove", "path": "/l/0"}, {"a": {"b": 1}, "l": [2]}),
        ({"op": "move", "from": "/a/b", "path": "/l/0"}, {"a": {}, "l": [1, 1, 2]}),
        ({"op": "copy", "from": "/a/b", "path": "/c"}, {"a": {"b": 1}, "l": [1, 2], "c": 1}),
        ({"op": "test", "path": "/a/b", "value": 1}, DOCUMENT),
    ],
)
def test_an_operation_changes_a_copy(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert operate(DOCUMENT, operation) == expected
    assert DOCUMENT == {"a": {"b": 1}, "l": [1, 2]}


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"op": "add", "path": "/x/y"}, 'add operation does not apply: doc is missing path: "/x/y": missing value'),
        ({"op": "add", "path": "a"}, 'add operation does not apply: doc is missing path: "a": missing value'),
        ({"op": "add", "path": "/a/b/c"}, 'add operation does not apply: doc is missing path: "/a/b/c": missing value'),
        (
            {"op": "add", "path": "/l/5"},
            "error in add for path: '/l/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/l/x"},
            "error in add for path: '/l/x': value was not a proper array index: 'x': "
            'strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            {"op": "remove", "path": "/a/x"},
            "error in remove for path: '/a/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "replace", "path": "/l/9"},
            "replace operation does not apply: doc is missing key: /l/9: missing value",
        ),
        ({"op": "test", "path": "/x/y"}, "test operation does not apply: is missing path: /x/y: missing value"),
        (
            {"op": "move", "path": "/b"},
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            {"op": "move", "from": "/a/x", "path": "/b"},
            "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "copy", "from": "/a/b", "path": "/x/y"},
            "copy operation does not apply: doc is missing destination path: /x/y: missing value",
        ),
        ({"op": "", "path": "/a"}, "Unexpected kind: "),
    ],
)
def test_an_operation_that_does_not_apply_says_why(operation: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        operate(DOCUMENT, operation)
    assert str(caught.value) == problem


def test_a_test_that_does_not_hold_is_no_problem() -> None:
    with pytest.raises(PatchTestFailed):
        operate(DOCUMENT, {"op": "test", "path": "/a/b", "value": 2})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (MadeMap({"a": [1, True, None]}), {"a": [1, True, None]}),
        (2**53, "9007199254740992"),
        (datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00Z"),
        (timedelta(hours=1), "3600s"),
        (Optional(True, "x"), "x"),
        (CelMessage("Object", {"a": CelMessage("Object.a", {"b": MadeMap({"c": 1})})}), {"a": {"b": {"c": 1}}}),
        (CelMessage("Object", {"a": {"from": {"an": "object"}}}), {"a": {"from": {"an": "object"}}}),
    ],
)
def test_values_of_patches_become_json_values(value: Any, expected: Any) -> None:
    assert as_patch_value(value) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (MadeMap({1: "a"}), "unsupported type conversion from 'int' to string"),
        (Quantity.parse("1"), "type conversion error from 'Quantity'"),
        (CelMessage("Object", {"a": None}), "structpb.NullValue"),
        (CelMessage("Object", {"a": [MadeMap({"b": "c"})]}), r"map\[ref.Val\]ref.Val"),
    ],
)
def test_other_values_of_patches_are_failures(value: Any, problem: str) -> None:
    with pytest.raises(MutationFailed, match=problem):
        as_patch_value(value)


def test_a_message_in_a_list_of_a_patch_is_refused() -> None:
    with pytest.raises(StatusError):
        as_patch_value([CelMessage("Object.a", {})])


def test_a_configuration_shows_values_that_fit_nowhere_in_their_place() -> None:
    made = CelMessage(
        "Object", {"data": MadeMap({"a": "b", "c": None}), "metadata": MadeMap({"labels": MadeMap({"l": "m"})})}
    )
    found = as_configuration(made, CONFIG_MAP)
    assert found == {"data": {"a": "b", "c": 0}, "metadata": {"labels": "map[l:m]"}}
    assert as_configuration(CelMessage("Object", {"data": None}), CONFIG_MAP) == {"data": "NULL_VALUE"}
    assert as_configuration(CelMessage("Object", {"any": None}), ANY) == {"any": None}
    with pytest.raises(MutationFailed, match="invalid return type"):
        as_configuration(CelMessage("Object", {"data": MadeMap({1: "b"})}), CONFIG_MAP)


def test_only_those_before_a_change_run_again() -> None:
    rounds = Rounds()
    rounds.begin({"n": 0})
    rounds.note(("first",), changed=False, repeats=True)
    rounds.note(("never",), changed=False, repeats=False)
    rounds.note(("changes",), changed=True, repeats=True)
    rounds.end({"n": 1})
    assert rounds.changed
    rounds.second = True
    rounds.begin({"n": 1})
    assert not rounds.skips(("first",))
    assert rounds.skips(("never",))
    assert rounds.skips(("changes",))


def test_all_run_again_after_the_change_of_others() -> None:
    rounds = Rounds()
    rounds.begin({"n": 0})
    rounds.note(("only",), changed=False, repeats=True)
    rounds.end({"n": 0})
    assert not rounds.changed
    rounds.second = True
    rounds.begin({"n": 0})
    assert rounds.skips(("only",))
    rounds.end({"n": 0})
    rounds.begin({"n": 2})
    assert not rounds.skips(("only",))
