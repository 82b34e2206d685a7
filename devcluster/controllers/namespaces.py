# SPDX-License-Identifier: Apache-2.0
"""The namespace controller: deletes the content of terminating namespaces, then finalizes them.

Owns the order (pods first, then all other resources) and the conditions about remaining content. Discovery is repeated
in each reconcile, so that kinds defined later are included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import orjson

from devcluster.controllers.caches import BACKOFF, ControllerCaches
from devcluster.controllers.discovery import served
from devcluster.controllers.jobs import each
from multikueue.api.objects import JsonObject
from multikueue.api.resource import NAMESPACES, PODS, Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import ApiError, Conflict, MethodNotAllowed, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

FINALIZER: Final = "kubernetes"
_RETRY: Final = Backoff(base=0.1, factor=1.5, cap=5.0)


@dataclass(slots=True)
class Contents:
    """The remaining content of a namespace, and failures to delete it."""

    remaining: dict[str, int] = field(default_factory=dict)
    """Objects by `resource.group`."""
    finalizers: dict[str, int] = field(default_factory=dict)
    """Objects by finalizer."""
    failures: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether the namespace can be finalized."""
        return not self.remaining and not self.failures


def conditions_of(contents: Contents, old: Sequence[JsonObject], *, now: datetime) -> list[JsonObject]:
    """The conditions of a terminating namespace; a transition time changes only with the status."""
    remaining = ", ".join(
        f"{name} has {count} resource instances" for name, count in sorted(contents.remaining.items())
    )
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(contents.finalizers.items()))
    wanted = (
        ("NamespaceDeletionDiscoveryFailure", "", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            f"Failed to delete all resource types, {len(contents.failures)} remaining: {', '.join(contents.failures)}"
            if contents.failures
            else "",
            "ContentDeletionFailed" if contents.failures else "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            f"Some resources are remaining: {remaining}" if remaining else "",
            "SomeResourcesRemain" if remaining else "ContentRemoved",
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            f"Some content in the namespace has finalizers remaining: {held}" if held else "",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    )
    known: Mapping[str, JsonObject] = {entry["type"]: entry for entry in old}
    made = []
    for type_, trouble, reason, fine in wanted:
        status = "True" if trouble else "False"
        before = known.get(type_)
        same = before is not None and before["status"] == status
        since = before["lastTransitionTime"] if same and before is not None else format_time(now)
        made.append(
            {"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": trouble or fine}
        )
    return made


class Namespaces:
    """The namespace controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._store = caches.namespaces.store
        self._clock = clock
        self._attempts: dict[str, int] = {}
        self._controller: Controller[Key] = Controller(
            "namespaces", self.reconcile, workers=4, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.namespaces.add_handler(self._changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Delete content of one namespace, and finalize it when it is empty."""
        namespace = self._store.object(key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return None
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return None
        contents = await self._empty(key.name)
        try:
            if contents.empty:
                await self._finalize(namespace)
                return None
            await self._report(namespace, contents)
        except NotFound:
            return None
        attempts = self._attempts[namespace["metadata"]["uid"]] = (
            self._attempts.get(namespace["metadata"]["uid"], 0) + 1
        )
        return Result(after=_RETRY.delay(attempts))

    async def _empty(self, namespace: str) -> Contents:
        contents = Contents()
        await self._clear(PODS, namespace, contents)
        if contents.remaining:
            return contents  # pods may still need other objects
        kinds = [kind for kind in await served(self._client) if kind.namespaced and kind.plural != PODS.plural]

        async def clear(kind: Resource) -> None:
            await self._clear(kind, namespace, contents)

        await each(kinds, clear)
        return contents

    async def _clear(self, kind: Resource, namespace: str, contents: Contents) -> None:
        try:
            found = await self._client.list_all(kind, namespace=namespace, metadata_only=True)
        except (NotFound, MethodNotAllowed):
            return  # the definition of the kind was deleted
        items: list[JsonObject] = [orjson.loads(raw)["metadata"] for raw in found.items]
        if not items:
            return

        async def remove(metadata: JsonObject) -> None:
            if "deletionTimestamp" in metadata:
                return
            try:
                await self._client.delete(
                    kind, metadata["name"], namespace=namespace, propagation="Background", uid=metadata["uid"]
                )
            except (NotFound, Conflict):
                return
            except ApiError as error:
                contents.failures.append(f"{kind.qualified}: {error.message}")

        await each(items, remove)
        left = await self._client.list_all(kind, namespace=namespace, metadata_only=True)
        for raw in left.items:
            metadata = orjson.loads(raw)["metadata"]
            name = f"{kind.plural}.{kind.group}"
            contents.remaining[name] = contents.remaining.get(name, 0) + 1
            for finalizer in metadata.get("finalizers") or ():
                contents.finalizers[finalizer] = contents.finalizers.get(finalizer, 0) + 1

    async def _report(self, namespace: JsonObject, contents: Contents) -> None:
        old = (namespace.get("status") or {}).get("conditions") or []
        conditions = conditions_of(contents, old, now=self._clock.now())
        if conditions != old:
            body = {"status": {"conditions": conditions}}
            await self._client.patch(NAMESPACES, namespace["metadata"]["name"], body, subresource="status")

    async def _finalize(self, namespace: JsonObject) -> None:
        # Without resourceVersion: concurrent changes do not prevent finalization.
        metadata = {key: value for key, value in namespace["metadata"].items() if key != "resourceVersion"}
        kept = [name for name in namespace["spec"]["finalizers"] if name != FINALIZER]
        body = {
            **namespace,
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            "metadata": metadata,
            "spec": {**namespace["spec"], "finalizers": kept},
        }
        await self._client.replace(NAMESPACES, metadata["name"], body, subresource="finalize")

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._attempts.pop(change.row.uid, None)
        elif change.new.deleting:
            self._controller.enqueue(change.key)
