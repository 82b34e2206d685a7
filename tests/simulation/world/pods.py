# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker cluster: the job controller and the nodes as one, seen from true time.

Owns the pods of every Job of one cluster: they start a moment after the Job asks for them, take a moment to end, and
their end is written into the Job's status. It is the truth that the invariants are checked against: a copy is live
while its pods run, whatever any API server says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final

import orjson

from devcluster.apiserver.http.requests import LOOPBACK, Answer, Request
from devcluster.apiserver.storage.entry import StoredChange
from multikueue.api.constants import EPOCH_ANNOTATION, PREBUILT_WORKLOAD_LABEL
from multikueue.core.conditions import is_true_in
from multikueue.core.timestamps import format_time
from tests.simulation.world.network import Server

JOBS: Final = "jobs.batch"
_END_SECONDS: Final = 3.0  # how long pods may take to end
START_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.5

Object = dict[str, Any]


class State(StrEnum):
    """Where the pods of one Job are."""

    IDLE = "idle"
    STARTING = "starting"
    LIVE = "live"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Copy:
    """One Job object on one cluster and its pods."""

    key: str
    uid: str
    workload: str = ""
    origin: str = ""
    """The uid of the object on the hub, of a pod that was sent by itself."""
    epoch: int = 0
    state: State = State.IDLE
    count: int = 1
    """How many pods it has in all; they start at once, and some of them may end before the others."""
    succeeded: int = 0
    restarts: int = 0
    """How often all of them were started anew since one had failed."""
    released: int = 0
    """How many had ended before that: others may have their quota, and a restart does not get it back."""
    wanted: bool = False
    timer: asyncio.TimerHandle | None = None
    status: Object = field(default_factory=dict)
    """What the Job's status is to say."""
    behind: bool = False
    """Whether that is still to be written."""
    ended: bool = False
    """Whether they ran to their end once; on a worker that was restored they may run again."""

    @property
    def left(self) -> int:
        """How many of its pods have not ended."""
        return self.count - self.succeeded

    @property
    def counted(self) -> int:
        """How many of them run on quota of their own."""
        return min(self.left, self.count - self.released)

    @property
    def live(self) -> bool:
        """Whether pods run."""
        return self.state in (State.LIVE, State.STOPPING)


class Pods:
    """All pods of one cluster."""

    collection = JOBS
    path = "/apis/batch/v1"

    def __init__(
        self,
        server: Server,
        random: Random,
        *,
        seconds: Callable[[str], float],
        tell: Callable[[str, Copy], None],
    ) -> None:
        """`seconds` is how long a job of that name runs; `tell` is called for each start and end."""
        self._server = server
        self._random = random
        self._seconds = seconds
        self._tell = tell
        self.copies: dict[str, Copy] = {}
        self._longest = float("inf")
        server.api.context.store.listen(self._on_write)

    def hurry(self, longest: float) -> None:
        """From now on no job takes longer than this: nothing more can be learned from waiting."""
        self._longest = longest
        for copy in self.copies.values():
            if copy.state is State.LIVE and copy.timer is not None:
                left = copy.timer.when() - asyncio.get_running_loop().time()
                self._move(copy, State.LIVE, min(left, self._random.uniform(0.0, longest)), self._complete)

    def end(self, job: str) -> None:
        """Let the pods of that job end well, now."""
        for copy in self._live(job):
            self._end(copy)

    def succeed(self, job: str, count: int) -> None:
        """Let so many pods of that job end well, and the others run on."""
        for copy in self._live(job):
            self._succeed(copy, count)

    def _live(self, job: str) -> list[Copy]:
        named = (copy for copy in self.copies.values() if copy.key.rpartition("/")[2] == job)
        return [copy for copy in named if copy.state is State.LIVE]

    def restored(self) -> None:
        """The server was restored from a backup: pods follow the Jobs that it has now; what had ended runs again."""
        stored = {job["metadata"]["uid"]: job for job in self._server.api.context.objects(self.collection)}
        for copy in self.copies.values():
            job = stored.get(copy.uid)
            if job is None:
                copy.wanted, copy.behind = False, False
            else:
                copy.status = job.get("status") or {}
                self._read(copy)
                if copy.state is State.ENDED and not self._has_ended(job):
                    copy.state = State.IDLE
                self._follow(copy, job)
                if copy.live:
                    # The backup may be of a moment before its start was written.
                    self._write(copy, self._running(copy))
            self._look(copy)

    def _read(self, copy: Copy) -> None:
        """Take what its status counts for true."""
        copy.succeeded = self._succeeded_in(copy.status)

    def _on_write(self, collection: str, event: StoredChange) -> None:
        if not self._concerns(collection, event):
            return
        job = event.value()
        uid = job["metadata"]["uid"]
        copy = self.copies.get(uid)
        if copy is None:
            copy = self.copies[uid] = Copy(event.key, uid)
        self._follow(copy, job)
        copy.wanted = copy.wanted and event.entry is not None
        # What is to follow is written by the controllers, each in its own turn, never within this write.
        asyncio.get_running_loop().call_soon(self._look, copy)

    def _concerns(self, collection: str, event: StoredChange) -> bool:
        return collection == JOBS

    def _follow(self, copy: Copy, job: Object) -> None:
        # A remote job that another hub adopts gets the annotations of that one.
        marks = job["metadata"].get("annotations") or {}
        copy.workload, copy.epoch = marks.get(PREBUILT_WORKLOAD_LABEL, ""), int(marks.get(EPOCH_ANNOTATION, 0))
        copy.wanted = not job["spec"].get("suspend") and not job["metadata"].get("deletionTimestamp")
        copy.count = self._count(job["spec"])

    def _count(self, spec: Object) -> int:
        return spec.get("completions") or 1

    def _look(self, copy: Copy) -> None:
        match copy.state, copy.wanted:
            case State.IDLE, True:
                self._move(copy, State.STARTING, self._random.uniform(0.05, START_SECONDS), self._start)
            case State.STARTING, False:
                self._move(copy, State.IDLE)
                self._settle(copy)
            case State.LIVE, False:
                self._move(copy, State.STOPPING, self._random.uniform(0.0, _END_SECONDS), self._stopped)
            case (State.IDLE, False) | (State.ENDED, _):
                self._settle(copy)

    def _move(self, copy: Copy, state: State, seconds: float = 0.0, then: Callable[[Copy], None] | None = None) -> None:
        if copy.timer is not None:
            copy.timer.cancel()
        copy.state = state
        copy.timer = None if then is None else asyncio.get_running_loop().call_later(seconds, then, copy)

    def _start(self, copy: Copy) -> None:
        seconds = min(self._longest, self._seconds(copy.key.rpartition("/")[2]))
        self._move(copy, State.LIVE, seconds, self._complete)
        self._tell("starts", copy)
        status = self._running(copy)
        if self._says_suspended(self._job(copy) or {}):
            status["conditions"] = [self._condition("Suspended", "False")]
        self._write(copy, status)

    def _complete(self, copy: Copy) -> None:
        if copy.left > 1 and not copy.succeeded and self._random.random() < 0.5:
            count = self._random.randint(1, copy.count - 1)
            self._move(copy, State.LIVE, min(self._longest, self._random.uniform(0.5, 10.0)), self._complete)
            self._succeed(copy, count)
            return
        self._end(copy)

    def _succeed(self, copy: Copy, count: int) -> None:
        copy.succeeded = count
        self._tell(f"complete: {copy.succeeded} of {copy.count}", copy)
        self._write(copy, self._running(copy))

    def _end(self, copy: Copy) -> None:
        self._move(copy, State.ENDED)
        copy.ended = True
        self._tell("completes", copy)
        self._write(copy, self._done(copy))

    def _stopped(self, copy: Copy) -> None:
        self._move(copy, State.IDLE)
        self._tell("stops", copy)
        self._look(copy)

    def _settle(self, copy: Copy) -> None:
        """No pods are left: say so, and let a Job go that waits for that."""
        job = self._job(copy)
        if job is None:
            return
        if job["metadata"].get("deletionTimestamp"):
            self._release(copy)
        elif copy.state is State.IDLE and not self._says_suspended(job):
            held = {"conditions": [self._condition("Suspended", "True")]}
            self._write(copy, {**self._suspended(copy), **held})

    # What the status says

    def _running(self, copy: Copy) -> Object:
        # On a worker that was restored the Job may have started before.
        started = {"active": copy.left, "ready": copy.left, "startTime": copy.status.get("startTime") or self._now()}
        return {**started, "succeeded": copy.succeeded} if copy.succeeded else started

    def _suspended(self, _: Copy) -> Object:
        return {"active": 0, "ready": 0, "startTime": None}

    def _succeeded_in(self, status: Object) -> int:
        return int(status.get("succeeded", 0))

    def _done(self, copy: Copy) -> Object:
        done = [self._condition(kind, "True") for kind in ("SuccessCriteriaMet", "Complete")]
        counts = {"active": 0, "ready": 0, "terminating": 0, "succeeded": copy.count}
        return {**counts, "completionTime": self._now(), "conditions": done}

    def _condition(self, kind: str, status: str) -> Object:
        now = self._now()
        return {"type": kind, "status": status, "lastProbeTime": now, "lastTransitionTime": now}

    def _has_ended(self, job: Object) -> bool:
        return is_true_in(job.get("status") or {}, "Complete")

    def _says_suspended(self, job: Object) -> bool:
        return is_true_in(job.get("status") or {}, "Suspended")

    def _job(self, copy: Copy) -> Object | None:
        job = self._server.api.context.get(self.collection, copy.key)
        return job if job is not None and job["metadata"]["uid"] == copy.uid else None

    def _release(self, copy: Copy) -> None:
        """The garbage collector has seen the pods go: the Job itself may."""
        if self._job(copy) is not None and not self._send(copy, "PATCH", "", {"metadata": {"finalizers": None}}):
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._release, copy)

    def _write(self, copy: Copy, status: Object) -> None:
        copy.status = {**copy.status, **status}
        if not copy.behind:
            self._catch_up(copy)

    def _catch_up(self, copy: Copy) -> None:
        """Write what the status is to say by now: of what happened while the server was away, only the outcome."""
        job = self._job(copy)
        if job is not None and not job["spec"].get("suspend") and copy.status.get("startTime", "") is None:
            copy.status = {}  # it was resumed before a status said that it stopped
        copy.behind = job is not None and not self._send(copy, "PATCH", "/status", {"status": copy.status})
        if copy.behind:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._catch_up, copy)

    def _send(self, copy: Copy, method: str, subresource: str, body: Object) -> bool:
        """Whether the API server took it, or has no such object any more."""
        if not self._server.up:
            return False
        namespace, _, name = copy.key.partition("/")
        answer = self._server.api.handle(
            Request(
                method=method,
                path=f"{self.path}/namespaces/{namespace}/{self.collection.partition('.')[0]}/{name}{subresource}",
                query_text="",
                headers={"content-type": f"application/{'merge-patch+' if method == 'PATCH' else ''}json"},
                body=orjson.dumps(body),
                certificate=LOOPBACK,
            )
        )
        assert isinstance(answer, Answer)
        if answer.status not in (200, 201, 404):
            raise RuntimeError(f"{self._server.name}: {method} {copy.key}{subresource}: {answer.body!r}")
        return True

    def _now(self) -> str:
        return format_time(self._server.api.context.now())
