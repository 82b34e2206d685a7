# SPDX-License-Identifier: Apache-2.0
"""A ProvisioningRequestConfig as settings, and the delays that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.provisioning.settings import MergePolicy, ProvisioningSettings
from tests.unit.provisioning.builders import SETTINGS, config


def test_every_field_is_read() -> None:
    given = config(
        parameters={"a": "b"},
        managedResources=["gpu"],
        retryStrategy={"backoffLimitCount": 1, "backoffBaseSeconds": 2, "backoffMaxSeconds": 3},
        podSetUpdates={"nodeSelector": [{"key": "k", "valueFromProvisioningClassDetail": "d"}]},
        podSetMergePolicy="IdenticalPodTemplates",
    )
    assert ProvisioningSettings.of(given) == ProvisioningSettings(
        class_name=SETTINGS.class_name,
        parameters={"a": "b"},
        managed_resources=frozenset({"gpu"}),
        retries=1,
        base_seconds=2,
        max_seconds=3,
        node_selector=(("k", "d"),),
        merge_policy=MergePolicy.IDENTICAL_TEMPLATES,
    )


def test_only_the_class_is_required() -> None:
    assert ProvisioningSettings.of(config()) == SETTINGS


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"provisioningClassName": ""}, "provisioningClassName is missing", id="class"),
        pytest.param({"podSetMergePolicy": "Any"}, 'found "Any"', id="merge policy"),
        pytest.param({"retryStrategy": {"backoffBaseSeconds": -1}}, "backoffBaseSeconds", id="negative delay"),
        pytest.param({"retryStrategy": {"backoffLimitCount": "x"}}, "backoffLimitCount", id="no number"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        ProvisioningSettings.of(config(**spec))


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 60), (2, 120), (5, 960), (6, 1800), (2**31 - 1, 1800)],
)
def test_the_delay_doubles_up_to_the_largest(attempt: int, seconds: int) -> None:
    assert SETTINGS.delay(attempt) == seconds


def test_a_base_of_zero_retries_at_once() -> None:
    assert replace(SETTINGS, base_seconds=0).delay(9) == 0
