# SPDX-License-Identifier: Apache-2.0
"""A server without sockets for each test, and its administrator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.embedded import Caller, api_server


@pytest.fixture
async def admin() -> AsyncIterator[Caller]:
    api = api_server()
    yield Caller(api)
    await api.close()
