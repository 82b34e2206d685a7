# SPDX-License-Identifier: Apache-2.0
"""Who comes to own what by a write: `patch.managers` with what a kind and a request say.

Owns naming the writer of a request, the fields that a resource gives to nobody, the entries an update leaves behind and
the answer to an apply that met fields of others.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause, StatusError
from multikueue.devcluster.apiserver.patch import managers
from multikueue.devcluster.apiserver.patch.managers import ApplyConflict, Manager, Owned
from multikueue.devcluster.apiserver.requests import Request
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin

_MAX_MANAGER: Final = 128
_NOT_CONTENT: Final = frozenset({"managedFields", "resourceVersion"})


def manager_of(request: Request) -> str:
    """Who writes: what the request says, else what the client calls itself."""
    found = request.query.get("fieldManager", "")
    return found or request.headers.get("user-agent", "").partition("/")[0][:_MAX_MANAGER] or "unknown"


def ignored(kind: ResourceType, subresource: str) -> JsonObject | None:
    """The fields that nobody comes to own by a write through that subresource."""
    if subresource == "status":
        return kind.behaviour.ignored_by_status
    return kind.behaviour.ignored_by_main


def track(old: JsonObject, value: JsonObject, kind: ResourceType, *, manager: str, subresource: str, now: str) -> None:
    """Set in place who owns what after an update, or a create from an empty object."""
    metadata = value["metadata"]
    given = metadata.get("managedFields")
    before = documents.metadata(old).get("managedFields")
    if old and (given == [{}] or (given == [] and not kind.custom)):
        metadata.pop("managedFields", None)
        return
    current = managers.read(before)
    base = current if given is before else (managers.read(given) if _readable(given) else {}) or current
    if not base and documents.metadata(old).get("uid"):
        # An object whose fields nobody owns is not tracked, until somebody applies to it.
        metadata.pop("managedFields", None)
        return
    by = Manager(manager, managers.UPDATE, kind.api_version, subresource)
    owners = managers.update(
        old or zero(kind),
        value,
        kind=kind.node,
        managers=base,
        by=by,
        now=now,
        ignored=ignored(kind, subresource),
    )
    if before is not None and old and owners == current:
        metadata["managedFields"] = before
        return
    found = managers.write(owners)
    if found:
        metadata["managedFields"] = found
    else:
        metadata.pop("managedFields", None)


def _readable(entries: JsonValue) -> bool:
    """Whether owners that a client has written are taken for what they say."""
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and entry.get("operation") in (managers.APPLY, managers.UPDATE)
        and entry.get("fieldsType") == "FieldsV1"
        for entry in entries
    )


def track_apply(old: JsonObject, new: JsonObject, owners: dict[Manager, Owned]) -> None:
    """Set in place who owns what after an apply; one that changed nothing leaves the times as they were."""
    current = managers.read(documents.metadata(old).get("managedFields"))
    metadata = new["metadata"]
    if _same_but_times(current, owners) and _same_content(old, new):
        metadata["managedFields"] = documents.metadata(old).get("managedFields", [])
    else:
        metadata["managedFields"] = managers.write(owners)
    if not metadata["managedFields"]:
        del metadata["managedFields"]


def zero(kind: ResourceType) -> JsonObject:
    """What an object is that says nothing."""
    return {} if kind.custom else builtin.fill_zero(kind.node, {"metadata": {}})


def _same_but_times(left: dict[Manager, Owned], right: dict[Manager, Owned]) -> bool:
    return left.keys() == right.keys() and all(left[manager].fields == right[manager].fields for manager in left)


def _same_content(old: JsonObject, new: JsonObject) -> bool:
    def bare(value: JsonObject) -> JsonObject:
        metadata = {k: v for k, v in documents.metadata(value).items() if k not in _NOT_CONTENT}
        return {**value, "metadata": metadata}

    return bare(old) == bare(new)


def conflict(error: ApplyConflict) -> StatusError:
    """The answer to an apply that met fields of others."""
    conflicts = error.conflicts
    by_manager: dict[str, list[str]] = {}
    for found in conflicts:
        by_manager.setdefault(found.manager.description, []).append(found.path)
    causes = [
        Cause("FieldManagerConflict", f"conflict with {found.manager.description}", found.path) for found in conflicts
    ]
    if len(conflicts) == 1:
        text = f"conflict with {conflicts[0].manager.description}: {conflicts[0].path}"
        return StatusError(409, "Conflict", f"Apply failed with 1 conflict: {text}", errors.About(), causes)
    parts = [
        f"conflicts with {description}:\n" + "\n".join(f"- {path}" for path in paths)
        for description, paths in sorted(by_manager.items())
    ]
    text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(parts)
    return StatusError(409, "Conflict", text, errors.About(), causes)
