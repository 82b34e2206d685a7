# SPDX-License-Identifier: Apache-2.0
"""Writes of a pod's subresource `resize`: the CPU and memory of its containers change, and nothing else.

A real kubelet then changes the containers; a virtual one has none, so that the new amounts apply at once.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause

_GROUPS: Final = ("containers", "initContainers")
_RESIZABLE: Final = frozenset({"cpu", "memory"})
_AMOUNTS: Final = ("requests", "limits")


def keep_all_but_resources(value: JsonObject, old: JsonObject) -> None:
    """Restore what a resize does not write: all but the resources of containers; other containers are a problem."""
    sent = documents.child(value, "spec")
    kept = ("name", "namespace", "uid", "resourceVersion", "managedFields")
    metadata = {name: entry for name, entry in value["metadata"].items() if name in kept}
    value.clear()
    value.update(documents.copy(old))
    value["metadata"] = {**value["metadata"], **metadata}
    for group in _GROUPS:
        wanted, entries = documents.items(sent, group), documents.items(value, "spec", group)
        if [each.get("name") for each in wanted] != [each.get("name") for each in entries]:
            value["spec"][group] = wanted
            continue
        for each, entry in zip(wanted, entries, strict=True):
            entry["resources"] = each.get("resources", {})


def resize_problems(value: JsonObject, old: JsonObject, *, qualities: tuple[str, str]) -> list[StatusCause]:
    """What is wrong with new resources; `qualities` are the quality-of-service classes, the new one first."""
    found: list[StatusCause] = []
    for entry in documents.items(old, "status", "containerStatuses"):
        if "running" in (entry.get("state") or {}) and entry.get("resources") is None:
            found.append(field_errors.forbidden("spec", "Pod running on node without support for resize"))
            break
    if qualities[0] != qualities[1]:
        text = "Pod QOS Class may not change as a result of resizing"
        found.append(field_errors.invalid("spec", qualities[1], text))
    for group in _GROUPS:
        before, after = documents.items(old, "spec", group), documents.items(value, "spec", group)
        if [each.get("name") for each in before] != [each.get("name") for each in after]:
            text = f"{group} may not be added or removed on resize"
            found.append(field_errors.forbidden(f"spec.{group}", text))
            continue
        for index, (entry, former) in enumerate(zip(after, before, strict=True)):
            path = f"spec.{group}[{index}].resources"
            found += _problems(documents.child(entry, "resources"), documents.child(former, "resources"), path)
    return found


def _problems(new: JsonObject, old: JsonObject, path: str) -> list[StatusCause]:
    found = []
    for amounts in _AMOUNTS:
        after, before = documents.child(new, amounts), documents.child(old, amounts)
        if any(after.get(name) != before.get(name) for name in after.keys() | before.keys() if name not in _RESIZABLE):
            found.append(field_errors.forbidden("spec", "only cpu and memory resources are mutable"))
        elif before.keys() - after.keys():
            found.append(field_errors.forbidden(f"{path}.{amounts}", f"resource {amounts} cannot be removed"))
    return found
