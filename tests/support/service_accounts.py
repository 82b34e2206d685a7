# SPDX-License-Identifier: Apache-2.0
"""Service accounts that tests make, and their tokens."""

from __future__ import annotations

from multikueue.api.resource import SERVICE_ACCOUNTS
from multikueue.kube.rest.client import KubeClient


async def service_account(client: KubeClient, name: str, *, namespace: str) -> str:
    """The token of a service account that is made here."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    await client.create(SERVICE_ACCOUNTS, account, namespace=namespace)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await client.request("POST", SERVICE_ACCOUNTS.path(namespace, name, "token"), body=asked)
    return str(answer.json()["status"]["token"])
