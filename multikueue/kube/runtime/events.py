# SPDX-License-Identifier: Apache-2.0
"""Events (events.k8s.io/v1) about objects.

Promises that recording never waits and never raises: events go through a bounded queue, equal ones within some minutes
become one series, the events of one object are rate limited, and events that cannot be delivered are dropped, which is
logged at most once a minute. With a budget (`event_budget.py`) the Normal events of all objects are rate limited too;
warnings are not. Ordinary steps that it leaves out are not logged.
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
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.limiter import Limiter
from multikueue.kube.runtime.event_budget import EventBudget

logger = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_QUEUE: Final = 4096
_SERIES_SECONDS: Final = 360.0
_SERIES_KEPT: Final = 4096
_OBJECT_BURST: Final = 25
_OBJECT_QPS: Final = 5.0 / 60.0
_LOG_SECONDS: Final = 60.0
_TRIES: Final = 12  # some minutes with the pauses below: as long as a restart of an API server
_RETRIED: Final = (
    errors.Unreachable,
    errors.TooManyRequests,
    errors.InternalError,
    errors.ServerTimeout,
    errors.ServiceUnavailable,
)
_BACKOFF: Final = Backoff(base=0.5, factor=2.0, cap=60.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class Reference:
    """The object of an event."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, api_version: str = "", kind: str = "") -> Reference:
        """The reference to an object; items of lists have no kind, so it may be passed."""
        metadata = obj["metadata"]
        return cls(
            api_version or obj["apiVersion"],
            kind or obj["kind"],
            metadata["name"],
            metadata.get("namespace", ""),
            metadata.get("uid", ""),
        )

    def body(self) -> dict[str, str]:
        """The field `regarding` or `related` of an event."""
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
        budget: EventBudget | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """`budget` limits the rate of all Normal events; without it there is no such limit."""
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
        self._logged = -_LOG_SECONDS
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
        """Queue an event; never waits. Drops it if the queue is full."""
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
                    await self._deliver_with_retries(event)
            self._log_dropped()
            self._wake = anyio.Event()
            await self._wake.wait()

    def _log_dropped(self) -> None:
        now = self._clock.monotonic()
        if self.dropped and now - self._logged >= _LOG_SECONDS:
            logger.warning("events dropped: too many at once count=%d", self.dropped)
            self._logged = now
            self.dropped = 0

    async def _deliver_with_retries(self, event: _Event) -> None:
        """Deliver, and retry for a while if the server is not available; later events wait meanwhile."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._deliver(event)
                return
            except errors.KubeError as error:
                if attempt == _TRIES or not isinstance(error, _RETRIED):
                    logger.info(
                        "event lost kind=%s namespace=%s name=%s error=%s",
                        event.about.kind,
                        event.about.namespace,
                        event.about.name,
                        error,
                    )
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
            self._series.pop(event.series, None)  # the event or its namespace is gone; the next one starts a new series

    def _allowed(self, event: _Event) -> bool:
        limiter = self._limits.get(event.about)
        if limiter is None:
            limiter = self._limits[event.about] = Limiter(qps=_OBJECT_QPS, burst=_OBJECT_BURST, clock=self._clock)
            while len(self._limits) > _SERIES_KEPT:
                self._limits.popitem(last=False)
        if not limiter.take():
            self.dropped += 1
            return False
        if event.type == WARNING or self._budget is None or self._budget.take(event.reason):
            return True
        if not self._budget.is_step(event.reason):
            self.dropped += 1
        return False

    def _body(self, event: _Event) -> dict[str, Any]:
        self._sequence += 1
        # Unique per process and time; the API server does not generate names of events.
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
