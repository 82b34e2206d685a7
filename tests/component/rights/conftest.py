# SPDX-License-Identifier: Apache-2.0
"""A hub and two workers with every built-in controller, embedded and of real binaries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of
from tests.support.limited_workers import Pair

__all__ = ["kube_binaries"]


@pytest.fixture(scope="package", params=BOTH_PROVIDERS)
async def pair(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp(f"rights-{request.param}")
    provider = provider_of(request, folder)
    spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests())
    async with provider:
        hub = await provider.create("hub", folder=folder / "hub", spec=spec)
        worker = await provider.create("worker", folder=folder / "worker", spec=spec)
        # Nothing of Kueue is installed here.
        plain = await provider.create("plain", folder=folder / "plain", spec=replace(spec, manifests=()))
        async with hub, worker, plain:
            yield Pair(hub, worker, plain)
