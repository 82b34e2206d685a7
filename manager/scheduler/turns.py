# SPDX-License-Identifier: Apache-2.0
"""A queue of keys in which namespaces take turns: a namespace with many keys delays another by one key at most."""

from __future__ import annotations

from collections import OrderedDict, deque

from multikueue.core.keys import Key


class NamespaceTurns:
    """A queue that is first in, first out within a namespace."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Key]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def append(self, key: Key) -> None:
        """Add `key` behind those of its namespace."""
        self._waiting.setdefault(key.namespace, deque()).append(key)

    def popleft(self) -> Key:
        """Remove and return the first key of the next namespace. Raises `KeyError` when the queue is empty."""
        namespace, keys = self._waiting.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._waiting[namespace] = keys
        return key
