# SPDX-License-Identifier: Apache-2.0
"""Watches: a stream of the changes of one resource to one client.

Promises every change after the start once and in order, ADDED and DELETED for objects that start or stop to match the
selector, and bookmarks. A client that does not read is disconnected, and lists again, instead of filling the memory.
Lines are encoded once for all watchers of a form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents, forms
from devcluster.apiserver.codec.forms import Form
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Request, Sink
from devcluster.apiserver.registry import versions
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.registry.selectors import Selection
from devcluster.apiserver.storage.collection import Collection
from devcluster.apiserver.storage.entry import EventType, StoredChange, StoredObject

_BOOKMARK_SECONDS: Final = 60.0
_MAX_PENDING: Final = 16 << 20  # bytes that a client has not read
_MAX_QUEUED: Final = 10_000  # events that wait for a conversion webhook or a half-open link
DEFAULT_SECONDS: Final = 1800.0

Convert = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]


class WatchFeed:
    """The stream of one watch; implements `requests.Feed` and `storage.collection.Watcher`."""

    def __init__(
        self,
        context: ServerContext,
        kind: ResourceType,
        *,
        collection: Collection,
        prefix: str,
        selection: Selection,
        form: Form,
        request: Request,
        seconds: float,
        bookmarks: bool,
        after: int = 0,
        backlog: Sequence[StoredChange] = (),
        initial: Sequence[StoredObject] = (),
        initial_end: bool = False,
        convert: Convert | None = None,
        ended: Callable[[WatchFeed], None] | None = None,
    ) -> None:
        """Nothing is sent of changes up to version `after`: a client that asks from the future waits for it."""
        self._after = after
        self._context = context
        self._kind = kind
        self._prefix = prefix
        self._selection = selection
        self._everything = selection.everything and not prefix
        self._form = form
        self._form_key = (kind.version, kind.group, form)
        self._seconds = seconds
        self._bookmarks = bookmarks
        self._backlog = backlog
        self._initial = initial
        self._initial_end = initial_end
        self._convert = convert
        self._ended = ended
        self._sink: Sink | None = None
        self._buffer: list[bytes] = []
        self._scheduled = False
        self._headed = form.shape == "Table"
        self._timers: list[asyncio.TimerHandle] = []
        self._queue: asyncio.Queue[tuple[EventType, bytes]] | None = None
        self._task: asyncio.Task[None] | None = None
        self.request = request
        """The request that began it, so that faults can find the watches of a client."""
        self._held = False
        self.collection = collection

    # Feed

    def start(self, sink: Sink) -> None:
        """Write the initial events, and each change from then on."""
        self._sink = sink
        loop = asyncio.get_running_loop()
        if self._convert is not None:
            self._queue = asyncio.Queue()
            self._task = loop.create_task(self._run(self._convert), name=f"watch {self._kind.plural}")
        for entry in self._initial:
            value = None if self._selection.everything else entry.parse()
            if value is None or self._selection.matches(value, self._kind):
                self._initial_line(entry)
        if self._initial_end:
            self._mark(initial_end=True)
        for event in self._backlog:
            self.notify(event)
            event.forget()
        self._initial = self._backlog = ()
        self._flush()
        if self._sink is None or self._sink.closed:
            return
        self.collection.watch(self)
        self._timers = [loop.call_later(self._seconds, self._timeout)]
        if self._bookmarks:
            self._timers.append(loop.call_later(_BOOKMARK_SECONDS, self._tick))

    def stop(self) -> None:
        """Stop: the client is gone, or the server stops."""
        self.collection.unwatch(self)
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        self._sink = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._ended is not None:
            self._ended(self)
            self._ended = None

    # Watcher

    def notify(self, event: StoredChange) -> None:
        """Write a change that the selection matches."""
        if event.version <= self._after:
            return
        if self._everything:
            self._emit(event.type, event)
            return
        if self._prefix and not event.key.startswith(self._prefix):
            return
        if self._selection.everything:
            self._emit(event.type, event)
            return
        name = self._selection.name
        if name is not None and not event.key.endswith(name):
            return
        before = event.old_value()
        was = before is not None and self._selection.matches(before, self._kind)
        now = event.entry is not None and self._selection.matches(event.value(), self._kind)
        if now:
            self._emit("MODIFIED" if was else "ADDED", event)
        elif was:
            self._emit("DELETED", event)

    def fail(self, error: errors.StatusError) -> None:
        """Send an error event and end."""
        self._buffer.append(b'{"type":"ERROR","object":' + documents.dump(error.document()) + b"}\n")
        self._flush()
        self.finish()

    def hold(self, *, held: bool) -> None:
        """Hold back events, as a half-open link does, or send those that were held back."""
        self._held = held
        if not held:
            self._flush()

    def cut(self) -> None:
        """Break the connection."""
        sink = self._sink
        self.stop()
        if sink is not None:
            sink.abort()

    def finish(self) -> None:
        """End in order."""
        self._flush()
        sink = self._sink
        self.stop()
        if sink is not None:
            sink.close()

    def _emit(self, type: EventType, event: StoredChange) -> None:
        left = type == "DELETED" and event.entry is not None
        if self._queue is not None:
            self._enqueue(type, self._last(event) if left else event.raw)
            return
        if self._headed:
            raw = (self._left if left else self._encode)(event)
            self._headed = False
            line = b'{"type":"' + type.encode() + b'","object":' + raw + b"}\n"
        elif left:
            # It stopped matching: the client gets the last matching state at the version of this change.
            line = event.line(self._form_key, type, self._left)
        else:
            line = event.line(self._form_key, type, self._encode)
        self._buffer.append(line)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _encode(self, event: StoredChange) -> bytes:
        raw = versions.present(event.raw, self._kind)
        if not self._form.shape:
            return raw
        return forms.line(raw, self._kind, self._form, self._context.now(), headed=self._headed)

    def _left(self, event: StoredChange) -> bytes:
        raw = versions.present(self._last(event), self._kind)
        if not self._form.shape:
            return raw
        return forms.line(raw, self._kind, self._form, self._context.now(), headed=self._headed)

    @staticmethod
    def _last(event: StoredChange) -> bytes:
        value = dict(event.old_value() or {})
        value["metadata"] = {**documents.metadata(value), "resourceVersion": str(event.version)}
        return documents.dump_object(value)

    def _initial_line(self, entry: StoredObject) -> None:
        if self._queue is not None:
            self._enqueue("ADDED", entry.raw)
            return
        raw = versions.present(entry.raw, self._kind)
        if self._form.shape:
            raw = forms.line(raw, self._kind, self._form, self._context.now(), headed=self._headed)
            self._headed = False
        self._buffer.append(b'{"type":"ADDED","object":' + raw + b"}\n")

    def _mark(self, *, initial_end: bool = False) -> None:
        if self._context.store.version <= self._after:
            return
        mark = forms.bookmark(self._context.store.version, self._kind, self._form, initial_end=initial_end)
        if self._queue is not None:  # a bookmark follows the events that are being converted
            self._queue.put_nowait(("MODIFIED", mark))
        else:
            self._buffer.append(mark)

    def _enqueue(self, type: EventType, raw: bytes) -> None:
        assert self._queue is not None
        if self._sink is not None and not self._initial and self._queue.qsize() >= _MAX_QUEUED:
            self.cut()
        else:
            self._queue.put_nowait((type, raw))

    async def _run(self, convert: Convert) -> None:
        assert self._queue is not None
        while True:
            type, raw = await self._queue.get()
            if raw.startswith(b'{"type":"BOOKMARK"'):
                self._buffer.append(raw)
            else:
                try:
                    (converted,) = await convert([raw])
                except errors.StatusError as error:
                    self.fail(error)  # the client lists again and gets the error of the webhook
                    return
                shown = forms.line(converted, self._kind, self._form, self._context.now(), headed=self._headed)
                self._headed = False
                self._buffer.append(b'{"type":"' + type.encode() + b'","object":' + shown + b"}\n")
            self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        sink = self._sink
        if sink is None:
            self._buffer.clear()
            return
        if self._held:
            if len(self._buffer) > _MAX_QUEUED:
                self.cut()
        elif self._buffer:
            sink.write(b"".join(self._buffer))
            self._buffer.clear()
            if sink.pending > _MAX_PENDING:
                self.cut()

    def _tick(self) -> None:
        self._mark()
        self._flush()
        if self._sink is not None:
            self._timers.append(asyncio.get_running_loop().call_later(_BOOKMARK_SECONDS, self._tick))

    def _timeout(self) -> None:
        if self._bookmarks:
            self._mark()
        self.finish()
