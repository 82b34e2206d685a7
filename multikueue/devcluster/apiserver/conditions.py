# SPDX-License-Identifier: Apache-2.0
"""The status that the server itself writes, as a real server's own controllers write it.

Owns conditions whose transition times follow their statuses, and storing them as fields that `kube-apiserver` owns.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.patch import managers
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.world import World

MANAGER: Final = "kube-apiserver"


def set_conditions(value: JsonObject, wanted: list[tuple[str, str, str, str]], now: str) -> None:
    """Set conditions in place, by type, status, reason and message."""
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


def store_status(world: World, kind: ResourceType, value: JsonObject, *, old: JsonObject) -> None:
    """Store an object of the cluster whose status has changed; one that is as it was is left alone."""
    if value == old:
        return
    owners = managers.update(
        old,
        value,
        kind=kind.node,
        managers=managers.read(value["metadata"].get("managedFields")),
        by=managers.Manager(MANAGER, managers.UPDATE, kind.api_version, "status"),
        now=world.stamp(),
    )
    value["metadata"]["managedFields"] = managers.write(owners)
    world.store.put(kind.collection, value["metadata"]["name"], value)
