# SPDX-License-Identifier: Apache-2.0
"""Field ownership of a write: `patch.managers` applied to a kind and a request.

Owns the manager's name of a request, the fields without an owner, the `managedFields` after an update, and the answer
to an apply with conflicts.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause, StatusError
from devcluster.apiserver.http.requests import Request
from devcluster.apiserver.patch import managers
from devcluster.apiserver.patch.foreign import ForeignVersions, VersionMismatch
from devcluster.apiserver.patch.managers import ApplyConflict, FieldManager, Owned
from devcluster.apiserver.registry import versions
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.node import TypeNode

_MAX_MANAGER: Final = 128
_NOT_CONTENT: Final = frozenset({"managedFields", "resourceVersion"})


def manager_of(request: Request) -> str:
    """The field manager: the parameter of the request, else the first part of the user agent."""
    found = request.query.get("fieldManager", "")
    return found or request.headers.get("user-agent", "").partition("/")[0][:_MAX_MANAGER] or "unknown"


def ignored(kind: ResourceType, subresource: str) -> JsonObject | None:
    """The fields that a write through that subresource does not own."""
    if subresource == "status":
        return kind.behaviour.ignored_by_status
    return kind.behaviour.ignored_by_main


def foreign(kind: ResourceType, owners: dict[FieldManager, Owned]) -> ForeignVersions | None:
    """The other versions to check an object against; None if all its managers wrote in this one."""
    api_version = kind.api_version
    if not kind.custom or all(manager.api_version == api_version for manager in owners):
        return None
    # What a webhook makes of the object is not known here.
    return None if versions.by_webhook(kind) else ForeignVersions(kind.group, kind.nodes, requested=api_version)


def track(old: JsonObject, value: JsonObject, kind: ResourceType, *, manager: str, subresource: str, now: str) -> None:
    """Set `managedFields` in place after an update, or after a create (`old` is empty)."""
    metadata = value["metadata"]
    given = metadata.get("managedFields")
    before = documents.metadata(old).get("managedFields")
    if old and (given == [{}] or (given == [] and not kind.custom)):
        metadata.pop("managedFields", None)
        return
    current = managers.read(before)
    base = current if given is before else (managers.read(given) if _readable(given) else {}) or current
    if not base and documents.metadata(old).get("uid"):
        # An object without managed fields is not tracked until the first apply.
        metadata.pop("managedFields", None)
        return
    by = FieldManager(manager, managers.UPDATE, kind.api_version, subresource)
    try:
        owners = managers.update(
            old or zero(kind),
            value,
            kind=kind.node,
            managers=base,
            by=by,
            now=now,
            ignored=ignored(kind, subresource),
            # A real server tracks a scale apart from the object.
            foreign=None if subresource == "scale" else foreign(kind, base),
        )
    except VersionMismatch:
        # An update is not refused for this, but its object is not tracked any more.
        metadata.pop("managedFields", None)
        return
    if before is not None and old and owners == current:
        metadata["managedFields"] = before
        return
    found = managers.write(owners)
    if found:
        metadata["managedFields"] = found
    else:
        metadata.pop("managedFields", None)


def _readable(entries: JsonValue) -> bool:
    """Whether `managedFields` written by a client can be used."""
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and entry.get("operation") in (managers.APPLY, managers.UPDATE)
        and entry.get("fieldsType") == "FieldsV1"
        for entry in entries
    )


def track_apply(old: JsonObject, new: JsonObject, owners: dict[FieldManager, Owned]) -> None:
    """Set `managedFields` in place after an apply; times change only if something else does."""
    current = managers.read(documents.metadata(old).get("managedFields"))
    metadata = new["metadata"]
    if _same_but_times(current, owners) and _same_content(old, new):
        metadata["managedFields"] = documents.metadata(old).get("managedFields", [])
    else:
        metadata["managedFields"] = managers.write(owners)
    if not metadata["managedFields"]:
        del metadata["managedFields"]


def zero(kind: ResourceType) -> JsonObject:
    """An empty object of the kind, as a real server compares with it; cached, so callers must not change it."""
    return {} if kind.custom else _zero(kind.node)


@cache
def _zero(kind: TypeNode) -> JsonObject:
    return builtin.fill_zero(kind, {"metadata": {}})


def _same_but_times(left: dict[FieldManager, Owned], right: dict[FieldManager, Owned]) -> bool:
    return left.keys() == right.keys() and all(left[manager].fields == right[manager].fields for manager in left)


def _same_content(old: JsonObject, new: JsonObject) -> bool:
    def bare(value: JsonObject) -> JsonObject:
        metadata = {k: v for k, v in documents.metadata(value).items() if k not in _NOT_CONTENT}
        return {**value, "metadata": metadata}

    return bare(old) == bare(new)


def conflict(error: ApplyConflict) -> StatusError:
    """The answer to an apply that conflicts with other managers."""
    conflicts = error.conflicts
    by_manager: dict[str, list[str]] = {}
    for found in conflicts:
        by_manager.setdefault(found.manager.description, []).append(found.path)
    causes = [
        StatusCause("FieldManagerConflict", f"conflict with {found.manager.description}", found.path)
        for found in conflicts
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
