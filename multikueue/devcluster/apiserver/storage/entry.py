# SPDX-License-Identifier: Apache-2.0
"""What is stored, and what happened to it.

Owns the stored object (`Entry`) and the change (`Event`). Both are immutable but for caches: the parsed object, which
must not be written to, and encoded watch lines, which all watchers of one form share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject

_NO_LINES: Final[dict[object, bytes]] = {}
"""What every event begins with; never written to."""
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class Entry:
    """One version of one object."""

    __slots__ = ("key", "raw", "version")

    def __init__(self, *, key: str, version: int, raw: bytes) -> None:
        self.key = key
        self.version = version
        self.raw = raw

    def parse(self) -> JsonObject:
        """A fresh copy of the object."""
        return documents.load_object(self.raw)


class Event:
    """One change of one object: what it was and what it became."""

    __slots__ = ("_last", "_lines", "_object", "_old", "entry", "key", "old", "version")

    def __init__(self, *, key: str, version: int, old: Entry | None, entry: Entry | None, last: bytes = b"") -> None:
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
        """The change as somebody sees it who watches everything."""
        if self.entry is None:
            return "DELETED"
        return "ADDED" if self.old is None else "MODIFIED"

    @property
    def raw(self) -> bytes:
        """The object after the change; at a deletion its last state."""
        return self.entry.raw if self.entry is not None else self._last

    def value(self) -> JsonObject:
        """The object after the change, parsed once for all watchers; not to be written to."""
        if self._object is None:
            self._object = documents.load_object(self.raw)
        return self._object

    def old_value(self) -> JsonObject | None:
        """The object before the change, parsed once for all watchers; not to be written to."""
        if self._old is None and self.old is not None:
            self._old = documents.load_object(self.old.raw)
        return self._old

    def line(self, form: object, type: EventType, encode: Callable[[Event], bytes]) -> bytes:
        """The line that watchers of one form get; encoded for the first of them."""
        key = (form, type)
        found = self._lines.get(key)
        if found is None:
            found = b'{"type":"' + type.encode() + b'","object":' + encode(self) + b"}\n"
            self._lines = {**self._lines, key: found}
        return found

    def forget(self) -> None:
        """Drop what can be made again, when all who watch now have been told."""
        self._object = self._old = None
        self._lines = _NO_LINES
