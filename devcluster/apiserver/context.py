# SPDX-License-Identifier: Apache-2.0
"""The context that all handlers of one API server share: store, registry, clock, randomness and object lookups."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry.resources import Registry
from devcluster.apiserver.storage.store import ObjectStore
from multikueue.core.clock import Clock
from multikueue.core.timestamps import format_time


@dataclass(slots=True)
class ServerContext:
    """The state of one API server, passed to the constructors of its handlers."""

    store: ObjectStore
    registry: Registry
    clock: Clock
    rng: random.Random = field(default_factory=random.SystemRandom)
    clock_offset: float = 0.0
    """Seconds by which this server's clock is ahead; a fault on demand."""
    _second: tuple[int, str] = (0, "")

    def now(self) -> datetime:
        """The current time, with the offset."""
        found = self.clock.now()
        return found + timedelta(seconds=self.clock_offset) if self.clock_offset else found

    def stamp(self) -> str:
        """The current time in the form of objects."""
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
        """Whether an object exists."""
        return self.store.collection(collection).get(key) is not None

    def objects(self, collection: str, *, namespace: str = "") -> Iterator[JsonObject]:
        """Fresh copies of all objects of a collection, in their storage version."""
        prefix = f"{namespace}/" if namespace else ""
        for entry in list(self.store.collection(collection).entries(prefix=prefix)):
            yield entry.parse()
