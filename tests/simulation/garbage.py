# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of the management cluster, as far as a federation needs it.

Owns the removal of a Workload whose Job is gone, a moment later, and later still while the API server is away.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from multikueue.devcluster.apiserver.requests import LOOPBACK, Request
from multikueue.devcluster.apiserver.storage.entry import Event
from tests.simulation.network import Server
from tests.simulation.pods import JOBS

_WORKLOADS: Final = "workloads.kueue.x-k8s.io"


class GarbageCollector:
    """Follows the deletions of Jobs."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server = server
        self._random = random

    def on_write(self, collection: str, event: Event) -> None:
        """Note that a Job is gone."""
        if collection == JOBS and event.entry is None and event.old is not None:
            uid: str = event.old.parse()["metadata"]["uid"]
            asyncio.get_running_loop().call_later(self._random.uniform(0.05, 1.0), self._collect, uid)

    def look_again(self) -> None:
        """Find the Workloads whose Jobs were gone before anybody could hear of it."""
        world = self._server.api.world
        there = {found["metadata"]["uid"] for found in world.objects(JOBS)}
        for found in world.objects(_WORKLOADS):
            for reference in found["metadata"].get("ownerReferences") or ():
                if reference["uid"] not in there:
                    asyncio.get_running_loop().call_later(
                        self._random.uniform(0.05, 1.0), self._collect, reference["uid"]
                    )

    def _collect(self, owner: str) -> None:
        if not self._server.up:
            asyncio.get_running_loop().call_later(1.0, self._collect, owner)
            return
        for found in list(self._server.api.world.objects(_WORKLOADS)):
            metadata = found["metadata"]
            if any(reference["uid"] == owner for reference in metadata.get("ownerReferences") or ()):
                path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{metadata['namespace']}/workloads/{metadata['name']}"
                self._server.api.handle(Request("DELETE", path, "", {}, b"", certificate=LOOPBACK))
