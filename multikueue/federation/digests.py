# SPDX-License-Identifier: Apache-2.0
"""Whether two sides see the same assignments, told in a few bytes.

Owns a digest for each bucket of names, kept up to date change by change, and when a difference counts: what is on its
way makes two sides differ for a moment, so that only a bucket that neither side has changed meanwhile is disputed.
Watches tell every change once; this finds what a watch did not tell, such as after a management cluster was restored
from a backup.
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
"""For how long both sides have to stand by what they say."""
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
        """An assignment is there, or has changed: its identity, the wish, and how far the word about it is."""
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
        """An assignment is gone; one that was not there is as well."""
        self._buckets[bucket_of(name)] ^= self._items.pop(name, 0)

    def values(self) -> tuple[str, ...]:
        """One text for each bucket."""
        return tuple(f"{value:016x}" for value in self._buckets)


@dataclass(slots=True)
class Comparison:
    """What each side has said of a mailbox lately."""

    _since: dict[int, tuple[tuple[str, str], datetime]] = field(default_factory=dict)

    def disputed(self, here: Sequence[str], there: Sequence[str], now: datetime) -> tuple[int, ...]:
        """The buckets about which both sides have stood by different values for a while; each is told once."""
        found = []
        for bucket, said in enumerate(zip(here, there, strict=False)):
            before = self._since.get(bucket)
            if said[0] == said[1]:
                self._since.pop(bucket, None)
            elif before is None or before[0] != said:
                self._since[bucket] = (said, now)
            elif now - before[1] >= SETTLING:
                found.append(bucket)
                self._since[bucket] = (said, now)
        return tuple(found)


def within(names: Iterable[str], buckets: Iterable[int]) -> list[str]:
    """Those of the names that are in one of the buckets."""
    wanted = frozenset(buckets)
    return [name for name in names if bucket_of(name) in wanted]
