# SPDX-License-Identifier: Apache-2.0
"""A user who may read what a manager serves itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from multikueue.api.resource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from multikueue.kube.rest.client import KubeClient
from tests.support.service_accounts import service_account

_READER: Final = "reader"
_SYSTEM: Final = "kueue-system"
_GROUP: Final = "rbac.authorization.k8s.io"


async def reader_token(client: KubeClient, rules: Sequence[dict[str, Any]]) -> str:
    """The token of a service account with these rights."""
    token = await service_account(client, _READER, namespace=_SYSTEM)
    shared = {"apiVersion": f"{_GROUP}/v1", "metadata": {"name": _READER}}
    await client.create(CLUSTER_ROLES, {**shared, "kind": "ClusterRole", "rules": list(rules)})
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _READER}
    account = {"kind": "ServiceAccount", "name": _READER, "namespace": _SYSTEM}
    await client.create(
        CLUSTER_ROLE_BINDINGS, {**shared, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]}
    )
    return token
