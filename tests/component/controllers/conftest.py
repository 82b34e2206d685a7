# SPDX-License-Identifier: Apache-2.0
"""What was to be seen on each kind of cluster: everything is played once, at once, before the first test looks."""

from __future__ import annotations

import anyio
import pytest

from devcluster.controllers.app import ControllerOptions, Controllers
from devcluster.pki import Authority
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.core.backoff import Backoff
from multikueue.testing.plugin import binaries_provider, kube_binaries
from tests.component.controllers.playing import Outcomes, play_all
from tests.support.embedded_process import embedded_cluster

__all__ = ["binaries_provider", "kube_binaries"]

_BACKOFF = Backoff(base=0.3, factor=2.0, cap=60.0)


@pytest.fixture(scope="package")
async def embedded_outcomes(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """On the embedded server with controllers of ours."""
    folder = tmp_path_factory.mktemp("embedded")
    with embedded_cluster(folder) as cluster:
        options = ControllerOptions(
            authority=Authority.load_or_create(folder, name="embedded-ca"), pod_backoff=_BACKOFF
        )
        async with cluster, cluster.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(Controllers(client, options).run)
            found = await play_all(client)
            tasks.cancel_scope.cancel()
    return found


@pytest.fixture(scope="package")
async def real_outcomes(binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """On a real cluster with the real controllers."""
    cluster = await binaries_provider.create(
        "controllers", folder=tmp_path_factory.mktemp("controllers"), spec=ClusterSpec()
    )
    async with cluster, cluster.client() as client:
        return await play_all(client)
