# SPDX-License-Identifier: Apache-2.0
"""Carries out a provisioning decision: requests and templates deleted and created, then the states of the checks.

Promises that an object of another owner is never changed or deleted, and that a decision is dropped when the check has
changed since it was made. Running it again is safe: what exists already is taken as created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import orjson

from manager.context import ManagerContext
from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import MANAGED_LABEL, MANAGED_LABEL_VALUE, CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition, WorkloadEvent
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from multikueue.core.keys import Key
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.runtime.events import Reference
from multikueue.provisioning import messages
from multikueue.provisioning.decision import CheckChange, NewRequest, ProvisioningDecision, current_request
from multikueue.provisioning.requests import template_bodies

_ENDS: Final = (CheckState.RETRY, CheckState.REJECTED)
_REFUSALS: Final = (AlreadyExists, BadRequest, Forbidden, Invalid, NotFound)


class ProvisioningExecutor:
    """Writes requests, templates and states."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._deleted: set[str] = set()

    def deleted(self, uid: str) -> bool:
        """Whether the request was deleted here, and the cache may still show it."""
        return uid in self._deleted

    def forget(self, row: Row | None) -> None:
        """The cache no longer shows a request."""
        if row is not None:
            self._deleted.discard(row.uid)

    async def execute(
        self, key: Key, workload: JsonObject, decision: ProvisioningDecision, own: Mapping[str, JsonObject]
    ) -> bool:
        """Carry out a decision about `workload`, whose requests are `own`; whether to decide again soon.

        Raises what the API server answers; a refusal is shown in the check before.
        """
        for name in decision.delete:
            await self.delete(own[name])
        refused: dict[str, ApiError] = {}
        again = False
        for new in decision.create:
            try:
                again |= not await self._create_request(workload, new)
            except _REFUSALS as error:
                refused[new.check] = error
        for template in decision.templates:
            try:
                await self._create_template(template.body)
            except _REFUSALS as error:
                refused[template.check] = error
        await self._write(key, workload, decision.changes, refused)
        for refusal in refused.values():
            raise refusal
        return again

    async def delete(self, request: JsonObject) -> None:
        """Delete a request of ours; its templates follow it."""
        metadata = request["metadata"]
        if "deletionTimestamp" in metadata:
            return
        with suppress(NotFound):
            await self._context.client.delete(
                PROVISIONING_REQUESTS,
                metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                propagation="Background",
            )
        row = self._context.caches.view(PROVISIONING_REQUESTS).get(Key(metadata["namespace"], metadata["name"]))
        if row is not None and row.uid == metadata["uid"]:
            self._deleted.add(row.uid)

    async def _create_request(self, workload: JsonObject, new: NewRequest) -> bool:
        """Create a request and its templates; False if there is one of that name, which the cache then has."""
        metadata = new.body["metadata"]
        try:
            raw = await self._context.client.create(PROVISIONING_REQUESTS, new.body, namespace=metadata["namespace"])
        except AlreadyExists:
            # Created by an earlier call without an answer, or by another: the next decision finds out.
            await self._read(PROVISIONING_REQUESTS, Key(metadata["namespace"], metadata["name"]))
            return False
        message = f'Created ProvisioningRequest: "{metadata["name"]}"'
        about = Reference.of(workload)
        self._context.recorder.event(about, "Normal", WorkloadEvent.PROVISIONING_REQUEST_CREATED, message)
        self._context.caches.view(PROVISIONING_REQUESTS).on_write(raw)
        for body in template_bodies(orjson.loads(raw), new.pod_sets):
            await self._create_template(body)
        return True

    async def _create_template(self, body: JsonObject) -> None:
        """Create a template, or leave the one that is there. Raises `AlreadyExists` if that one is not ours."""
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        view = self._context.caches.view(POD_TEMPLATES)
        try:
            view.on_write(await self._context.client.create(POD_TEMPLATES, body, namespace=key.namespace))
        except AlreadyExists:
            found = await self._read(POD_TEMPLATES, key)
            owner, wanted = controller_of(found or {"metadata": {}}), controller_of(body)
            if owner is not None and wanted is not None and owner["uid"] == wanted["uid"]:
                return
            if found is not None and not _of_request(found):
                raise
            if found is not None:
                # An earlier request of this name left it; the garbage collector has not deleted it yet.
                uid = found["metadata"]["uid"]
                with suppress(NotFound):
                    await self._context.client.delete(POD_TEMPLATES, key.name, namespace=key.namespace, uid=uid)
            view.on_write(await self._context.client.create(POD_TEMPLATES, body, namespace=key.namespace))

    async def _read(self, resource: Resource, key: Key) -> JsonObject | None:
        """The live object, which the cache then has as well."""
        try:
            raw = await self._context.client.get(resource, key.name, namespace=key.namespace)
        except NotFound:
            return None
        self._context.caches.view(resource).on_write(raw)
        found: JsonObject = orjson.loads(raw)
        return found

    async def _write(
        self, key: Key, workload: JsonObject, decided: Iterable[CheckChange], refused: Mapping[str, ApiError]
    ) -> None:
        wanted = [_reported(workload, each, refused) for each in decided]
        decided_on = Status.of(workload)
        now = self._context.clock.now()

        def change(status: Status) -> Status:
            if not _same_basis(decided_on, status):
                return status  # the change that was made meanwhile is decided on next
            for each in wanted:
                status = changes.set_check(
                    status,
                    each.name,
                    state=each.state,
                    message=each.message,
                    now=now,
                    requeue_after_seconds=each.requeue_after_seconds,
                    # The Job that runs has them until it is stopped: without them it would not match its Workload.
                    pod_set_updates=None if each.state in _ENDS else each.pod_set_updates,
                )
            return status

        def written(obj: JsonObject, before: Status, after: Status) -> None:
            for each in wanted:
                old, new = before.check(each.name), after.check(each.name)
                if old is not None and new is not None and old.state is not new.state:
                    self._note(obj, old, new)
                if each.name in refused and each.state is CheckState.PENDING:
                    event = WorkloadEvent.FAILED_CREATE
                    self._context.recorder.event(Reference.of(obj), "Warning", event, each.message)

        if wanted:
            await self._context.statuses.write(key, change, uid=workload["metadata"]["uid"], written=written)

    def _note(self, workload: JsonObject, old: Check, new: Check) -> None:
        message = f"Admission check {new.name} updated state from {old.state} to {new.state}"
        if new.message:
            message += f" with message: {new.message}"
        kind = "Normal" if new.state in (CheckState.READY, CheckState.PENDING) else "Warning"
        self._context.recorder.event(Reference.of(workload), kind, WorkloadEvent.ADMISSION_CHECK_UPDATED, message)


def _reported(workload: JsonObject, change: CheckChange, refused: Mapping[str, ApiError]) -> CheckChange:
    """The change of a check, or that its request was refused; capacity that is provisioned stays so."""
    error = refused.get(change.name)
    if error is None or change.state is not CheckState.PENDING:
        return change
    entry = next(each for each in workload["status"]["admissionChecks"] if each["name"] == change.name)
    message = messages.not_created(current_request(workload, entry), str(error))
    return CheckChange(change.name, CheckState.PENDING, message)


def _of_request(template: JsonObject) -> bool:
    """Whether a template belongs to a request that a manager made."""
    labels, owner = template["metadata"].get("labels") or {}, controller_of(template)
    managed = labels.get(MANAGED_LABEL) == MANAGED_LABEL_VALUE
    return managed and owner is not None and owner["kind"] == PROVISIONING_REQUESTS.kind


def _same_basis(decided_on: Status, status: Status) -> bool:
    """Whether what the decision was made on still holds: checks, reservation, admission, eviction and end."""
    kinds = (
        WorkloadCondition.QUOTA_RESERVED,
        WorkloadCondition.ADMITTED,
        WorkloadCondition.EVICTED,
        WorkloadCondition.FINISHED,
    )
    return decided_on.checks == status.checks and all(
        decided_on.is_true(kind) == status.is_true(kind) for kind in kinds
    )
