# SPDX-License-Identifier: Apache-2.0
"""The constraints of `make lowest`: what pyproject.toml allows at least is what the tests run with."""

from __future__ import annotations

import pytest

from hack.lowest_versions import locked_versions, lowest_versions


def test_a_dependency_is_held_at_its_lower_bound_whatever_its_upper_one() -> None:
    assert list(lowest_versions(["aiohttp>=3.13.5,<4", "anyio>=4.11", "PyYAML<7,>=6.0.2"])) == [
        "aiohttp==3.13.5",
        "anyio==4.11",
        "PyYAML==6.0.2",
    ]


@pytest.mark.parametrize("dependency", ["aiohttp", "aiohttp<4", "aiohttp==3.13.5"])
def test_a_dependency_without_a_lower_bound_is_refused_by_name(dependency: str) -> None:
    with pytest.raises(ValueError, match=f"{dependency} has 0 lower bounds"):
        list(lowest_versions([dependency]))


def test_what_only_tests_need_has_its_locked_version_and_a_library_has_none() -> None:
    locked = ["# a comment", "", "aiohttp==3.14.5", "pytest_timeout==2.4.0", "types-PyYAML==6.0.12"]
    assert list(locked_versions(["pytest-timeout>=2.3", "types-PyYAML"], locked)) == [
        "pytest_timeout==2.4.0",
        "types-PyYAML==6.0.12",
    ]
