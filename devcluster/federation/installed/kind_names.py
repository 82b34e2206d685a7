# SPDX-License-Identifier: Apache-2.0
"""The names that kind would give to the clusters of a federation, and a kubeconfig with these names.

Kind names context, cluster and user of a cluster `kind-CLUSTER`. Test suites for several clusters use the clusters
`NAME-manager`, `NAME-worker1` and so on, suites for one cluster `NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from multikueue.api.meta import JsonObject

_PREFIX: Final = "kind-"
CONTROL_PLANE_PORT: Final = 6443


def kind_clusters(name: str, *, hub: str, workers: Sequence[str]) -> dict[str, str]:
    """The kind cluster that each cluster of a federation replaces; the hub is first."""
    if not workers:
        return {hub: name}
    return {hub: f"{name}-manager", **{worker: f"{name}-{worker}" for worker in workers}}


def context_of(kind_cluster: str) -> str:
    """The name of the kubeconfig context."""
    return f"{_PREFIX}{kind_cluster}"


def control_plane_node(kind_cluster: str) -> str:
    """The control-plane node, whose name is also its host name in kind's network."""
    return f"{kind_cluster}-control-plane"


def merged_kubeconfig(kubeconfigs: Mapping[str, JsonObject]) -> JsonObject:
    """Merge kubeconfigs of one cluster and user each, by kind cluster; the first is current."""
    merged: JsonObject = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for cluster, found in kubeconfigs.items():
        context = context_of(cluster)
        merged["clusters"].append({"name": context, "cluster": found["clusters"][0]["cluster"]})
        merged["users"].append({"name": context, "user": found["users"][0]["user"]})
        merged["contexts"].append({"name": context, "context": {"cluster": context, "user": context}})
    merged["current-context"] = merged["contexts"][0]["name"] if merged["contexts"] else ""
    return merged
