# SPDX-License-Identifier: Apache-2.0
"""The metrics of a manager as lines that can be compared: what was counted, and which histograms have samples."""

from __future__ import annotations

from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from multikueue.api.resource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from multikueue.kube.rest.client import KubeClient
from tests.support.service_accounts import service_account

_READER: Final = "metrics-reader"
_SYSTEM: Final = "kueue-system"
_GROUP: Final = "rbac.authorization.k8s.io"
_OF_KUEUE: Final = "kueue_"
_NOT_COUNTED: Final = ("_bucket", "_sum", "_created")


async def metrics_token(client: KubeClient) -> str:
    """The token of a service account that may read metrics, which Kueue's manager asks for."""
    token = await service_account(client, _READER, namespace=_SYSTEM)
    shared = {"apiVersion": f"{_GROUP}/v1", "metadata": {"name": _READER}}
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    await client.create(CLUSTER_ROLES, {**shared, "kind": "ClusterRole", "rules": rules})
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _READER}
    account = {"kind": "ServiceAccount", "name": _READER, "namespace": _SYSTEM}
    await client.create(
        CLUSTER_ROLE_BINDINGS, {**shared, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]}
    )
    return token


async def measured(url: str, token: str) -> list[str]:
    """The samples of Kueue's metrics."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
        answer.raise_for_status()
        return lines(await answer.text())


def lines(text: str) -> list[str]:
    """Counts and amounts by name and labels; of a histogram how many samples it has."""
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_OF_KUEUE) and not sample.name.endswith(_NOT_COUNTED):
                labels = ", ".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found.append(f"{family.type} {sample.name}{{{labels}}} {sample.value:g}")
    return sorted(found)
