# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from multikueue.api import names
from multikueue.api.meta import WireLabelSelector, WireTaint, WireToleration
from multikueue.api.selector import core_selector, core_taint, core_toleration
from multikueue.api.validation.metadata import annotation_keys, labels
from multikueue.core import taints
from multikueue.core.errors import BadInput


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        pytest.param(names.dns_label, ["a", "a-1", "x" * 63], ["", "A", "-a", "a.b", "x" * 64], id="a DNS label"),
        pytest.param(names.dns_subdomain, ["a", "a.b-c", "1"], ["", "a..b", "a_b", ".a", "x" * 254], id="a subdomain"),
        pytest.param(
            names.label_key,
            ["a", "A_b.c", "example.com/Name", "x" * 63],
            ["", "/a", "Example.com/a", "example.com/", "a b", "x" * 64],
            id="the key of a label",
        ),
        pytest.param(names.label_value, ["", "a", "A.b_c-d"], ["-a", "a b", "x" * 64], id="the value of a label"),
    ],
)
def test_a_name(rule: Callable[[str], Iterator[str]], good: list[str], bad: list[str]) -> None:
    assert [name for name in good if list(rule(name))] == []
    assert [name for name in bad if not list(rule(name))] == []


def test_the_case_of_an_annotations_prefix_does_not_matter_and_that_of_a_labels_does() -> None:
    assert list(annotation_keys({"Example.com/a": "any value at all"}, "p")) == []
    assert [str(error) for error in labels({"Example.com/a": ""}, "p")] != []


def test_a_selector_of_the_wire_matches() -> None:
    wire = WireLabelSelector.model_validate(
        {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
    )
    assert core_selector(wire).matches({"a": "b"})
    assert not core_selector(wire).matches({"a": "b", "c": ""})
    with pytest.raises(BadInput, match="unknown operator"):
        core_selector(WireLabelSelector.model_validate({"matchExpressions": [{"key": "c", "operator": "Near"}]}))


def test_taints_and_tolerations_of_the_wire_are_values() -> None:
    taint = core_taint(WireTaint(key="k", value="v", effect="NoSchedule"))
    assert taint == taints.Taint("k", "v", "NoSchedule")
    assert core_toleration(WireToleration(key="k", value="v")).tolerates(taint)
