# SPDX-License-Identifier: Apache-2.0
"""The custom kinds of this folder's cases, installed once."""

from __future__ import annotations

import pytest

from tests.conformance.api import widgets as kinds
from tests.conformance.harness import Both


@pytest.fixture(scope="package", autouse=True)
async def widgets(both: Both) -> None:
    """Widgets and gadgets are served by both servers."""
    await kinds.install(both)
