# SPDX-License-Identifier: Apache-2.0
"""Pod templates as the schema of Workloads keeps them."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api.stored_template import stored_template, without_repetitions


def template(container: Any = None, **pod: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"} | (container or {})], **pod}}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            template({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
            template({"env": [{"name": "A", "value": "2"}]}),
            id="an environment variable twice",
        ),
        pytest.param(
            template({"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}, {"containerPort": 1}]}),
            template({"ports": [{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 1, "protocol": "TCP"}]}),
            id="a port twice, of two protocols",
        ),
        pytest.param(
            template(imagePullSecrets=[{"name": "a"}, {}, {"name": "a"}]),
            template(imagePullSecrets=[{"name": ""}, {"name": "a"}]),
            id="a pull secret twice, and one without a name",
        ),
        pytest.param(
            template(hostAliases=[{"ip": "::1", "hostnames": ["a"]}, {"ip": "::1", "hostnames": ["b"]}]),
            template(hostAliases=[{"ip": "::1", "hostnames": ["b"]}]),
            id="an address twice",
        ),
        pytest.param(
            template(
                {"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 1]}}]}
            ),
            template({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}),
            id="a value of a set twice",
        ),
        pytest.param(
            template(volumes=[{"name": "v", "projected": {"sources": None}}], nodeSelector=None),
            template(volumes=[{"name": "v", "projected": {}}]),
            id="nulls",
        ),
        pytest.param(template(fromTheFuture=1), template(), id="a field that the schema does not know"),
        pytest.param(
            template({"args": ["a", "a"]}, tolerations=[{"key": "k"}] * 2),
            template({"args": ["a", "a"]}, tolerations=[{"key": "k"}] * 2),
            id="lists in which something may be there twice",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}, {"name": "c"}]}},
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}, {"name": "c"}]}},
            id="containers of one name, which both count",
        ),
        pytest.param(
            template(resourceClaims=[{"name": "a", "resourceClaimName": "x"}, {"name": "a"}]),
            template(resourceClaims=[{"name": "a", "resourceClaimName": "x"}, {"name": "a"}]),
            id="device claims of one name, which both count",
        ),
    ],
)
def test_a_template_as_a_workload_holds_it(given: dict[str, Any], want: dict[str, Any]) -> None:
    before = copy.deepcopy(given)
    assert stored_template(given) == want
    assert stored_template(want) == want
    assert given == before


def seen(env: list[dict[str, Any]]) -> dict[str, str]:
    """What a container is given, as the kubelet works it out: one entry after the other, `$(NAME)` of those before."""
    known: dict[str, str] = {}
    for entry in env:
        known[entry["name"]] = re.sub(
            r"\$\$|\$\(([^)]*)\)",
            lambda match: "$" if match[1] is None else known.get(match[1], match[0]),
            entry.get("value", ""),
        )
    return known


def variables(*given: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in given]


@pytest.mark.parametrize(
    ("env", "want"),
    [
        pytest.param([("A", "1"), ("B", "2")], [("A", "1"), ("B", "2")], id="nothing twice"),
        pytest.param([("A", "1"), ("B", "2"), ("A", "3")], [("B", "2"), ("A", "3")], id="the last one, in its place"),
        pytest.param([("A", "1"), ("A", "$(A)2")], [("A", "12")], id="one that goes on with its former value"),
        pytest.param(
            [("A", "1"), ("B", "$(A)"), ("A", "2"), ("C", "$(A)")],
            [("B", "1"), ("A", "2"), ("C", "$(A)")],
            id="one that was read in between",
        ),
        pytest.param([("A", "$$x"), ("A", "$(A)y")], [("A", "$$xy")], id="a dollar sign"),
        pytest.param([("A", "$"), ("A", "$(A)$")], [("A", "$$$")], id="a dollar sign at the end"),
        pytest.param(
            [("A", "$(U)"), ("U", "5"), ("B", "$(A)"), ("A", "2")],
            [("U", "5"), ("B", "$$(U)"), ("A", "2")],
            id="what meant nothing where it was",
        ),
        pytest.param([("A", "$(A"), ("A", "$(A)$(")], [("A", "$$(A$(")], id="parentheses that do not close"),
    ],
)
def test_each_name_is_there_once(env: list[tuple[str, str]], want: list[tuple[str, str]]) -> None:
    assert without_repetitions(variables(*env)) == variables(*want)


def test_a_value_from_elsewhere_counts_like_any_other() -> None:
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    plain = {"name": "A", "value": "1"}
    assert without_repetitions([plain, secret]) == [secret]
    assert without_repetitions([secret, {"name": "B", "value": "$(A)"}, plain]) == [
        {"name": "B", "value": "$(A)"},
        plain,
    ]


names = st.sampled_from("ABC")
texts = st.lists(st.sampled_from(["x", "$", "$$", "(", ")", "$(A)", "$(B)", "$(C)", "$(D)"]), max_size=5).map("".join)


@given(st.lists(st.tuples(names, texts), max_size=7))
def test_a_container_sees_the_same(env: list[tuple[str, str]]) -> None:
    before = variables(*env)
    after = without_repetitions(before)
    assert seen(after) == seen(before)
    assert len({entry["name"] for entry in after}) == len(after)
    assert before == variables(*env)
