# SPDX-License-Identifier: Apache-2.0
"""The initial objects of every cluster: namespaces, roles and bindings, priority classes, authentication settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.registry import objects
from devcluster.apiserver.schema import builtin
from devcluster.pki import FRONT_PROXY, FrontProxy

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OBJECTS: Final = {
    "clusterroles": "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings": "clusterrolebindings.rbac.authorization.k8s.io",
    "roles": "roles.rbac.authorization.k8s.io",
    "rolebindings": "rolebindings.rbac.authorization.k8s.io",
    "priorityclasses": "priorityclasses.scheduling.k8s.io",
}
_PROXY_NAMESPACE, _PROXY_CONFIG = "kube-system", "extension-apiserver-authentication"
_HEADERS: Final = {
    "requestheader-extra-headers-prefix": "X-Remote-Extra-",
    "requestheader-group-headers": "X-Remote-Group",
    "requestheader-uid-headers": "X-Remote-Uid",
    "requestheader-username-headers": "X-Remote-User",
}


def populate(context: ServerContext) -> None:
    """Create the initial objects that are missing."""
    stamp = context.stamp()
    for name in _NAMESPACES:
        if not context.exists("namespaces", name):
            value = {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {
                    "name": name,
                    "uid": objects.new_uid(context.rng),
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
            context.store.put("namespaces", name, value)
    for table, collection in _OBJECTS.items():
        for item in builtin.table("bootstrap.json")[table]:
            metadata = item["metadata"]
            namespace = metadata.get("namespace", "")
            key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
            if not context.exists(collection, key):
                copied: documents.JsonObject = documents.copy(item)
                copied["metadata"].update({"uid": objects.new_uid(context.rng), "creationTimestamp": stamp})
                if collection.startswith("priorityclasses"):
                    copied["metadata"]["generation"] = 1
                context.store.put(collection, key, copied)


def publish_authentication(context: ServerContext, *, client_ca: Path | None, proxy: FrontProxy | None) -> None:
    """Write the CAs and header names by which backends of aggregated APIs authenticate this server, if it has any."""
    data = {}
    if client_ca is not None:
        data["client-ca-file"] = client_ca.read_text()
    if proxy is not None:
        data["requestheader-client-ca-file"] = proxy.authority.read_text()
        data["requestheader-allowed-names"] = _listed(FRONT_PROXY)
        data |= {key: _listed(name) for key, name in _HEADERS.items()}
    key = f"{_PROXY_NAMESPACE}/{_PROXY_CONFIG}"
    value = context.get("configmaps", key) or {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": _PROXY_CONFIG,
            "namespace": _PROXY_NAMESPACE,
            "uid": objects.new_uid(context.rng),
            "creationTimestamp": context.stamp(),
        },
    }
    if data and value.get("data") != data:
        value["data"] = data
        context.store.put("configmaps", key, value)


def _listed(name: str) -> str:
    return documents.dump([name]).decode()
