# SPDX-License-Identifier: Apache-2.0
"""Keys in groups: which group a key is in, and which keys are in a group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
G = TypeVar("G", bound=Hashable)


class GroupedKeys(Generic[K, G]):
    """Each key is in one group at most, and a group without keys is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[K, G] = {}
        self._keys: dict[G, set[K]] = {}

    def put(self, key: K, group: G | None) -> G | None:
        """Put the key in that group, or with None in none; the group that it was in."""
        before = self._groups.pop(key, None)
        if before is not None:
            keys = self._keys[before]
            keys.discard(key)
            if not keys:
                del self._keys[before]
        if group is not None:
            self._groups[key] = group
            self._keys.setdefault(group, set()).add(key)
        return before

    def group_of(self, key: K) -> G | None:
        """The group of the key; None if it is in none."""
        return self._groups.get(key)

    def of(self, group: G) -> tuple[K, ...]:
        """The keys of a group, in no order."""
        return tuple(self._keys.get(group, ()))

    def groups(self) -> tuple[G, ...]:
        """Every group that has a key."""
        return tuple(self._keys)

    def items(self) -> tuple[tuple[K, G], ...]:
        """Every key with its group."""
        return tuple(self._groups.items())
