# SPDX-License-Identifier: Apache-2.0
"""What every cluster is born with: its namespaces, default roles and bindings, priority classes."""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents, objects
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.world import World

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_BORN: Final = {
    "clusterroles": "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings": "clusterrolebindings.rbac.authorization.k8s.io",
    "roles": "roles.rbac.authorization.k8s.io",
    "rolebindings": "rolebindings.rbac.authorization.k8s.io",
    "priorityclasses": "priorityclasses.scheduling.k8s.io",
}


def populate(world: World) -> None:
    """Create what is missing of what every cluster has."""
    stamp = world.stamp()
    for name in _NAMESPACES:
        if not world.exists("namespaces", name):
            value = {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {
                    "name": name,
                    "uid": objects.new_uid(world.rng),
                    "creationTimestamp": stamp,
                    "labels": {"kubernetes.io/metadata.name": name},
                    "managedFields": [
                        {
                            "manager": "kube-apiserver",
                            "operation": "Update",
                            "apiVersion": "v1",
                            "time": stamp,
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}},
                        }
                    ],
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }
            world.store.put("namespaces", name, value)
    for table, collection in _BORN.items():
        for item in builtin.table("born.json")[table]:
            metadata = item["metadata"]
            namespace = metadata.get("namespace", "")
            key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
            if not world.exists(collection, key):
                copied: documents.JsonObject = documents.copy(item)
                copied["metadata"].update({"uid": objects.new_uid(world.rng), "creationTimestamp": stamp})
                if collection.startswith("priorityclasses"):
                    copied["metadata"]["generation"] = 1
                world.store.put(collection, key, copied)
