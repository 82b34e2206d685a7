# SPDX-License-Identifier: Apache-2.0
"""JSONPaths of declarations: what is allowed, read and written."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.declared.paths import MAX_VALUES, JobPath, with_value, without_value

JOB: dict[str, Any] = {
    "spec": {"groups": [{"name": "a", "size": 1}, {"name": "b", "size": 2}, {"name": "c", "size": None}]},
    "each": {"name": "b"},
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("$.spec.groups[1].size", [2], id="names and indexes"),
        pytest.param("$.spec['groups'][0]['name']", ["a"], id="names in brackets"),
        pytest.param("$.spec.groups[7].size", [], id="an index that is not there"),
        pytest.param("$.spec.groups.size", [], id="a name in a list"),
        pytest.param("$.spec.groups[*].size", [1, 2], id="a wildcard, without nulls"),
        pytest.param("$.spec.groups[?@.name == $.each.name].size", [2], id="a filter by the entry"),
        pytest.param("$.spec.groups[?@.size > 1].name", ["b"], id="a filter by a number"),
    ],
)
def test_values_of_a_job(text: str, values: list[Any]) -> None:
    assert JobPath(text).values(JOB) == values


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("spec.suspend", r"is not a JSONPath such as \$\.spec\.suspend", id="no dollar sign"),
        pytest.param("$.spec[", "is not a JSONPath", id="not closed"),
        pytest.param("$", "expected a field of the job", id="the whole job"),
        pytest.param("$..size", r"descendants \(\.\.\) are not allowed", id="descendants"),
        pytest.param("$.a['x','y']", "more than one selector", id="several selectors"),
        pytest.param("$.a[-1]", "an index counts from the beginning", id="an index from the end"),
        pytest.param("$.a[?@.b[?@.c]]", "only paths of names and indexes", id="a filter in a filter"),
        pytest.param("$.a[?@.b[*]]", "only paths of names and indexes", id="a wildcard in a filter"),
        pytest.param("$.a[?search(@.b, '(a+)+$')]", "is not a JSONPath", id="a regular expression"),
        pytest.param("$." + "a" * 300, "at most 256 characters, this one has 302", id="a long one"),
        pytest.param("$[?" + "(" * 200 + "@.a" + ")" * 45 + "]", "is not a JSONPath", id="deep parentheses"),
        pytest.param("$.a[?count(@..b) > 1]", r"descendants \(\.\.\)", id="descendants in a function"),
    ],
)
def test_a_path_that_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        JobPath(text)


def test_a_job_cannot_make_a_path_find_more_than_the_limit() -> None:
    path = JobPath("$.spec.items[*]")
    assert len(path.values({"spec": {"items": [1] * MAX_VALUES}})) == MAX_VALUES
    with pytest.raises(BadInput, match=r"\$\.spec\.items\[\*\]: expected at most 10000 values, found more"):
        path.values({"spec": {"items": [1] * (MAX_VALUES + 1)}})


def test_writing_makes_what_is_absent_and_changes_no_other_value() -> None:
    job = {"spec": {"groups": [{"a": 1}, {"b": 2}]}}
    changed = with_value(job, ("spec", "groups", 1, "template", "spec"), {"x": 1})
    assert changed == {"spec": {"groups": [{"a": 1}, {"b": 2, "template": {"spec": {"x": 1}}}]}}
    assert job == {"spec": {"groups": [{"a": 1}, {"b": 2}]}}
    assert changed["spec"]["groups"][0] is job["spec"]["groups"][0]


def test_writing_to_an_entry_that_a_list_has_not_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected a list with an entry \[1\]"):
        with_value({"spec": {"groups": [{}]}}, ("spec", "groups", 1, "a"), 1)


def test_removing_leaves_everything_else() -> None:
    job = {"spec": {"groups": [{"a": 1, "b": 2}], "c": 3}}
    assert without_value(job, ("spec", "groups", 0, "a")) == {"spec": {"groups": [{"b": 2}], "c": 3}}
    assert without_value(job, ("spec", "absent", "a")) is job
    assert job == {"spec": {"groups": [{"a": 1, "b": 2}], "c": 3}}
