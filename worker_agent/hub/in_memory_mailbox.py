# SPDX-License-Identifier: Apache-2.0
"""A mailbox in the memory of a manager, for an agent that the manager hosts (transport push).

Owns the assignments, the Lease and the report of one cluster. Promises what a mailbox namespace promises: each side
sees the other's writes at once, an assignment that was removed and created again has another uid, and a status is
never written to an assignment with another uid. The contents end with the process; `on_open` restores them from the
remote jobs before an absent assignment is acted on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio

from multikueue.api.constants import SENT_VERSION_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, mailbox_namespace
from multikueue.api.resource import CLUSTER_REPORTS, LEASES, REMOTE_ASSIGNMENTS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.wire import assigned_epoch
from multikueue.kube.errors import Details, KubeError, NotFound
from multikueue.kube.rest.client import Body, PatchKind


class InMemoryMailbox:
    """The mailbox of one cluster. To the agent it is a `HubClient` and a `MailboxView`."""

    def __init__(
        self,
        cluster: str,
        *,
        manager_uid: str,
        workload_uid: Callable[[Key], str],
        changed: Callable[[JsonObject], None],
        reported: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called with each assignment whose status was written or that was removed.

        `reported` is called after each report. `workload_uid` gives the uid of a Workload on the management cluster.
        """
        self.cluster = cluster
        self.manager_uid = manager_uid
        self.workload_uid = workload_uid
        self.namespace = mailbox_namespace(cluster)
        self.synced = anyio.Event()
        self.last_error: KubeError | None = None
        self.lease: JsonObject = {}
        self.report: JsonObject = {}
        self.opened = False
        self._listed: set[Resource] = set()
        self._changed = changed
        self._reported = reported
        self._assignments: dict[str, JsonObject] = {}
        self._sent_objects: dict[str, JsonObject] = {}
        self._notify_agent: Callable[[str], None] = lambda name: None
        self._on_open: Callable[[], None] = lambda: None
        self._on_request: Callable[[], None] = lambda: None

    # Used by the manager

    def put(self, body: JsonObject) -> None:
        """Create or update the assignment; one of another workload is replaced."""
        name: str = body["metadata"]["name"]
        current = self._assignments.get(name)
        if current is None or current["spec"]["workload"] != body["spec"]["workload"]:
            metadata = {**body["metadata"], "uid": str(uuid.uuid4())}
            self._assignments[name] = {**body, "metadata": metadata}
        else:
            logs = {"logs": current["spec"]["logs"]} if "logs" in current["spec"] else {}
            metadata = {**current["metadata"], **body["metadata"]}
            updated = {**current, "metadata": metadata, "spec": {**body["spec"], **logs}}
            if updated == current:
                return
            self._assignments[name] = updated
        self._notify_agent(name)

    def set_intent(self, name: str, intent: Intent) -> None:
        """Change the intent of the assignment; does nothing if it is gone."""
        current = self._assignments.get(name)
        if current is not None and current["spec"]["intent"] != intent:
            self._assignments[name] = {**current, "spec": {**current["spec"], "intent": str(intent)}}
            self._notify_agent(name)

    def request_logs(self, name: str, entries: list[JsonObject]) -> None:
        """Replace the requests for logs of the assignment; does nothing if it is gone."""
        current = self._assignments.get(name)
        if current is not None and (current["spec"].get("logs") or []) != entries:
            self._assignments[name] = {**current, "spec": {**current["spec"], "logs": entries}}
            self._notify_agent(name)

    def set_sent_objects(self, name: str, entries: list[JsonObject]) -> None:
        """Replace the list of objects that are sent with the job; does nothing if the assignment is gone."""
        current = self._assignments.get(name)
        if current is not None and (current["spec"].get("sentObjects") or []) != entries:
            self._assignments[name] = {**current, "spec": {**current["spec"], "sentObjects": entries}}
            self._notify_agent(name)

    def put_sent_object(self, obj: JsonObject) -> None:
        """Store an object that is sent with jobs, instead of a former one of its name."""
        self._sent_objects[obj["metadata"]["name"]] = obj

    def drop_sent_object(self, name: str) -> None:
        """Remove an object that is sent with jobs; does nothing if it is gone."""
        self._sent_objects.pop(name, None)

    def sent_versions(self) -> dict[str, str]:
        """The version of each object that is sent with jobs, by its name in the mailbox."""
        return {
            name: obj["metadata"]["annotations"][SENT_VERSION_ANNOTATION] for name, obj in self._sent_objects.items()
        }

    def remove(self, name: str) -> None:
        """Remove the assignment."""
        gone = self._assignments.pop(name, None)
        if gone is not None:
            self._notify_agent(name)
            self._changed(gone)

    def request_quotas(self, *, quotas: bool) -> None:
        """Set whether the agent reports the quota of its queues; it reads that with its next report."""
        spec: JsonObject = self.report.get("spec") or {}
        if spec.get("quotas") is not quotas:
            self.report = {**self.report, "spec": {**spec, "quotas": quotas}}
            self._on_request()

    def request_recovery(self, request: JsonObject | None) -> None:
        """Request the remote jobs of other managers, or with None end that; the agent reads it with its next report."""
        spec: JsonObject = {key: value for key, value in (self.report.get("spec") or {}).items() if key != "recovery"}
        self.report = {**self.report, "spec": spec if request is None else {**spec, "recovery": request}}

    def restore(self, obj: JsonObject) -> None:
        """Add an assignment with the status it had, unless there is a newer one of that name."""
        name: str = obj["metadata"]["name"]
        if name not in self._assignments:
            self._assignments[name] = {**obj, "metadata": {**obj["metadata"], "uid": str(uuid.uuid4())}}
            self._changed(obj)

    def is_first_list(self, kind: Resource) -> bool:
        """Whether jobs of that kind were not read before for this mailbox; remembers that they were."""
        is_first = kind not in self._listed
        self._listed.add(kind)
        return is_first

    def objects(self) -> Iterable[JsonObject]:
        """All assignments."""
        return tuple(self._assignments.values())

    # Used by the agent

    def attach(
        self,
        changed: Callable[[str], None],
        *,
        on_open: Callable[[], None],
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect an agent. `changed` is called with the name of each assignment that changed.

        `on_open` is called once, when the agent has read the jobs of its cluster. `on_request` is called when the
        manager requests something with the next report.
        """
        self.synced = anyio.Event()
        self._notify_agent, self._on_open, self._on_request = changed, on_open, on_request

    def on_write(self, obj: JsonObject) -> None:
        """Nothing is to be taken in: what is written is here at once."""

    @property
    def informer(self) -> InMemoryMailbox:
        """Itself: an assignment in memory needs no watch."""
        return self

    async def run(self) -> None:
        """Open the mailbox for the agent that was attached last; until cancelled."""
        if not self.opened:
            # From now on an absent assignment was removed by the manager, and its remote job is deleted.
            self._on_open()
            self.opened = True
        self.synced.set()
        await anyio.sleep_forever()

    def get(self, name: str) -> JsonObject | None:
        """The assignment; None if there is none."""
        return self._assignments.get(name)

    def names(self) -> list[str]:
        """The names of all assignments."""
        return list(self._assignments)

    async def owner(self) -> str:
        """The uid of the manager that hosts the mailbox."""
        return self.manager_uid

    async def has_epoch(self, name: str, epoch: int) -> bool:
        """Whether the assignment has that epoch."""
        found = self._assignments.get(name)
        return found is not None and assigned_epoch(found) == epoch

    async def sent_object(self, resource: Resource, name: str) -> JsonObject:
        """An object that is sent with jobs. Raises `NotFound`."""
        found = self._sent_objects.get(name)
        if found is None or found["kind"] != resource.kind:
            raise _not_found(self.cluster, name, resource=resource)
        return found

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body | list[dict[str, Any]],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
    ) -> object:
        """Write for the agent, with the same rights as on an API server."""
        if resource is LEASES:
            self.lease = patched(self.lease, body, kind)
            return self.lease
        if resource is CLUSTER_REPORTS:
            self.report = patched(self.report, body, kind)
            self._reported()
            return self.report
        if resource is not REMOTE_ASSIGNMENTS or subresource != "status":
            raise BadInput(f"an agent may not write {resource.kind} {name}")
        current = self._assignments.get(name)
        if current is None:
            raise _not_found(self.cluster, name)
        try:
            written = patched(current, body, kind)
        except _TestFailed as failure:
            raise _not_found(self.cluster, name) from failure
        updated = {**current, "status": written.get("status") or {}}
        self._assignments[name] = updated
        self._changed(updated)
        return updated


class _TestFailed(Exception):
    """A `test` of a JSON patch failed."""


def patched(obj: JsonObject, body: Body | list[dict[str, Any]], kind: PatchKind) -> JsonObject:
    """`obj` after a merge patch, or a JSON patch of `test`, `add` and `replace` on maps."""
    if kind is PatchKind.MERGE and isinstance(body, Mapping):
        return _merged(obj, body)
    if kind is not PatchKind.JSON or not isinstance(body, list):
        raise BadInput(f"a mailbox in memory does not support patches of type {kind}")
    for operation in body:
        path = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        if operation["op"] == "test":
            if _at(obj, path) != operation["value"]:
                raise _TestFailed(operation["path"])
        elif operation["op"] in ("add", "replace"):
            obj = _set(obj, path, operation["value"])
        else:
            raise BadInput(f"a mailbox in memory does not support the operation {operation['op']}")
    return obj


def _merged(obj: Mapping[str, Any], patch: Mapping[str, Any]) -> JsonObject:
    result: JsonObject = {key: value for key, value in obj.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            before = obj.get(key)
            result[key] = _merged(before if isinstance(before, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def _at(obj: Any, path: list[str]) -> object:
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def _set(obj: Mapping[str, Any], path: list[str], value: object) -> JsonObject:
    first, *rest = path
    return {**obj, first: _set(obj.get(first) or {}, rest, value) if rest else value}


def _not_found(cluster: str, name: str, *, resource: Resource = REMOTE_ASSIGNMENTS) -> NotFound:
    is_assignment = resource is REMOTE_ASSIGNMENTS
    asked = f"PATCH {resource.qualified}/status" if is_assignment else f"GET {resource.qualified}"
    return NotFound(
        request=f"{cluster}: {asked} {name}",
        status=404,
        reason="NotFound",
        message=f"the {'assignment' if is_assignment else 'object'} is gone",
        details=Details(name=name, kind=resource.plural),
    )
