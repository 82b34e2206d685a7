# SPDX-License-Identifier: Apache-2.0
"""A real API server takes the definitions of the job kinds, and the objects that tests make of them."""

from __future__ import annotations

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.testing.plugin import binaries_provider, kube_binaries
from tests.support.crds import kinds
from tests.support.operators.operated_kinds import KINDS
from tests.support.operators.samples import job_set, pod_template, sample

__all__ = ["binaries_provider", "kube_binaries"]

pytestmark = pytest.mark.binaries


async def test_a_real_server_takes_every_definition_and_keeps_unknown_fields(
    binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    cluster = await binaries_provider.create("kinds", folder=folder, spec=ClusterSpec())
    async with cluster, cluster.client() as client:
        await kinds.install(client, *kinds.SPECS)
        template = pod_template()
        for kind in KINDS:
            body = sample(kind.resource, "one", template)
            body["spec"]["unknown"] = {"kept": True}
            await client.create(kind.resource, body, namespace="default")
            stored = await client.get_object(kind.resource, "one", namespace="default")
            assert stored["spec"] == body["spec"], kind.resource.kind
        await client.create(kinds.JOB_SETS, job_set("one", template), namespace="default")
