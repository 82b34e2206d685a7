# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, NodeSelectorTerm, Requirement, parse_selector
from multikueue.core.taints import Taint, Toleration, tolerates, untolerated

LABELS = {"team": "red", "tier": "batch", "rank": "7"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", True, id="an empty selector matches everything"),
        pytest.param("team=red", True, id="equality"),
        pytest.param("team == red", True, id="double equality with spaces"),
        pytest.param("team!=red", False, id="inequality"),
        pytest.param("absent!=red", True, id="a missing key is not equal"),
        pytest.param("team in (blue, red)", True, id="membership"),
        pytest.param("team notin (blue,red)", False, id="absence from a set"),
        pytest.param("tier", True, id="presence"),
        pytest.param("!tier", False, id="absence"),
        pytest.param("rank>6,rank<8", True, id="numbers between bounds"),
        pytest.param("team>6", False, id="text is not a number"),
        pytest.param("team=red,!gone,tier in (batch)", True, id="all terms must hold"),
    ],
)
def test_selector_text(text: str, want: bool) -> None:
    assert parse_selector(text).matches(LABELS) is want


@pytest.mark.parametrize("text", ["=red", "a in x", "a,,b", "a=b=c", "a in ()x"])
def test_an_error_in_selector_text_names_the_position(text: str) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        parse_selector(text)


@pytest.mark.parametrize("text", ["team=red", "a in (x,y)", "!gone", "tier", "a!=b", "rank>6"])
def test_selector_prints_what_parses_again(text: str) -> None:
    assert str(parse_selector(text)) == text


@pytest.mark.parametrize(("operator", "values"), [("In", ()), ("Exists", ("x",)), ("Gt", ("1", "2")), ("Like", ("x",))])
def test_a_requirement_that_cannot_be_right_is_refused(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="team"):
        Requirement("team", operator, values)


def test_match_labels_are_equalities() -> None:
    assert LabelSelector.of({"team": "red"}).matches(LABELS)
    assert not LabelSelector.of({"team": "blue"}).matches(LABELS)


def test_an_empty_node_selector_term_matches_nothing() -> None:
    assert not NodeSelectorTerm().matches(LABELS, {"metadata.name": "n1"})
    assert NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)).matches({}, {"metadata.name": "n1"})


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(Toleration("spot", "Equal", "true"), True, id="equal key and value"),
        pytest.param(Toleration("spot", "Equal", "false"), False, id="another value"),
        pytest.param(Toleration("spot", "Exists"), True, id="the key exists"),
        pytest.param(Toleration(operator="Exists"), True, id="no key with Exists tolerates everything"),
        pytest.param(Toleration(value="true"), False, id="no key with Equal tolerates nothing"),
        pytest.param(Toleration("spot", "Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration("spot", "Gt", "1"), False, id="a numeric operator on text"),
    ],
)
def test_toleration(toleration: Toleration, want: bool) -> None:
    assert tolerates([toleration], Taint("spot", "true", "NoSchedule")) is want


def test_a_numeric_toleration_compares_the_taint_with_its_own_value() -> None:
    assert Toleration("gen", "Gt", "3").tolerates(Taint("gen", "4"))
    assert not Toleration("gen", "Lt", "3").tolerates(Taint("gen", "4"))


def test_the_first_taint_that_keeps_pods_away_is_found() -> None:
    preferred, spot, other = Taint("a", effect="PreferNoSchedule"), Taint("spot"), Taint("other", effect="NoExecute")
    assert untolerated((preferred, spot, other), ()) == spot
    assert untolerated((preferred, spot, other), (Toleration("spot", "Exists"),)) == other
    assert untolerated((preferred, spot), (Toleration("spot", "Exists"),)) is None
    assert untolerated((), ()) is None
