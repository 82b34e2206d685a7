# SPDX-License-Identifier: Apache-2.0
"""The logs of virtual containers, complete or followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from devcluster.apiserver.http.requests import Reply, Sink, Stream
from devcluster.kubelet.containers.programs import program_of
from devcluster.kubelet.lifecycle import PodLifecycle
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import parse_unsigned
from multikueue.core.timestamps import format_micro_time, parse_time

FindPod = Callable[[Key], tuple[JsonObject, PodLifecycle] | None]
_FOLLOW_SECONDS: Final = 0.2
_TEXT: Final = "text/plain; charset=utf-8"


def lines(pod: JsonObject, life: PodLifecycle, *, container: str) -> list[tuple[str, str]]:
    """Time and text of each line of a container's log."""
    node = pod["spec"]["nodeName"]
    output: list[tuple[str, str]] = []
    if life.started_at is not None:
        printed = _printed(pod, container) or (f"{container} started on virtual node {node}",)
        output += ((format_micro_time(life.started_at), text) for text in printed)
    if life.finished_at is not None and life.exit_code is not None and not _printed(pod, container):
        output.append((format_micro_time(life.finished_at), f"{container} ended with exit code {life.exit_code}"))
    return output


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """The log of one container."""

    find_pod: FindPod
    key: Key
    container: str

    def read(self) -> tuple[list[tuple[str, str]], bool]:
        """The lines so far, and whether there may be more."""
        found = self.find_pod(self.key)
        if found is None:
            return [], False
        return lines(*found, container=self.container), found[1].running or found[1].started_at is None


def log_lines(log: FollowedLog, query: Mapping[str, str]) -> Reply:
    """The reply to a log request. Raises `BadInput` for options that the API does not accept."""
    return Stream(_LogFeed(log, LogRange.of(query)), content_type=_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """What is sent of a log."""

    follow: bool = False
    stamped: bool = False
    tail: int | None = None
    most_bytes: int | None = None
    since: datetime | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """From the query of a request. Raises `BadInput`."""
        since, most_bytes = query.get("sinceTime"), _number(query, "limitBytes")
        if most_bytes == 0:
            raise BadInput("limitBytes: must be greater than 0")
        return cls(
            follow=query.get("follow") == "true",
            stamped=query.get("timestamps") == "true",
            tail=_number(query, "tailLines"),
            most_bytes=most_bytes,
            # As API servers pass it on.
            since=parse_time(since).replace(microsecond=0) if since else None,
        )


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    return parse_unsigned(text, field=name) if text else None


class _LogFeed:
    """Streams a log; a `requests.Feed`."""

    def __init__(self, log: FollowedLog, wanted: LogRange) -> None:
        self._log = log
        self._wanted = wanted
        self._left = wanted.most_bytes
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Start writing."""
        self._task = asyncio.get_running_loop().create_task(self._run(sink), name="container log")

    def stop(self) -> None:
        """Close: the client has disconnected."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, sink: Sink) -> None:
        output, more = self._log.read()
        shown = max(0, len(output) - self._wanted.tail) if self._wanted.tail is not None else 0
        while True:
            for time, text in output[shown:]:
                self._write(sink, time, text)
            shown = len(output)
            if not self._wanted.follow or not more or self._left == 0:
                break
            await asyncio.sleep(_FOLLOW_SECONDS)
            output, more = self._log.read()
        sink.close()

    def _write(self, sink: Sink, time: str, text: str) -> None:
        if self._left == 0 or (self._wanted.since is not None and parse_time(time) < self._wanted.since):
            return
        line = f"{time} {text}\n".encode() if self._wanted.stamped else f"{text}\n".encode()
        if self._left is not None:
            # The last line may be cut within.
            line = line[: self._left]
            self._left -= len(line)
        sink.write(line)


def _printed(pod: JsonObject, container: str) -> tuple[str, ...]:
    """The output of a known program."""
    for entry in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())):
        if entry["name"] == container:
            try:
                program = program_of(entry)
            except BadInput:
                return ()
            return program.output if program is not None else ()
    return ()
