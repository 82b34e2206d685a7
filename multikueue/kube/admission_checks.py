# SPDX-License-Identifier: Apache-2.0
"""For writers of admission checks: a controller that asks one function about each Workload with quota.

Public: `CheckController`, `CheckQuestion`, `CheckAnswer`, `reserved_quota`. It follows AdmissionChecks and Workloads,
sets the condition Active of the checks that name its controllerName, asks about every Workload whose entry of such a
check is Pending, and applies the answer as a field manager of its own, for exactly the version that it asked about. It
may ask twice, and asks again after a restart: the function has to give the same answer for the same state. One replica
at a time may run; use `multikueue.kube.runtime.leader` for more (`docs/concepts/admission-checks.md`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Self

import anyio

from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION, WorkloadCondition
from multikueue.api.resource import ADMISSION_CHECKS, WORKLOADS, Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.conditions import FALSE, TRUE, is_true_in, truncate_message
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result

__all__ = ["CheckAnswer", "CheckController", "CheckQuestion", "reserved_quota"]

_RETRIES: Final = Backoff(base=60.0, factor=2.0, cap=1800.0)
_OVER: Final = (WorkloadCondition.FINISHED, WorkloadCondition.EVICTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckQuestion:
    """A Workload that has quota and whose entry of `check` is Pending; `attempt` counts its Retry answers, from 1."""

    workload: JsonObject
    check: JsonObject
    attempt: int

    @property
    def name(self) -> str:
        """The name of the AdmissionCheck."""
        return str(self.check["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace of the Workload."""
        return str(self.workload["metadata"]["namespace"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """The state of the check for one Workload; made by one of the class methods."""

    state: CheckState
    message: str = ""
    requeue_after_seconds: int | None = None
    pod_set_updates: Sequence[JsonObject] = ()
    ask_again: float | None = None

    @classmethod
    def ready(cls, message: str = "", *, pod_set_updates: Sequence[JsonObject] = ()) -> Self:
        """It may start, with these labels, annotations, node selectors and tolerations for its pod sets."""
        return cls(state=CheckState.READY, message=message, pod_set_updates=pod_set_updates)

    @classmethod
    def pending(cls, message: str, *, ask_again: float | None = None) -> Self:
        """It keeps its quota and waits; asked again after so many seconds, or when something changes."""
        return cls(state=CheckState.PENDING, message=message, ask_again=ask_again)

    @classmethod
    def retry(cls, message: str, *, attempt: int, backoff: Backoff = _RETRIES) -> Self:
        """It loses its quota, and queues again after the back-off of this attempt."""
        return cls(state=CheckState.RETRY, message=message, requeue_after_seconds=max(1, int(backoff.delay(attempt))))

    @classmethod
    def rejected(cls, message: str) -> Self:
        """It is deactivated; only a user can activate it again."""
        return cls(state=CheckState.REJECTED, message=message)


Decide = Callable[[CheckQuestion], Awaitable[CheckAnswer]]


class CheckController:
    """Runs one function as the controller of all AdmissionChecks that name `controller_name`."""

    def __init__(
        self,
        client: KubeClient,
        controller_name: str,
        decide: Decide,
        *,
        problem: Callable[[JsonObject], str] = lambda check: "",
        follow: Sequence[Resource] = (),
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """`problem` tells why an AdmissionCheck cannot be served, which makes it inactive; empty if it can.

        A change of an object of `follow` asks again about the Workloads of its namespace, or about all.
        """
        self._client, self._controller_name, self._decide, self._problem = client, controller_name, decide, problem
        self._clock = clock or SystemClock()
        kinds = (ADMISSION_CHECKS, WORKLOADS, *follow)
        self._informers = {kind: Informer(client, kind, clock=self._clock, random=random) for kind in kinds}
        self._seen = {kind: WriteOverlay(each.store, clock=self._clock) for kind, each in self._informers.items()}
        self._workloads: Controller[Key] = Controller(f"check {controller_name}", self._answer, clock=self._clock)
        self._checks: Controller[Key] = Controller(f"active {controller_name}", self._activate, clock=self._clock)

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            for kind, informer in self._informers.items():
                informer.add_handler(partial(self._changed, kind))
                tasks.start_soon(informer.run)
            for informer in self._informers.values():
                await informer.synced.wait()
            tasks.start_soon(self._checks.run)
            tasks.start_soon(self._workloads.run)

    def objects(self, resource: Resource, *, namespace: str | None = None) -> Iterator[JsonObject]:
        """The objects of a followed kind as last read or written."""
        for row in self._seen[resource].rows():
            if namespace is None or row.key.namespace == namespace:
                yield row.object()

    def find(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject | None:
        """An object of a followed kind."""
        row = self._seen[resource].get(Key(namespace, name))
        return None if row is None else row.object()

    async def answer(self, workload: JsonObject, check: str, answer: CheckAnswer) -> None:
        """Write an answer unasked, to take one back for instance. Raises `KubeError`: `Conflict` if it has changed."""
        entries = (workload.get("status") or {}).get("admissionChecks") or ()
        entry: JsonObject = next((each for each in entries if each["name"] == check), {})
        now = format_time(self._clock.now())
        wanted: JsonObject = {
            "name": check,
            "state": str(answer.state),
            "message": truncate_message(answer.message),
            "lastTransitionTime": entry.get("lastTransitionTime", now) if entry.get("state") == answer.state else now,
            **({} if answer.requeue_after_seconds is None else {"requeueAfterSeconds": answer.requeue_after_seconds}),
            **({"podSetUpdates": list(answer.pod_set_updates)} if answer.pod_set_updates else {}),
        }
        if all(entry.get(name) == value for name, value in wanted.items()):
            return
        stored = await self._apply(WORKLOADS, workload, {"admissionChecks": [wanted]}, exactly=True)
        self._seen[WORKLOADS].on_write(stored)

    def _changed(self, kind: Resource, change: Change) -> None:
        self._seen[kind].on_change(change)
        if kind == WORKLOADS:
            self._workloads.enqueue(change.key)
            return
        if kind == ADMISSION_CHECKS:
            self._checks.enqueue(change.key)
        for row in self._seen[WORKLOADS].rows():
            if change.key.namespace in ("", row.key.namespace):
                self._workloads.enqueue(row.key)

    async def _answer(self, key: Key) -> Result | None:
        workload = self.find(WORKLOADS, key.name, namespace=key.namespace)
        if workload is None or not _waits(workload):
            return None
        again: list[float] = []
        for entry in workload["status"].get("admissionChecks") or ():
            check = self.find(ADMISSION_CHECKS, entry["name"])
            if check is None or not self._serves(check) or entry["state"] != CheckState.PENDING:
                continue
            attempt = 1 + (entry.get("retryCount") or 0)
            found = await self._decide(CheckQuestion(workload=workload, check=check, attempt=attempt))
            try:
                await self.answer(workload, entry["name"], found)
            except NotFound:
                return None
            again += [] if found.ask_again is None else [found.ask_again]
            workload = self.find(WORKLOADS, key.name, namespace=key.namespace) or workload
        return Result(after=min(again)) if again else None

    async def _activate(self, key: Key) -> None:
        check = self.find(ADMISSION_CHECKS, key.name)
        if check is None or not self._serves(check) or "deletionTimestamp" in check["metadata"]:
            return
        problem = self._problem(check)
        entries = (check.get("status") or {}).get("conditions") or ()
        old: JsonObject = next((each for each in entries if each["type"] == ACTIVE_CONDITION), {})
        status = FALSE if problem else TRUE
        active = {
            "type": ACTIVE_CONDITION,
            "status": status,
            "reason": "Unusable" if problem else "Active",
            "message": truncate_message(problem) if problem else "The controller of the admission check runs",
            "observedGeneration": check["metadata"].get("generation", 0),
            "lastTransitionTime": old["lastTransitionTime"]
            if old.get("status") == status
            else format_time(self._clock.now()),
        }
        if active == old:
            return
        try:
            self._seen[ADMISSION_CHECKS].on_write(
                await self._apply(ADMISSION_CHECKS, check, {"conditions": [active]}, exactly=False)
            )
        except NotFound:
            return

    def _serves(self, check: JsonObject) -> bool:
        return bool((check.get("spec") or {}).get("controllerName") == self._controller_name)

    async def _apply(self, resource: Resource, obj: JsonObject, status: JsonObject, *, exactly: bool) -> bytes:
        metadata = obj["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion") if exactly else ("name", "uid")
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {name: metadata[name] for name in kept if name in metadata},
            "status": status,
        }
        return await self._client.apply(
            resource,
            metadata["name"],
            body,
            namespace=metadata.get("namespace"),
            manager=self._controller_name,
            subresource="status",
        )


def reserved_quota(workload: JsonObject) -> Mapping[str, Quantity]:
    """What a Workload has reserved of each resource, over all its pod sets; empty without a reservation."""
    total: dict[str, Quantity] = {}
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    for assignment in admission.get("podSetAssignments") or ():
        for name, amount in (assignment.get("resourceUsage") or {}).items():
            total[name] = total.get(name, Quantity.of(0)) + Quantity.parse(amount)
    return total


def _waits(workload: JsonObject) -> bool:
    status = workload.get("status")
    return (
        workload["spec"].get("active") is not False
        and "deletionTimestamp" not in workload["metadata"]
        and is_true_in(status, WorkloadCondition.QUOTA_RESERVED)
        and not any(is_true_in(status, kind) for kind in _OVER)
    )
