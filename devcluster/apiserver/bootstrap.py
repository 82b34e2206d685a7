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
from devcluster.ports import SERVICE_ADDRESS, SERVICE_RANGE

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OBJECTS: Final = {
    "clusterroles": "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings": "clusterrolebindings.rbac.authorization.k8s.io",
    "roles": "roles.rbac.authorization.k8s.io",
    "rolebindings": "rolebindings.rbac.authorization.k8s.io",
    "priorityclasses": "priorityclasses.scheduling.k8s.io",
}
_PROXY_NAMESPACE, _PROXY_CONFIG = "kube-system", "extension-apiserver-authentication"
_SERVICE: Final = "default/kubernetes"
_RANGES: Final = "servicecidrs.networking.k8s.io"
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


def publish_address(context: ServerContext, *, port: int) -> None:
    """Write the Service `kubernetes` and the range of Service addresses, as a real server does when it serves.

    Clients and test suites read the address family of the cluster from them. There are no endpoints, as with a real
    server that only listens on loopback.
    """
    service = context.get("services", _SERVICE)
    if service is None:
        value: documents.JsonObject = {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": _metadata(context, "kubernetes", component="apiserver", provider="kubernetes"),
            "spec": {
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
                "clusterIP": SERVICE_ADDRESS,
                "clusterIPs": [SERVICE_ADDRESS],
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Cluster",
            },
            "status": {"loadBalancer": {}},
        }
        value["metadata"]["namespace"] = "default"
        context.store.put("services", _SERVICE, value)
    elif service["spec"]["ports"][0].get("targetPort") != port:
        service["spec"]["ports"][0]["targetPort"] = port
        context.store.put("services", _SERVICE, service)
    if not context.exists(_RANGES, "kubernetes"):
        ready = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": context.stamp(),
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
        }
        value = {
            "kind": "ServiceCIDR",
            "apiVersion": "networking.k8s.io/v1",
            "metadata": _metadata(context, "kubernetes"),
            "spec": {"cidrs": [SERVICE_RANGE]},
            "status": {"conditions": [ready]},
        }
        context.store.put(_RANGES, "kubernetes", value)


def _metadata(context: ServerContext, name: str, **labels: str) -> documents.JsonObject:
    found: documents.JsonObject = {
        "name": name,
        "uid": objects.new_uid(context.rng),
        "creationTimestamp": context.stamp(),
    }
    return {**found, "labels": dict(labels)} if labels else found


def _listed(name: str) -> str:
    return documents.dump([name]).decode()
