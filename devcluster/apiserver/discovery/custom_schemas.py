# SPDX-License-Identifier: Apache-2.0
"""The types of custom resources as the OpenAPI documents of versions 2 and 3 show them."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.registry.resources import ResourceType

_OBJECT_META: Final = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NOT_IN_VERSION_2: Final = frozenset({"default", "nullable", "oneOf", "anyOf", "not"})


def version_3(kind: ResourceType) -> JsonObject:
    """The type in OpenAPI v3."""
    source = documents.child(kind.version_entry, "schema", "openAPIV3Schema")
    properties = {name: _public(entry) for name, entry in documents.child(source, "properties").items()}
    found = {key: entry for key, entry in source.items() if key != "properties"}
    found["properties"] = {**properties, **TYPE_FIELDS, "metadata": _METADATA}
    return {**found, **_group_version_kind(kind), **selectable(kind)}


def version_2(kind: ResourceType) -> JsonObject:
    """The type in OpenAPI v2; it lists no fields where unknown ones are allowed, as kubectl would refuse these."""
    source = documents.child(kind.version_entry, "schema", "openAPIV3Schema")
    if source.get("x-kubernetes-preserve-unknown-fields"):
        return {"type": "object", **_group_version_kind(kind), **selectable(kind)}
    found = _as_version_2(source)
    found["properties"] = {**found.get("properties", {}), **TYPE_FIELDS, "metadata": _METADATA}
    return {**found, **_group_version_kind(kind), **selectable(kind)}


def _as_version_2(schema: JsonObject) -> JsonObject:
    """A part of a structural schema in version 2."""
    hidden = set(_NOT_IN_VERSION_2)
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        hidden |= {"type", "items", "properties"}
    found: JsonObject = {}
    for key, entry in schema.items():
        if key in hidden:
            continue
        if key == "properties":
            found[key] = {name: _as_version_2(part) for name, part in entry.items()}
        elif key in ("items", "additionalProperties") and isinstance(entry, dict):
            found[key] = _as_version_2(entry)
        else:
            found[key] = entry
    if schema.get("x-kubernetes-embedded-resource") and "properties" not in hidden:
        found["properties"] = {**found.get("properties", {}), **TYPE_FIELDS, "metadata": _METADATA}
        found["required"] = [*found.get("required", ()), "kind", "apiVersion"]
    return found


def _group_version_kind(kind: ResourceType) -> JsonObject:
    return {"x-kubernetes-group-version-kind": [{"group": kind.group, "version": kind.version, "kind": kind.kind}]}


def selectable(kind: ResourceType) -> JsonObject:
    """The selectable fields of a definition."""
    paths = [entry["jsonPath"].lstrip(".") for entry in documents.items(kind.version_entry, "selectableFields")]
    return {"x-kubernetes-selectable-fields": [{"fieldPath": path} for path in paths]} if paths else {}


def _public(schema: JsonValue) -> JsonValue:
    """A part of a structural schema as OpenAPI shows it."""
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
            # Without properties, clients must not assume that none are allowed.
            return {key: _public(entry) for key, entry in schema.items() if key not in ("properties", "items")}
        found = {key: _public(entry) for key, entry in schema.items()}
        if schema.get("x-kubernetes-int-or-string") is True and "anyOf" not in schema:
            found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        return found
    if isinstance(schema, list):
        return [_public(entry) for entry in schema]
    return schema


TYPE_FIELDS: Final = {
    "apiVersion": {
        "description": "APIVersion defines which group and version the object has, as in kueue.x-k8s.io/v1beta2.",
        "type": "string",
    },
    "kind": {
        "description": "The kind of the object.",
        "type": "string",
    },
}
_METADATA: Final = {
    "description": "Standard object's metadata: name, namespace, labels, annotations and what the server records.",
    "allOf": [{"$ref": _OBJECT_META}],
}
