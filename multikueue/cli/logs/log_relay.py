# SPDX-License-Identifier: Apache-2.0
"""The logs of a job through the agent of its cluster, for a user who cannot reach that.

Creates a JobLogRequest, prints its chunks and confirms each, and removes it in the end. A request that ends early, as
after a restart of the agent, is followed by one for the rest, from the time of the last line on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import anyio
import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOB_LOG_REQUESTS, Resource
from multikueue.cli.logs.log_lines import LogLines
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import printable
from multikueue.dispatch.protocol.job_logs import INTERRUPTED, NO_CONTAINER, LogAnswer, LogQuery, read_answer
from multikueue.kube.errors import (
    Conflict,
    Forbidden,
    InternalError,
    KubeError,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
)
from multikueue.kube.rest.client import KubeClient

SILENCE_SECONDS: Final = 20.0
"""An agent that has not answered by then is not connected, or older than these requests."""
_POLL_SECONDS: Final = 0.2
_IDLE_POLL_SECONDS: Final = 1.0
_CLEANING_SECONDS: Final = 5.0
_RETRIED: Final = (Unreachable, TooManyRequests, Conflict, InternalError, ServiceUnavailable, ServerTimeout)


@dataclass(frozen=True, slots=True)
class RelayedEnd:
    """How a request ended: whether more can be read with another one, and why there is nothing more."""

    more: bool
    message: str


class LogRelayReader:
    """Reads one job through agents, also with one request after the other."""

    def __init__(
        self,
        hub: KubeClient,
        resource: Resource,
        job: Key,
        query: LogQuery,
        *,
        show: Callable[[Iterator[str], str, str], None],
        note: Callable[[str], None],
        silence: float = SILENCE_SECONDS,
    ) -> None:
        """`resource` is the kind of the job.

        `show` gets lines with the names of pod and container, `note` what else there is to say.
        """
        self._hub = hub
        self._resource = resource
        self._job = job
        self._query = query
        self._show = show
        self._note = note
        self._silence = silence
        self._lines: dict[tuple[str, str], LogLines] = {}
        self._silent = False
        """Whether a request ended without a line and without a reason: pods were read that had nothing to show."""
        self._lacking = ""
        """What the agent said of a pod without the container."""

    @property
    def has_shown(self) -> bool:
        """Whether a pod was read, which may have written nothing."""
        return bool(self._lines) or self._silent

    async def read(self, cluster: str) -> RelayedEnd:
        """Read with one request to its end. Raises `BadInput` and `KubeError`."""
        name = f"mkctl-{secrets.token_hex(6)}"
        body = {
            "apiVersion": JOB_LOG_REQUESTS.api_version,
            "kind": JOB_LOG_REQUESTS.kind,
            "metadata": {"name": name},
            "spec": {
                "job": {
                    "apiVersion": self._resource.api_version,
                    "kind": self._resource.kind,
                    "name": self._job.name,
                },
                **self._continued().wire(),
            },
        }
        try:
            made = orjson.loads(await self._hub.create(JOB_LOG_REQUESTS, body, namespace=self._job.namespace))
        except NotFound as error:
            raise BadInput(
                f"{self._resource.kind} {self._job} runs on cluster {cluster}, whose kubeconfig is not known here, and"
                f" the hub does not relay logs: its CRD {JOB_LOG_REQUESTS.qualified} is not installed; pass"
                f" --worker-kubeconfig FILE"
            ) from error
        except Forbidden as error:
            raise BadInput(
                f"cannot request the logs of {self._resource.kind} {self._job} from the agent of cluster {cluster}:"
                f" {error.message}; it needs the right to create {JOB_LOG_REQUESTS.qualified} and to get pods/log in"
                f" namespace {self._job.namespace} of the hub; or pass --worker-kubeconfig FILE"
            ) from error
        try:
            return await self._follow(made, cluster)
        finally:
            with anyio.move_on_after(_CLEANING_SECONDS, shield=True):
                await self._remove(name)

    def _continued(self) -> LogQuery:
        """The query, or that of what was not read yet."""
        times = [lines.last for lines in self._lines.values() if lines.last]
        if not times:
            return self._query
        for lines in self._lines.values():
            lines.reopened()
        # Lines of that time that were shown are left out by `LogLines`.
        return LogQuery.of({**replace(self._query, tail=None).wire(), "sinceTime": min(times)})

    async def _follow(self, request: JsonObject, cluster: str) -> RelayedEnd:
        name, read = str(request["metadata"]["name"]), 0
        began = anyio.current_time()
        pause, explained = _POLL_SECONDS, False
        while True:
            try:
                found = await self._hub.get_object(JOB_LOG_REQUESTS, name, namespace=self._job.namespace)
                answer, written = _shown(found)
                if written > read:
                    self._take(answer)
                    explained = explained or bool(answer.message)
                    read, pause = written, _POLL_SECONDS
                    if answer.ended:
                        if self._lacking and not self._lines:
                            raise BadInput(self._lacking)
                        self._silent = self._silent or not explained
                        for (pod, container), lines in self._lines.items():
                            if not answer.message.startswith(INTERRUPTED):
                                self._show(lines.end(), pod, container)
                        return RelayedEnd(answer.message.startswith(INTERRUPTED), answer.message)
                    await self._hub.patch(
                        JOB_LOG_REQUESTS, name, {"spec": {"cursor": read}}, namespace=self._job.namespace
                    )
                    continue
            except NotFound:
                return RelayedEnd(read > 0, "the request was removed, since it was not used for two minutes")
            except _RETRIED as error:
                self._note(f"cannot read the hub, trying again: {error}")
            if not read and anyio.current_time() - began >= self._silence:
                raise BadInput(
                    f"the agent of cluster {cluster} has not answered within {self._silence:.0f} s: it is not connected"
                    f" or older than this mkctl (mkctl cluster describe {cluster}); pass --worker-kubeconfig FILE to"
                    f" read the cluster directly"
                )
            await anyio.sleep(pause)
            pause = min(_IDLE_POLL_SECONDS, pause * 1.5)

    def _take(self, answer: LogAnswer) -> None:
        wanted = self._query.container
        if wanted and answer.message.endswith(f" {NO_CONTAINER} {wanted}"):
            if not self._query.all_pods:
                raise BadInput(answer.message)
            self._lacking = answer.message
        if answer.message and not answer.message.startswith(INTERRUPTED):
            self._note(answer.message)
        if answer.pod:
            lines = self._lines.setdefault((answer.pod, answer.container), LogLines())
            self._show(lines.add(answer.text.encode()), answer.pod, answer.container)

    async def _remove(self, name: str) -> None:
        try:
            await self._hub.delete(JOB_LOG_REQUESTS, name, namespace=self._job.namespace)
        except NotFound:
            return
        except KubeError as error:
            # The manager removes it two minutes later.
            self._note(f"JobLogRequest {name} not removed: {printable(str(error))}")


def _shown(request: JsonObject) -> tuple[LogAnswer, int]:
    """The chunk that the request shows, and its number."""
    status: JsonObject = request.get("status") or {}
    written = parse_unsigned(status.get("cursor") or 0, field="status.cursor")
    return read_answer({**status, "request": str(request["metadata"]["uid"])}), written
