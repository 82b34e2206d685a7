# SPDX-License-Identifier: Apache-2.0
"""The room of every worker cluster, and the workloads that wait here for some.

Owns one `StandingRoom` per cluster, kept in step with what stands in the mailboxes and with what was decided and is
not written yet, and the line of those that no cluster has room for. Promises that a workload is counted on a cluster
from the decision to send it there, and that who waits is looked at again when room comes free, in the order of priority
and time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.federation.ledger import Demand
from multikueue.federation.standing_room import Report, StandingRoom, report_of

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 16  # how many of those that wait are looked at for each end of another: few ends free more


class Rooms:
    """The book of rooms."""

    def __init__(self, *, wake: Callable[[Key], None], now: Callable[[], datetime]) -> None:
        self._wake = wake
        self._now = now
        self._rooms: dict[str, StandingRoom] = {}
        self._versions: dict[str, tuple[str, datetime]] = {}
        self._unreadable: dict[str, str] = {}
        self._where: dict[Key, frozenset[str]] = {}
        self._line: dict[Key, tuple[int, datetime]] = {}

    def of(self, cluster: str) -> StandingRoom:
        """The room of a cluster."""
        return self._rooms.setdefault(cluster, StandingRoom())

    def take_report(self, cluster: str, status: JsonObject, *, version: str, now: datetime) -> datetime | None:
        """Read the report; gives when it came, by our clock, which the agent's may be minutes off."""
        known = self._versions.get(cluster)
        if known is not None and known[0] == version:
            return known[1]
        report = self._read(cluster, status)
        if report is None:
            self._versions.pop(cluster, None)
            self.of(cluster).replace(None)
            return None
        self._versions[cluster] = (version, now)
        if self.of(cluster).replace(report):
            self._offer()
        return now

    def settle(self, workload: Key, clusters: Collection[str], demands: tuple[Demand, ...]) -> None:
        """Count the workload on these clusters and on no other."""
        before, after = self._where.get(workload, frozenset()), frozenset(clusters)
        for cluster in after:
            self.of(cluster).hold(workload, demands)
        for cluster in before - after:
            room = self.of(cluster)
            room.release(workload)
            room.moved_at = self._now()
        if after:
            self._where[workload] = after
        else:
            self._where.pop(workload, None)
        if before - after:
            self._offer()

    def counted(self) -> tuple[Key, ...]:
        """The workloads that are counted anywhere."""
        return tuple(self._where)

    def queue(self, workload: Key, *, priority: int, since: datetime) -> None:
        """Wake the workload when room comes free."""
        self._line[workload] = (-priority, since)

    def leave(self, workload: Key) -> None:
        """It waits no more."""
        self._line.pop(workload, None)

    def _read(self, cluster: str, status: JsonObject) -> Report | None:
        """The report. One that cannot be read is none: its agent must not keep the hub from judging its cluster."""
        try:
            report = report_of(status)
        except BadInput as error:
            if self._unreadable.get(cluster) != str(error):
                _log.warning("cluster %s: its report cannot be read, and its room is not known: %s", cluster, error)
            self._unreadable[cluster] = str(error)
            return None
        self._unreadable.pop(cluster, None)
        return report

    def _offer(self) -> None:
        if not self._line:
            return
        first = sorted(self._line, key=lambda key: (self._line[key], key))[:_AT_ONCE]
        for key in first:
            self._wake(key)
