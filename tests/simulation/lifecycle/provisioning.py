# SPDX-License-Identifier: Apache-2.0
"""The manager's ProvisioningController on the objects of `hub`: its caches lag behind as informers do.

The controller, its decisions, its writes and its views are the manager's. The API server and the status writer are
replaced. `check_rest` holds what must be so when the manager has done everything.
"""

from __future__ import annotations

import copy
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

import orjson

from manager.cache.indexes import WORKLOAD_INDEX
from manager.cache.views import View, completed
from manager.context import ManagerContext
from manager.provisioning.checks import ProvisioningChecks, is_provisioning
from manager.provisioning.controller import ProvisioningController
from manager.workload.status import Status
from manager.workload.status_writer import Change as StatusChange
from manager.workload.status_writer import Written
from multikueue.api.constants import CheckState
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Informer
from multikueue.kube.cache.store import Store, read_row
from multikueue.kube.cache.subscribers import Change, Handler
from multikueue.kube.errors import ApiError
from multikueue.kube.rest import watch
from multikueue.kube.runtime.controller import Result
from multikueue.provisioning import requests
from multikueue.provisioning.decision import attempt_of, current_request
from multikueue.provisioning.pod_sets import requested_pod_sets
from multikueue.provisioning.requests import ProvisioningAnswer, parameters_of, workload_owner
from tests.simulation.lifecycle.hub import TEAM, Hub, Object, Violation, merge
from tests.simulation.lifecycle.requests import FOLLOWED, RequestClient

T = TypeVar("T")


class StatusWrites(Protocol):
    """Writes the status of a Workload; whether something was written."""

    def __call__(self, key: Key, change: StatusChange) -> bool: ...


@dataclass(slots=True)
class HubClock:
    """The hub's clock."""

    hub: Hub

    def now(self) -> datetime:
        """The time."""
        return self.hub.now

    def monotonic(self) -> float:
        """Seconds."""
        return self.hub.now.timestamp()


@dataclass(slots=True)
class LaggingInformer:
    """The store of an informer, which shows what was delivered to it."""

    store: Store
    handlers: list[Handler] = field(default_factory=list)

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` with each change."""
        self.handlers.append(handler)

    def deliver(self, kind: str, raw: bytes) -> None:
        """One event of the watch."""
        row = read_row(raw)
        old = self.store.get(row.key)
        if kind == watch.DELETED:
            self.store.remove(row.key)
            change = Change(kind, row.key, old if old is not None else row, None)
        else:
            self.store.put(row)
            change = Change(kind, row.key, old, row)
        for handler in self.handlers:
            handler(change)


@dataclass(slots=True)
class CurrentView:
    """One resource, each change of which is seen at once."""

    resource: Resource
    found: dict[Any, Object]

    def object(self, key: Key) -> Object | None:
        """The object of that key."""
        found = self.found.get(key if key.namespace else key.name)
        return None if found is None else completed(copy.deepcopy(found), self.resource)

    def objects(self) -> Iterator[Object]:
        """All objects."""
        return (completed(copy.deepcopy(each), self.resource) for each in list(self.found.values()))

    def indexed(self, index: str, value: str) -> tuple[Key, ...]:
        """None: every Workload is reconciled in each round."""
        return ()

    def on_write(self, raw: bytes) -> None:
        """It is seen already."""


class CapacityController:
    """The controller of provisioning checks of one manager."""

    def __init__(self, hub: Hub, *, write_status: StatusWrites, see_check: Any) -> None:
        self.hub = hub
        self._write_status = write_status
        self._see_check = see_check
        self._informers = {each: LaggingInformer(Store({WORKLOAD_INDEX: _workload_of})) for each in FOLLOWED}
        self._views: dict[Resource, Any] = {
            WORKLOADS: CurrentView(WORKLOADS, hub.workloads),
            ADMISSION_CHECKS: CurrentView(ADMISSION_CHECKS, hub.checks),
            PROVISIONING_REQUEST_CONFIGS: CurrentView(PROVISIONING_REQUEST_CONFIGS, hub.configs),
            CLUSTER_QUEUES: CurrentView(CLUSTER_QUEUES, hub.cluster_queues),
            RESOURCE_FLAVORS: CurrentView(RESOURCE_FLAVORS, {}),
        }
        self._clock = HubClock(hub)
        for resource, informer in self._informers.items():
            for stored in hub.capacity.objects[resource].values():
                informer.store.put(read_row(orjson.dumps(stored)))
            view = View(resource, clock=self._clock)
            view.follow(cast(Informer, informer))
            self._views[resource] = view
        hub.capacity.events.clear()  # a new informer lists
        self._controller = ProvisioningController(self._context())
        self._controller.attach()
        self._checks = ProvisioningChecks(cast(Any, self._caches()))

    def _context(self) -> ManagerContext:
        client = RequestClient(
            self.hub.capacity,
            write=self.hub.write,
            audit=self._audit,
            time=lambda: format_time(self.hub.now),
            find=lambda resource, key: self._views[resource].object(key),
            merge=self._patch,
        )
        return cast(
            ManagerContext,
            SimpleNamespace(
                configuration=SimpleNamespace(gate=lambda name: True),
                client=client,
                caches=self._caches(),
                statuses=SimpleNamespace(current=self._views[WORKLOADS].object, write=self._write),
                recorder=SimpleNamespace(event=self._event),
                metrics=SimpleNamespace(controllers=None),
                clock=self._clock,
            ),
        )

    def _caches(self) -> SimpleNamespace:
        return SimpleNamespace(
            view=self._views.__getitem__, demand=lambda resource: True, subscribe=self._subscribe, quarantine=None
        )

    def _subscribe(self, resource: Resource, handler: Handler) -> None:
        if resource in FOLLOWED:
            self._views[resource].subscribe(handler)
        for each in self.hub.checks.values() if resource is ADMISSION_CHECKS else ():
            row = read_row(orjson.dumps(each))
            handler(Change(watch.ADDED, row.key, None, row))

    # Work

    def catch_up(self) -> None:
        """The informers get what their watches have reported."""
        reported, self.hub.capacity.events[:] = list(self.hub.capacity.events), []
        for event in reported:
            self._informers[event.resource].deliver(event.type, event.raw)

    def reconcile(self) -> bool:
        """Every check, every Workload, and each that a request belongs to; whether something was written."""
        wrote = False
        for name in sorted(self.hub.checks):
            wrote = self._run(self._controller.reconcile_check(Key("", name))) or wrote
        owners = (workload_owner(each) for each in self.hub.capacity.requests())
        keys = {*self.hub.workloads, *(Key(TEAM, owner[0]) for owner in owners if owner is not None)}
        for key in sorted(keys):
            wrote = self.reconcile_workload(key) or wrote
        return wrote

    def reconcile_workload(self, key: Key) -> bool:
        """One Workload; whether something was written."""
        return self._run(self._controller.reconcile_workload(key))

    def _run(self, work: Coroutine[Any, Any, Result | None]) -> bool:
        before = self.hub.writes
        try:
            finished(work)
        except ApiError:
            self.hub.capacity.met["refused"] = self.hub.capacity.met.get("refused", 0) + 1
        return self.hub.writes != before

    # Writes

    async def _write(
        self, key: Key, change: StatusChange, *, uid: str = "", written: Written | None = None
    ) -> Object | None:
        found = self.hub.workloads.get(key)
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return None
        before = Status.of(found)
        if self._write_status(key, change) and written is not None:
            written(found, before, Status.of(found))
        return found

    def _patch(self, resource: Resource, name: str, body: Object) -> bytes:
        if resource is not ADMISSION_CHECKS:
            raise Violation(f"patched {resource.plural} {name}")
        stored = self.hub.checks[name]
        old = copy.deepcopy(stored)

        def store() -> None:
            merge(stored, body)
            self._see_check(name)

        self.hub.write(store)
        if stored == old:
            raise Violation(f"AdmissionCheck {name}: a patch that changes nothing")
        return orjson.dumps(stored)

    def _event(self, about: object, kind: str, reason: str, message: str) -> None:
        self.hub.capacity.met[reason] = self.hub.capacity.met.get(reason, 0) + 1

    def _audit(self, verb: str, resource: Resource, body: Object) -> None:
        name = body["metadata"]["name"]
        if verb == "delete":
            ours = workload_owner(body) is not None if resource is PROVISIONING_REQUESTS else controller_of(body)
            if not ours:
                raise Violation(f"deletes {resource.plural} {name} of another owner")
            return
        if resource is POD_TEMPLATES:
            return
        owner = workload_owner(body)
        workload = None if owner is None else self.hub.workloads.get(Key(TEAM, owner[0]))
        if owner is None or workload is None or workload["metadata"]["uid"] != owner[1]:
            raise Violation(f"request {name} for a Workload that is not there")
        if (reason := _needs_none(workload)) is not None:
            raise Violation(f"request {name} for a Workload that {reason}")
        entries = {current_request(workload, each): each for each in self._entries(workload)}
        if name not in entries or entries[name]["state"] not in (CheckState.PENDING, CheckState.READY):
            raise Violation(f"request {name} for a check that is not waiting: {entries}")
        for other in self._own(workload):
            if other["metadata"]["name"] not in entries and "deletionTimestamp" not in other["metadata"]:
                raise Violation(f"request {name} beside {other['metadata']['name']}")
        attempt = f"attempt {attempt_of(entries[name])}"
        self.hub.capacity.met[attempt] = self.hub.capacity.met.get(attempt, 0) + 1

    # What holds when everything is done

    def check_rest(self) -> None:
        """Each request belongs to a check that waits for it or uses it, and each such check has its request."""
        for request in self.hub.capacity.requests():
            owner = workload_owner(request)
            if owner is None or "deletionTimestamp" in request["metadata"]:
                continue
            name = request["metadata"]["name"]
            workload = self.hub.workloads.get(Key(TEAM, owner[0]))
            if workload is None or workload["metadata"]["uid"] != owner[1]:
                raise Violation(f"request {name} is left, its Workload is gone")
            if (reason := _needs_none(workload)) is not None:
                raise Violation(f"request {name} is left, its Workload {reason}")
            if name not in {current_request(workload, each) for each in self._entries(workload)}:
                raise Violation(f"request {name} is left, it is of no check: {workload['status']['admissionChecks']}")
        for workload in self.hub.workloads.values():
            if _needs_none(workload) is None:
                for entry in self._entries(workload):
                    self._check_entry(workload, entry)

    def _check_entry(self, workload: Object, entry: Object) -> None:
        where = f"{workload['metadata']['name']}: check {entry['name']} {entry['state']} ({entry.get('message')})"
        admitted = Status.of(workload).is_true(WorkloadCondition.ADMITTED)
        name = current_request(workload, entry)
        found = self.hub.capacity.objects[PROVISIONING_REQUESTS].get(Key(TEAM, name))
        ours = found is not None and workload_owner(found) is not None
        true = ProvisioningAnswer.of(found).true if found is not None and ours else {}
        if entry["state"] in (CheckState.RETRY, CheckState.REJECTED):
            raise Violation(f"{where}: the Workload still holds quota")
        if admitted:
            if requests.CAPACITY_REVOKED in true:
                raise Violation(f"{where}: admitted, and the capacity is revoked")
            return
        check = self._views[ADMISSION_CHECKS].object(Key("", entry["name"]))
        settings = self._checks.usable(check)
        if settings is None:
            return
        needed = bool(requested_pod_sets(workload, settings, {}))
        try:
            parameters_of(workload, settings)
        except BadInput:
            if needed:
                raise Violation(f"{where}: its parameters cannot be sent, and it is not rejected") from None
        if not needed:
            if entry["state"] != CheckState.READY:
                raise Violation(f"{where}: nothing is needed")
            return
        if found is None:
            raise Violation(f"{where}: request {name} is missing")
        if ours and "deletionTimestamp" in found["metadata"]:
            if entry["state"] == CheckState.READY:
                raise Violation(f"{where}: {name} is deleted")
            return  # another follows once it is gone
        if entry["state"] == CheckState.READY and requests.PROVISIONED not in true:
            raise Violation(f"{where}: {name} has not provisioned: {true}")
        over = {requests.FAILED, requests.BOOKING_EXPIRED, requests.CAPACITY_REVOKED} & true.keys()
        if over:
            raise Violation(f"{where}: {name} is {over}")
        if ours:
            self._check_templates(found, where)

    def _check_templates(self, request: Object, where: str) -> None:
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            template = self.hub.capacity.objects[POD_TEMPLATES].get(Key(TEAM, name))
            owner = None if template is None else controller_of(template)
            foreign = template is not None and owner is None
            if not foreign and (owner is None or owner["uid"] != request["metadata"]["uid"]):
                raise Violation(f"{where}: template {name} is missing or that of another request")

    def _entries(self, workload: Object) -> list[Object]:
        entries: list[Object] = (workload.get("status") or {}).get("admissionChecks") or []
        return [
            each
            for each in entries
            if each["name"] in self.hub.checks and is_provisioning(self.hub.checks[each["name"]])
        ]

    def _own(self, workload: Object) -> list[Object]:
        uid = workload["metadata"]["uid"]
        return [each for each in self.hub.capacity.requests() if (workload_owner(each) or ("", ""))[1] == uid]


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration as stopped:
        value: T = stopped.value
        return value
    work.close()
    raise Violation("a reconcile waits for something other than the API server")


def _workload_of(obj: Object) -> list[str]:
    owner = controller_of(obj)
    return (
        [] if owner is None or owner["kind"] != WORKLOADS.kind else [f"{obj['metadata']['namespace']}/{owner['name']}"]
    )


def _needs_none(workload: Object) -> str | None:
    """Why a Workload may have no request; None when it may have one."""
    status = Status.of(workload)
    if "deletionTimestamp" in workload["metadata"]:
        return "is deleted"
    if workload["spec"].get("active") is False:
        return "is deactivated"
    for kind, why in ((WorkloadCondition.FINISHED, "is finished"), (WorkloadCondition.EVICTED, "is evicted")):
        if status.is_true(kind):
            return why
    return None if status.is_true(WorkloadCondition.QUOTA_RESERVED) else "holds no quota"
