# SPDX-License-Identifier: Apache-2.0
"""Pods that request more, or claim other devices, than quota is reserved for."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.engine.decode.pods import Shapes
from multikueue.jobs.kinds.oversized_pods import growth, requests_of, surplus

Object = dict[str, Any]


def pod(*claims: Object, cpu: str = "1", **container: Any) -> Object:
    resources = {"requests": {"cpu": cpu}, **container}
    return {"spec": {"containers": [{"name": "c", "resources": resources}], "resourceClaims": list(claims)}}


def of(template: str, name: str = "x") -> Object:
    return {"name": name, "resourceClaimTemplateName": template}


def pod_set(*claims: Object, **changes: Any) -> Object:
    return {"name": "main", "count": 2, "template": pod(*claims, **changes)}


def status(count: int = 2, **usage: str) -> Object:
    return {"admission": {"podSetAssignments": [{"name": "main", "count": count, "resourceUsage": usage}]}}


@pytest.mark.parametrize(
    ("claims", "wanted", "found"),
    [
        pytest.param((of("t"),), (of("t", "other"),), "", id="a claim of the same template by another name"),
        pytest.param((), (of("t"),), "", id="none of those of its template"),
        pytest.param((of("t"),), (), "ResourceClaimTemplate t 1 instead of 0", id="one that its template has not"),
        pytest.param(
            (of("t"), of("t", "y")), (of("t"),), "ResourceClaimTemplate t 2 instead of 1", id="two instead of one"
        ),
        pytest.param((of("large"),), (of("small"),), "ResourceClaimTemplate large 1 instead of 0", id="a larger one"),
        pytest.param(
            ({"name": "x", "resourceClaimName": "t"},),
            (of("t"),),
            "ResourceClaim t 1 instead of 0",
            id="one that exists instead of one from a template of that name",
        ),
        pytest.param(({"name": "x"},), (), "", id="one that names nothing"),
    ],
)
def test_a_pod_may_have_the_claims_of_its_pod_set(
    claims: tuple[Object, ...], wanted: tuple[Object, ...], found: str
) -> None:
    assert surplus(pod(*claims), pod_set(*wanted), {}) == found
    assert growth(pod(*claims), pod(*wanted)) == found


def test_no_amount_of_quota_makes_up_for_a_claim() -> None:
    assert surplus(pod(of("t")), pod_set(), status(cpu="99", gpus="99")) == "ResourceClaimTemplate t 1 instead of 0"


def test_more_cpu_and_more_claims_are_both_named() -> None:
    assert surplus(pod(of("t"), cpu="3"), pod_set(of("u")), status(cpu="4")) == (
        "ResourceClaimTemplate t 1 instead of 0, cpu 3 instead of 1"
    )


def test_a_resize_of_a_pod_with_claims_compares_what_grows() -> None:
    assert growth(pod(of("t"), cpu="2"), pod(of("t"))) == "cpu 2 instead of 1"
    assert growth(pod(of("t")), pod(of("t"))) == ""


def test_a_claim_that_only_a_container_names_is_none_of_the_pod() -> None:
    assert surplus(pod(claims=[{"name": "hidden"}]), pod_set(), {}) == ""


@pytest.mark.parametrize("claims", [["gpu"], "gpu", {"name": "x"}])
def test_claims_of_another_shape_are_a_surplus(claims: Any) -> None:
    bad = pod()
    bad["spec"]["resourceClaims"] = claims
    assert "resourceClaims: expected a list of objects" in surplus(bad, pod_set(), {})


def test_the_claims_of_a_pod_are_among_what_it_requests() -> None:
    found = {name: str(value) for name, value in requests_of(pod(of("t"), of("t", "y")), Shapes()).items()}
    assert found == {"cpu": "1", "ResourceClaimTemplate t": "2"}


def test_a_resource_with_the_name_of_a_claim_is_not_a_claim() -> None:
    disguised = pod_set()
    disguised["template"]["spec"]["containers"][0]["resources"]["requests"]["ResourceClaimTemplate t"] = "1"
    assert surplus(pod(of("t")), disguised, {})


def test_an_assignment_of_no_pods_covers_no_claims() -> None:
    assert surplus(pod(of("t")), pod_set(), status(count=0))
