# SPDX-License-Identifier: Apache-2.0
"""The controller of provisioning checks: facts from the caches, one decision, its writes.

Owns which changes concern which Workload. The rules are those of `multikueue.provisioning.decision`. A Workload with a
provisioning check is decided anew after each change of it, of its check or config, and of its requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio

from manager.cache.indexes import CLUSTER_QUEUE_INDEX, WORKLOAD_INDEX
from manager.context import ManagerContext
from manager.dispatch.condition_writes import write_active
from manager.provisioning.checks import ProvisioningChecks, is_delegated, is_provisioning, only_delegated
from manager.provisioning.execution import ProvisioningExecutor
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.provisioning.decision import ProvisioningFacts, current_request, decide
from multikueue.provisioning.requests import workload_owner

CLEAN_UP_GATE: Final = "CleanupProvisioningRequestsOnEviction"
_NOT_INSTALLED_SECONDS: Final = 2.0  # between looks whether the definition is there now
_DELEGATED_SECONDS: Final = 15.0  # between looks whether a queue uses the check without MultiKueue now
_BLOCKED_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 1.0  # until a request of that name is deleted, or is in the cache


class ProvisioningController:
    """Reconciles provisioning checks and the Workloads that have one."""

    def __init__(self, context: ManagerContext, *, workers: int = 5) -> None:
        self._context = context
        self._workloads = context.caches.view(WORKLOADS)
        self._requests = context.caches.view(PROVISIONING_REQUESTS)
        self._templates = context.caches.view(POD_TEMPLATES)
        self._checks = ProvisioningChecks(context.caches)
        self._executor = ProvisioningExecutor(context)
        self._names: set[str] = set()  # of the checks of this controller
        self._was_ready = False
        controller = partial(
            Controller[Key],
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
        )
        self.check_controller = controller("provisioning-check", self.reconcile_check, resource=ADMISSION_CHECKS)
        self.workload_controller = controller(
            "provisioning", self.reconcile_workload, workers=workers, resource=WORKLOADS
        )

    def attach(self) -> None:
        """Subscribe to all that a decision depends on."""
        caches = self._context.caches
        caches.subscribe(ADMISSION_CHECKS, self._check_changed)
        caches.subscribe(PROVISIONING_REQUEST_CONFIGS, self._config_changed)
        caches.subscribe(WORKLOADS, self._workload_changed)
        caches.subscribe(PROVISIONING_REQUESTS, self._request_changed)
        caches.subscribe(POD_TEMPLATES, self._template_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.check_controller.run)
            tasks.start_soon(self.workload_controller.run)

    def _check_changed(self, change: Change) -> None:
        name = change.key.name
        ours = change.new is not None and is_provisioning(change.new.object())
        if not ours and name not in self._names:
            return
        (self._names.add if ours else self._names.discard)(name)
        self.check_controller.enqueue(change.key)
        if change.old is None or change.new is None or change.old.generation != change.new.generation:
            self._enqueue_workloads()

    def _config_changed(self, change: Change) -> None:
        if change.old is not None and change.new is not None and change.old.generation == change.new.generation:
            return
        for name in self._names:
            self.check_controller.enqueue(Key("", name))
        if self._names:
            self._enqueue_workloads()

    def _workload_changed(self, change: Change) -> None:
        if self._names or next(self._requests.rows(), None) is not None:
            self.workload_controller.enqueue(change.key)

    def _request_changed(self, change: Change) -> None:
        if change.new is None or (change.old is not None and change.old.uid != change.new.uid):
            self._executor.forget(change.old)
        owner = workload_owner(change.row.object())
        if owner is not None:
            self.workload_controller.enqueue(Key(change.key.namespace, owner[0]))

    def _template_changed(self, change: Change) -> None:
        if change.new is not None:
            return
        request = controller_of(change.row.object())
        found = None if request is None else self._requests.object(Key(change.key.namespace, request["name"]))
        owner = None if found is None else workload_owner(found)
        if owner is not None:
            self.workload_controller.enqueue(Key(change.key.namespace, owner[0]))

    def _enqueue_workloads(self) -> None:
        """The Workloads with quota in a queue with a provisioning check, and the owners of requests."""
        for queue in self._context.caches.view(CLUSTER_QUEUES).objects():
            strategy: JsonObject = queue["spec"].get("admissionChecksStrategy") or {}
            if any(each["name"] in self._names for each in strategy.get("admissionChecks") or ()):
                for key in self._workloads.indexed(CLUSTER_QUEUE_INDEX, queue["metadata"]["name"]):
                    self.workload_controller.enqueue(key)
        for request in self._requests.objects():
            owner = workload_owner(request)
            if owner is not None:
                self.workload_controller.enqueue(Key(request["metadata"]["namespace"], owner[0]))

    async def reconcile_check(self, key: Key) -> Result | None:
        """Bring the Active condition of one check up to date."""
        check = self._checks.find(key.name)
        if check is None or "deletionTimestamp" in check["metadata"]:
            return None
        delegated = only_delegated(key.name, self._context.caches)
        # A hub whose clusters provision need not have the API itself.
        ready = not delegated and self._checks.ready
        if ready and not self._was_ready:
            self._was_ready = True
            self._enqueue_workloads()
        verdict = self._checks.judge(check)
        await write_active(
            self._context,
            ADMISSION_CHECKS,
            check,
            active=verdict.active,
            reason=verdict.reason,
            message=verdict.message,
        )
        if delegated:
            return Result(after=_DELEGATED_SECONDS)
        return None if ready else Result(after=_NOT_INSTALLED_SECONDS)

    async def reconcile_workload(self, key: Key) -> Result | None:
        """Request, follow and release the capacity of one Workload."""
        if not self._names and next(self._requests.rows(), None) is None:
            return None
        workload = self._context.statuses.current(key)
        if not self._rows(key) and (workload is None or not self._has_check(workload)):
            return None
        delegated = workload is not None and is_delegated(workload, self._context.caches)
        if not delegated and not self._checks.ready:
            return None  # the reconcile of the check enqueues it again
        own = {row.key.name: self._requests.parse(row) for row in self._rows(key)}
        uid = None if workload is None else workload["metadata"]["uid"]
        left = {name: each for name, each in own.items() if (workload_owner(each) or ("", uid))[1] != uid}
        await self._delete_left_over(key, left)
        if workload is None:
            return None
        own = {name: each for name, each in own.items() if name not in left}
        decision = decide(self._facts(workload, own))
        again = await self._executor.execute(key, workload, decision, own)
        if again:
            return Result(after=_AGAIN_SECONDS)
        return Result(after=_BLOCKED_SECONDS) if decision.blocked else None

    def _has_check(self, workload: JsonObject) -> bool:
        entries: list[JsonObject] = (workload.get("status") or {}).get("admissionChecks") or []
        return any(self._checks.find(each["name"]) is not None for each in entries)

    def _rows(self, key: Key) -> list[Row]:
        rows = (self._requests.get(each) for each in self._requests.indexed(WORKLOAD_INDEX, str(key)))
        return [row for row in rows if row is not None and not self._executor.deleted(row.uid)]

    def _facts(self, workload: JsonObject, own: dict[str, JsonObject]) -> ProvisioningFacts:
        namespace: str = workload["metadata"]["namespace"]
        entries: list[JsonObject] = (workload.get("status") or {}).get("admissionChecks") or []
        checks = {
            each["name"]: None if "deletionTimestamp" in found["metadata"] else self._checks.usable(found)
            for each in entries
            if (found := self._checks.find(each["name"])) is not None
        }
        requests = dict(own)
        for entry in entries:
            name = current_request(workload, entry) if entry["name"] in checks else ""
            row = self._requests.get(Key(namespace, name)) if name and name not in requests else None
            if row is not None and not self._executor.deleted(row.uid):
                requests[name] = self._requests.parse(row)
        return ProvisioningFacts(
            workload=workload,
            checks=checks,
            requests=requests,
            templates=frozenset(self._template_owners(requests)),
            flavors={
                name: found
                for name in _flavors(workload)
                if (found := self._context.caches.view(RESOURCE_FLAVORS).object(Key("", name))) is not None
            },
            delete_when_evicted=self._context.configuration.gate(CLEAN_UP_GATE),
            delegated=is_delegated(workload, self._context.caches),
        )

    def _template_owners(self, requests: dict[str, JsonObject]) -> list[tuple[str, str]]:
        found = []
        for request in requests.values():
            for pod_set in (request.get("spec") or {}).get("podSets") or ():
                name = str((pod_set.get("podTemplateRef") or {}).get("name"))
                template = self._templates.object(Key(request["metadata"]["namespace"], name))
                owner = None if template is None else controller_of(template)
                if owner is not None:
                    found.append((name, str(owner["uid"])))
        return found

    async def _delete_left_over(self, key: Key, own: dict[str, JsonObject]) -> None:
        """Delete the requests of a Workload that is gone, also when another has its name now.

        The cache may lag behind, so the server is asked.
        """
        if not own:
            return
        try:
            live = await self._context.client.get_object(WORKLOADS, key.name, namespace=key.namespace)
        except NotFound:
            live = None
        for request in own.values():
            owner = workload_owner(request)
            if owner is not None and (live is None or live["metadata"]["uid"] != owner[1]):
                await self._executor.delete(request)


def _flavors(workload: JsonObject) -> set[str]:
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    return {name for each in admission.get("podSetAssignments") or () for name in (each.get("flavors") or {}).values()}
