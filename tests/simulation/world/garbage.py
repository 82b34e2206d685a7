# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of the management cluster, as far as a federation needs it.

Owns the removal of a Workload whose Job or pods are gone, of pods whose controller is gone, and of a PodTemplate whose
ProvisioningRequest is: a moment later, and later still while the API server is away. Of several owners those that are
gone are removed from it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import orjson

from devcluster.apiserver.http.requests import LOOPBACK, Request
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.operators.definitions import JOB_SETS
from multikueue.api.resource import LEADER_WORKER_SETS
from tests.simulation.world.group_pods import PODS
from tests.simulation.world.network import Server
from tests.simulation.world.pods import JOBS

_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_REPLICA_SETS: Final = "replicasets.apps"
_SETS: Final = ("statefulsets.apps", "deployments.apps", _REPLICA_SETS, LEADER_WORKER_SETS.qualified)
_JOBS: Final = (JOBS, JOB_SETS.qualified, PODS, *_SETS)
_OWNERS: Final = frozenset({*_JOBS, "provisioningrequests.autoscaling.x-k8s.io"})
_OWNED: Final = {
    _WORKLOADS: "/apis/kueue.x-k8s.io/v1beta2",
    "podtemplates": "/api/v1",
    PODS: "/api/v1",
    _REPLICA_SETS: "/apis/apps/v1",
}


class GarbageCollector:
    """Follows the deletions of owners."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server = server
        self._random = random

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note that an owner is gone, or was gone when something that it owns was made."""
        if collection in _OWNERS and event.entry is None and event.old is not None:
            self._soon(event.old.parse()["metadata"]["uid"])
        elif collection in (PODS, _REPLICA_SETS) and event.old is None:
            owners = {reference["uid"] for reference in event.value()["metadata"].get("ownerReferences") or ()}
            for uid in owners and owners - self._owners():
                self._soon(uid)

    def look_again(self) -> None:
        """Find what is there whose owner was deleted before a watch could report it."""
        context, there = self._server.api.context, self._owners()
        for kind in (_WORKLOADS, PODS, _REPLICA_SETS):
            for found in context.objects(kind):
                for reference in found["metadata"].get("ownerReferences") or ():
                    if reference["uid"] not in there:
                        self._soon(reference["uid"])

    def _soon(self, owner: str) -> None:
        asyncio.get_running_loop().call_later(self._random.uniform(0.05, 1.0), self._collect, owner)

    def _collect(self, owner: str) -> None:
        if not self._server.up:
            asyncio.get_running_loop().call_later(1.0, self._collect, owner)
            return
        for kind, base in _OWNED.items():
            for found in list(self._server.api.context.objects(kind)):
                metadata = found["metadata"]
                references = metadata.get("ownerReferences") or ()
                if not any(reference["uid"] == owner for reference in references):
                    continue
                path = f"{base}/namespaces/{metadata['namespace']}/{kind.partition('.')[0]}/{metadata['name']}"
                there = self._owners() if len(references) > 1 else frozenset()
                if kept := [reference for reference in references if reference["uid"] in there]:
                    patch = {"metadata": {"uid": metadata["uid"], "ownerReferences": kept}}
                    self._send("PATCH", path, orjson.dumps(patch))
                else:
                    self._send("DELETE", path, b"")

    def _owners(self) -> frozenset[str]:
        context = self._server.api.context
        return frozenset(found["metadata"]["uid"] for kind in _JOBS for found in context.objects(kind))

    def _send(self, method: str, path: str, body: bytes) -> None:
        headers = {"content-type": "application/merge-patch+json"} if body else {}
        self._server.api.handle(Request(method, path, "", headers, body, certificate=LOOPBACK))
