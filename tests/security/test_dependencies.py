# SPDX-License-Identifier: Apache-2.0
"""What a hostile manifest may make an agent look for on its cluster: few objects, of its own namespace, by name."""

from __future__ import annotations

import pytest

from devcluster.cluster import Cluster
from multikueue.dispatch.worker.dependencies import MAX_DEPENDENCIES
from tests.security.test_hostile_hub import TEAM, HostileHub, cluster, hostile, kube_binaries, sockets_settle
from tests.support.managers import Object
from tests.support.sites import Transport

__all__ = ["cluster", "kube_binaries", "sockets_settle"]

pytestmark = pytest.mark.anyio
both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)


def needing(*secrets: str) -> Object:
    """The volumes of a pod that needs these Secrets."""
    return {"volumes": [{"name": f"v{n}", "secret": {"secretName": name}} for n, name in enumerate(secrets)]}


def requested(hub: HostileHub) -> int:
    """How often the agent has requested a Secret."""
    return hub.worker.requests_sent["GET", "secrets"]


@both_transports
async def test_an_agent_reports_nothing_about_objects_in_namespaces_that_are_not_for_tenants(
    cluster: Cluster, transport: Transport
) -> None:
    name = f"dep-ns-{transport}"
    async with hostile(cluster, transport, name, "--denied-namespaces=default") as hub:
        for namespace in ("kube-system", "multikueue-system", "default"):
            assignment = await hub.assigns(f"{name}-x", namespace, pod=needing("license"))
            found = await hub.hears(assignment, "Refused", "ForbiddenByPolicy")
            assert "license" not in found["message"]
        assert requested(hub) == 0


@both_transports
async def test_a_name_that_leads_to_another_namespace_is_never_requested(
    cluster: Cluster, transport: Transport
) -> None:
    name = f"dep-path-{transport}"
    async with hostile(cluster, transport, name) as hub:
        pod = needing("../../kube-system/secrets/token", "x" * 300, "a?watch=true")
        assignment = await hub.assigns(f"{name}-x", TEAM, pod=pod)
        found = await hub.hears(assignment, "Refused", "DependencyNotFound")
        assert 'Secret "../../kube-system/secrets/token"' in found["message"]
        assert requested(hub) == 0
        assert await hub.made() == []


@both_transports
async def test_a_manifest_with_thousands_of_names_costs_few_requests(cluster: Cluster, transport: Transport) -> None:
    name = f"dep-many-{transport}"
    async with hostile(cluster, transport, name) as hub:
        assignment = await hub.assigns(f"{name}-x", TEAM, pod=needing(*(f"s{n}" for n in range(2000))))
        found = await hub.hears(assignment, "Refused", "DependencyNotFound")
        assert len(found["message"]) < 1000
        assert 0 < requested(hub) <= MAX_DEPENDENCIES
