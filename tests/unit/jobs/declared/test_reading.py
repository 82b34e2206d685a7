# SPDX-License-Identifier: Apache-2.0
"""Declarations read from YAML: all mistakes at once, with their paths, and within limits."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from multikueue.jobs.declared.mistakes import DeclarationMistakes
from multikueue.jobs.declared.reading import read_declaration
from tests.unit.jobs.declared.builders import WIDGET


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(DeclarationMistakes) as caught:
        read_declaration(text, origin="widget.yaml")
    return caught.value.problems


def changed(**spec: Any) -> str:
    document = yaml.safe_load(WIDGET)
    document["spec"] |= spec
    return yaml.safe_dump(document)


def test_every_mistake_is_reported_with_its_path() -> None:
    found = mistakes(
        """
apiVersion: multikueue.io/v1
kind: JobKind
metadata: {name: widgets}
spec:
  resource: {group: Example, versions: [one], kind: widget, plural: widgets}
  suspend: {path: "$.spec.parts[*].suspend"}
  podSets:
    - name: main
      template: $..template
      count: {product: [$.spec.a, {sum: [1, -1]}]}
      replicas: 1
    - forEach: $.spec.groups
      name: main
      template: $.spec.template
    - name: $.each.name
      template: $.each.template
  finished: [{when: {condition: Done, path: $.status.x}, result: Good}]
  status: {cleared: [$.spec.x]}
  metadata: {}
"""
    )
    assert [each.partition(": ")[0] for each in found] == [
        "apiVersion",
        "metadata.name",
        "spec.resource.group",
        "spec.resource.versions[0]",
        "spec.resource.kind",
        "spec.suspend.path",
        "spec.podSets[0].count.product[1].sum[1].value",
        "spec.podSets[0].template",
        "spec.podSets[0].replicas",
        "spec.podSets[1]",
        "spec.podSets[2]",
        "spec.finished[0].when",
        "spec.finished[0].result",
        "spec.status",
        "spec.metadata",
    ]
    assert "spec.podSets[0].replicas: unknown field" in found
    assert any(
        each.startswith("spec.status: cleared[0]: expected a path below $.status, found $.spec.x") for each in found
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[", "not YAML", id="no YAML"),
        pytest.param("", "expected a JobKind of multikueue.io/v1alpha1, found None", id="nothing"),
        pytest.param("- a", "expected a JobKind", id="a list"),
        pytest.param("a: " + "x" * 70_000, "expected at most 65536 bytes, found 70003", id="too long"),
        pytest.param("a: [" + "$.a," * 201 + "]", "expected at most 200 paths, found 201", id="too many paths"),
        pytest.param("a: &a [*a]", "not YAML", id="an alias in its own anchor"),
    ],
)
def test_text_that_is_no_declaration(text: str, problem: str) -> None:
    assert problem in mistakes(text)[0]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"suspend": None}, "suspend: needed with hold Suspend", id="nothing to suspend"),
        pytest.param({"hold": "Gate"}, "suspend: needs hold Suspend, found Gate", id="gated and suspended"),
        pytest.param({"podSets": []}, "podSets: expected 1 to 18, found 0", id="no pod sets"),
        pytest.param(
            {"podSets": [{"name": "a", "template": "$.spec.a"}] * 2}, "podSets: 2 have the name a", id="one name twice"
        ),
    ],
)
def test_parts_that_contradict_each_other(spec: Any, problem: str) -> None:
    assert mistakes(changed(**spec)) == (f"spec: {problem}",)


def test_the_message_names_the_file_before_every_mistake() -> None:
    with pytest.raises(DeclarationMistakes, match=r"widget.yaml: spec.a: unknown field; widget.yaml: spec.b: unknown"):
        read_declaration(changed(a=1, b=2), origin="widget.yaml")
