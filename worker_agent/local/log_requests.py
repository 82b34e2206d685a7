# SPDX-License-Identifier: Apache-2.0
"""Reads the logs of jobs of this cluster for users who cannot reach it.

Owns which requests are read now, and the chunk of each that was answered last: the next one is read when the user has
read that, so that a request has one chunk on the way and a connection that waits. Promises that a request that is gone
ends at once, that only pods of the job are read, and that no more than `AT_ONCE` requests are read at one time, a log
that is followed with a chunk a second at most. Rights to pods and their logs are optional: without them the answer
says so.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import orjson
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from multikueue.api.meta import JsonObject
from multikueue.api.resource import PODS, Resource
from multikueue.core.printable import printable
from multikueue.dispatch.protocol.job_logs import (
    INTERRUPTED,
    LogAnswer,
    LogQuery,
    answers_of,
    cut,
    readable,
    relayed_requests,
)
from multikueue.dispatch.protocol.job_problems import object_name
from multikueue.kube.errors import BadRequest, Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.pod_owners import MOST_OWNERS, LoggedPods, PodOwners

_log = logging.getLogger(__name__)

AT_ONCE: Final = 32
"""Requests that are read at one time; others wait."""
WINDOW_SECONDS: Final = 1.0
"""For so long lines are collected for one chunk."""
_LOOK_SECONDS: Final = 1.0
_UNREAD_SECONDS: Final = 180.0
"""After so long without a sign of the user a request is given up; the hub removes it earlier."""
_ANSWER_SECONDS: Final = 15.0
_MOST_PODS: Final = 500
_MOST_STREAMS: Final = 50
_MESSAGE_LENGTH: Final = 400
NO_PODS: Final = "The job has no pods on the worker cluster (any more)"
MAY_NOT_LIST: Final = "The agent may not list pods on the worker cluster"
MAY_NOT_READ: Final = "The agent may not read logs on the worker cluster (get pods/log)"


@dataclass(slots=True)
class _Reading:
    """One request that is read."""

    assignment: str
    uid: str
    """Of the assignment."""
    request: str
    query: LogQuery
    pods: LoggedPods
    cursor: int
    owners: PodOwners
    over: bool = False
    """Whether the job has ended, so that no pod follows."""
    noted: bool = False
    """Whether the user was told that pods are left out."""
    answer: LogAnswer | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A part of the log of one container, or a note about it."""

    pod: str = ""
    container: str = ""
    text: str = ""
    note: str = ""
    interrupted: bool = False


Pieces = MemoryObjectSendStream[_Piece]


class LogRequests:
    """The requests for logs in the assignments of one mailbox."""

    def __init__(
        self,
        client: KubeClient,
        *,
        may_list_pods: Callable[[], bool],
        may_read_logs: Callable[[], bool],
        answered: Callable[[str, str, tuple[LogAnswer, ...]], None],
        owner_kinds: Iterable[Resource] = (),
        at_once: int = AT_ONCE,
    ) -> None:
        """`answered` is called with name and uid of an assignment and the current chunk of each of its requests.

        `owner_kinds` are the kinds of jobs that the agent may read: owners of pods of these are followed to the job.
        """
        self._owner_kinds = tuple(owner_kinds)
        self._client = client
        self._may_list_pods = may_list_pods
        self._may_read_logs = may_read_logs
        self._answered = answered
        self._slots = anyio.CapacityLimiter(at_once)
        self._readings: dict[str, dict[str, _Reading]] = {}
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for readings in self._readings.values():
                    for reading in readings.values():
                        if reading.answer is None:
                            tasks.start_soon(self._serve, reading)
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            self._readings.clear()

    def update(self, name: str, assignment: JsonObject, *, pods: LoggedPods | None, over: bool) -> None:
        """Take over the requests of an assignment; without `pods`, of one whose job does not exist here."""
        wanted = {} if pods is None else {each.request: each for each in relayed_requests(assignment)}
        readings = self._readings.get(name, {})
        if not wanted and not readings:
            return
        uid = str(assignment["metadata"]["uid"])
        for request, reading in list(readings.items()):
            each = wanted.get(request)
            if each is None or (reading.uid, reading.pods, reading.query) != (uid, pods, each.query):
                reading.scope.cancel()
                del readings[request]
            elif pods is not None:
                reading.pods = pods
                reading.over = over
                reading.cursor = max(reading.cursor, each.cursor)
                reading.wake()
        for request, each in wanted.items():
            if request not in readings and pods is not None:
                owners = PodOwners(self._client, self._owner_kinds)
                reading = _Reading(name, uid, each.request, each.query, pods, each.cursor, owners, over)
                self._start(reading, earlier=answers_of(assignment))
        self._publish(name, uid)
        if not self._readings.get(name):
            self._readings.pop(name, None)

    def reads(self, name: str) -> bool:
        """Whether there is a request for the assignment."""
        return name in self._readings

    def forget(self, name: str) -> None:
        """The assignment is gone."""
        for reading in self._readings.pop(name, {}).values():
            reading.scope.cancel()

    def _start(self, reading: _Reading, *, earlier: Iterable[LogAnswer]) -> None:
        self._readings.setdefault(reading.assignment, {})[reading.request] = reading
        answered = (each.cursor for each in earlier if each.request == reading.request)
        before = max(reading.cursor, *answered, 0)
        if before:
            # By an earlier process, which knew how far it has read.
            reading.answer = LogAnswer(request=reading.request, cursor=before + 1, ended=True, message=INTERRUPTED)
        elif self._tasks is not None:
            self._tasks.start_soon(self._serve, reading)

    def _publish(self, name: str, uid: str) -> None:
        found = (reading.answer for reading in self._readings.get(name, {}).values())
        self._answered(name, uid, tuple(answer for answer in found if answer is not None))

    async def _serve(self, reading: _Reading) -> None:
        """Read for one request to its end; raises nothing but cancellation."""
        with reading.scope:
            async with self._slots:
                _log.debug("reading logs for a user pods=%s request=%s", reading.pods.namespace, reading.request)
                send, receive = anyio.create_memory_object_stream[_Piece](0)
                async with receive, anyio.create_task_group() as tasks:
                    tasks.start_soon(self._find, reading, send)
                    with anyio.move_on_after(_UNREAD_SECONDS) as patience:
                        await self._answer_all(reading, receive, patience)
                    tasks.cancel_scope.cancel()

    async def _answer_all(
        self, reading: _Reading, receive: MemoryObjectReceiveStream[_Piece], patience: anyio.CancelScope
    ) -> None:
        """Answer chunk by chunk, each once the one before was read."""
        rest: _Piece | None = None
        ended = False
        while not ended:
            started = anyio.current_time()
            first, rest, ended = await _collect(receive, rest, may_be_empty=reading.answer is None)
            reading.answer = LogAnswer(
                request=reading.request,
                cursor=reading.cursor + 1,
                pod=first.pod,
                container=first.container,
                text=first.text,
                message=first.note,
                ended=ended,
            )
            self._publish(reading.assignment, reading.uid)
            awaited = reading.answer.cursor
            while reading.cursor < awaited:
                await reading.changed.wait()
            patience.deadline = anyio.current_time() + _UNREAD_SECONDS
            if not ended and reading.query.follow:
                # Whatever the user asks for, and however fast.
                await anyio.sleep(max(0.0, started + WINDOW_SECONDS - anyio.current_time()))

    async def _find(self, reading: _Reading, send: Pieces) -> None:
        """Pass on the logs of the pods of the job: of one, or of all; while following, also of those to come."""
        seen: set[str] = set()
        async with send, anyio.create_task_group() as tasks:
            while True:
                over = reading.over
                pods = await self._pods(reading, send)
                if pods is None:
                    return
                fresh = [pod for pod in pods if pod["metadata"]["uid"] not in seen]
                if fresh and reading.query.all_pods:
                    left = max(0, _MOST_STREAMS - len(seen))
                    for pod in fresh[:left]:
                        if reading.query.follow:
                            tasks.start_soon(self._stream, reading, pod, send)
                        else:
                            await self._stream(reading, pod, send)
                    if fresh[left:]:
                        note = f"{len(fresh[left:])} pods were left out: {_MOST_STREAMS} are read at most"
                        await send.send(_Piece(note=note))
                elif fresh and (reading.query.follow or not seen):
                    await self._stream(reading, _preferred(fresh), send)
                seen.update(pod["metadata"]["uid"] for pod in fresh)
                if not reading.query.follow or (over and not fresh) or (reading.query.pod and seen):
                    break
                await anyio.sleep(_LOOK_SECONDS)
            if not seen:
                await send.send(_Piece(note=NO_PODS))

    async def _pods(self, reading: _Reading, send: Pieces) -> list[JsonObject] | None:
        """The pods of the job, oldest first; None if they cannot be listed, which the user is told."""
        if not self._may_list_pods():
            await send.send(_Piece(note=MAY_NOT_LIST))
            return None
        if not reading.pods.selector:
            return []
        try:
            with anyio.fail_after(_ANSWER_SECONDS):
                page = await self._client.list_page(
                    PODS,
                    namespace=reading.pods.namespace,
                    label_selector=reading.pods.selector,
                    limit=_MOST_PODS,
                )
            own: list[JsonObject] = []
            for pod in map(orjson.loads, page.items):
                with anyio.fail_after(_ANSWER_SECONDS):
                    # A label is not enough: users of this cluster may give it to any pod.
                    if await reading.owners.lead_to(reading.pods, pod):
                        own.append(pod)
        except TimeoutError:
            await send.send(_Piece(note="The worker cluster does not answer", interrupted=True))
            return None
        except KubeError as error:
            note = MAY_NOT_LIST if isinstance(error, Forbidden) else _text(error)
            await send.send(_Piece(note=note, interrupted=not isinstance(error, Forbidden)))
            return None
        if reading.owners.left_out and not reading.noted:
            reading.noted = True
            await send.send(_Piece(note=f"Pods were left out: {MOST_OWNERS} owners of pods are read at most"))
        if reading.query.pod:
            own = [pod for pod in own if pod["metadata"]["name"] == reading.query.pod]
        return sorted(own, key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), pod["metadata"]["name"]))

    async def _stream(self, reading: _Reading, pod: JsonObject, send: Pieces) -> None:
        """Pass on the log of one container of the pod."""
        query, name = reading.query, str(pod["metadata"]["name"])
        container = _container(pod, query.container)
        if not self._may_read_logs():
            await send.send(_Piece(note=MAY_NOT_READ))
            return
        if not container:
            await send.send(_Piece(note=f"Pod {printable(name)} has no container {query.container}"))
            return
        noted = ""
        while True:
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            pieces = self._client.stream_log(
                name,
                namespace=reading.pods.namespace,
                container=container,
                tail=query.tail,
                follow=query.follow,
                since=query.since or None,
            )
            part = _Piece(pod=name, container=container)
            try:
                async for piece in pieces:
                    await send.send(replace(part, text=readable(decoder.decode(piece))))
                return
            except BadRequest as error:
                # It has not started, and may never.
                if noted != error.message:
                    noted = error.message
                    await send.send(replace(part, note=_text(error)))
                if not query.follow or reading.over:
                    return
            except Forbidden:
                await send.send(_Piece(note=MAY_NOT_READ))
                return
            except NotFound as error:
                await send.send(replace(part, note=_text(error)))
                return
            except KubeError as error:
                await send.send(replace(part, note=_text(error), interrupted=True))
                return
            finally:
                await pieces.aclose()
            await anyio.sleep(_LOOK_SECONDS)


async def _collect(
    receive: MemoryObjectReceiveStream[_Piece], rest: _Piece | None, *, may_be_empty: bool
) -> tuple[_Piece, _Piece | None, bool]:
    """The next chunk as one piece, what is left over for the one after it, and whether it is the last chunk.

    It has the lines of one container and of a short time, which begins with the first of them unless it may be empty.
    """
    taken, ended = rest or _Piece(), False
    left: _Piece | None = None
    text, waiting = cut(taken.text)
    patience = None if rest is None and not may_be_empty else WINDOW_SECONDS
    with anyio.move_on_after(patience) as window:
        while not waiting and not taken.note:
            try:
                piece = await receive.receive()
            except anyio.EndOfStream:
                ended = True
                break
            if patience is None:
                patience, window.deadline = WINDOW_SECONDS, anyio.current_time() + WINDOW_SECONDS
            if (taken.pod or taken.note) and (piece.pod, piece.container) != (taken.pod, taken.container):
                left = piece
                break
            taken = piece
            text, waiting = cut(text + piece.text)
    if waiting:
        left = replace(taken, text=waiting, note="", interrupted=False)
    if taken.interrupted:
        return replace(taken, text=text, note=f"{INTERRUPTED}: {taken.note}"), None, True
    return replace(taken, text=text), left, ended


def _container(pod: JsonObject, wanted: str) -> str:
    """The container that is read: the wanted one, else the first; empty if there is none of that name."""
    spec: JsonObject = pod.get("spec") or {}
    named = [each.get("name") for part in ("containers", "initContainers") for each in spec.get(part) or ()]
    found = [name for name in map(object_name, named) if name and (not wanted or name == wanted)]
    return found[0] if found else ""


def _preferred(pods: Iterable[JsonObject]) -> JsonObject:
    """The newest pod that runs, else the newest that has started, else the newest."""
    ranks = {"Running": 3, "Failed": 2, "Succeeded": 2}
    ranked = [
        (ranks.get(str((pod.get("status") or {}).get("phase")), 1), number, pod) for number, pod in enumerate(pods)
    ]
    return max(ranked, key=lambda each: each[:2])[2]


def _text(error: KubeError) -> str:
    return printable(str(error)[:_MESSAGE_LENGTH])
