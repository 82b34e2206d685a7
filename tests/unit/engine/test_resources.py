# SPDX-License-Identifier: Apache-2.0
"""Amounts (`docs/spec/engine.md §0.2`)."""

from __future__ import annotations

import pytest

from multikueue.core.quantity import Quantity
from multikueue.engine import resources
from multikueue.engine.resources import MAX_INT64, MIN_INT64, UNLIMITED, add, subtract


@pytest.mark.parametrize(
    ("resource", "written", "want"),
    [
        pytest.param("cpu", "0.5m", 1, id="half a milli-core is rounded up to one"),
        pytest.param("cpu", "3", 3000, id="cores count as milli-units"),
        pytest.param("memory", "1500m", 2, id="what is finer than a unit is rounded up"),
        pytest.param("memory", "1Gi", 2**30, id="binary suffixes count in bytes"),
        pytest.param("memory", "20E", MAX_INT64, id="what does not fit into 64 bits is clamped"),
        pytest.param("cpu", "-1", -1000, id="negative amounts stay negative"),
    ],
)
def test_amount(resource: str, written: str, want: int) -> None:
    assert resources.amount(resource, Quantity.parse(written)) == want


@pytest.mark.parametrize(
    ("resource", "written", "want"),
    [
        pytest.param("memory", "9223372036854775807", UNLIMITED, id="the greatest quota is unlimited"),
        pytest.param("memory", "9223372036854775806", MAX_INT64 - 1, id="one less is not"),
        pytest.param("cpu", "9223372036854775", UNLIMITED, id="so many cores are unlimited"),
        pytest.param("cpu", "9223372036854774", 9223372036854774000, id="one core less is not"),
    ],
)
def test_quota(resource: str, written: str, want: int) -> None:
    assert resources.quota(resource, Quantity.parse(written)) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(add(UNLIMITED, 5), UNLIMITED, id="unlimited plus something is unlimited"),
        pytest.param(subtract(UNLIMITED, 5), UNLIMITED, id="unlimited less something is unlimited"),
        pytest.param(subtract(5, UNLIMITED), MIN_INT64, id="something less unlimited is the least amount"),
        pytest.param(subtract(UNLIMITED, UNLIMITED), 0, id="unlimited less unlimited is nothing"),
        pytest.param(add(MAX_INT64, 1), MAX_INT64, id="sums saturate above"),
        pytest.param(subtract(MIN_INT64, 1), MIN_INT64, id="differences saturate below"),
    ],
)
def test_arithmetic(found: int, want: int) -> None:
    assert found == want


@pytest.mark.parametrize(
    ("resource", "value", "want"),
    [
        pytest.param("cpu", 3000, "3", id="whole cores"),
        pytest.param("cpu", 1500, "1500m", id="parts of a core"),
        pytest.param("cpu", 1_000_000, "1k", id="a thousand cores"),
        pytest.param("memory", 2**30, "1Gi", id="memory in binary"),
        pytest.param("memory", 1536 * 1024, "1536Ki", id="the largest exact binary suffix"),
        pytest.param("memory", 1000, "1k", id="memory that is no multiple of 1024 in decimal"),
        pytest.param("hugepages-2Mi", 2**21, "2Mi", id="huge pages in binary"),
        pytest.param("example.com/gpu", 2500, "2500", id="others in decimal without a fraction"),
        pytest.param("example.com/gpu", 10**6, "1M", id="others with the largest exact suffix"),
        pytest.param("pods", UNLIMITED, "<unlimited>", id="unlimited by name"),
    ],
)
def test_text(resource: str, value: int, want: str) -> None:
    assert resources.text(resource, value) == want


def test_resources_are_tried_in_the_order_of_their_hashes() -> None:
    want = [
        "ephemeral-storage",
        "amd.com/gpu",
        "memory",
        "nvidia.com/gpu",
        "vendor.com/gpu",
        "pods",
        "example.com/gpu",
        "hugepages-2Mi",
        "google.com/tpu",
        "storage",
        "gpu",
        "cpu_credits",
        "cpu",
    ]
    assert resources.in_evaluation_order(sorted(want)) == want
