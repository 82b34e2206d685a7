# SPDX-License-Identifier: Apache-2.0
"""Digests by which hub and agent check that they see the same assignments.

One digest per bucket of names, updated with every change. Changes in transit make both sides differ for a moment, so a
bucket counts as disputed only if neither side changed it meanwhile. This finds what a watch missed, for example after
the hub was restored from a backup.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.clusterreport import BUCKETS
from multikueue.api.meta import JsonObject

SETTLING: Final = timedelta(seconds=5)
"""For how long both values must be unchanged."""
_BYTES: Final = 8


def bucket_of(name: str) -> int:
    """The bucket of an assignment."""
    return zlib.crc32(name.encode()) % BUCKETS


class Digests:
    """The digests of one mailbox as one side sees it."""

    __slots__ = ("_buckets", "_items")

    def __init__(self) -> None:
        self._items: dict[str, int] = {}
        self._buckets = [0] * BUCKETS

    def put(self, obj: JsonObject) -> None:
        """An assignment was created or has changed: its identity, desired state and reported phase."""
        spec, status = obj["spec"], obj.get("status") or {}
        parts = (
            obj["metadata"]["uid"],
            spec.get("epoch"),
            spec.get("intent"),
            status.get("epoch"),
            status.get("phase"),
        )
        name: str = obj["metadata"]["name"]
        self.remove(name)
        digest = hashlib.blake2b("/".join(map(str, (name, *parts))).encode(), digest_size=_BYTES).digest()
        self._items[name] = value = int.from_bytes(digest)
        self._buckets[bucket_of(name)] ^= value

    def remove(self, name: str) -> None:
        """An assignment was deleted; an unknown one is ignored."""
        self._buckets[bucket_of(name)] ^= self._items.pop(name, 0)

    def values(self) -> tuple[str, ...]:
        """One value per bucket."""
        return tuple(f"{value:016x}" for value in self._buckets)


@dataclass(slots=True)
class Comparison:
    """The latest digests of both sides of a mailbox."""

    _since: dict[int, tuple[tuple[str, str], datetime]] = field(default_factory=dict)

    def disputed(self, here: Sequence[str], there: Sequence[str], now: datetime) -> tuple[int, ...]:
        """The buckets whose values have differed for `SETTLING`; each is returned once."""
        found = []
        for bucket, values in enumerate(zip(here, there, strict=False)):
            before = self._since.get(bucket)
            if values[0] == values[1]:
                self._since.pop(bucket, None)
            elif before is None or before[0] != values:
                self._since[bucket] = (values, now)
            elif now - before[1] >= SETTLING:
                found.append(bucket)
                self._since[bucket] = (values, now)
        return tuple(found)


def within(names: Iterable[str], buckets: Iterable[int]) -> list[str]:
    """The names that are in one of the buckets."""
    wanted = frozenset(buckets)
    return [name for name in names if bucket_of(name) in wanted]
