# SPDX-License-Identifier: Apache-2.0
"""Whether the objects that the pods of a job name are on this cluster (ADR 0020).

Owns the requests, what was found for each job, and when it is looked for again. Only names are asked for: an answer has
the metadata of an object, never its content. A kind that the agent may not get is not checked. A failure of the API
server is raised, since nothing is known then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import DEPENDENCY_MISSING, Obstacle
from multikueue.dispatch.worker.dependencies import DEPENDENCY_KINDS, Dependency, missing_message
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.local.jobs import RemoteJobKey

FOUND_SECONDS: Final = 10.0  # from the reservation to the grant it is not asked again
_AGAIN: Final = Backoff(base=1.0, factor=2.0, cap=30.0, jitter=0.2)


@dataclass(frozen=True, slots=True)
class _Finding:
    asked: tuple[Dependency, ...]
    missing: tuple[Dependency, ...]
    until: float
    attempts: int


class DependencyChecks:
    """What the jobs of one cluster lack."""

    def __init__(
        self, client: KubeClient, *, may_get: Callable[[Resource], bool], clock: Clock, random: Random
    ) -> None:
        self._client = client
        self._may_get = may_get
        self._clock = clock
        self._random = random
        self._findings: dict[RemoteJobKey, _Finding] = {}

    def kinds(self) -> list[str]:
        """The kinds that are looked for, for a ClusterReport."""
        return [kind for kind, resource in DEPENDENCY_KINDS.items() if self._may_get(resource)]

    async def look(self, job: RemoteJobKey, needed: Iterable[Dependency]) -> None:
        """Look for the objects that the pods of the job need, unless that was done a short time ago.

        Raises `KubeError` if the API server does not answer; what was found before is kept.
        """
        asked = tuple(each for each in needed if self._may_get(DEPENDENCY_KINDS[each.kind]))
        before = self._findings.get(job)
        if not asked:
            self._findings.pop(job, None)
            return
        now = self._clock.monotonic()
        if before is not None and before.asked == asked and now < before.until:
            return
        missing = tuple([each for each in asked if not await self._exists(each, job.job)])
        attempts = before.attempts + 1 if missing and before is not None and before.missing else 1
        pause = _AGAIN.delay(attempts, self._random) if missing else FOUND_SECONDS
        self._findings[job] = _Finding(asked, missing, self._clock.monotonic() + pause, attempts)

    def obstacle(self, job: RemoteJobKey) -> Obstacle | None:
        """What the job lacked when it was last looked for; None if nothing."""
        finding = self._findings.get(job)
        if finding is None or not finding.missing:
            return None
        return Obstacle(DEPENDENCY_MISSING, missing_message(job.job.namespace, finding.missing))

    def retry_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until it is looked for again; None if nothing is missing."""
        finding = self._findings.get(job)
        if finding is None or not finding.missing:
            return None
        return max(0.1, finding.until - self._clock.monotonic())

    def forget(self, job: RemoteJobKey) -> None:
        """Drop what was found for the job, whose assignment is gone."""
        self._findings.pop(job, None)

    async def _exists(self, each: Dependency, job: Key) -> bool:
        if not each.is_possible:
            return False
        try:
            await self._client.get(DEPENDENCY_KINDS[each.kind], each.name, namespace=job.namespace, metadata_only=True)
        except NotFound:
            return False
        except Forbidden:
            return True  # the rights note it themselves
        return True
