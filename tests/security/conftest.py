# SPDX-License-Identifier: Apache-2.0
"""The stage of the scenarios, for attacks on a hub with its manager and two workers.

What runs on real API servers as well is run there by `make conformance`, as the scenarios are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.component.scenarios.conftest import pytest_generate_tests, stage

__all__ = ["pytest_generate_tests", "stage"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what needs real binaries run with `make conformance`."""
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("binaries") is not None:
            item.add_marker(pytest.mark.conformance)
