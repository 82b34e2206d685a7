# SPDX-License-Identifier: Apache-2.0
"""Why the remote jobs that run have no pod yet.

Owns which jobs are looked at, how often, and the last problem found of each; the cause is found by
`jobs.framework.pod_starts`. A job is looked at some seconds after it was first seen running without a started pod, then
with growing pauses until a pod has started. Without the right to list pods or events, only those causes are found that
the other one shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import anyio
import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import EVENTS, PODS, Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import StartProblem
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.jobs.framework.pod_starts import needs_events, same_cause, start_problem
from multikueue.kube.errors import Forbidden, KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue
from worker_agent.local.jobs import RemoteJobs

_log = logging.getLogger(__name__)

_LOOKS_AT_ONCE: Final = 10
_LOOKS_PER_SECOND: Final = 10.0  # on average, after the first: thousands of jobs may wait for capacity
_LONGEST_PAUSE: Final = 12
_ANSWER_SECONDS: Final = 15.0
_MOST_PODS: Final = 50
_MOST_EVENTS: Final = 50


@dataclass(slots=True)
class _FollowedJob:
    jobs: RemoteJobs
    key: Key
    uid: str
    since: float
    problem: StartProblem | None
    looks: int = 0


class PodStarts:
    """The jobs of one cluster that run without a started pod, by assignment."""

    def __init__(
        self,
        client: KubeClient,
        *,
        may_list: Callable[[Resource], bool],
        changed: Callable[[str], None],
        seconds: float,
        clock: Clock,
        random: Random,
    ) -> None:
        """`changed` is called with each assignment whose problem changed; `seconds` pass until the first look."""
        self._client = client
        self._may_list = may_list
        self._changed = changed
        self._clock = clock
        self._random = random
        self._seconds = seconds
        self._pause = Backoff(base=seconds, factor=2.0, cap=_LONGEST_PAUSE * seconds, jitter=0.2)
        self._followed: dict[str, _FollowedJob] = {}
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=self._pause, random=random)
        self._controller = Controller("pod-starts", self.look, workers=_LOOKS_AT_ONCE, queue=queue, clock=clock)

    async def run(self) -> None:
        """Look until cancelled."""
        await self._controller.run()

    def complete(
        self,
        name: str,
        jobs: RemoteJobs | None,
        job: JsonObject | None,
        status: ReportedStatus,
        *,
        reported: ReportedStatus,
    ) -> ReportedStatus:
        """`status` with the problem of the job, which is followed from now on, or no longer.

        `reported` is the last status, from which a new agent continues.
        """
        if jobs is None or job is None or not _may_lack_pods(jobs, job, status):
            self.forget(name)
            return status if status.start_problem is None else replace(status, start_problem=None)
        metadata: JsonObject = job["metadata"]
        followed = self._followed.get(name)
        if followed is None or followed.uid != metadata["uid"]:
            same = (reported.epoch, reported.job_uid) == (status.epoch, metadata["uid"])
            followed = self._followed[name] = _FollowedJob(
                jobs=jobs,
                key=Key(metadata["namespace"], metadata["name"]),
                uid=metadata["uid"],
                since=self._clock.monotonic(),
                problem=reported.start_problem if same else None,
            )
            self._controller.queue.add_after(name, self._seconds)
        return replace(status, start_problem=followed.problem)

    def forget(self, name: str) -> None:
        """Look no longer at the job of this assignment."""
        self._followed.pop(name, None)

    async def look(self, name: str) -> Result | None:
        """Look at the pods of one job once."""
        followed = self._followed.get(name)
        job = None if followed is None else followed.jobs.get(followed.key)
        if followed is None or job is None or job["metadata"]["uid"] != followed.uid:
            return None
        followed.looks += 1
        try:
            with anyio.fail_after(_ANSWER_SECONDS):
                found = await self._find(followed, job)
        except (KubeError, TimeoutError) as error:
            _log.debug("cannot look at pods assignment=%s error=%s", name, str(error) or "no answer in time")
            return self._again(followed)
        if self._followed.get(name) is not followed:
            return None
        before = followed.problem
        if before is not None and found is not None and same_cause(before, found):
            found = before
        if found != before:
            followed.problem = None if found is None else replace(found, since=self._clock.now())
            _log.info(
                "start of pods job=%s problem=%s message=%s",
                followed.key,
                "none" if found is None else found.reason,
                "" if found is None else found.message,
            )
            self._changed(name)
        return self._again(followed)

    def _again(self, followed: _FollowedJob) -> Result:
        pause = self._pause.delay(followed.looks, self._random)
        return Result(after=max(pause, len(self._followed) / _LOOKS_PER_SECOND))

    async def _find(self, followed: _FollowedJob, job: JsonObject) -> StartProblem | None:
        integration, namespace = followed.jobs.integration, followed.key.namespace
        selector = integration.pod_selector(job)
        pods: list[JsonObject] | None = None
        if selector:
            pods = await self._list(PODS, namespace, label_selector=selector, limit=_MOST_PODS)
        if pods is None and integration.is_active(job):
            return None  # it has pods, which cannot be seen
        about = needs_events(pods) if pods else followed.uid
        events: list[JsonObject] | None = None
        if about:
            selected = f"regarding.uid={about}"
            events = await self._list(EVENTS, namespace, field_selector=selected, limit=_MOST_EVENTS)
        return start_problem(pods, events or (), waited=self._clock.monotonic() - followed.since)

    async def _list(
        self, resource: Resource, namespace: str, *, limit: int, label_selector: str = "", field_selector: str = ""
    ) -> list[JsonObject] | None:
        """The objects of one page; None if they may not be listed."""
        if not self._may_list(resource):
            return None
        try:
            page = await self._client.list_page(
                resource,
                namespace=namespace,
                label_selector=label_selector or None,
                field_selector=field_selector or None,
                limit=limit,
            )
        except Forbidden:
            return None  # the rights note it themselves
        found = (orjson.loads(raw) for raw in page.items)
        return [each for each in found if isinstance(each, dict)]


def _may_lack_pods(jobs: RemoteJobs, job: JsonObject, status: ReportedStatus) -> bool:
    return (
        status.phase is AssignmentPhase.RUNNING
        and "deletionTimestamp" not in job["metadata"]
        and not jobs.integration.is_suspended(job)
        and not jobs.integration.pods_started(job)
    )
