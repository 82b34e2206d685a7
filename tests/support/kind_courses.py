# SPDX-License-Identifier: Apache-2.0
"""The course of one kind at one place: what was seen of its jobs when each cell was reached.

All courses of a federation are played beside each other, and ended before a test reads them: a federation for each
cell would take an hour. A cell that is not reached is kept as its error, and its test fails with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from multikueue.api.constants import PARTITION_POLICY_ANNOTATION, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from multikueue.kube.errors import KubeError
from tests.support.kind_federations import (
    LOCAL,
    NAMESPACE,
    PULL,
    KindFederation,
    Seen,
    open_queue,
    queue_of,
    remove,
)
from tests.support.managers import Object, condition, is_true
from tests.support.operators.played_kinds import Cell, PlayedKind

_QUICK: Final = "200ms"


@dataclass
class Course:
    """What was seen of the jobs of one kind at one place."""

    kind: PlayedKind
    place: str
    stored: Object = field(default_factory=dict)
    """The job of low priority as it was stored, which is preempted later."""
    reached: dict[Cell, Seen] = field(default_factory=dict)
    failure: str = ""

    def seen(self, cell: Cell) -> Seen:
        """What was seen at that cell. Raises `AssertionError` if it was not reached."""
        assert cell in self.reached, self.failure
        return self.reached[cell]

    def name(self, job: str) -> str:
        return f"{self.place}-{self.kind.resource.plural}-{job}"


async def play(federation: KindFederation, courses: Sequence[Course]) -> None:
    """Play all courses to their ends; errors of one end that one only."""
    async with anyio.create_task_group() as tasks:
        for course in courses:
            tasks.start_soon(_kept, _Play(federation, course).run, course)
    fenced = [each for each in courses if each.place == PULL and not each.failure]
    if not fenced:
        return
    async with anyio.create_task_group() as tasks:
        for course in fenced:
            tasks.start_soon(_kept, _Play(federation, course).run_for_fence, course)
    await federation.links[PULL].refuse()
    async with anyio.create_task_group() as tasks:
        for course in fenced:
            tasks.start_soon(_kept, _Play(federation, course).fence, course)


async def play_on_worker(federation: KindFederation, courses: Sequence[Course]) -> None:
    """Run one job of each course until its user removes it, another one to its end, and one of a foreign controller."""
    async with anyio.create_task_group() as tasks:
        for course in courses:
            tasks.start_soon(_kept, _Play(federation, course).run_on_worker, course)


async def _kept(run: Callable[[], Awaitable[None]], course: Course) -> None:
    try:
        if not course.failure:
            await run()
    except (AssertionError, KubeError) as error:
        course.failure = f"{course.kind.kind}: {error}"


class _Play:
    def __init__(self, federation: KindFederation, course: Course) -> None:
        self._federation = federation
        self._course = course
        self._kind = course.kind
        self._is_remote = course.place != LOCAL

    async def run(self) -> None:
        kind, course = self._kind, self._course
        low, high = course.name("low"), course.name("high")
        course.stored = await self._submit("low", run_for="forever")
        await self._reach(Cell.QUEUED, low, lambda seen: bool(condition(seen.workload, "QuotaReserved")))
        await open_queue(self._federation.hub, kind, course.place)
        await self._reach(Cell.ADMITTED, low, lambda seen: is_true(seen.workload, "Admitted"))
        if self._is_remote:
            await self._reach(Cell.DISPATCHED, low, lambda seen: seen.remote is not None)
        await self._reach(Cell.SELECTORS_INJECTED, low, self._is_running)
        if self._is_remote:
            await self._reach(Cell.SHOWN, low, self._is_shown)
        # It runs until it is removed: what it preempts is not stopped for long otherwise.
        await self._submit("high", run_for="forever", priority="high")
        await self._reach(Cell.SUSPENDED, low, self._is_stopped)
        await self._until(high, "runs", self._is_running)
        await remove(self._federation, kind, high)
        if self._is_remote and not kind.ends:
            await self._reach(Cell.CLEANED_UP, high, self._is_cleaned_up)
        await self._reach(Cell.RESUMED, low, self._is_resumed)
        await remove(self._federation, kind, low)
        if kind.ends:
            await self._submit("quick")
            await self._reach(Cell.FINISHED, course.name("quick"), self._has_ended)
            if self._is_remote:
                await self._reach(Cell.CLEANED_UP, course.name("quick"), self._is_cleaned_up)
            await self._submit("broken", fails=True)
            await self._reach(Cell.FAILED, course.name("broken"), self._has_ended)
        await self._until(low, "gone", lambda seen: seen.remote is None and not seen.remote_pods and not seen.pods)

    async def run_on_worker(self) -> None:
        """All states of a job that runs on a worker, without preemption."""
        kind, course = self._kind, self._course
        await open_queue(self._federation.hub, kind, course.place)
        course.stored = await self._submit("runs", run_for="forever")
        await self._reach(Cell.DISPATCHED, course.name("runs"), lambda seen: seen.remote is not None)
        await self._reach(Cell.SHOWN, course.name("runs"), self._is_shown)
        await remove(self._federation, kind, course.name("runs"))
        await self._reach(Cell.CLEANED_UP, course.name("runs"), self._is_cleaned_up)
        await self._submit("other", managed_by="example.com/other")
        await self._reach(Cell.QUEUED, course.name("other"), _is_rejected)
        if kind.ends:
            await self._submit("ends")
            await self._reach(Cell.FINISHED, course.name("ends"), self._has_ended)
            await self._until(course.name("ends"), "gone from the worker", self._is_cleaned_up)
        course.reached[Cell.QUEUED] = self._federation.look(kind, course.name("other"), course.place)

    async def run_for_fence(self) -> None:
        """A job that is to be stopped when the hub is not reached."""
        await self._submit("fenced", run_for="forever", annotations={PARTITION_POLICY_ANNOTATION: "fenced"})
        await self._until(self._course.name("fenced"), "runs", self._is_running)

    async def fence(self) -> None:
        """The agent stops it."""
        await self._reach(
            Cell.FENCED,
            self._course.name("fenced"),
            lambda seen: seen.remote is not None and self._kind.is_suspended(seen.remote) and not seen.remote_pods,
        )

    async def _submit(
        self,
        job: str,
        *,
        run_for: str = _QUICK,
        fails: bool = False,
        priority: str = "",
        annotations: Object | None = None,
        managed_by: str = "",
    ) -> Object:
        marks = {"multikueue.io/run-for": run_for, **({"multikueue.io/exit-code": "1"} if fails else {})}
        body = self._kind.sample(self._course.name(job), marks)
        if managed_by:
            *parents, field_name = self._kind.managed_by
            holder = body
            for each in parents:
                holder = holder.setdefault(each, {})
            holder[field_name] = managed_by
        labels = {QUEUE_NAME_LABEL: queue_of(self._kind, self._course.place)}
        labels |= {PRIORITY_CLASS_LABEL: priority} if priority else {}
        body["metadata"] |= {"namespace": NAMESPACE, "labels": labels, "annotations": annotations or {}}
        return await self._federation.submit(self._kind, body)

    async def _reach(self, cell: Cell, name: str, holds: Callable[[Seen], bool]) -> None:
        self._course.reached[cell] = await self._until(name, cell, holds)

    async def _until(self, name: str, what: str, holds: Callable[[Seen], bool]) -> Seen:
        return await self._federation.until(self._kind, name, self._course.place, what, holds)

    def _is_running(self, seen: Seen) -> bool:
        """Whether all pods are ready where they belong."""
        pods = seen.remote_pods if self._is_remote else seen.pods
        return len(pods) == self._kind.pods and all(is_true(each, "Ready") for each in pods)

    def _is_cleaned_up(self, seen: Seen) -> bool:
        return seen.remote is None and not seen.remote_pods

    def _is_resumed(self, seen: Seen) -> bool:
        return self._is_running(seen) and seen.job is not None and not self._kind.is_suspended(seen.job)

    def _is_shown(self, seen: Seen) -> bool:
        """Whether the hub has the remote status of a running job."""
        if seen.job is None or seen.remote is None or not seen.remote.get("status"):
            return False
        is_same = bool(seen.job.get("status") == seen.remote["status"])
        return is_same and is_true(seen.workload, "PodsReady") and self._is_running(seen)

    def _has_ended(self, seen: Seen) -> bool:
        return is_true(seen.workload, "Finished") and seen.job is not None and bool(self._kind.ended_as(seen.job))

    def _is_stopped(self, seen: Seen) -> bool:
        """Whether it is preempted and suspended, and nothing of it runs anywhere."""
        return (
            is_true(seen.workload, "Evicted")
            and seen.job is not None
            and self._kind.is_suspended(seen.job)
            and seen.remote is None
            and not seen.remote_pods
            and not seen.pods
        )


def _is_rejected(seen: Seen) -> bool:
    """Whether its check was rejected; one that held quota is deactivated as well, and its check is reset."""
    return "Expecting spec.managedBy" in str((seen.workload or {}).get("status"))
