# SPDX-License-Identifier: Apache-2.0
"""The manifests that enrol a worker on the management cluster. Pure.

They are the objects that an administrator would create; the manager creates the mailbox from them (namespace, Role,
RoleBinding, Lease, report).
"""

from __future__ import annotations

import base64

from devcluster import kubeconfigs
from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.resource import MULTIKUEUE_CLUSTERS


def agent_user(cluster: str) -> str:
    """The user name in the agent's client certificate."""
    return f"{constants.AGENT_USER_PREFIX}{cluster}"


def system_namespace() -> JsonObject:
    """The manager's namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": constants.DEFAULT_NAMESPACE}}


def manifests(cluster: str) -> list[JsonObject]:
    """The MultiKueueCluster of a worker with an agent, and the Secret that it references.

    The API requires a kubeconfig; it is not used, and its server name cannot be resolved.
    """
    location = f"{cluster}-kubeconfig"
    content = base64.b64encode(kubeconfigs.dump(_unused_kubeconfig(cluster))).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": location, "namespace": constants.DEFAULT_NAMESPACE},
            "data": {"kubeconfig": content},
        },
        {
            "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
            "kind": MULTIKUEUE_CLUSTERS.kind,
            "metadata": {
                "name": cluster,
                "annotations": {constants.TRANSPORT_ANNOTATION: constants.TransportType.AGENT.value},
            },
            "spec": {"clusterSource": {"kubeConfig": {"location": location, "locationType": "Secret"}}},
        },
    ]


def _unused_kubeconfig(cluster: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": f"https://{cluster}.agent.invalid"}}],
        "users": [{"name": "agent", "user": {"token": "unused"}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "agent"}}],
        "current-context": cluster,
    }
