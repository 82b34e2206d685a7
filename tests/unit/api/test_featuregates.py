# SPDX-License-Identifier: Apache-2.0
"""Feature gates: what is on by default, and what is wrong with those that a Configuration sets."""

from __future__ import annotations

import pytest

from multikueue.api import featuregates
from multikueue.api.configuration import Configuration

MAPPINGS = {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu.example.com"]}]}


@pytest.mark.parametrize(
    ("former", "now"),
    [
        pytest.param("DynamicResourceAllocation", "KueueDRAIntegration", id="devices"),
        pytest.param("DRAExtendedResources", "KueueDRAIntegrationExtendedResource", id="extended resources"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_gate_that_has_another_name_now_says_which(former: str, now: str, value: bool) -> None:
    assert list(featuregates.problems({former: value})) == [
        (former, f"this gate is now {now}, and on by default; remove or rename it")
    ]
    assert list(featuregates.problems({now: True})) == []
    assert featuregates.default(now)


def test_a_part_of_the_counting_of_devices_needs_the_whole() -> None:
    parts = {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": True}
    assert list(featuregates.problems(parts)) == [
        ("KueueDRAIntegrationExtendedResource", "needs KueueDRAIntegration, which is off")
    ]


def test_whether_uncounted_claims_are_refused_does_not_depend_on_the_counting() -> None:
    gates = {"KueueDRAIntegration": False, "KueueDRARejectWorkloadsWhenDRADisabled": True}
    assert list(featuregates.problems(gates)) == []
    assert featuregates.default("KueueDRARejectWorkloadsWhenDRADisabled")


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        pytest.param({}, False, id="without mappings"),
        pytest.param({"resources": MAPPINGS}, True, id="with mappings"),
        pytest.param(
            {"resources": MAPPINGS, "featureGates": {"KueueDRAIntegration": False}}, False, id="with the gate off"
        ),
    ],
)
def test_devices_count_where_a_class_has_a_resource_and_the_gate_is_on(wanted: object, counts: bool) -> None:
    assert Configuration.model_validate(wanted).counts_devices is counts
