# SPDX-License-Identifier: Apache-2.0
"""The owner references of a cluster by uid, and what the garbage collector does with an object. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.keys import Key

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner reference."""

    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool


@dataclass(frozen=True, slots=True)
class Item:
    """An object in the graph."""

    uid: str
    resource: Resource
    key: Key
    owners: tuple[Owner, ...] = ()
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def awaits_dependents(self) -> bool:
        """Whether it waits for the deletion of its dependents (foreground deletion)."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it waits until its dependents no longer reference it."""
        return self.deleting and ORPHAN in self.finalizers


def item_of(resource: Resource, metadata: JsonObject) -> Item:
    """The item of an object's metadata."""
    return Item(
        uid=metadata["uid"],
        resource=resource,
        key=Key(metadata.get("namespace", ""), metadata["name"]),
        owners=tuple(owner_of(entry) for entry in metadata.get("ownerReferences") or ()),
        deleting="deletionTimestamp" in metadata,
        finalizers=tuple(metadata.get("finalizers") or ()),
    )


def owner_of(reference: JsonObject) -> Owner:
    """The owner of a reference."""
    return Owner(
        reference["uid"],
        reference["apiVersion"],
        reference["kind"],
        reference["name"],
        bool(reference.get("blockOwnerDeletion")),
    )


class OwnershipGraph:
    """Items by uid, and the dependents of each uid, also of uids that are not in the graph."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, uid: str) -> Item | None:
        """The item of that uid."""
        return self._items.get(uid)

    def items(self) -> Iterator[Item]:
        """A snapshot of all items."""
        return iter(tuple(self._items.values()))

    def dependents(self, uid: str) -> list[Item]:
        """The items with an owner reference to that uid."""
        return [self._items[found] for found in self._dependents.get(uid, ())]

    def blockers(self, uid: str) -> list[Item]:
        """The dependents with blockOwnerDeletion."""
        return [
            item for item in self.dependents(uid) if any(owner.uid == uid and owner.blocks for owner in item.owners)
        ]

    def put(self, item: Item) -> Item | None:
        """Add or replace an item. Returns the previous one."""
        old = self._items.get(item.uid)
        if old is not None and old.owners != item.owners:
            self._unlink(old)
        if old is None or old.owners != item.owners:
            for owner in item.owners:
                self._dependents.setdefault(owner.uid, set()).add(item.uid)
        self._items[item.uid] = item
        return old

    def remove(self, uid: str) -> Item | None:
        """Remove an item. Returns it."""
        item = self._items.pop(uid, None)
        if item is not None:
            self._unlink(item)
        return item

    def _unlink(self, item: Item) -> None:
        for owner in item.owners:
            members = self._dependents.get(owner.uid)
            if members is not None:
                members.discard(item.uid)
                if not members:
                    del self._dependents[owner.uid]


class OwnerState(StrEnum):
    """The state of an owner."""

    PRESENT = "Present"
    AWAITS = "AwaitsDependents"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"
    """The kind is not served or the reference is invalid: the object is kept."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Disown:
    """Remove the references to absent owners, as other owners remain."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveObject:
    """Delete the object with this propagation policy."""

    propagation: str
    unblock: bool = False
    """Whether its references to owners must stop blocking these before, as it is in a circle of owners."""


Decision = Keep | Disown | RemoveObject


def decide(item: Item, owners: Mapping[str, OwnerState], *, dependents: Sequence[Item]) -> Decision:
    """What to do with an object, given the state of its owners and its dependents."""
    if not item.owners or item.deleting:
        return Keep()
    states = [(owner.uid, owners[owner.uid]) for owner in item.owners]
    if any(state is OwnerState.UNKNOWN for _, state in states):
        return Keep()
    useless = tuple(uid for uid, state in states if state is not OwnerState.PRESENT)
    if len(useless) < len(states):
        return Disown(useless) if useless else Keep()
    if dependents and any(state is OwnerState.AWAITS for _, state in states):
        # The owner waits for this object in foreground deletion, so this object waits for its dependents. One that
        # waits itself may be an owner of its owners: all of them would wait for each other.
        return RemoveObject("Foreground", unblock=any(dependent.awaits_dependents for dependent in dependents))
    if ORPHAN in item.finalizers:
        return RemoveObject("Orphan")
    if FOREGROUND in item.finalizers:
        return RemoveObject("Foreground")
    return RemoveObject("Background")
