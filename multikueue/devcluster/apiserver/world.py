# SPDX-License-Identifier: Apache-2.0
"""What all handlers of one API server share.

Owns nothing itself but the bundle: store, registry, clock, randomness, and lookups of objects that several handlers
need. It is handed to constructors; there is no global one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_time
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.resources import Registry, ResourceType
from multikueue.devcluster.apiserver.storage.store import Store


@dataclass(slots=True)
class World:
    """One cluster's state and the means to change it."""

    store: Store
    registry: Registry
    clock: Clock
    rng: random.Random = field(default_factory=random.SystemRandom)
    clock_offset: float = 0.0
    """Seconds that this server's clock is ahead, a fault on demand."""
    _second: tuple[int, str] = (0, "")

    def now(self) -> datetime:
        """The time as this server knows it."""
        found = self.clock.now()
        return found + timedelta(seconds=self.clock_offset) if self.clock_offset else found

    def stamp(self) -> str:
        """The time as objects write it."""
        now = self.now()
        second = int(now.timestamp())
        if self._second[0] != second:
            self._second = (second, format_time(datetime.fromtimestamp(second, UTC)))
        return self._second[1]

    def get(self, collection: str, key: str) -> JsonObject | None:
        """A fresh copy of an object, in its storage version."""
        entry = self.store.collection(collection).get(key)
        return entry.parse() if entry is not None else None

    def exists(self, collection: str, key: str) -> bool:
        """Whether an object is there."""
        return self.store.collection(collection).get(key) is not None

    def objects(self, collection: str, *, namespace: str = "") -> Iterator[JsonObject]:
        """Fresh copies of all objects of a collection, in their storage version."""
        prefix = f"{namespace}/" if namespace else ""
        for entry in list(self.store.collection(collection).entries(prefix=prefix)):
            yield entry.parse()

    def stored_type(self, collection: str) -> ResourceType | None:
        """The type, at its storage version, of what a collection holds."""
        for found in self.registry.stored():
            if found.collection == collection:
                return found
        return None
