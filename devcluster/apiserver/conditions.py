# SPDX-License-Identifier: Apache-2.0
"""Status that the server itself writes, as a real server's own controllers do.

A condition's transition time changes with its status; the manager of the fields is `kube-apiserver`.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.patch import managers
from devcluster.apiserver.registry.resources import ResourceType

MANAGER: Final = "kube-apiserver"


def set_conditions(value: JsonObject, wanted: list[tuple[str, str, str, str]], now: str) -> None:
    """Set conditions in place; each is (type, status, reason, message)."""
    status = value.setdefault("status", {})
    conditions = {entry["type"]: entry for entry in documents.items(status, "conditions")}
    for name, state, reason, message in wanted:
        known = conditions.get(name, {})
        if (known.get("status"), known.get("reason"), known.get("message")) == (state, reason, message):
            continue
        since = known["lastTransitionTime"] if known.get("status") == state else now
        conditions[name] = {
            "type": name,
            "status": state,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
    status["conditions"] = list(conditions.values())


def store_status(context: ServerContext, kind: ResourceType, value: JsonObject, *, old: JsonObject) -> None:
    """Store an object if its status has changed."""
    if value == old:
        return
    owners = managers.update(
        old,
        value,
        kind=kind.node,
        managers=managers.read(value["metadata"].get("managedFields")),
        by=managers.FieldManager(MANAGER, managers.UPDATE, kind.api_version, "status"),
        now=context.stamp(),
    )
    value["metadata"]["managedFields"] = managers.write(owners)
    metadata = value["metadata"]
    context.store.put(kind.collection, kind.key(metadata.get("namespace", ""), metadata["name"]), value)
