# SPDX-License-Identifier: Apache-2.0
"""The Secret with the certificate of the webhooks is replaced when its certificate expires soon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from manager.webhooks.certificates import Bundle
from manager.webhooks.rotation import SharedBundle
from multikueue.api.resource import SECRETS
from multikueue.core.clock import ManualClock, SystemClock
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub

pytestmark = pytest.mark.anyio

NAME = "webhook-certificate"


def bundle_of(client: KubeClient, clock: ManualClock) -> SharedBundle:
    return SharedBundle(client, namespace="default", name=NAME, hosts=["localhost"], clock=clock)


async def test_a_certificate_that_expires_is_replaced_in_its_secret_and_other_keys_stay() -> None:
    clock = ManualClock(SystemClock().now())
    async with running_hub() as hub, hub.client() as client:
        first = await bundle_of(client, clock).ensure()
        await client.patch(SECRETS, NAME, {"data": {"of-a-chart": "eA=="}}, namespace="default")
        assert await bundle_of(client, clock).ensure() == first, "it is valid for long"
        clock.advance(timedelta(days=3650).total_seconds())
        second = await bundle_of(client, clock).ensure()
        assert second != first
        stored = await client.get_object(SECRETS, NAME, namespace="default")
        assert Bundle.of_secret(stored["data"]) == second
        assert stored["data"]["of-a-chart"] == "eA=="
