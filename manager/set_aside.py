# SPDX-License-Identifier: Apache-2.0
"""Workloads at which the engine broke, and which it is kept from until they are changed.

Owns who they are and what their users are told. Promises that a mistake of ours about one workload does not hold up all
others: the manager builds its engine anew without it, since one that broke in the middle of a cycle cannot be relied
on. It is no place for many: where the engine breaks at one workload after the other, they are not what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from manager import workload_changes
from manager.context import ManagerContext
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import MAX_EVENT_MESSAGE, truncate_message
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from multikueue.kube.events import Reference

_log = logging.getLogger(__name__)

_MOST: Final = 8


class Undecidable(MultikueueError):
    """The engine broke while it was deciding about one workload; the cause is the fault itself."""

    def __init__(self, workload: Key, cause: Exception) -> None:
        super().__init__(f"the engine broke at workload {workload}: {cause!r}")
        self.workload = workload
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Entry:
    uid: str
    generation: int
    message: str


class SetAside:
    """Those that the engine is kept from."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def holds(self, workload: JsonObject) -> bool:
        """Whether it is still the one at which the engine broke; one that was changed since gets another chance."""
        metadata = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        entry = self._entries.get(key)
        if entry is None:
            return False
        if (entry.uid, entry.generation) == (metadata["uid"], metadata.get("generation", 0)):
            return True
        del self._entries[key]
        return False

    async def add(self, fault: BaseExceptionGroup[Undecidable], context: ManagerContext) -> None:
        """Keep the engine from them and tell their users. Raises `fault` where too many are kept from it already."""
        for each in _leaves(fault):
            workload = context.statuses.current(each.workload)
            if workload is None:
                continue  # gone meanwhile
            self._forget_gone(context)
            if len(self._entries) >= _MOST:
                raise fault
            _log.error("%s; it is set aside until it is changed", each, exc_info=each.cause)
            message = f"the manager cannot decide about it, and sets it aside until it is changed: {each.cause!r}"
            metadata = workload["metadata"]
            entry = _Entry(metadata["uid"], metadata.get("generation", 0), truncate_message(message, MAX_EVENT_MESSAGE))
            self._entries[each.workload] = entry
            await self._tell(each.workload, workload, entry, context)

    def _forget_gone(self, context: ManagerContext) -> None:
        """Those that were deleted or changed since are no sign of anything any more."""
        for key in tuple(self._entries):
            workload = context.statuses.current(key)
            if workload is None or not self.holds(workload):
                self._entries.pop(key, None)

    async def _tell(self, key: Key, workload: JsonObject, entry: _Entry, context: ManagerContext) -> None:
        reason = QuotaReservedReason.MISCONFIGURED
        context.recorder.event(Reference.of(workload), "Warning", str(reason), entry.message)
        try:
            await context.statuses.write(
                key,
                lambda status: (
                    status
                    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.QUOTA_RESERVED)
                    else workload_changes.pend(
                        status,
                        reason=reason,
                        message=entry.message,
                        resource_requests=None,
                        now=context.clock.now(),
                    )
                ),
                uid=entry.uid,
            )
        except KubeError as error:
            _log.warning("workload %s: that it is set aside is not written: %s", key, error)


def _leaves(group: BaseExceptionGroup[Undecidable]) -> Iterator[Undecidable]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
