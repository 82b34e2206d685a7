# SPDX-License-Identifier: Apache-2.0
"""Reads why a job of this cluster failed: the exit codes and last lines of its failed containers.

Owns when they are read, and how long a server that does not answer is asked: the end of a job waits `HOLD_SECONDS` at
most for them, so that it is reported with one write, and reading continues for `GIVE_UP_SECONDS`. Promises that the end
of a job is reported whatever the server answers, and that nothing is read twice. Rights to pods and their logs are
optional: without them the report says what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import anyio
import orjson

from multikueue.api.constants import BATCH_CONTROLLER_UID_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.conditions import truncate_message
from multikueue.core.keys import Key
from multikueue.core.printable import printable
from multikueue.dispatch.protocol.job_problems import MAX_LINES, MAX_LOG_BYTES, FailedContainer, JobFailure, last_lines
from multikueue.dispatch.worker.assignment_state import ReportedStatus
from multikueue.dispatch.worker.failed_pods import failed_containers
from multikueue.kube.errors import BadRequest, Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 3.0
GIVE_UP_SECONDS: Final = 60.0
_TRY_SECONDS: Final = 10.0
_READERS: Final = 4
_MOST_PODS: Final = 500
_READ_BYTES: Final = 4 * MAX_LOG_BYTES
"""Of one log in one request; the limit of the API counts from the first of the lines that are asked for."""
_TAILS: Final = (MAX_LINES, 10, 1)
_MESSAGE_LENGTH: Final = 400
_BACKOFF: Final = Backoff(base=0.5, factor=2.0, cap=10.0, jitter=0.3)


@dataclass(slots=True)
class _Reading:
    job: Key
    job_uid: str
    since: float
    selector: str
    """The labels of its pods."""
    failure: JobFailure | None = None
    done: bool = False
    tries: int = 0


class FailureReadings:
    """The failures of the jobs of one mailbox."""

    def __init__(
        self,
        client: KubeClient,
        *,
        may_list_pods: Callable[[], bool],
        may_read_logs: Callable[[], bool],
        read: Callable[[str], None],
        clock: Clock,
        random: Random,
    ) -> None:
        """`read` is called with each assignment whose failure was read."""
        self._client = client
        self._may_list_pods = may_list_pods
        self._may_read_logs = may_read_logs
        self._read = read
        self._clock = clock
        self._random = random
        self._readings: dict[str, _Reading] = {}
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=_BACKOFF, random=random)
        self._controller = Controller("failures", self.collect, workers=_READERS, queue=queue, clock=clock)

    def complete(
        self, name: str, job: Key, status: ReportedStatus, *, selector: str = ""
    ) -> tuple[ReportedStatus, float]:
        """`status` with the failure if the job failed, and for how many seconds it is not to be reported yet.

        `selector` are the labels of the job's pods; without one they are known by the uid of a Job.
        A failure that is not read by then is added to the status later.
        """
        failed = status.end is not None and status.end.reason == FinishedReason.FAILED and bool(status.job_uid)
        if status.phase is not AssignmentPhase.FINISHED or not failed or status.failure is not None:
            self._readings.pop(name, None)
            return status, 0.0
        reading = self._readings.get(name)
        if reading is None or reading.job_uid != status.job_uid:
            selector = selector or f"{BATCH_CONTROLLER_UID_LABEL}={status.job_uid}"
            reading = self._readings[name] = _Reading(job, status.job_uid, self._clock.monotonic(), selector)
            self._controller.enqueue(name)
        if reading.done:
            return replace(status, failure=reading.failure), 0.0
        return status, max(0.0, reading.since + HOLD_SECONDS - self._clock.monotonic())

    def forget(self, name: str) -> None:
        """The assignment is gone."""
        self._readings.pop(name, None)

    async def run(self) -> None:
        """Read until cancelled."""
        await self._controller.run()

    async def collect(self, name: str) -> Result | None:
        """Read the failure of one assignment; after how long to try again if the server has not answered."""
        reading = self._readings.get(name)
        if reading is None or reading.done:
            return None
        reading.tries += 1
        problem = f"no answer within {_TRY_SECONDS:.0f} s"
        try:
            with anyio.move_on_after(_TRY_SECONDS):
                reading.failure = await self._failed(reading)
                problem = await self._add_logs(reading)
        except KubeError as error:
            problem = _text(error)
        left = reading.since + GIVE_UP_SECONDS - self._clock.monotonic()
        if problem and left > 0:
            return Result(after=min(_BACKOFF.delay(reading.tries, self._random), left))
        if problem:
            _log.warning("cannot read why a job failed job=%s error=%s", reading.job, problem)
            reading.failure = _given_up(reading.failure, problem)
        reading.done = True
        if self._readings.get(name) is reading:
            self._read(name)
        return None

    async def _failed(self, reading: _Reading) -> JobFailure:
        """The failed containers without their logs. Raises `KubeError` for an answer that may change."""
        if reading.failure is not None and reading.failure.containers:
            return reading.failure
        if not self._may_list_pods():
            return JobFailure(problem="the agent may not list pods on the worker cluster")
        try:
            page = await self._client.list_page(
                PODS,
                namespace=reading.job.namespace,
                label_selector=reading.selector,
                field_selector="status.phase=Failed",
                limit=_MOST_PODS,
            )
        except (Forbidden, NotFound, BadRequest) as error:
            return JobFailure(problem=_text(error))
        unread = f"only {_MOST_PODS} of its failed pods were read" if page.continue_token else ""
        return failed_containers([_parsed(raw) for raw in page.items], unread=unread)

    async def _add_logs(self, reading: _Reading) -> str:
        """Add the last lines of each container; why some of them may still be read later, or an empty string."""
        assert reading.failure is not None, "the containers were read"
        problem, left = "", MAX_LOG_BYTES
        found: list[FailedContainer] = []
        share = MAX_LOG_BYTES // max(1, len(reading.failure.containers))
        for index, container in enumerate(reading.failure.containers):
            completed = container
            # What the others do not use is for the last ones.
            most = max(share, left - share * (len(reading.failure.containers) - index - 1))
            if not container.log and not container.problem:
                try:
                    completed = await self._with_log(reading.job, container, most=most)
                except KubeError as error:
                    problem = _text(error)
            left -= len(completed.log.encode())
            found.append(completed)
            # A try that is cut short keeps what it has read.
            rest = reading.failure.containers[index + 1 :]
            reading.failure = replace(reading.failure, containers=(*found, *rest))
        return problem

    async def _with_log(self, job: Key, container: FailedContainer, *, most: int) -> FailedContainer:
        """With its last lines, or why it has none. Raises `KubeError` for an answer that may change."""
        if not self._may_read_logs():
            return replace(container, problem="the agent may not read logs on the worker cluster (get pods/log)")
        text = ""
        for lines in _TAILS:
            try:
                raw = await self._client.log(
                    container.pod,
                    namespace=job.namespace,
                    container=container.container,
                    tail=lines,
                    limit_bytes=_READ_BYTES,
                )
            except (Forbidden, NotFound, BadRequest) as error:
                return replace(container, problem=_text(error))
            text = raw[:_READ_BYTES].decode(errors="replace")
            if len(raw) < _READ_BYTES:
                break
            # Long lines: the answer has the first of them, and the last ones are wanted.
        return replace(container, log=last_lines(text, most=most), problem="" if text else "it wrote nothing")


def _given_up(failure: JobFailure | None, problem: str) -> JobFailure:
    text = f"could not be read within {GIVE_UP_SECONDS:.0f} s: {problem}"
    if failure is None or not failure.containers:
        return JobFailure(problem=f"the failed pods {text}")
    containers = (
        each if each.log or each.problem else replace(each, problem=f"the log {text}") for each in failure.containers
    )
    return replace(failure, containers=tuple(containers))


def _parsed(raw: bytes) -> JsonObject:
    try:
        pod = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return pod if isinstance(pod, dict) else {}


def _text(error: KubeError) -> str:
    return truncate_message(printable(str(error)[:_MESSAGE_LENGTH]), _MESSAGE_LENGTH)
