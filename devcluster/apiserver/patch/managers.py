# SPDX-License-Identifier: Apache-2.0
"""Field ownership: `metadata.managedFields` after updates and applies.

Owns parsing and writing the entries, the change of ownership by an update, and server-side apply with conflicts, force
and the removal of fields without an owner. Pure: objects and the time in, objects out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch import fieldset, typed
from devcluster.apiserver.patch.fieldset import LEAF, FieldSet
from devcluster.apiserver.patch.foreign import ForeignVersions
from devcluster.apiserver.schema.node import TypeNode

APPLY: Final = "Apply"
UPDATE: Final = "Update"
_MAX_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"
BEFORE: Final = "before-first-apply"
"""The manager of the fields that existed before the first apply."""
_KUBECTL: Final = "kubectl"
_PRUNES: Final = "failed to prune fields: "
_MERGED: Final = "failed to convert merged object"
_ADDS_BACK: Final = f"failed add back owned items: {_MERGED}"
_CONVERTS: Final = "failed to convert new object: "
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Never owned: set by the server, or part of the object's identity.
_UNOWNED: Final[FieldSet] = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {
        ".": LEAF,
        "f:name": LEAF,
        "f:namespace": LEAF,
        "f:creationTimestamp": LEAF,
        "f:selfLink": LEAF,
        "f:uid": LEAF,
        "f:clusterName": LEAF,
        "f:generation": LEAF,
        "f:managedFields": LEAF,
        "f:resourceVersion": LEAF,
    },
}


class FieldManager(NamedTuple):
    """The identity of an entry. A tuple, since every write makes and hashes several."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def description(self) -> str:
        """The manager as a conflict names it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text + (f" using {self.api_version}" if self.operation == UPDATE else "")


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields that a manager owns, and the time of the entry."""

    fields: FieldSet | None
    time: str | None
    in_order: bool = field(default=False, compare=False)
    """Whether the elements are in the order of a real server, since they were read from an entry."""


@dataclass(frozen=True, slots=True)
class OwnershipConflict:
    """A field that an apply would take from another manager."""

    manager: FieldManager
    path: str
    time: str | None = None


class ApplyConflict(Exception):
    """An apply without force conflicts with other managers."""

    def __init__(self, conflicts: Sequence[OwnershipConflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


def read(entries: JsonValue) -> dict[FieldManager, Owned]:
    """The managers in an object's `managedFields`; invalid entries are ignored."""
    found: dict[FieldManager, Owned] = {}
    if not isinstance(entries, list):
        return found
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
            continue
        manager = FieldManager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        fields = entry["fieldsV1"] or None
        found[manager] = Owned(fields, entry.get("time"), in_order=True)
    return found


def write(managers: dict[FieldManager, Owned]) -> list[JsonObject]:
    """The entries in the order of a real server."""

    def order(pair: tuple[FieldManager, Owned]) -> tuple[str, str, str, str, str]:
        manager, owned = pair
        return manager.operation, owned.time or "", manager.name, manager.api_version, manager.subresource

    found = []
    for manager, owned in sorted(managers.items(), key=order):
        if owned.fields is None and manager.operation == UPDATE:
            continue
        entry: JsonObject = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
        }
        if owned.time:
            entry["time"] = owned.time
        entry["fieldsType"] = "FieldsV1"
        fields = owned.fields or {}
        entry["fieldsV1"] = fields if owned.in_order else fieldset.ordered(fields)
        if manager.subresource:
            entry["subresource"] = manager.subresource
        found.append(entry)
    return found


def update(
    old: JsonObject,
    new: JsonObject,
    *,
    kind: TypeNode,
    managers: dict[FieldManager, Owned],
    by: FieldManager,
    now: str,
    ignored: FieldSet | None = None,
    foreign: ForeignVersions | None = None,
) -> dict[FieldManager, Owned]:
    """The managers after an update from `old` to `new`. Raises `VersionMismatch`."""
    if foreign is not None or (
        documents.metadata(old).get("managedFields") is not documents.metadata(new).get("managedFields")
    ):
        old, new = _bare(old), _bare(new)
    if foreign is not None:
        for value in (old, new):
            foreign.check(value, (manager.api_version for manager in managers))
    changes = typed.compare(old, new, kind)
    changed = fieldset.outside(changes.taken, ignored)
    removed = fieldset.outside(changes.removed, ignored)
    found = _without(managers, fieldset.union(changed, removed), keep=by)
    taken = fieldset.difference(changed, _UNOWNED)
    mine = found.pop(by, None)
    # Fields that the manager already owns are not sorted again.
    kept = fieldset.difference(mine.fields, removed) if mine else None
    fields = fieldset.union(kept, taken)
    if fields is not None:
        ordered = mine is not None and fields is mine.fields and mine.in_order
        since = now if taken is not None else mine.time if mine else None
        found[by] = Owned(fields, since, in_order=ordered)
        if mine is None:
            found = _capped(found)
    return found


def apply(
    current: JsonObject,
    wanted: JsonObject,
    *,
    kind: TypeNode,
    managers: dict[FieldManager, Owned],
    by: FieldManager,
    now: str | None,
    force: bool,
    ignored: FieldSet | None = None,
    foreign: ForeignVersions | None = None,
) -> tuple[JsonObject, dict[FieldManager, Owned]]:
    """The object and its managers after an apply of `wanted`. Raises `ApplyConflict` and `VersionMismatch`."""
    config = _bare(wanted)
    before = _bare(current)
    if foreign is not None:
        foreign.check(before, (manager.api_version for manager in managers))
    managers, last_version = _moved(managers, by)
    applied = typed.field_set(config, kind)
    own = fieldset.outside(fieldset.difference(applied, _UNOWNED), ignored)
    last = managers.get(by)
    merged = typed.merge(before, config, kind)
    if foreign is not None and last is not None and last.fields is not None:
        foreign.check(merged, [last_version], lambda _: f"{_PRUNES}{_MERGED} to last applied version: ")
        foreign.check(merged, _others(managers, by), lambda found: f"{_PRUNES}{_ADDS_BACK} at version {found}: ")
    if last is not None and fieldset.difference(last.fields, applied) is not None:
        held = typed.with_parents(applied, kind)
        for manager, owned in managers.items():
            if manager != by:
                held = fieldset.union(held, typed.with_parents(owned.fields, kind))
        merged = typed.remove(merged, fieldset.difference(typed.with_parents(last.fields, kind), held), kind)
    if foreign is not None:
        foreign.check(merged, _others(managers, by), lambda _: _CONVERTS)
    changes = typed.compare(before, merged, kind)
    taken = fieldset.outside(changes.taken, ignored)
    kept = _last_applied(before) if by.name == _KUBECTL else None
    contested = taken if kept is None else fieldset.difference(taken, _unchanged(before, kept, kind))
    conflicts = []
    for manager, owned in managers.items():
        if manager != by:
            lost = fieldset.intersection(owned.fields, contested)
            conflicts += [OwnershipConflict(manager, path, owned.time) for path in fieldset.paths(lost)]
    if conflicts and not force:
        raise ApplyConflict(conflicts)
    removed = fieldset.outside(changes.removed, ignored)
    found = _without(managers, fieldset.union(taken, removed), keep=by)
    if merged == before:
        # Becoming an owner of unchanged fields is no change of the object, and sets no time.
        now = last.time if last is not None else None
    if own is None:
        found.pop(by, None)
    elif last is not None and own == last.fields:
        found[by] = replace(last, time=now)
    else:
        found[by] = Owned(own, now)
    result = dict(merged)
    result["metadata"] = {
        **merged.get("metadata", {}),
        "managedFields": current.get("metadata", {}).get("managedFields"),
    }
    if result["metadata"]["managedFields"] is None:
        del result["metadata"]["managedFields"]
    if by.name == _KUBECTL and _LAST_APPLIED in documents.child(before, "metadata", "annotations"):
        text = documents.dump_sorted(config).decode() + "\n"
        result["metadata"]["annotations"] = {**result["metadata"]["annotations"], _LAST_APPLIED: text}
    return result, found


def _moved(managers: dict[FieldManager, Owned], by: FieldManager) -> tuple[dict[FieldManager, Owned], str]:
    """The managers with the last apply of this one in its version of now, and the version it was in.

    A manager applies one configuration, whatever its version; only updates have an entry for each version.
    """
    name, _, api_version, subresource = by
    for last in managers:
        if last.name == name and last.operation == APPLY and last.subresource == subresource:
            if last.api_version == api_version:
                continue
            found = {by if manager == last else manager: owned for manager, owned in managers.items()}
            return found, last.api_version
    return managers, api_version


def _others(managers: dict[FieldManager, Owned], by: FieldManager) -> list[str]:
    """The versions of the other managers."""
    return [manager.api_version for manager in managers if manager != by]


def _last_applied(current: JsonObject) -> JsonObject | None:
    """The last client-side apply of kubectl, whose fields kubectl may take over."""
    text = documents.child(current, "metadata", "annotations").get(_LAST_APPLIED)
    if not isinstance(text, str):
        return None
    try:
        found = documents.load(text.encode())
    except ValueError:
        return None
    return _bare(found) if isinstance(found, dict) else None


def _unchanged(current: JsonObject, config: JsonObject, kind: TypeNode) -> FieldSet | None:
    """The fields of a configuration that have not changed since."""
    changed = typed.compare(current, typed.merge(current, config, kind), kind).taken
    return fieldset.difference(typed.field_set(config, kind), changed)


def _without(
    managers: dict[FieldManager, Owned], lost: FieldSet | None, *, keep: FieldManager | None
) -> dict[FieldManager, Owned]:
    if lost is None:
        return dict(managers)
    found = {}
    for manager, owned in managers.items():
        if manager == keep:
            found[manager] = owned
            continue
        fields = fieldset.difference(owned.fields, lost)
        if fields is not None:
            found[manager] = owned if fields is owned.fields else replace(owned, fields=fields)
    return found


def _capped(managers: dict[FieldManager, Owned]) -> dict[FieldManager, Owned]:
    """Merge the oldest update entries into one, which limits the number of entries."""
    updaters = sorted(
        (owned.time or "", manager.name) for manager, owned in managers.items() if manager.operation == UPDATE
    )
    if len(updaters) <= _MAX_UPDATERS:
        return managers
    found = dict(managers)
    order = sorted(
        (manager for manager in managers if manager.operation == UPDATE),
        key=lambda manager: (managers[manager].time or "", manager.name),
    )
    ancient: dict[str, FieldManager] = {m.api_version: m for m in order if m.name == _ANCIENT}
    for manager in order:
        if sum(1 for m in found if m.operation == UPDATE) <= _MAX_UPDATERS:
            break
        if manager.name == _ANCIENT:
            continue
        bucket = ancient.setdefault(manager.api_version, FieldManager(_ANCIENT, UPDATE, manager.api_version))
        moved = found.pop(manager)
        already = found.get(bucket)
        fields = fieldset.union(already.fields if already else None, moved.fields)
        found[bucket] = Owned(fields, max(moved.time or "", (already.time or "") if already else ""))
    return found


def _bare(value: JsonObject) -> JsonObject:
    """The object without its `managedFields`, sharing everything else."""
    meta = value.get("metadata")
    if isinstance(meta, dict) and "managedFields" in meta:
        return {**value, "metadata": {key: entry for key, entry in meta.items() if key != "managedFields"}}
    return value
