# SPDX-License-Identifier: Apache-2.0
"""Objects between the version they are stored in and the one they are asked for in.

Owns conversion of strategy `None` (only `apiVersion` changes) and of events, which two groups serve from one place.
Conversion by webhook is `conversion`'s, since it waits.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import structural
from multikueue.devcluster.apiserver.schema.node import Node

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
    """Whether objects of this version are converted by a webhook."""
    if kind.definition is None or kind.version == kind.storage_version:
        return False
    return documents.child(kind.definition, "spec", "conversion").get("strategy") == "Webhook"


def same(kind: ResourceType, raw: bytes) -> bool:
    """Whether the stored bytes are what is asked for."""
    return raw.startswith(kind.prefix)


def outward(value: JsonObject, kind: ResourceType) -> JsonObject:
    """A stored object, which is changed, as it is asked for."""
    if kind.collection == "events":
        return _renamed(value, kind, _CORE_TO_NEW) if kind.group == _EVENTS_GROUP else value
    _become(value, kind.api_version, kind.node if kind.storage_node is not None else None)
    return value


def inward(value: JsonObject, kind: ResourceType, stored: str) -> JsonObject:
    """An object, which is changed, as it is stored; `stored` is the `apiVersion` of the storage version."""
    if kind.collection == "events":
        return _renamed(value, kind, _NEW_TO_CORE, "v1") if kind.group == _EVENTS_GROUP else value
    _become(value, stored, kind.storage_node)
    return value


def _become(value: JsonObject, api_version: str, node: Node | None) -> None:
    """The same object in another version, less what that version does not know."""
    if node is not None and value.get("apiVersion") != api_version:
        structural.prune(value, node)
        structural.default(value, node)
    value["apiVersion"] = api_version


def storage_api_version(kind: ResourceType) -> str:
    """The `apiVersion` that objects of this type are stored in."""
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
    """Stored bytes as the version that is asked for."""
    if raw.startswith(kind.prefix):
        return raw
    return documents.dump_object(outward(documents.load_object(raw), kind))
