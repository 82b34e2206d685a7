# SPDX-License-Identifier: Apache-2.0
"""Conversion between the storage version and the requested version, without a webhook.

Strategy `None` changes only `apiVersion`; events are served by two groups from one collection. Conversion by webhook is
in `conversion`, since it waits.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import structural
from devcluster.apiserver.schema.node import TypeNode

_EVENTS_GROUP: Final = "events.k8s.io"
_CORE_TO_NEW: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE: Final = {new: old for old, new in _CORE_TO_NEW.items()}


def waits(kind: ResourceType) -> bool:
    """Whether a webhook converts the objects of this version."""
    if kind.definition is None or kind.version == kind.storage_version:
        return False
    return by_webhook(kind)


def by_webhook(kind: ResourceType) -> bool:
    """Whether a webhook converts between the versions of this kind."""
    return documents.child(kind.definition or {}, "spec", "conversion").get("strategy") == "Webhook"


def same(kind: ResourceType, raw: bytes) -> bool:
    """Whether the stored bytes have the requested version."""
    return raw.startswith(kind.prefix)


def outward(value: JsonObject, kind: ResourceType) -> JsonObject:
    """A stored object in the requested version; changed in place."""
    if kind.collection == "events":
        return _renamed(value, kind, _CORE_TO_NEW) if kind.group == _EVENTS_GROUP else value
    _become(value, kind.api_version, kind.node if kind.storage_node is not None else None)
    return value


def inward(value: JsonObject, kind: ResourceType, stored: str) -> JsonObject:
    """An object in the storage version, whose `apiVersion` is `stored`; changed in place."""
    if kind.collection == "events":
        return _renamed(value, kind, _NEW_TO_CORE, "v1") if kind.group == _EVENTS_GROUP else value
    _become(value, stored, kind.storage_node)
    return value


def _become(value: JsonObject, api_version: str, node: TypeNode | None) -> None:
    """Change an object to another version, and drop fields that the version does not have."""
    if node is not None and value.get("apiVersion") != api_version:
        structural.prune(value, node)
        structural.default(value, node)
    value["apiVersion"] = api_version


def storage_api_version(kind: ResourceType) -> str:
    """The `apiVersion` of the storage version."""
    if kind.collection == "events":
        return "v1"
    return f"{kind.group}/{kind.storage_version}" if kind.group else kind.storage_version


def _renamed(value: JsonObject, kind: ResourceType, names: dict[str, str], api_version: str = "") -> JsonObject:
    found = {names.get(name, name): entry for name, entry in value.items()}
    if api_version:
        found.setdefault("involvedObject", {})
        found.setdefault("source", {})
        for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
            found.setdefault(name, None)
        found.setdefault("reportingComponent", "")
        found.setdefault("reportingInstance", "")
    else:
        for name in ("reportingController", "reportingInstance"):
            if found.get(name) == "":
                del found[name]
        if not found.get("note"):
            found.pop("note", None)
    found["apiVersion"] = api_version or kind.api_version
    return found


def present(raw: bytes, kind: ResourceType) -> bytes:
    """Stored bytes in the requested version."""
    if raw.startswith(kind.prefix):
        return raw
    return documents.dump_object(outward(documents.load_object(raw), kind))
