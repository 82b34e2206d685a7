# SPDX-License-Identifier: Apache-2.0
"""Pod templates as the schema of Workloads keeps them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from multikueue.api.stored_template import stored_template


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
