# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of the management cluster, as far as a federation needs it.

Owns the removal of a Workload whose Job is gone, and of a PodTemplate whose ProvisioningRequest is gone: a moment
later, and later still while the API server is away.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from devcluster.apiserver.http.requests import LOOPBACK, Request
from devcluster.apiserver.storage.entry import StoredChange
from tests.simulation.network import Server
from tests.simulation.pods import JOBS

_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_OWNERS: Final = frozenset({JOBS, "provisioningrequests.autoscaling.x-k8s.io"})
_OWNED: Final = {_WORKLOADS: "/apis/kueue.x-k8s.io/v1beta2", "podtemplates": "/api/v1"}


class GarbageCollector:
    """Follows the deletions of Jobs."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server = server
        self._random = random

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note that an owner is gone."""
        if collection in _OWNERS and event.entry is None and event.old is not None:
            uid: str = event.old.parse()["metadata"]["uid"]
            asyncio.get_running_loop().call_later(self._random.uniform(0.05, 1.0), self._collect, uid)

    def look_again(self) -> None:
        """Find the Workloads whose Jobs were deleted before a watch could report it."""
        context = self._server.api.context
        there = {found["metadata"]["uid"] for found in context.objects(JOBS)}
        for found in context.objects(_WORKLOADS):
            for reference in found["metadata"].get("ownerReferences") or ():
                if reference["uid"] not in there:
                    asyncio.get_running_loop().call_later(
                        self._random.uniform(0.05, 1.0), self._collect, reference["uid"]
                    )

    def _collect(self, owner: str) -> None:
        if not self._server.up:
            asyncio.get_running_loop().call_later(1.0, self._collect, owner)
            return
        for kind, base in _OWNED.items():
            for found in list(self._server.api.context.objects(kind)):
                metadata = found["metadata"]
                if any(reference["uid"] == owner for reference in metadata.get("ownerReferences") or ()):
                    plural = kind.partition(".")[0]
                    path = f"{base}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
                    self._server.api.handle(Request("DELETE", path, "", {}, b"", certificate=LOOPBACK))
