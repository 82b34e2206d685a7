# SPDX-License-Identifier: Apache-2.0
"""The one way of a Workload's status to the API server.

An apply of one writer never drops what another wrote: scheduler loop, workload reconciler, job reconciler and dispatch
all write through `StatusWriter.write`. Promises that a change is decided on the newest object known, that nothing is
sent when nothing changes, and that two writers of one key never interleave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import orjson

from manager.cache.views import View, completed
from manager.workload.foreign_checks import IsForeign, applied
from manager.workload.former_reasons import current, former
from manager.workload.status import Check, Status
from multikueue.api.constants import ADMISSION_FIELD_MANAGER
from multikueue.api.meta import JsonObject
from multikueue.api.resource import WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube.errors import Conflict, Forbidden, Invalid, NotFound
from multikueue.kube.rest.client import Answered, KubeClient, PatchKind
from multikueue.kube.runtime.quarantine import Quarantine

_ATTEMPTS: Final = 5  # as many other writers may come between reading and writing before the controller backs off

Change = Callable[[Status], Status]
Written = Callable[[JsonObject, Status, Status], None]


class AdmissionHook(Protocol):
    """Dispatch, as far as the writes of others concern it."""

    def complete(self, workload: JsonObject, status: Status) -> Status:
        """The status to write instead of `status`: with the dispatch that follows from it; repeated on a conflict."""

    def ended(self, key: Key, workload: JsonObject | None) -> None:
        """A write in which `complete` may have been asked has ended; None if it failed or the Workload is gone."""

    def may_run_elsewhere(self, workload: JsonObject) -> bool:
        """Whether the Workload may still run on another cluster, whatever the status of its job here shows."""

    def remote_status(self, workload: JsonObject) -> JsonObject | None:
        """The status of its remote job, as the cluster of the Workload reported it since it was sent there last."""


class StatusWriter:
    """Applies changes to the status of Workloads, one writer of a key at a time."""

    def __init__(
        self,
        client: KubeClient,
        workloads: View,
        quarantine: Quarantine,
        *,
        foreign: IsForeign = lambda name: False,
        former_reasons: bool = False,
        written: Written | None = None,
    ) -> None:
        """`written` is called after each write with the object as it is now, and the status before and after.

        `foreign` tells which checks have a foreign controller. With `former_reasons` conditions have the reasons of
        earlier releases. `written` and the admission hook run under `quarantine`: a failure there never prevents a
        write.
        """
        self._quarantine = quarantine
        self._foreign = foreign
        self._former_reasons = former_reasons
        self._client = client
        self._workloads = workloads
        self._hook: AdmissionHook | None = None
        self._answered: Answered | None = None
        self._written = written
        self._locks: dict[Key, anyio.Lock] = {}
        self._waiting: Counter[Key] = Counter()

    @property
    def requests_sent(self) -> Counter[tuple[str, str]]:
        """Requests of our client by verb and resource."""
        return self._client.requests_sent

    @property
    def under_way(self) -> int:
        """How many Workloads are being written, or wait for it."""
        return len(self._waiting)

    def follow_answers(self, handler: Answered | None) -> None:
        """Call `handler` for each answer to an apply, from now on; no longer with None."""
        self._answered = handler

    def use_hook(self, hook: AdmissionHook | None) -> None:
        """Have dispatch take part in writes from now on, or no longer."""
        self._hook = hook

    def may_run_elsewhere(self, workload: JsonObject) -> bool:
        """Whether the Workload may still run on another cluster; never without dispatch."""
        return self._hook is not None and self._hook.may_run_elsewhere(workload)

    def remote_status(self, workload: JsonObject) -> JsonObject | None:
        """The status that the cluster of the Workload has reported of its remote job; None if that is not known."""
        return None if self._hook is None else self._hook.remote_status(workload)

    def current(self, key: Key) -> JsonObject | None:
        """The newest object known: that of the cache, or the answer to a later write of ours."""
        return self._workloads.object(key)

    def read(self, workload: JsonObject) -> Status:
        """The status of a Workload, with the reasons by which changes are decided."""
        status = Status.of(workload)
        return current(status) if self._former_reasons else status

    def shown_as(self, new: Status, before: Status) -> Status:
        """What is written of a changed status in place of `before`, which is as the object has it."""
        return former(new, before=before) if self._former_reasons else new

    async def write(
        self,
        key: Key,
        change: Change,
        *,
        uid: str = "",
        generation: int = 0,
        written: Written | None = None,
        planned: bool = False,
    ) -> JsonObject | None:
        """The object after `change`; None when it is gone, or another object has its name.

        Nothing is written if its spec has another `generation` by now than the one that the change was decided for.

        `change` must be pure: after a conflict it is applied again, to the live object. `written` is called when
        something was written. `planned` is a change that dispatch itself has planned: the admission hook does not plan
        again. Raises `ApiError` for everything but conflict and absence; cancelled, the write may or may not have
        happened.
        """
        hook = None if planned else self._hook
        lock = self._locks.setdefault(key, anyio.Lock())
        self._waiting[key] += 1
        try:
            async with lock:
                workload = None
                try:
                    workload = await self._write(
                        key, change, uid=uid, generation=generation, written=written, hook=hook
                    )
                finally:
                    if hook is not None:
                        with self._quarantine.guard("dispatch", WORKLOADS, key):
                            hook.ended(key, workload)
                return workload
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                del self._locks[key]

    async def _write(
        self,
        key: Key,
        change: Change,
        *,
        uid: str,
        generation: int,
        written: Written | None,
        hook: AdmissionHook | None,
    ) -> JsonObject | None:
        workload = self.current(key)
        for attempt in range(_ATTEMPTS):
            if workload is None or (uid and workload["metadata"].get("uid") != uid):
                return None
            if generation and workload["metadata"].get("generation") != generation:
                return workload
            old = self.read(workload)
            new = change(old)
            if new is old:
                return workload
            decided = new
            if hook is not None:
                with self._quarantine.guard("dispatch", WORKLOADS, key):
                    new = hook.complete(workload, decided)
            shown = Status.of(workload)
            wanted = self.shown_as(new, shown).wire()
            if wanted == shown.wire():
                return workload
            if len(new.checks) < len(old.checks) and attempt < _ATTEMPTS - 1:
                # Before the apply, which may say Admitted, and cannot remove an entry that its controller owns.
                names = {check.name for check in new.checks}
                kept = tuple(check for check in old.checks if check.name in names)
                if len(kept) < len(old.checks):
                    workload = await self._patch_checks(key, workload, kept)
                    continue
            try:
                answer = await self._client.apply(
                    WORKLOADS,
                    key.name,
                    _apply_body(workload, applied(wanted, self._foreign)),
                    namespace=key.namespace,
                    manager=ADMISSION_FIELD_MANAGER,
                    force=True,
                    subresource="status",
                    answered=self._answered,
                )
            except NotFound:
                self._workloads.on_not_found(key)
                return None
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                workload = await self._live(key)
            except (Invalid, Forbidden) as error:
                refused = isinstance(error, Invalid) or error.denied_by_webhook
                if not refused or attempt == _ATTEMPTS - 1 or not old.nominated or new.nominated:
                    raise
                # A nomination of another field manager is kept when we apply none, and excludes clusterName.
                workload = await self._withdraw_nomination(key, workload)
            else:
                self._workloads.on_write(answer)
                workload = _decoded(answer)
                if not new.nominated and workload["status"].get("nominatedClusterNames"):
                    workload = await self._withdraw_nomination(key, workload)
                if _left_over(Status.of(workload).checks, new.checks):
                    workload = await self._patch_checks(key, workload, new.checks)
                for notify in (written, self._written):
                    if notify is not None:
                        with self._quarantine.guard("status", WORKLOADS, key):
                            notify(workload, old, new)
                return workload
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _withdraw_nomination(self, key: Key, workload: JsonObject) -> JsonObject:
        """The object without the clusters that another writer nominated, or the live object when it has changed."""
        return await self._patch_status(key, workload, {"nominatedClusterNames": None})

    async def _patch_checks(self, key: Key, workload: JsonObject, checks: tuple[Check, ...]) -> JsonObject:
        """The object with exactly these checks: an apply removes nothing that their controllers own.

        If the write fails, `changes.sync_checks` and `changes.drop_left_over` ask for it again.
        """
        return await self._patch_status(key, workload, {"admissionChecks": [check.wire() for check in checks] or None})

    async def _patch_status(self, key: Key, workload: JsonObject, fields: JsonObject) -> JsonObject:
        """The object after a merge patch of exactly this version, or the live object when it has changed."""
        patch = {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}, "status": fields}
        try:
            answer = await self._client.patch(
                WORKLOADS, key.name, patch, namespace=key.namespace, kind=PatchKind.MERGE, subresource="status"
            )
        except (Conflict, NotFound):
            # The change arrives through the cache, and it is decided again then.
            return await self._live(key) or workload
        self._workloads.on_write(answer)
        return _decoded(answer)

    async def _live(self, key: Key) -> JsonObject | None:
        try:
            answer = await self._client.get(WORKLOADS, key.name, namespace=key.namespace)
        except NotFound:
            self._workloads.on_not_found(key)
            return None
        self._workloads.on_write(answer)
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


def _left_over(shown: Sequence[Check], wanted: Sequence[Check]) -> bool:
    """Whether an entry or an optional field is still there that should not be: another manager owns it too."""
    by_name = {check.name: check for check in wanted}
    for check in shown:
        want = by_name.get(check.name)
        if want is None:
            return True
        if (check.pod_set_updates and not want.pod_set_updates) or (
            check.retry_count is not None and want.retry_count is None
        ):
            return True
    return False
