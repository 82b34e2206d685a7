# SPDX-License-Identifier: Apache-2.0
"""Who owns whom in a cluster, by uid. Pure: a value that is told of objects and asked what depends on what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    """What the graph knows of an object."""

    uid: str
    resource: Resource
    key: Key
    owners: tuple[Owner, ...] = ()
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def awaits_dependents(self) -> bool:
        """Whether it stays until what it owns is gone."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it stays until what it owns has been told to go on without it."""
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
    """The owner that a reference names."""
    return Owner(
        reference["uid"],
        reference["apiVersion"],
        reference["kind"],
        reference["name"],
        bool(reference.get("blockOwnerDeletion")),
    )


class OwnershipGraph:
    """Items, and the dependents of each uid whether it is here or not."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, uid: str) -> Item | None:
        """The item of that uid."""
        return self._items.get(uid)

    def items(self) -> Iterator[Item]:
        """All, as of now."""
        return iter(tuple(self._items.values()))

    def dependents(self, uid: str) -> list[Item]:
        """What names that uid as an owner."""
        return [self._items[found] for found in self._dependents.get(uid, ())]

    def blockers(self, uid: str) -> list[Item]:
        """What its owner of that uid has to wait for."""
        return [
            item for item in self.dependents(uid) if any(owner.uid == uid and owner.blocks for owner in item.owners)
        ]

    def put(self, item: Item) -> Item | None:
        """Take an item in; returns what was known of it."""
        old = self._items.get(item.uid)
        if old is not None and old.owners != item.owners:
            self._unlink(old)
        if old is None or old.owners != item.owners:
            for owner in item.owners:
                self._dependents.setdefault(owner.uid, set()).add(item.uid)
        self._items[item.uid] = item
        return old

    def remove(self, uid: str) -> Item | None:
        """Forget an item; returns it."""
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
