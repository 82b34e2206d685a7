# SPDX-License-Identifier: Apache-2.0
"""Events about objects, for the people who own them.

Owns events.k8s.io/v1. Promises that recording never waits and never fails its caller: events go through a bounded
queue, equal ones within some minutes become one series, an object that floods is held to a rate, and what cannot be
delivered is dropped with a line in the log, at most one a minute. With a budget the Normal events of all objects
together are held to a rate too; warnings always pass.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

import anyio

from multikueue.api.resource import EVENTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.conditions import MAX_EVENT_MESSAGE, truncate_message
from multikueue.core.timestamps import format_micro_time
from multikueue.kube import errors
from multikueue.kube.client import KubeClient
from multikueue.kube.limiter import Limiter

logger = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_QUEUE: Final = 4096
_SERIES_SECONDS: Final = 360.0
_SERIES_KEPT: Final = 4096
_OBJECT_BURST: Final = 25
_OBJECT_QPS: Final = 5.0 / 60.0
_TELL_SECONDS: Final = 60.0
_TRIES: Final = 12  # with the pauses below some minutes, as long as an API server is away when it is restarted
_TROUBLE: Final = (
    errors.Unreachable,
    errors.TooManyRequests,
    errors.InternalError,
    errors.ServerTimeout,
    errors.ServiceUnavailable,
)
_BACKOFF: Final = Backoff(base=0.5, factor=2.0, cap=60.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class Reference:
    """The object an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, api_version: str = "", kind: str = "") -> Reference:
        """The reference to an object; items of lists lack their kind, so it may be given."""
        metadata = obj["metadata"]
        return cls(
            api_version or obj["apiVersion"],
            kind or obj["kind"],
            metadata["name"],
            metadata.get("namespace", ""),
            metadata.get("uid", ""),
        )

    def body(self) -> dict[str, str]:
        """As it stands in an event."""
        named = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {key: value for key, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class _Event:
    about: Reference
    type: str
    reason: str
    message: str
    action: str
    related: Reference | None
    at: datetime

    @property
    def series(self) -> tuple[object, ...]:
        """Events of one series are one object with a count."""
        return (self.about, self.type, self.reason, self.message, self.action, self.related)


@dataclass(slots=True)
class _Series:
    name: str
    namespace: str
    count: int
    last: float


class EventRecorder:
    """Records events as `component` running as `instance`."""

    def __init__(
        self,
        client: KubeClient,
        component: str,
        *,
        instance: str = "",
        budget: Limiter | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """`budget` is what Normal events may cost the API server; without it they are as many as there are."""
        self._client = client
        self._component = component
        self._instance = instance or component
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._pending: deque[_Event] = deque()
        self._wake = anyio.Event()
        self._series: OrderedDict[tuple[object, ...], _Series] = OrderedDict()
        self._limits: OrderedDict[Reference, Limiter] = OrderedDict()
        self._sequence = 0
        self._budget = budget
        self._told = -_TELL_SECONDS
        self.dropped = 0

    def event(
        self,
        about: Reference,
        type: str,
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Reference | None = None,
    ) -> None:
        """Queue an event; never waits. Drops it when the queue is full."""
        if len(self._pending) >= _QUEUE:
            self.dropped += 1
            return
        text = truncate_message(message, MAX_EVENT_MESSAGE)
        self._pending.append(_Event(about, type, reason, text, action or reason, related, self._clock.now()))
        self._wake.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            while self._pending:
                event = self._pending.popleft()
                if self._allowed(event):
                    await self._insist(event)
            self._tell_dropped()
            self._wake = anyio.Event()
            await self._wake.wait()

    def _tell_dropped(self) -> None:
        now = self._clock.monotonic()
        if self.dropped and now - self._told >= _TELL_SECONDS:
            logger.warning("%d events were dropped: too many at once", self.dropped)
            self._told = now
            self.dropped = 0

    async def _insist(self, event: _Event) -> None:
        """Deliver, and try again for a while where the server has trouble of its own; the others wait behind it."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._deliver(event)
                return
            except errors.KubeError as error:
                if attempt == _TRIES or not isinstance(error, _TROUBLE):
                    logger.info("an event about %s %s was lost: %s", event.about.kind, event.about.name, error)
                    return
            await anyio.sleep(_BACKOFF.delay(attempt, self._random))

    async def _deliver(self, event: _Event) -> None:
        now = self._clock.monotonic()
        series = self._series.get(event.series)
        try:
            if series is not None and now - series.last < _SERIES_SECONDS:
                series.count += 1
                series.last = now
                body = {"series": {"count": series.count, "lastObservedTime": format_micro_time(event.at)}}
                await self._client.patch(EVENTS, series.name, body, namespace=series.namespace)
                self._series.move_to_end(event.series)
                return
            made = self._body(event)
            namespace = made["metadata"]["namespace"]
            await self._client.create(EVENTS, made, namespace=namespace)
            self._series[event.series] = _Series(made["metadata"]["name"], namespace, 1, now)
            while len(self._series) > _SERIES_KEPT:
                self._series.popitem(last=False)
        except errors.NotFound:
            self._series.pop(event.series, None)  # the event or its namespace is gone; the next one starts anew

    def _allowed(self, event: _Event) -> bool:
        limiter = self._limits.get(event.about)
        if limiter is None:
            limiter = self._limits[event.about] = Limiter(qps=_OBJECT_QPS, burst=_OBJECT_BURST, clock=self._clock)
            while len(self._limits) > _SERIES_KEPT:
                self._limits.popitem(last=False)
        if limiter.take() and (event.type == WARNING or self._budget is None or self._budget.take()):
            return True
        self.dropped += 1
        return False

    def _body(self, event: _Event) -> dict[str, Any]:
        self._sequence += 1
        # Unique per process and moment; the API server gives no names to events.
        suffix = f"{int(event.at.timestamp() * 1_000_000):x}{self._sequence:04x}"
        namespace = event.about.namespace or "default"
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{event.about.name[:220].rstrip('-.')}.{suffix}", "namespace": namespace},
            "eventTime": format_micro_time(event.at),
            "reportingController": self._component,
            "reportingInstance": self._instance[:128],
            "action": event.action[:128],
            "reason": event.reason[:128],
            "regarding": event.about.body(),
            "note": event.message,
            "type": event.type,
        }
        if event.related is not None:
            body["related"] = event.related.body()
        return body
