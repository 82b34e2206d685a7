# SPDX-License-Identifier: Apache-2.0
"""Jobs that the queueing engine of the worker is to stop, since their clones were deactivated.

The engine stops such a job and would resume one that is suspended beside an active clone, so it goes first. Promises
that the agent stops the job itself if the engine has not done so in `ENGINE_SECONDS`, because it does not run, or if
the agent may not deactivate the clone: work that is preempted or fenced is stopped in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multikueue.core.clock import Clock
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.queueing.queued_work import CloneSpec

ENGINE_SECONDS: Final = 5.0
"""How long the engine has; an ordinary one needs a fraction of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStop:
    """Who stops a job: the engine, which has `seconds` left, or with 0 the agent, which may have to delete the job."""

    seconds: float = 0.0
    by_deletion: bool = False


class EngineStops:
    """The jobs of one mailbox for which the engine is waited."""

    def __init__(self, clones: Clones, *, clock: Clock) -> None:
        self._clones = clones
        self._clock = clock
        self._since: dict[str, tuple[int, float]] = {}

    async def stop(self, clone: CloneSpec, *, suspended: bool) -> EngineStop:
        """Deactivate the clone of a job that is to stop; who stops the job then. Without a clone the agent does.

        A `suspended` job that may still be started is deleted in the end: it names another Workload than its clone.
        """
        deactivated = await self._clones.deactivate(clone)
        if deactivated is None or not (deactivated or suspended):
            # Beside a clone that the agent may not deactivate the engine would resume a suspended job.
            return EngineStop(by_deletion=deactivated is None)
        now = self._clock.monotonic()
        epoch, since = self._since.get(clone.assignment, (0, now))
        if epoch != clone.epoch:
            self._since[clone.assignment] = clone.epoch, now
            since = now
        seconds = max(0.0, since + ENGINE_SECONDS - now)
        return EngineStop(seconds=seconds, by_deletion=suspended and seconds == 0)

    def forget(self, assignment: str) -> None:
        """The assignment is gone."""
        self._since.pop(assignment, None)
