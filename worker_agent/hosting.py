# SPDX-License-Identifier: Apache-2.0
"""A mailbox in memory, between a manager and the agent that it hosts (push).

Owns the assignments, the Lease and the report of one cluster as values, and who is told of a change. Promises what a
mailbox namespace promises: each side sees at once what the other has written, an assignment that was removed and made
again is another one, and a status never lands on it. What it holds ends with the process; `opening` is the hook by
which it is filled again from the jobs on the worker before the first absence is acted upon.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, mailbox_namespace
from multikueue.api.resource import CLUSTER_REPORTS, LEASES, REMOTE_ASSIGNMENTS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.client import Body, PatchKind
from multikueue.kube.errors import Details, KubeError, NotFound

_Told = Callable[[JsonObject], None]


class HostedMailbox:
    """The mailbox of one cluster. The agent's side is a `HubClient` and a `MailboxView`."""

    def __init__(
        self,
        cluster: str,
        *,
        manager_uid: str,
        workload_uid: Callable[[Key], str],
        told: _Told,
        reported: Callable[[], None] = lambda: None,
    ) -> None:
        """`told` hears of each assignment that was said something about or removed, `reported` of each report.

        `workload_uid` knows the Workloads of the management cluster, by whose uid an assignment is for them.
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
        self._told = told
        self._reported = reported
        self._assignments: dict[str, JsonObject] = {}
        self._wake: Callable[[str], None] = lambda name: None
        self._opening: Callable[[], None] = lambda: None

    # The manager's side

    def put(self, body: JsonObject) -> None:
        """Make the assignment, or bring it up to date; one of another workload is replaced."""
        name: str = body["metadata"]["name"]
        current = self._assignments.get(name)
        if current is None or current["spec"]["workload"] != body["spec"]["workload"]:
            metadata = {**body["metadata"], "uid": str(uuid.uuid4())}
            self._assignments[name] = {**body, "metadata": metadata}
        else:
            updated = {**current, "metadata": {**current["metadata"], **body["metadata"]}, "spec": body["spec"]}
            if updated == current:
                return
            self._assignments[name] = updated
        self._wake(name)

    def set_intent(self, name: str, intent: Intent) -> None:
        """Change what the cluster is to do; an assignment that is gone is left alone."""
        current = self._assignments.get(name)
        if current is not None and current["spec"]["intent"] != intent:
            self._assignments[name] = {**current, "spec": {**current["spec"], "intent": str(intent)}}
            self._wake(name)

    def remove(self, name: str) -> None:
        """Take the assignment away."""
        gone = self._assignments.pop(name, None)
        if gone is not None:
            self._wake(name)
            self._told(gone)

    def ask(self, *, quotas: bool) -> None:
        """Say in the report's spec what is asked of the agent, which reads it with its next report."""
        self.report = {**self.report, "spec": {**(self.report.get("spec") or {}), "quotas": quotas}}

    def ask_back(self, request: JsonObject | None) -> None:
        """Ask the agent for copies of other managers, or no longer; it reads this with its next report too."""
        spec: JsonObject = {key: value for key, value in (self.report.get("spec") or {}).items() if key != "recovery"}
        self.report = {**self.report, "spec": spec if request is None else {**spec, "recovery": request}}

    def restore(self, obj: JsonObject) -> None:
        """Put an assignment back with the status it had, unless a newer wish stands there."""
        name: str = obj["metadata"]["name"]
        if name not in self._assignments:
            self._assignments[name] = {**obj, "metadata": {**obj["metadata"], "uid": str(uuid.uuid4())}}
            self._told(obj)

    def objects(self) -> Iterable[JsonObject]:
        """All assignments."""
        return tuple(self._assignments.values())

    # The agent's side

    def attach(self, wake: Callable[[str], None], *, opening: Callable[[], None]) -> None:
        """An agent begins to serve the mailbox; `opening` is called when it knows the jobs of its cluster."""
        self.synced = anyio.Event()
        self._wake, self._opening = wake, opening

    @property
    def informer(self) -> HostedMailbox:
        """Itself: there is nothing between a wish and who follows it."""
        return self

    async def run(self) -> None:
        """Open the mailbox to the agent that was attached last."""
        if not self.opened:
            # Later what is absent here was removed here, and its jobs are to go.
            self._opening()
            self.opened = True
        self.synced.set()
        await anyio.sleep_forever()

    def get(self, name: str) -> JsonObject | None:
        """The assignment, if it stands there."""
        return self._assignments.get(name)

    def names(self) -> list[str]:
        """All assignments that stand there."""
        return list(self._assignments)

    async def owner(self) -> str:
        """The manager that hosts it."""
        return self.manager_uid

    async def stands(self, name: str, epoch: int) -> bool:
        """Whether the assignment is of that epoch."""
        found = self._assignments.get(name)
        return found is not None and int(found["spec"]["epoch"]) == epoch

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
        """Take what the agent says, as an API server with the agent's rights would."""
        if resource is LEASES:
            self.lease = patched(self.lease, body, kind)
            return self.lease
        if resource is CLUSTER_REPORTS:
            self.report = patched(self.report, body, kind)
            self._reported()
            return self.report
        if resource is not REMOTE_ASSIGNMENTS or subresource != "status":
            raise BadInput(f"an agent writes no {resource.kind} {name}")
        current = self._assignments.get(name)
        if current is None:
            raise _not_found(self.cluster, name)
        try:
            said = patched(current, body, kind)
        except _TestFailed as failure:
            raise _not_found(self.cluster, name) from failure
        updated = {**current, "status": said.get("status") or {}}
        self._assignments[name] = updated
        self._told(updated)
        return updated


class _TestFailed(Exception):
    """A JSON patch expected another value."""


def patched(obj: JsonObject, body: Body | list[dict[str, Any]], kind: PatchKind) -> JsonObject:
    """`obj` after a merge patch, or a JSON patch of `test`, `add` and `replace` on maps."""
    if kind is PatchKind.MERGE and isinstance(body, Mapping):
        return _merged(obj, body)
    if kind is not PatchKind.JSON or not isinstance(body, list):
        raise BadInput(f"a mailbox in memory knows no patch of kind {kind}")
    for operation in body:
        path = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        if operation["op"] == "test":
            if _at(obj, path) != operation["value"]:
                raise _TestFailed(operation["path"])
        elif operation["op"] in ("add", "replace"):
            obj = _set(obj, path, operation["value"])
        else:
            raise BadInput(f"a mailbox in memory knows no {operation['op']}")
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


def _not_found(cluster: str, name: str) -> NotFound:
    return NotFound(
        request=f"{cluster}: PATCH {REMOTE_ASSIGNMENTS.qualified}/status {name}",
        status=404,
        reason="NotFound",
        message="the assignment is gone",
        details=Details(name=name, kind=REMOTE_ASSIGNMENTS.plural),
    )
