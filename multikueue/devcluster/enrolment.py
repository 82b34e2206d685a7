# SPDX-License-Identifier: Apache-2.0
"""What the management cluster has to know of a worker before its agent dials in.

Pure: manifests out. The manager makes the mailbox (namespace, Role, RoleBinding, Lease, report) from these, so that a
devcluster enrols a worker by the same objects as an administrator does.
"""

from __future__ import annotations

import base64

from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.resource import MULTIKUEUE_CLUSTERS
from multikueue.devcluster import kubeconfigs


def agent_user(cluster: str) -> str:
    """The user name in the agent's client certificate."""
    return f"{constants.AGENT_USER_PREFIX}{cluster}"


def system_namespace() -> JsonObject:
    """The namespace that the manager keeps its objects in."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": constants.DEFAULT_NAMESPACE}}


def manifests(cluster: str) -> list[JsonObject]:
    """The MultiKueueCluster of a worker whose agent dials out, and the Secret it points to.

    The API demands a kubeconfig; nobody uses it, and its server is a name that no resolver knows.
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
                "annotations": {constants.TRANSPORT_ANNOTATION: constants.Transport.AGENT.value},
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
