# SPDX-License-Identifier: Apache-2.0
"""Which slices of elastic jobs hold nothing, since a newer slice holds their quota (`docs/spec/engine.md §3.11`).

Owns the way from a slice to the newest one, which may lead over others: until the API shows the former ones finished,
several slices of one job have a reservation there. The order in which they are seen, and finish, does not matter.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from multikueue.core.keys import Key
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.workloads import Workload


class ReplacedSlices:
    """For each slice that was replaced, the one that replaced it."""

    def __init__(self, records: Mapping[Key, Reserved], workloads: Container[Key]) -> None:
        """`workloads` are those that have not finished."""
        self._records = records
        self._workloads = workloads
        self._newer: dict[Key, Key] = {}
        self._older: dict[Key, list[Key]] = {}
        """More than one where a slice in between is gone."""

    def add(self, older: Key, newer: Key) -> None:
        """A slice has got the quota of another."""
        if self._newer.get(older) != newer:
            self._remove(older)
            self._newer[older] = newer
            self._older.setdefault(newer, []).append(older)

    def has(self, value: Workload) -> bool:
        """Whether a newer slice of the same job holds this workload's quota, directly or by others in between."""
        newer = self._newer.get(value.key)
        if newer is None:
            return False
        seen = {value.key}
        while newer is not None and newer not in seen:
            record = self._records.get(newer)
            if record is not None:
                return record.workload.job_uid == value.job_uid
            seen.add(newer)
            newer = self._newer.get(newer)
        return False

    def restored_by(self, newer: Key) -> tuple[Key, ...]:
        """The slices that a slice had replaced which has lost its quota; they are not replaced any more."""
        restored = tuple(self._older.get(newer, ()))
        for older in restored:
            self._remove(older)
        return restored

    def end(self, key: Key) -> None:
        """A slice has no reservation any more: what it had replaced is replaced by its own successor."""
        newer = self._remove(key)
        for older in tuple(self._older.get(key, ())):
            if newer is not None and older in self._workloads:
                self.add(older, newer)
            else:
                self._remove(older)

    def _remove(self, older: Key) -> Key | None:
        newer = self._newer.pop(older, None)
        if newer is not None:
            replaced = self._older[newer]
            replaced.remove(older)
            if not replaced:
                del self._older[newer]
        return newer
