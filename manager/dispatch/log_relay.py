# SPDX-License-Identifier: Apache-2.0
"""Passes requests for logs on to the agent of the cluster on which the job is, and its answers back.

Owns the JobLogRequests: which of them count, what their status shows, and when they are removed. A request counts if
the webhook has sealed it and it is one of the oldest of its namespace; it is read only from the assignment of the job
of that name in its own namespace. Promises that a namespace has one chunk for each of a few requests at most, whatever
users and workers write: a request ends after `MAX_BYTES` or `MAX_SECONDS`, and is removed when it has ended or was not
used for `IDLE_SECONDS`. A request for a pod of a group is read from the assignment of the group: that pod, or with
`allPods` all pods of the group.

Owns `spec.logs` of an assignment too, which the rest of dispatch leaves as it is; an assignment that is updated keeps
its requests, and one that is removed takes them along. That of a job that has ended is therefore not removed while a
request for it is open (`dispatch.hub.failed_jobs`, which bounds the time); a request that was interrupted, as by a
restart of manager or agent, counts until its user can have created the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from manager.cache.indexes import LOGGED_JOB_INDEX, NAMESPACE_INDEX, OWNER_INDEX, owner_term
from manager.context import ManagerContext
from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import JOB_LOG_REQUESTS, PODS, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.core.conditions import is_true_in, truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import parse_unsigned
from multikueue.dispatch.protocol.job_logs import (
    INTERRUPTED,
    MAX_REQUESTS,
    LogAnswer,
    LogQuery,
    RelayedRequest,
    answers_of,
    relayed_requests,
)
from multikueue.dispatch.protocol.wire import workload_of
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)
IDLE_SECONDS: Final = 120.0
"""A request whose cursor has not moved for so long is removed."""
MAX_SECONDS: Final = 900.0
"""A request ends after so long, and with it the right that was checked when it was created."""
MAX_BYTES: Final = 16 * 1024 * 1024
CONTINUE_SECONDS: Final = 5.0
"""Within which a user whose request was interrupted creates the next one."""
_WORKERS: Final = 4
_SKIPPED: Final = 2
"""A new agent that cannot continue skips the number of a chunk that was not passed on."""
NOT_SEALED: Final = "The manager did not check whether you may read logs; its webhooks are not installed"
AHEAD: Final = "spec.cursor is not the number of a chunk that was written"
NO_CLUSTER: Final = "The job is on no worker cluster now"


@dataclass(slots=True)
class _Progress:
    """How a request was used so far."""

    uid: str
    began: float
    inherited: bool = False
    """Whether an earlier process has passed on chunks of it; an agent in the memory of that process is gone."""
    cursors: tuple[int, int] = (0, 0)
    moved: float = 0.0
    sent: int = 0


class LogRelay:
    """The JobLogRequests of the hub."""

    def __init__(
        self, context: ManagerContext, assigned: AssignedLogRequests, released: Callable[[Key], None] = lambda key: None
    ) -> None:
        """`released` is called with a Workload that has finished, when the requests for its logs have changed."""
        self._released = released
        self._interrupted: dict[Key, float] = {}
        """The Workloads of requests that were interrupted and are gone, and until when another one is awaited."""
        self._context = context
        self._client = context.client
        self._clock = context.clock
        self._assigned = assigned
        self._requests = context.caches.view(JOB_LOG_REQUESTS)
        self._workloads = context.caches.view(WORKLOADS)
        self._progress: dict[Key, _Progress] = {}
        self._controller = Controller[Key](
            "job_log_request",
            self.reconcile,
            workers=_WORKERS,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=JOB_LOG_REQUESTS,
        )
        self._deliveries = Controller[Key](
            "job_log_delivery", self.deliver, workers=_WORKERS, clock=context.clock, metrics=context.metrics.controllers
        )

    @property
    def loops(self) -> tuple[Controller[Key], ...]:
        """What runs while this replica leads."""
        return self._controller, self._deliveries

    def attach(self) -> None:
        """Follow the requests, and remove those from assignments whose request is gone."""
        self._context.caches.subscribe(JOB_LOG_REQUESTS, self._on_request)
        for workload in self._assigned.with_requests():
            self._deliveries.enqueue(workload)

    def observed(self, workload: Key) -> None:
        """The assignment of the workload has changed, or the workload."""
        for key in self._requests_of(workload):
            self._controller.enqueue(key)

    async def reconcile(self, key: Key) -> Result | None:
        """Answer one request. Raises `KubeError`."""
        request = self._requests.object(key)
        if request is None or "deletionTimestamp" in request["metadata"]:
            self._progress.pop(key, None)
            return None
        progress = self._progress.get(key)
        now = self._clock.monotonic()
        if progress is None or progress.uid != request["metadata"]["uid"]:
            progress = _Progress(request["metadata"]["uid"], now, inherited=_cursors(request)[1] > 0, moved=now)
            self._progress[key] = progress
        read, written = _cursors(request)
        if (read, written) != progress.cursors:
            progress.cursors, progress.moved = (read, written), now
        status: JsonObject = request.get("status") or {}
        over = status.get("ended") is True and read >= written
        if over or self._is_surplus(key, request) or now - progress.moved >= IDLE_SECONDS:
            await self._delete(key, request)
            return None
        if status.get("ended") is not True:
            answer = self._answer(key, request, progress)
            if answer is not None:
                await self._write(key, request, answer)
                return Result(after=IDLE_SECONDS)
        return Result(after=max(0.0, progress.moved + IDLE_SECONDS - now))

    async def deliver(self, workload: Key) -> Result | None:
        """Have the requests for the job of that workload in its assignment. Raises `KubeError`."""
        obj = self._workloads.object(workload)
        cluster = _cluster_of(obj)
        if cluster:
            wanted = [self._relayed(key) for key in self._requests_of(workload)]
            found = sorted((each for each in wanted if each is not None), key=lambda each: each.request)
            await self._assigned.request(cluster, workload, found[:MAX_REQUESTS])
        if obj is not None and _has_ended(obj):
            self._released(workload)
        return None

    def read_for(self, workload: Key) -> float:
        """For how many seconds from now the logs of a Workload that has finished may still be read; 0 if by nobody."""
        requests = self._requests_of(workload)
        if any(_is_interrupted(self._requests.object(key)) or self._relayed(key) is not None for key in requests):
            return MAX_SECONDS
        return max(0.0, self._interrupted.get(workload, 0.0) - self._clock.monotonic())

    def _answer(self, key: Key, request: JsonObject, progress: _Progress) -> tuple[str, LogAnswer] | None:
        """The cluster and the chunk that the status is to show next; None while there is none."""
        uid, (read, written) = str(request["metadata"]["uid"]), progress.cursors
        shown = str((request.get("status") or {}).get("cluster") or "")

        def end(message: str, cluster: str = shown) -> tuple[str, LogAnswer]:
            return cluster, LogAnswer(request=uid, cursor=written + 1, ended=True, message=message)

        if not self._context.seals.honours_log_request(request):
            return end(NOT_SEALED)
        if read > written:
            return end(AHEAD)
        workload = self._workload_of(key, request)
        cluster = _cluster_of(workload)
        if workload is None or not cluster:
            return end(NO_CLUSTER)
        where = Key(key.namespace, str(workload["metadata"]["name"]))
        assignment = self._assigned.assignment(cluster, where)
        if assignment is None:
            if not _has_ended(workload):
                return None  # it is being sent there
            return end(f'Worker cluster "{cluster}" does not keep the job any more', cluster)
        if progress.inherited or (shown and shown != cluster):
            return end(INTERRUPTED)
        if read < written:
            return None  # the user has not read the last chunk
        if progress.sent >= MAX_BYTES:
            most = MAX_BYTES // 1024 // 1024
            message = f"The limit of {most} MiB for one request is reached; request the last lines with tailLines"
            return end(message, cluster)
        if self._clock.monotonic() - progress.began >= MAX_SECONDS:
            return end(INTERRUPTED, cluster)
        self._deliveries.enqueue(where)
        answer = next((each for each in answers_of(assignment) if each.request == uid), None)
        if answer is None or not read < answer.cursor <= read + _SKIPPED:
            return None
        progress.sent += len(answer.text.encode())
        return cluster, answer

    async def _write(self, key: Key, request: JsonObject, answer: tuple[str, LogAnswer]) -> None:
        cluster, chunk = answer
        status = {"cursor": chunk.cursor, "cluster": truncate_message(cluster, 253), **chunk.shown()}
        patch = {"metadata": {"uid": request["metadata"]["uid"]}, "status": status}
        try:
            written = await self._client.patch(
                JOB_LOG_REQUESTS,
                key.name,
                patch,
                namespace=key.namespace,
                kind=PatchKind.MERGE,
                subresource="status",
            )
        except NotFound:
            self._requests.on_not_found(key)
            return
        self._requests.on_write(written)

    async def _delete(self, key: Key, request: JsonObject) -> None:
        try:
            await self._client.delete(
                JOB_LOG_REQUESTS, key.name, namespace=key.namespace, uid=request["metadata"]["uid"]
            )
        except NotFound:
            self._requests.on_not_found(key)

    def _on_request(self, change: Change) -> None:
        self._controller.enqueue(change.key)
        workload = self._workload_of(change.key, change.row.object())
        if workload is None:
            return
        key = Key(change.key.namespace, str(workload["metadata"]["name"]))
        if change.new is None and _is_interrupted(change.row.object()):
            now = self._clock.monotonic()
            self._interrupted = {each: until for each, until in self._interrupted.items() if until > now}
            self._interrupted[key] = now + CONTINUE_SECONDS
        self._deliveries.enqueue(key)

    def _is_surplus(self, key: Key, request: JsonObject) -> bool:
        """Whether its namespace has so many older ones that it does not count: they were created at one moment."""
        others = self._requests.objects(NAMESPACE_INDEX, key.namespace)
        own = _age(request)
        return sum(_age(other) < own for other in others) >= MAX_REQUESTS

    def _relayed(self, key: Key) -> RelayedRequest | None:
        """The request as the agent gets it; None if it does not count or has ended."""
        request = self._requests.object(key)
        if request is None or "deletionTimestamp" in request["metadata"]:
            return None
        if (request.get("status") or {}).get("ended") is True or self._is_surplus(key, request):
            return None
        if not self._context.seals.honours_log_request(request):
            return None
        try:
            query = LogQuery.of(request["spec"])
        except BadInput:
            return None
        job: JsonObject = request["spec"]["job"]
        is_pod = (job["apiVersion"], job["kind"]) == (PODS.api_version, PODS.kind)
        query = replace(query, pod=job["name"] if is_pod and not query.all_pods else "")
        return RelayedRequest(request=str(request["metadata"]["uid"]), cursor=_cursors(request)[0], query=query)

    def _requests_of(self, workload: Key) -> tuple[Key, ...]:
        obj = self._workloads.object(workload) if self._requests.keys() else None
        return tuple(
            key
            for owner in _jobs_of(obj)
            for key in self._requests.indexed(
                LOGGED_JOB_INDEX,
                owner_term(
                    api_version=owner["apiVersion"],
                    kind=owner["kind"],
                    namespace=workload.namespace,
                    name=owner["name"],
                ),
            )
        )

    def _workload_of(self, key: Key, request: JsonObject) -> JsonObject | None:
        """The newest Workload of the job that the request names, in the namespace of the request."""
        job: JsonObject = request["spec"]["job"]
        term = owner_term(api_version=job["apiVersion"], kind=job["kind"], namespace=key.namespace, name=job["name"])
        found = [
            each
            for each in self._workloads.objects(OWNER_INDEX, term)
            if any((owner["kind"], owner["name"]) == (job["kind"], job["name"]) for owner in _jobs_of(each))
        ]
        # One that the job controls is the job's, whatever others name it as an owner. Of an elastic job it is the slice
        # by which the job runs.
        return max(found, key=lambda each: (controller_of(each) is not None, _runs(each), *_age(each)), default=None)


def _jobs_of(workload: JsonObject | None) -> Sequence[JsonObject]:
    """The owners of a Workload that are its job: the controller, or the pods of a group, none of which controls it."""
    if workload is None:
        return ()
    controller = controller_of(workload)
    owners: Sequence[JsonObject] = workload["metadata"].get("ownerReferences") or ()
    return owners if controller is None else (controller,)


def _cluster_of(workload: JsonObject | None) -> str:
    return "" if workload is None else str((workload.get("status") or {}).get("clusterName") or "")


def _runs(workload: JsonObject) -> bool:
    return bool(_cluster_of(workload)) and not _has_ended(workload)


def _has_ended(workload: JsonObject) -> bool:
    return is_true_in(workload.get("status") or {}, WorkloadCondition.FINISHED)


def _is_interrupted(request: JsonObject | None) -> bool:
    """Whether its user is told to create another one for the rest."""
    status: JsonObject = (request or {}).get("status") or {}
    return status.get("ended") is True and str(status.get("message") or "").startswith(INTERRUPTED)


def _age(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp")), str(obj["metadata"]["uid"])


def _cursors(request: JsonObject) -> tuple[int, int]:
    """What the user has read, and what was written. Raises `BadInput`."""
    read = parse_unsigned((request.get("spec") or {}).get("cursor") or 0, field="spec.cursor")
    written = parse_unsigned((request.get("status") or {}).get("cursor") or 0, field="status.cursor")
    return read, written


class AssignedLogRequests:
    """Reads assignments, and writes the requests in them."""

    def __init__(self, context: ManagerContext, push: PushTransport) -> None:
        self._client = context.client
        self._view = context.caches.view(REMOTE_ASSIGNMENTS)
        self._push = push
        self._slices = JobSlices(context.caches)

    def assignment(self, cluster: str, workload: Key) -> JsonObject | None:
        """The assignment of the workload to that cluster; None if there is none (any more)."""
        assigned = self._slices.assigned(workload)[0]
        name = assignment_name(assigned)
        if self._push.serves(cluster):
            found = self._push.mailbox(cluster).get(name)
        else:
            found = self._view.object(Key(mailbox_namespace(cluster), name))
        return found if found is not None and workload_of(found) == assigned else None

    def with_requests(self) -> list[Key]:
        """The workloads whose assignment has requests now, in a mailbox on the hub."""
        found = (obj["spec"]["workload"] for obj in self._view.objects() if obj["spec"].get("logs"))
        keys = ((Key(each["namespace"], each["name"]), str(each.get("uid", ""))) for each in found)
        return [self._slices.holder(*each) or each[0] for each in keys]

    async def request(self, cluster: str, workload: Key, wanted: Sequence[RelayedRequest]) -> None:
        """Have these requests in the assignment; one that is gone is ignored. Raises `KubeError`."""
        found = self.assignment(cluster, workload)
        if found is None or relayed_requests(found) == tuple(wanted):
            return
        entries = [each.wire() for each in wanted]
        name, namespace = assignment_name(workload_of(found)), mailbox_namespace(cluster)
        if self._push.serves(cluster):
            self._push.mailbox(cluster).request_logs(name, entries)
            return
        patch = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"logs": entries or None}}
        try:
            answer = await self._client.patch(
                REMOTE_ASSIGNMENTS, name, patch, namespace=namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            return
        self._view.on_write(answer)
