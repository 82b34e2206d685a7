# SPDX-License-Identifier: Apache-2.0
"""The status of a Workload as a value, and its one way to the API server.

Owns which fields the field manager `kueue-admission` lists (`docs/spec/engine.md §7.1`), so that an apply of one
writer never drops what another wrote: scheduler loop, workload reconciler, job reconciler and dispatch all write
through `StatusWriter.write`. Promises that a change is decided on the newest object known, that nothing is sent when
nothing changes, and that two writers of one key never interleave. Leaves the changes to `manager.workload_changes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import anyio
import orjson

from manager.conditions import condition_wire, conditions_of
from manager.views import View, completed
from multikueue.api.constants import ADMISSION_FIELD_MANAGER, CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.core import conditions
from multikueue.core.conditions import Condition
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.errors import Conflict, Invalid, NotFound

OWNED_CONDITIONS: Final = frozenset(
    {
        WorkloadCondition.QUOTA_RESERVED,
        WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
        WorkloadCondition.EVICTED,
        WorkloadCondition.ADMITTED,
        WorkloadCondition.PREEMPTED,
        WorkloadCondition.REQUEUED,
        WorkloadCondition.DEACTIVATION_TARGET,
        WorkloadCondition.FINISHED,
        WorkloadCondition.PODS_READY,
    }
)
_ATTEMPTS: Final = 5  # as many other writers may come between reading and writing before the controller backs off


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One entry of status.admissionChecks."""

    name: str
    state: CheckState
    message: str = ""
    last_transition_time: datetime
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How often a workload was evicted for one reason."""

    reason: str
    underlying_cause: str = ""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything of a Workload's status that `kueue-admission` owns; conditions of others are carried, not written."""

    admission: JsonObject | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[Check, ...] = ()
    requeue_count: int | None = None
    requeue_at: datetime | None = None
    resource_requests: tuple[JsonObject, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    past_execution_seconds: int | None = None
    cluster_name: str = ""
    nominated: tuple[str, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    preemption_gates: tuple[JsonObject, ...] = ()

    @classmethod
    def of(cls, workload: JsonObject) -> Status:
        """The status of a Workload as it came from the API server."""
        status: JsonObject = workload.get("status") or {}
        requeue: JsonObject = status.get("requeueState") or {}
        return cls(
            admission=status.get("admission"),
            conditions=conditions_of(status.get("conditions") or ()),
            checks=tuple(_check(entry) for entry in status.get("admissionChecks") or ()),
            requeue_count=requeue.get("count"),
            requeue_at=parse_time(requeue["requeueAt"]) if requeue.get("requeueAt") else None,
            resource_requests=tuple(status.get("resourceRequests") or ()),
            evictions=tuple(
                Eviction(
                    reason=entry["reason"],
                    underlying_cause=entry.get("underlyingCause", ""),
                    count=entry.get("count", 0),
                )
                for entry in (status.get("schedulingStats") or {}).get("evictions") or ()
            ),
            past_execution_seconds=status.get("accumulatedPastExecutionTimeSeconds"),
            cluster_name=status.get("clusterName") or "",
            nominated=tuple(status.get("nominatedClusterNames") or ()),
            unhealthy_nodes=tuple(entry["name"] for entry in status.get("unhealthyNodes") or ()),
            preemption_gates=tuple(status.get("preemptionGates") or ()),
        )

    def condition(self, kind: WorkloadCondition) -> Condition | None:
        """The condition of that type, if there is one."""
        return conditions.find(self.conditions, kind)

    def is_true(self, kind: WorkloadCondition) -> bool:
        """Whether the condition of that type is True."""
        return conditions.is_true(self.conditions, kind)

    def check(self, name: str) -> Check | None:
        """The state of that admission check, if the workload has it."""
        return next((check for check in self.checks if check.name == name), None)

    @property
    def epoch(self) -> int:
        """One more than the number of evictions; the annotation that floors it is not looked at."""
        return 1 + sum(eviction.count for eviction in self.evictions)

    def wire(self) -> JsonObject:
        """The owned fields as they go into an apply; what is absent here and was owned is removed by it."""
        requeue = {
            **({} if self.requeue_count is None else {"count": self.requeue_count}),
            **({} if self.requeue_at is None else {"requeueAt": format_time(self.requeue_at)}),
        }
        fields: dict[str, object] = {
            "admission": self.admission,
            "requeueState": requeue,
            "resourceRequests": list(self.resource_requests),
            "conditions": [condition_wire(item) for item in self.conditions if item.type in OWNED_CONDITIONS],
            "accumulatedPastExecutionTimeSeconds": self.past_execution_seconds,
            "schedulingStats": {"evictions": [_eviction_wire(item) for item in self.evictions]}
            if self.evictions
            else None,
            "clusterName": self.cluster_name,
            "nominatedClusterNames": list(self.nominated),
            "unhealthyNodes": [{"name": name} for name in self.unhealthy_nodes],
            "preemptionGates": list(self.preemption_gates),
            "admissionChecks": [_check_wire(item) for item in self.checks],
        }
        # An empty map or list would be owned and stored as such; zero seconds of past execution is the absent value.
        return {name: value for name, value in fields.items() if value not in (None, "", 0, {}, [])}


Change = Callable[[Status], Status]
Written = Callable[[JsonObject, Status, Status], None]


class Completion(Protocol):
    """Somebody who can say more about a workload in the very write that gets it so far."""

    def complete(self, workload: JsonObject, status: Status) -> Status:
        """`status`, about to be written of `workload`, or what follows from it; may be asked again after a conflict."""

    def completed(self, workload: JsonObject, before: Status, after: Status) -> None:
        """A status that was completed has been written."""


class StatusWriter:
    """Applies changes to the status of Workloads, one writer of a key at a time."""

    def __init__(self, client: KubeClient, workloads: View) -> None:
        self._client = client
        self._workloads = workloads
        self.completion: Completion | None = None
        self.stands: Callable[[JsonObject], bool] = lambda workload: False
        """Whether a Workload may run on another cluster still, whatever the status of its job here says."""
        self._written: list[Written] = []
        self._locks: dict[Key, anyio.Lock] = {}
        self._waiting: Counter[Key] = Counter()

    @property
    def requests_sent(self) -> Counter[tuple[str, str]]:
        """Requests of our client by verb and resource."""
        return self._client.requests_sent

    def tell(self, written: Written) -> None:
        """Call `written` after each write with the object as it is now, and the status before and after."""
        self._written.append(written)

    def current(self, key: Key) -> JsonObject | None:
        """The newest object known: of the cache, or the answer to a later write of ours."""
        return self._workloads.object(key)

    async def write(
        self, key: Key, change: Change, *, uid: str = "", written: Written | None = None
    ) -> JsonObject | None:
        """The object after `change`; None when it is gone, or another one of that name stands there.

        `change` must be pure: after a conflict it is asked again, about the live object. `written` is called when
        something was written, before those that `tell` named. Raises `ApiError` for
        everything but conflict and absence; cancelled, the write may or may not have happened.
        """
        lock = self._locks.setdefault(key, anyio.Lock())
        self._waiting[key] += 1
        try:
            async with lock:
                return await self._write(key, change, uid=uid, written=written)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                del self._locks[key]

    async def _write(self, key: Key, change: Change, *, uid: str, written: Written | None) -> JsonObject | None:
        workload = self.current(key)
        for attempt in range(_ATTEMPTS):
            if workload is None or (uid and workload["metadata"].get("uid") != uid):
                return None
            old = Status.of(workload)
            new = change(old)
            if new is old:
                return workload
            decided, completion = new, self.completion
            if completion is not None:
                new = completion.complete(workload, decided)
            wanted = new.wire()
            if wanted == old.wire():
                return workload
            try:
                answer = await self._client.apply(
                    WORKLOADS,
                    key.name,
                    _apply_body(workload, wanted),
                    namespace=key.namespace,
                    manager=ADMISSION_FIELD_MANAGER,
                    force=True,
                    subresource="status",
                )
            except NotFound:
                self._workloads.gone(key)
                return None
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                workload = await self._live(key)
            except Invalid:
                if attempt == _ATTEMPTS - 1 or not old.nominated or new.nominated:
                    raise
                # A nomination of another field manager stays when we apply none, and bars the name of a cluster.
                workload = await self._withdraw_nomination(key, workload)
            else:
                self._workloads.observe(answer)
                workload = _decoded(answer)
                if not new.nominated and workload["status"].get("nominatedClusterNames"):
                    workload = await self._withdraw_nomination(key, workload)
                if completion is not None and new is not decided:
                    completion.completed(workload, old, new)
                for tell in (*([written] if written is not None else []), *self._written):
                    tell(workload, old, new)
                return workload
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _withdraw_nomination(self, key: Key, workload: JsonObject) -> JsonObject:
        """The object without the clusters that somebody else nominated, or as it is live when it has changed."""
        patch = {
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"nominatedClusterNames": None},
        }
        try:
            answer = await self._client.patch(
                WORKLOADS, key.name, patch, namespace=key.namespace, kind=PatchKind.MERGE, subresource="status"
            )
        except (Conflict, NotFound):
            # Who changed it meanwhile is heard by the cache, and it is decided again then.
            return await self._live(key) or workload
        self._workloads.observe(answer)
        return _decoded(answer)

    async def _live(self, key: Key) -> JsonObject | None:
        try:
            answer = await self._client.get(WORKLOADS, key.name, namespace=key.namespace)
        except NotFound:
            self._workloads.gone(key)
            return None
        self._workloads.observe(answer)
        return _decoded(answer)


def _apply_body(workload: JsonObject, status: JsonObject) -> JsonObject:
    metadata = workload["metadata"]
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        # uid and resourceVersion make the apply a compare-and-swap: the status was decided on exactly this object.
        "metadata": {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")},
        "status": status,
    }


def _decoded(raw: bytes) -> JsonObject:
    return completed(orjson.loads(raw), WORKLOADS)


def _check(entry: JsonObject) -> Check:
    return Check(
        name=entry["name"],
        state=CheckState(entry["state"]),
        message=entry.get("message", ""),
        last_transition_time=parse_time(entry["lastTransitionTime"]),
        requeue_after_seconds=entry.get("requeueAfterSeconds"),
        retry_count=entry.get("retryCount"),
        pod_set_updates=tuple(entry.get("podSetUpdates") or ()),
    )


def _check_wire(check: Check) -> JsonObject:
    return {
        "name": check.name,
        "state": str(check.state),
        "message": conditions.truncate_message(check.message),
        "lastTransitionTime": format_time(check.last_transition_time),
        **({} if check.requeue_after_seconds is None else {"requeueAfterSeconds": check.requeue_after_seconds}),
        **({} if check.retry_count is None else {"retryCount": check.retry_count}),
        **({"podSetUpdates": list(check.pod_set_updates)} if check.pod_set_updates else {}),
    }


def _eviction_wire(eviction: Eviction) -> JsonObject:
    return {"reason": eviction.reason, "underlyingCause": eviction.underlying_cause, "count": eviction.count}
