# SPDX-License-Identifier: Apache-2.0
"""A manager whose certificate is issued by something else, and how its servers are configured."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import aiohttp
import pytest
import trustme

from devcluster.cluster import Cluster
from manager.webhooks.configurations import MUTATING_NAME
from multikueue.api.resource import API_SERVICES, MUTATING_WEBHOOK_CONFIGURATIONS, SECRETS
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import get, make_job, make_queue, running_manager, wait_condition

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


async def test_webhooks_are_served_with_the_certificate_of_a_folder(
    hub: Cluster, client: KubeClient, tmp_path: Path
) -> None:
    before = await get(client, SECRETS, "kueue-webhook-server-cert", namespace="kueue-system")
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    (tmp_path / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    settings = (
        f"webhook: {{certDir: {tmp_path}}}\n"
        "internalCertManagement: {enable: false}\n"
        "tls: {minVersion: VersionTLS13}\n"
        "health: {livenessEndpointName: alive, readinessEndpointName: prepared}\n"
    )
    async with running_manager(hub, settings=settings, visibility=True) as manager:
        await make_queue(client, "filed", namespace="filed")
        await make_job(client, "j", namespace="filed", queue="filed")
        await wait_condition(client, "j", "Admitted", namespace="filed")
        async with aiohttp.ClientSession() as session:
            for path in ("alive", "prepared", "healthz", "readyz"):
                async with session.get(f"http://127.0.0.1:{manager.health_port}/{path}") as answer:
                    assert answer.status == 200, path
        installed = await get(client, MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_NAME)
        assert installed is not None
        bundles = {hook["clientConfig"]["caBundle"] for hook in installed["webhooks"]}
        assert bundles == {b64encode(authority.cert_pem.bytes()).decode()}
        registered = await get(client, API_SERVICES, "v1beta2.visibility.kueue.x-k8s.io")
        assert registered is None, "the names in a certificate of others are not known"
    assert await get(client, SECRETS, "kueue-webhook-server-cert", namespace="kueue-system") == before
