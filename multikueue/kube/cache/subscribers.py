# SPDX-License-Identifier: Apache-2.0
"""The change handlers of one resource, each called under quarantine.

A handler that raises affects neither the other handlers nor the informer: the object is quarantined for that handler,
which is called again with it after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.kube.cache.store import Row
from multikueue.kube.rest import watch
from multikueue.kube.runtime.quarantine import PASSES, Quarantine


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one object; `old` is None for ADDED, `new` is None for DELETED."""

    type: str
    key: Key
    old: Row | None
    new: Row | None

    @property
    def row(self) -> Row:
        """The object as it is now, or before its deletion."""
        row = self.new if self.new is not None else self.old
        assert row is not None, "a change has a row before or after it"
        return row


Handler = Callable[[Change], None]


class Subscribers:
    """The handlers of one resource."""

    def __init__(self, resource: Resource, *, quarantine: Quarantine, lookup: Callable[[Key], Row | None]) -> None:
        """`lookup` gives the current object when a handler is called again."""
        self._resource = resource
        self._quarantine = quarantine
        self._lookup = lookup
        self._handlers: list[tuple[str, Handler]] = []

    def add(self, handler: Handler, *, reader: str = "") -> str:
        """Call `handler` for each change from now on; returns its reader name in the quarantine."""
        name = reader or _owner(handler)
        others = sum(known.split("/")[0] == name for known, _ in self._handlers)
        reader = f"{name}/{others + 1}" if others else name
        self._handlers.append((reader, handler))
        return reader

    def clear(self) -> None:
        """Remove all handlers."""
        self._quarantine.release_readers(frozenset(reader for reader, _ in self._handlers))
        self._handlers.clear()

    def notify(self, change: Change) -> None:
        """Call every handler with the change."""
        for reader, handler in self._handlers:
            self.call(reader, handler, change)

    def call(self, reader: str, handler: Handler, change: Change) -> None:
        """Call one handler; if it raises anything but a server error, the object is quarantined for it."""
        try:
            handler(change)
        except PASSES:
            raise
        except Exception as error:
            version = change.row.resource_version
            self._quarantine.add(
                reader,
                self._resource,
                change.key,
                error,
                version=version,
                retry=lambda: self._retry(reader, handler, change.key),
            )
        else:
            self._quarantine.release(reader, self._resource, change.key)

    def _retry(self, reader: str, handler: Handler, key: Key) -> None:
        row = self._lookup(key)
        if row is None or all(known is not handler for _, known in self._handlers):
            self._quarantine.release(reader, self._resource, key)
            return
        self.call(reader, handler, Change(watch.ADDED, key, None, row))


def _owner(handler: Handler) -> str:
    """The name of the class of a handler, or of the function."""
    called = handler.func if isinstance(handler, partial) else handler
    return str(getattr(called, "__qualname__", type(called).__name__)).split(".", 1)[0]
