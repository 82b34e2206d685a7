# SPDX-License-Identifier: Apache-2.0
"""Watches: a stream of the changes of one resource to one client.

Owns the feed. Promises every change after the start once and in order, that an object which a selector begins or ends
to match is told as ADDED or DELETED, bookmarks, and that a client which does not read is cut off (it lists anew)
instead of filling the memory. Lines are encoded once for all watchers of a form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from multikueue.devcluster.apiserver import documents, errors, forms, versions
from multikueue.devcluster.apiserver.forms import Form
from multikueue.devcluster.apiserver.requests import Request, Sink
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.selectors import Selection
from multikueue.devcluster.apiserver.storage.collection import Collection
from multikueue.devcluster.apiserver.storage.entry import Entry, Event, EventType
from multikueue.devcluster.apiserver.world import World

_BOOKMARK_SECONDS: Final = 60.0
_MAX_PENDING: Final = 16 << 20  # bytes that a client may leave unread
_MAX_QUEUED: Final = 10_000  # events that may wait for a conversion webhook, or for a link that is half open
DEFAULT_SECONDS: Final = 1800.0

Convert = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]


class WatchFeed:
    """What one watch writes; implements `requests.Feed` and `storage.collection.Watcher`."""

    def __init__(
        self,
        world: World,
        kind: ResourceType,
        *,
        collection: Collection,
        prefix: str,
        selection: Selection,
        form: Form,
        request: Request,
        seconds: float,
        bookmarks: bool,
        backlog: Sequence[Event] = (),
        initial: Sequence[Entry] = (),
        initial_end: bool = False,
        convert: Convert | None = None,
        ended: Callable[[WatchFeed], None] | None = None,
    ) -> None:
        self._world = world
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
        """What began it, so that faults can find one client's watches."""
        self._held = False
        self.collection = collection

    # Feed

    def start(self, sink: Sink) -> None:
        """Write what is due now, and from then on each change as it is made."""
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
        """The reader is gone, or the server ends."""
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

    def notify(self, event: Event) -> None:
        """Write a change if it is meant."""
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
        """Tell the client that it cannot go on from here, and end."""
        self._buffer.append(b'{"type":"ERROR","object":' + documents.dump(error.document()) + b"}\n")
        self._flush()
        self.finish()

    def hold(self, *, held: bool) -> None:
        """Say nothing more while held, and what has been kept back when no longer: a link that is half open."""
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

    # inside

    def _emit(self, type: EventType, event: Event) -> None:
        left = type == "DELETED" and event.entry is not None
        if self._queue is not None:
            self._enqueue(type, self._last(event) if left else event.raw)
            return
        if self._headed:
            raw = (self._left if left else self._encode)(event)
            self._headed = False
            line = b'{"type":"' + type.encode() + b'","object":' + raw + b"}\n"
        elif left:
            # It left the selection: the client sees the state it left with, at the version of this change.
            line = event.line(self._form_key, type, self._left)
        else:
            line = event.line(self._form_key, type, self._encode)
        self._buffer.append(line)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _encode(self, event: Event) -> bytes:
        raw = versions.present(event.raw, self._kind)
        if not self._form.shape:
            return raw
        return forms.line(raw, self._kind, self._form, self._world.now(), headed=self._headed)

    def _left(self, event: Event) -> bytes:
        raw = versions.present(self._last(event), self._kind)
        if not self._form.shape:
            return raw
        return forms.line(raw, self._kind, self._form, self._world.now(), headed=self._headed)

    @staticmethod
    def _last(event: Event) -> bytes:
        value = dict(event.old_value() or {})
        value["metadata"] = {**documents.metadata(value), "resourceVersion": str(event.version)}
        return documents.dump_object(value)

    def _initial_line(self, entry: Entry) -> None:
        if self._queue is not None:
            self._enqueue("ADDED", entry.raw)
            return
        raw = versions.present(entry.raw, self._kind)
        if self._form.shape:
            raw = forms.line(raw, self._kind, self._form, self._world.now(), headed=self._headed)
            self._headed = False
        self._buffer.append(b'{"type":"ADDED","object":' + raw + b"}\n")

    def _mark(self, *, initial_end: bool = False) -> None:
        mark = forms.bookmark(self._world.store.version, self._kind, self._form, initial_end=initial_end)
        if self._queue is not None:  # behind what is still being converted: it says that all before it has been told
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
                    self.fail(error)  # the client lists anew, and hears of the broken webhook then
                    return
                shown = forms.line(converted, self._kind, self._form, self._world.now(), headed=self._headed)
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
