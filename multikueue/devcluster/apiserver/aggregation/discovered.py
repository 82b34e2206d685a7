# SPDX-License-Identifier: Apache-2.0
"""What a backend says of its resources, as aggregated discovery lists them."""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue

_FORM: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
AGGREGATED: Final = ",".join(_FORM.format(version) for version in ("v2", "v2beta1"))
"""What to ask a backend for, that may know either form."""


def of_list(value: JsonValue, group: str, version: str) -> list[JsonObject]:
    """The resources of one version in an APIGroupDiscoveryList."""
    if isinstance(value, dict):
        for found in documents.items(value, "items"):
            for entry in documents.items(found, "versions"):
                if documents.metadata(found).get("name") == group and entry.get("version") == version:
                    return documents.items(entry, "resources")
    return []


def of_resources(value: JsonValue) -> list[JsonObject]:
    """The same out of an APIResourceList."""
    found: dict[str, JsonObject] = {}
    if not isinstance(value, dict):
        return []
    for entry in documents.items(value, "resources"):
        name, _, sub = str(entry.get("name", "")).partition("/")
        kind = {field: entry.get(field, "") for field in ("group", "version", "kind")}
        if sub:
            parent = found.get(name)
            if parent is not None:
                listed = {"subresource": sub, "responseKind": kind, "verbs": entry.get("verbs", [])}
                parent.setdefault("subresources", []).append(listed)
            continue
        found[name] = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if entry.get("namespaced") else "Cluster",
            "singularResource": entry.get("singularName", ""),
            "verbs": entry.get("verbs", []),
        }
        for field in ("shortNames", "categories"):
            if entry.get(field):
                found[name][field] = entry[field]
    return list(found.values())
