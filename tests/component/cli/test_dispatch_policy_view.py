# SPDX-License-Identifier: Apache-2.0
"""What `mkctl cluster describe` says of the dispatch policy of a cluster."""

from __future__ import annotations

import pytest

from multikueue.api.resource import CONFIG_MAPS, MULTIKUEUE_CLUSTERS
from multikueue.cli.cluster.view import dispatch_policy, policy_text
from multikueue.cli.hub_options import HubOptions
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import make_namespace
from tests.support.workers import FakeWorker

pytestmark = pytest.mark.anyio

OPTIONS = HubOptions(kubeconfig=None)


async def configure(hub: KubeClient, text: str) -> None:
    """The ConfigMap of the manager."""
    await make_namespace(hub, OPTIONS.manager_namespace)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": OPTIONS.manager_namespace},
        "data": {"controller_manager_config.yaml": text},
    }
    await hub.create(CONFIG_MAPS, body, namespace=OPTIONS.manager_namespace)


async def described(hub: KubeClient, configuration: str, **annotations: str) -> str:
    """The line about the cluster w1."""
    await FakeWorker(hub, "w1").enrol()
    texts = {f"multikueue.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    await hub.patch(MULTIKUEUE_CLUSTERS, "w1", {"metadata": {"annotations": texts}})
    await configure(hub, configuration)
    return policy_text(await dispatch_policy(hub, "w1", options=OPTIONS))


async def test_the_rules_of_the_hub_and_of_the_cluster_are_shown_together() -> None:
    async with running_hub() as made, made.client() as hub:
        configuration = "multiKueue: {dispatchPolicy: {allowedNamespaces: [team-*], podSecurity: baseline}}"
        assert await described(hub, configuration, allowed_namespaces="*-a,x", pod_security="restricted") == (
            "namespaces team-* and also *-a, x except kube-*, kueue-system, multikueue-system;"
            " service accounts any; Pod Security level restricted"
        )


async def test_an_annotation_with_a_mistake_is_shown() -> None:
    async with running_hub() as made, made.client() as hub:
        said = await described(hub, "", pod_security="strict")
        levels = "privileged, baseline, restricted"
        assert f'annotation multikueue.io/pod-security: expected one of {levels}, found "strict"' in said


async def test_a_configuration_that_cannot_be_read_is_shown() -> None:
    async with running_hub() as made, made.client() as hub:
        assert "the Configuration cannot be read: configuration: unknownField" in await described(
            hub, "unknownField: 1"
        )
