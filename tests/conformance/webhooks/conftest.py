# SPDX-License-Identifier: Apache-2.0
"""The webhook that both servers call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.webhooks.hookserver import HookServer, serving


@pytest.fixture(scope="package")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookServer]:
    """A running webhook."""
    with serving(tmp_path_factory.mktemp("webhooks")) as server:
        yield server
