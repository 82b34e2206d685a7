# SPDX-License-Identifier: Apache-2.0
"""Stored objects and their changes.

Both are immutable but for caches: the parsed object, which must not be changed, and the encoded watch lines, which all
watchers of one form share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject

_NO_LINES: Final[dict[object, bytes]] = {}
"""What every event begins with; must not be changed."""
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class StoredObject:
    """One version of one object."""

    __slots__ = ("key", "raw", "version")

    def __init__(self, *, key: str, version: int, raw: bytes) -> None:
        self.key = key
        self.version = version
        self.raw = raw

    def parse(self) -> JsonObject:
        """A fresh copy of the object."""
        return documents.load_object(self.raw)


class StoredChange:
    """One change of one object: what it was and what it became."""

    __slots__ = ("_last", "_lines", "_object", "_old", "entry", "key", "old", "version")

    def __init__(
        self, *, key: str, version: int, old: StoredObject | None, entry: StoredObject | None, last: bytes = b""
    ) -> None:
        self.key = key
        self.version = version
        self.old = old
        self.entry = entry
        # A deletion carries the object as it was, with the resource version of the deletion itself.
        self._last = last
        self._lines: dict[object, bytes] = _NO_LINES
        self._object: JsonObject | None = None
        self._old: JsonObject | None = None

    @property
    def type(self) -> EventType:
        """The type of the event for a watch without a selector."""
        if self.entry is None:
            return "DELETED"
        return "ADDED" if self.old is None else "MODIFIED"

    @property
    def raw(self) -> bytes:
        """The object after the change; for a deletion its last state."""
        return self.entry.raw if self.entry is not None else self._last

    def value(self) -> JsonObject:
        """The object after the change, parsed once for all watchers; must not be changed."""
        if self._object is None:
            self._object = documents.load_object(self.raw)
        return self._object

    def old_value(self) -> JsonObject | None:
        """The object before the change, parsed once for all watchers; must not be changed."""
        if self._old is None and self.old is not None:
            self._old = documents.load_object(self.old.raw)
        return self._old

    def line(self, form: object, type: EventType, encode: Callable[[StoredChange], bytes]) -> bytes:
        """The line for watchers of one form; encoded once."""
        key = (form, type)
        found = self._lines.get(key)
        if found is None:
            found = b'{"type":"' + type.encode() + b'","object":' + encode(self) + b"}\n"
            self._lines = {**self._lines, key: found}
        return found

    def forget(self) -> None:
        """Drop the caches, once the current watchers have been notified."""
        self._object = self._old = None
        self._lines = _NO_LINES
