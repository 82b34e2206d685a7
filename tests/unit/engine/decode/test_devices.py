# SPDX-License-Identifier: Apache-2.0
"""Device classes, claim templates and claims of pods as they are read from objects."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.engine import decode
from multikueue.engine.devices.claims import DeviceClass, DeviceMapping, DeviceRequest, PodClaim
from tests.support.engine_builders import START

FIRST = "only requests of exactly one class are counted, not the first available of several"


def template(*requests: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": list(requests)}}},
    }


def read(**exactly: Any) -> DeviceRequest:
    """The request for exactly that."""
    (found,) = decode.claim_template(template({"name": "r", "exactly": {"deviceClassName": "c"} | exactly})).requests
    return found


def test_a_class_has_its_name_time_and_resource() -> None:
    body = {"metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert decode.device_class(body) == DeviceClass("c", START)
    spec = {"extendedResourceName": "example.com/gpu", "selectors": [{"cel": {"expression": "true"}}]}
    assert decode.device_class(body | {"spec": spec}) == DeviceClass("c", START, "example.com/gpu")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"spec": None}, id="null"),
        pytest.param({"spec": {"devices": {}}}, id="no requests"),
        pytest.param({"spec": {"devices": {"requests": None}}}, id="null requests"),
        pytest.param({"spec": {"devices": {"requests": []}}}, id="an empty list"),
    ],
)
def test_a_template_may_request_nothing(spec: Any) -> None:
    found = decode.claim_template({"metadata": {"name": "t", "namespace": "ns"}, "spec": spec})
    assert (found.key, found.requests) == (Key("ns", "t"), ())


@pytest.mark.parametrize(
    ("exactly", "want"),
    [
        pytest.param({}, DeviceRequest(name="r", device_class="c"), id="one device by default"),
        pytest.param({"count": None}, DeviceRequest(name="r", device_class="c"), id="of which the count is null"),
        pytest.param(
            {"allocationMode": "ExactCount", "count": 4}, DeviceRequest(name="r", device_class="c", count=4), id="four"
        ),
        pytest.param(
            {"count": 2**63 - 1}, DeviceRequest(name="r", device_class="c", count=2**63 - 1), id="the greatest number"
        ),
        pytest.param(
            {"adminAccess": True}, DeviceRequest(name="r", device_class="c", free=True), id="for administration"
        ),
        pytest.param(
            {"adminAccess": True, "allocationMode": "All"},
            DeviceRequest(name="r", device_class="c", free=True),
            id="all for administration",
        ),
        pytest.param({"adminAccess": False}, DeviceRequest(name="r", device_class="c"), id="not for administration"),
        pytest.param({"adminAccess": "true"}, DeviceRequest(name="r", device_class="c"), id="which only true says"),
        pytest.param(
            {"allocationMode": "All"},
            DeviceRequest(name="r", device_class="c", problem='allocationMode "All" cannot be counted'),
            id="all",
        ),
        pytest.param(
            {"allocationMode": "exactcount"},
            DeviceRequest(name="r", device_class="c", problem='allocationMode "exactcount" cannot be counted'),
            id="a mode that is none",
        ),
    ],
)
def test_a_request_of_exactly_one_class_has_a_number(exactly: dict[str, Any], want: DeviceRequest) -> None:
    assert read(**exactly) == want


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}, id="the first of some"),
        pytest.param({"name": "r"}, id="a form of a later version"),
        pytest.param({"name": "r", "exactly": None}, id="nothing"),
    ],
)
def test_any_other_request_has_a_problem(request_: dict[str, Any]) -> None:
    assert decode.claim_template(template(request_)).requests == (DeviceRequest(name="r", problem=FIRST),)


def test_the_form_of_an_older_version_is_named() -> None:
    (found,) = decode.claim_template(template({"name": "r", "deviceClassName": "c"})).requests
    assert found.problem == "it has the form of an older version of resource.k8s.io than v1"


@pytest.mark.parametrize(("count", "want"), [(0, 1), (-9, -9)])
def test_no_count_is_one_and_a_negative_one_is_a_problem(count: int, want: int) -> None:
    exactly = {"deviceClassName": "c", "count": count}
    (found,) = decode.claim_template(template({"name": "r", "exactly": exactly})).requests
    assert (found.count, bool(found.problem)) == (want, want < 0)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(template("text"), id="a request that is text"),
        pytest.param(template({"name": "r", "exactly": ["c"]}), id="a list"),
        pytest.param(template({"name": "r", "exactly": {"deviceClassName": "c", "count": "many"}}), id="a word"),
        pytest.param(template({"name": "r", "exactly": {"deviceClassName": "c", "count": 2**63}}), id="too many"),
        pytest.param(template({"name": "r", "exactly": {"deviceClassName": "c", "count": 1.5}}), id="a part of one"),
        pytest.param(template({"name": "r", "exactly": {"deviceClassName": "c", "count": True}}), id="true"),
        pytest.param({"metadata": {"name": "t"}, "spec": []}, id="a spec that is a list"),
        pytest.param({"metadata": {"name": "t"}, "spec": {"spec": {"devices": 3}}}, id="devices that are a number"),
    ],
)
def test_an_object_of_another_shape_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        decode.claim_template(body)


def test_the_claims_of_a_pod_are_its_own_and_those_that_only_its_containers_name() -> None:
    spec = {
        "resourceClaims": [
            {"name": "a", "resourceClaimTemplateName": "t"},
            {"name": "b", "resourceClaimName": "own"},
            {"name": "c"},
        ],
        "initContainers": [{"name": "i", "resources": {"claims": [{"name": "a"}, {"name": "hidden"}]}}],
        "containers": [
            {"name": "x", "resources": {"claims": [{"name": "hidden"}, {"name": "b", "request": "r"}]}},
            {"name": "y", "resources": {"claims": [{"name": "a"}]}},
        ],
    }
    assert decode.Shapes().of(spec).claims == (
        PodClaim("a", template="t"),
        PodClaim("b", claim="own"),
        PodClaim("c"),
        PodClaim("hidden", of_pod=False),
    )


def test_claims_of_one_name_that_no_server_would_take_all_count() -> None:
    named = [{"name": "a", "resourceClaimTemplateName": name} for name in ("t", "u", "t")]
    assert [each.template for each in decode.Shapes().of({"resourceClaims": named}).claims] == ["t", "u", "t"]


def test_shapes_with_other_templates_are_other_shapes() -> None:
    shapes = decode.Shapes()
    found = {
        shapes.of({"resourceClaims": [{"name": "a", "resourceClaimTemplateName": name}]}).fingerprint for name in "tu"
    }
    assert len(found) == 2


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param("gpu", id="a text"),
        pytest.param(["gpu"], id="a list of texts"),
        pytest.param({"name": "gpu"}, id="an object"),
    ],
)
def test_claims_of_another_shape_are_refused(claims: Any) -> None:
    with pytest.raises(BadInput):
        decode.Shapes().of({"resourceClaims": claims})


def test_mappings_and_gates_are_read_from_a_configuration() -> None:
    mappings = [
        {"name": "gpus", "deviceClassNames": ["a", "b"]},
        {"name": "memory", "deviceClassNames": ["c"], "sources": [{"counter": {"name": "memory"}}]},
    ]
    found = decode.settings({"resources": {"deviceClassMappings": mappings}})
    assert found.device_mappings == (
        DeviceMapping("gpus", ("a", "b")),
        DeviceMapping("memory", ("c",), sources=True),
    )
    assert (found.gates.devices, found.gates.extended_devices, found.gates.rejects_devices) == (True, True, True)
    off = {
        "KueueDRAIntegration": False,
        "KueueDRAIntegrationExtendedResource": False,
        "KueueDRARejectWorkloadsWhenDRADisabled": False,
    }
    gates = decode.settings({"featureGates": off}).gates
    assert (gates.devices, gates.extended_devices, gates.rejects_devices) == (False, False, False)
