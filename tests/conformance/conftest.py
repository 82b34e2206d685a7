# SPDX-License-Identifier: Apache-2.0
"""The two servers of the conformance suite, shared by all its tests, and the line that sums it up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from multikueue.testing.plugin import binaries_provider, kube_binaries
from tests.conformance.harness import Both, Case, servers
from tests.conformance.summary import PROPERTY

__all__ = ["binaries_provider", "kube_binaries"]

_PAIR = frozenset({"both", "judge", "binaries_provider"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs both servers; what is recorded needs neither."""
    for item in items:
        if "conformance" in item.path.parts and _PAIR & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.conformance)


Judge: TypeAlias = Callable[[Case], Awaitable[None]]


@pytest.fixture(scope="package")
async def both(binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """The embedded server and a real one; skips where there are no binaries."""
    async with servers(binaries_provider, folder=tmp_path_factory.mktemp("conformance")) as found:
        yield found


@pytest.fixture
def judge(both: Both, record_property: Callable[[str, object], None]) -> Judge:
    """Plays a case on both servers and fails when they differ."""

    async def play(case: Case) -> None:
        record_property(PROPERTY, "different")
        record_property(PROPERTY, await both.judge(case))

    return play
