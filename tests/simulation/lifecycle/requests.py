# SPDX-License-Identifier: Apache-2.0
"""The API server of the lifecycle simulation for ProvisioningRequests and PodTemplates, and what its watches report.

Owners are not followed at once: `collect` is the garbage collector, which comes late or never.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from multikueue.api.objects import controller_of
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from multikueue.core.keys import Key
from multikueue.kube.errors import AlreadyExists, ApiError, Conflict, Details, NotFound
from multikueue.kube.rest import watch

Object = dict[str, Any]
FOLLOWED: Final = (PROVISIONING_REQUESTS, POD_TEMPLATES)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What a watch reports."""

    resource: Resource
    type: str
    key: Key
    raw: bytes


@dataclass(slots=True)
class RequestStore:
    """Both kinds by key, and what their watches reported."""

    objects: dict[Resource, dict[Key, Object]] = field(default_factory=lambda: {each: {} for each in FOLLOWED})
    events: list[WatchEvent] = field(default_factory=list)
    version: int = 0
    met: dict[str, int] = field(default_factory=dict)
    """How often something happened, by what it is: a run that provisions nothing proves nothing."""

    def requests(self) -> list[Object]:
        """All requests, in the order of their names."""
        found = self.objects[PROVISIONING_REQUESTS]
        return [found[key] for key in sorted(found)]

    def templates(self) -> list[Object]:
        """All templates, in the order of their names."""
        found = self.objects[POD_TEMPLATES]
        return [found[key] for key in sorted(found)]

    def add(self, resource: Resource, body: Object) -> Object:
        """Store a new object."""
        stored = copy.deepcopy(body)
        self.version += 1
        stored["metadata"].update(uid=f"uid-of-{self.version}", generation=1)
        key = Key(stored["metadata"]["namespace"], stored["metadata"]["name"])
        self.objects[resource][key] = stored
        self.touch(resource, stored, watch.ADDED)
        return stored

    def touch(self, resource: Resource, stored: Object, kind: str = watch.MODIFIED) -> None:
        """The object was changed in place; without a finalizer it is gone once it is deleted."""
        self.version += 1
        metadata = stored["metadata"]
        metadata["resourceVersion"] = str(self.version)
        key = Key(metadata["namespace"], metadata["name"])
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.objects[resource][key]
            kind = watch.DELETED
        self.events.append(WatchEvent(resource, kind, key, orjson.dumps(stored)))

    def delete(self, resource: Resource, stored: Object, now: str) -> None:
        """A client deletes it."""
        stored["metadata"].setdefault("deletionTimestamp", now)
        self.touch(resource, stored)

    def collect(self, owners: set[str], now: str) -> None:
        """Delete what has an owner that is gone; `owners` are the uids of all Workloads."""
        for resource in (PROVISIONING_REQUESTS, POD_TEMPLATES):
            uids = owners if resource is PROVISIONING_REQUESTS else self._request_uids()
            for stored in list(self.objects[resource].values()):
                owner = controller_of(stored)
                if owner is not None and owner["uid"] not in uids and "deletionTimestamp" not in stored["metadata"]:
                    self.delete(resource, stored, now)

    def durable(self, workloads: dict[str, str]) -> Object:
        """What two managers must agree on: no versions and uids, and no template whose request is gone.

        `workloads` are the names of the Workloads that are there, by uid.
        """
        names = workloads | {each["metadata"]["uid"]: each["metadata"]["name"] for each in self.requests()}
        shown: Object = {"requests": {}, "templates": {}}
        for kind, found in (("requests", self.requests()), ("templates", self.templates())):
            for each in found:
                owner = controller_of(each)
                if kind == "templates" and owner is not None and owner["uid"] not in names:
                    continue
                one = copy.deepcopy({name: value for name, value in each.items() if name != "metadata"})
                metadata = each["metadata"]
                one["deleting"] = "deletionTimestamp" in metadata
                one["owner"] = None if owner is None else names.get(owner["uid"], owner["uid"])
                shown[kind][metadata["name"]] = one
        return shown

    def _request_uids(self) -> set[str]:
        return {each["metadata"]["uid"] for each in self.requests()}


class Patch(Protocol):
    """What the API server does with a merge patch of another kind."""

    def __call__(self, resource: Resource, name: str, body: Object) -> bytes: ...


@dataclass(slots=True)
class RequestClient:
    """The client of the manager; `write` is where it can be killed, `audit` sees each write before it."""

    store: RequestStore
    write: Callable[[Callable[[], object]], None]
    audit: Callable[[str, Resource, Object], None]
    time: Callable[[], str]
    find: Callable[[Resource, Key], Object | None]
    """Objects of other kinds."""
    merge: Patch

    async def create(self, resource: Resource, body: Object, *, namespace: str) -> bytes:
        """Create an object."""
        key = Key(namespace, body["metadata"]["name"])
        if key in self.store.objects[resource]:
            raise refusal(AlreadyExists, 409, f"create {resource.plural} {key}")
        self.audit("create", resource, body)
        self.write(lambda: self.store.add(resource, body))
        return orjson.dumps(self.store.objects[resource][key])

    async def get(self, resource: Resource, name: str, *, namespace: str) -> bytes:
        """Read an object."""
        return orjson.dumps(await self.get_object(resource, name, namespace=namespace))

    async def get_object(self, resource: Resource, name: str, *, namespace: str) -> Object:
        """Read an object, parsed."""
        key = Key(namespace, name)
        found = self.store.objects[resource].get(key) if resource in FOLLOWED else self.find(resource, key)
        if found is None:
            raise refusal(NotFound, 404, f"get {resource.plural} {key}")
        return copy.deepcopy(found)

    async def delete(
        self, resource: Resource, name: str, *, namespace: str, uid: str, propagation: str = "Background"
    ) -> None:
        """Delete the object with that uid."""
        key = Key(namespace, name)
        found = self.store.objects[resource].get(key)
        if found is None:
            raise refusal(NotFound, 404, f"delete {resource.plural} {key}")
        if found["metadata"]["uid"] != uid:
            raise refusal(Conflict, 409, f"delete {resource.plural} {key}")
        self.audit("delete", resource, found)
        self.write(lambda: self.store.delete(resource, found, self.time()))

    async def patch(self, resource: Resource, name: str, body: Object, **_: object) -> bytes:
        """A merge patch of an object that is followed by the manager's informers at once."""
        return self.merge(resource, name, body)


def refusal(kind: type[ApiError], status: int, request: str) -> ApiError:
    """What the API server answers."""
    return kind(request=request, status=status, reason=kind.__name__, message="", details=Details())
