# SPDX-License-Identifier: Apache-2.0
"""The backend that both servers put in their place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conformance import background
from tests.conformance.aggregation.backend import Backend
from tests.conformance.harness import Both, Exchange

_SETTINGS = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


@pytest.fixture(scope="package")
async def backend(both: Both, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    """A running backend of both servers."""
    async with _running(Backend(modern=True), both, tmp_path_factory.mktemp("aggregated")) as found:
        yield found


@pytest.fixture(scope="package")
async def old_backend(both: Both, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    """A backend without aggregated discovery."""
    async with _running(Backend(modern=False), both, tmp_path_factory.mktemp("aggregated")) as found:
        yield found


@asynccontextmanager
async def _running(backend: Backend, both: Both, folder: Path) -> AsyncIterator[Backend]:
    """It trusts both servers' front proxies."""
    settings = [await server.send(Exchange("GET", _SETTINGS)) for server in (both.embedded, both.real)]
    proxies = [answer.body["data"]["requestheader-client-ca-file"] for answer in settings]
    with background.serving(backend.application(), backend.context(proxies, folder=folder)) as backend.url:
        yield backend
