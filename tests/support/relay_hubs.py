# SPDX-License-Identifier: Apache-2.0
"""A hub that relays requests for the logs of one Job, without a server; the test plays user and agent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import orjson

from manager.cache.indexes import followed
from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.log_relay import AssignedLogRequests, LogRelay
from manager.dispatch.transport.push_transport import PushTransport
from manager.metrics import ManagerMetrics
from manager.seals import Seals
from multikueue.api.constants import LOG_REQUEST_SEAL_ANNOTATION
from multikueue.api.remoteassignment import assignment_name
from multikueue.api.resource import JOB_LOG_REQUESTS, REMOTE_ASSIGNMENTS, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube import errors
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row, Store, read_row
from multikueue.kube.errors import Details, KubeError

Object = dict[str, Any]
WORKLOAD = Key("team", "job-j")
REQUEST = Key("team", "r")
INDEXERS = {kind.resource: kind.indexers for kind in followed(namespace="kueue-system", jobs=())}


def refused(kind: type[errors.ApiError], status: int) -> errors.ApiError:
    return kind(request="PATCH", status=status, reason="", message="refused", details=Details())


class Hub:
    """A manager with one Job on a worker; `failures` are the answers to the next writes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.views: dict[Resource, View] = {}
        self.objects: dict[tuple[Resource, Key], Object] = {}
        self.failures: list[KubeError] = []
        self.handlers: list[Callable[[Change], None]] = []
        self.writes = 0
        self.seals = Seals.drawn(self.clock)
        self.context = cast(
            ManagerContext,
            SimpleNamespace(
                client=self,
                caches=SimpleNamespace(view=self.view, subscribe=self.subscribe, quarantine=None),
                clock=self.clock,
                metrics=ManagerMetrics(),
                seals=self.seals,
            ),
        )
        self.changed: list[Key] = []
        push = PushTransport(
            manager_uid="m", workload_uid=lambda key: "w", changed=self.changed.append, reported=lambda name: None
        )
        self.push = push
        self.released: list[Key] = []
        self.relay = LogRelay(self.context, AssignedLogRequests(self.context, push), self.released.append)
        self.relay.attach()
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": True}
        self.put(WORKLOADS, WORKLOAD, {"spec": {}, "status": {"clusterName": "east"}}, ownerReferences=[owner], uid="w")
        spec = {"workload": {"namespace": "team", "name": "job-j", "uid": "w"}, "intent": "Run", "epoch": 1}
        self.assignment = Key("mk-east", assignment_name(WORKLOAD))
        self.put(REMOTE_ASSIGNMENTS, self.assignment, {"spec": spec, "status": {"epoch": 1}})

    def view(self, resource: Resource) -> View:
        if resource not in self.views:
            store = Store(INDEXERS.get(resource))
            self.views[resource] = View(resource, clock=self.clock, store=store)
        return self.views[resource]

    def subscribe(self, resource: Resource, handler: Callable[[Change], None]) -> None:
        assert resource == JOB_LOG_REQUESTS
        self.handlers.append(handler)

    def _store(self, resource: Resource, row: Row | None, key: Key) -> None:
        """As a watch shows it."""
        store = self.view(resource).store
        change = Change("DELETED" if row is None else "MODIFIED", key, store.get(key), row)
        if row is None:
            store.remove(key)
        else:
            store.put(row)
        for handler in self.handlers if resource == JOB_LOG_REQUESTS else ():
            handler(change)

    def put(self, resource: Resource, key: Key, body: Object, **metadata: Any) -> Object:
        self.writes += 1
        made = {"namespace": key.namespace, "name": key.name, "uid": key.name, "resourceVersion": str(self.writes)}
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {**made, **metadata}, **body}
        self.objects[resource, key] = obj
        self._store(resource, read_row(orjson.dumps(obj)), key)
        return obj

    def group(self, *pods: str, name: str = "job-j", **metadata: Any) -> None:
        """The Workload is that of a group of these pods."""
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod} for pod in pods]
        body = {"spec": {}, "status": {"clusterName": "east"}}
        self.put(WORKLOADS, Key("team", name), body, **{"ownerReferences": owners, "uid": "w", **metadata})

    def request(self, name: str = "r", *, sealed: bool = True, **spec: Any) -> Key:
        wanted = {"job": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"}, "cursor": 0, **spec}
        seal = self.seals.log_request_seal(namespace="team", name=name, spec=wanted) if sealed else "forged"
        annotations = {LOG_REQUEST_SEAL_ANNOTATION: seal}
        key = Key("team", name)
        self.put(JOB_LOG_REQUESTS, key, {"spec": wanted}, annotations=annotations, creationTimestamp=name)
        return key

    def change(self, resource: Resource, key: Key, patch: Object) -> bytes:
        current = self.objects[resource, key]
        changed = merged(current, patch)
        self.writes += 1
        changed["metadata"]["resourceVersion"] = str(self.writes)
        self.objects[resource, key] = changed
        raw = orjson.dumps(changed)
        self._store(resource, read_row(raw), key)
        return raw

    async def patch(self, resource: Resource, name: str, body: Object, *, namespace: str, **how: Any) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        if (resource, Key(namespace, name)) not in self.objects:
            raise refused(errors.NotFound, 404)
        return self.change(resource, Key(namespace, name), body)

    async def delete(self, resource: Resource, name: str, *, namespace: str, uid: str) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        del self.objects[resource, Key(namespace, name)]
        self._store(resource, None, Key(namespace, name))
        self.view(resource).on_not_found(Key(namespace, name))
        return b""

    async def turn(self, key: Key = REQUEST) -> None:
        """Reconcile until nothing fails."""
        for _ in range(10):
            try:
                await self.relay.reconcile(key)
                await self.relay.deliver(WORKLOAD)
            except KubeError:
                continue
            return
        raise AssertionError("it never ended")

    def answer(self, *entries: Object) -> None:
        """The agent answers."""
        self.change(REMOTE_ASSIGNMENTS, self.assignment, {"status": {"logs": list(entries)}})

    def status(self, key: Key = REQUEST) -> Object:
        found: Object = self.objects[JOB_LOG_REQUESTS, key].get("status") or {}
        return found

    @property
    def relayed(self) -> list[Object]:
        """The requests in the assignment."""
        found: list[Object] = self.objects[REMOTE_ASSIGNMENTS, self.assignment]["spec"].get("logs") or []
        return found


def merged(obj: Object, patch: Object) -> Object:
    found = dict(obj)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name) or {}, value) if isinstance(value, dict) else value
    return found


def pod_named(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name}


def chunk(cursor: int, text: str = "", **more: Any) -> Object:
    return {"request": "r", "cursor": cursor, "pod": "p", "container": "c", "chunk": text, **more}
