# SPDX-License-Identifier: Apache-2.0
"""An external dispatcher: it nominates clusters by a rule of its own.

Owns the writes of `status.nominatedClusterNames` for workloads that have quota and no cluster, as an external
dispatcher makes them, sooner or later, and others when nothing came of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import orjson

from devcluster.apiserver.http.requests import LOOPBACK, Answer, Request
from devcluster.apiserver.storage.entry import StoredChange
from tests.simulation.world.network import Server

DISPATCHER: Final = "example.com/nominator"
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_PATIENCE: Final = 15.0


class Nominator:
    """Follows the Workloads of the hub."""

    def __init__(self, server: Server, random: Random, *, clusters: Sequence[str]) -> None:
        self._server = server
        self._random = random
        self._clusters = clusters
        self._busy: set[str] = set()

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note that a Workload may be waiting."""
        if collection == _WORKLOADS and event.entry is not None:
            self._note(event.key)

    def look_again(self) -> None:
        """Note all that is there, also what was missed on the watch."""
        for entry in self._server.api.context.store.collection(_WORKLOADS).entries():
            self._note(entry.key)

    def _note(self, key: str) -> None:
        if key not in self._busy:
            self._busy.add(key)
            asyncio.get_running_loop().call_later(self._random.uniform(0.05, 2.0), self._nominate, key)

    def _nominate(self, key: str) -> None:
        """Nominate some, and look again later, as long as it waits."""
        workload = self._server.api.context.get(_WORKLOADS, key)
        if workload is None or not _waits(workload.get("status") or {}):
            self._busy.discard(key)
            return
        asyncio.get_running_loop().call_later(_PATIENCE, self._nominate, key)
        if not self._server.up:
            return
        some = self._random.sample(self._clusters, self._random.randint(1, len(self._clusters)))
        namespace, _, name = key.partition("/")
        answer = self._server.api.handle(
            Request(
                method="PATCH",
                path=f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads/{name}/status",
                query_text="",
                headers={"content-type": "application/merge-patch+json"},
                body=orjson.dumps({"status": {"nominatedClusterNames": some}}),
                certificate=LOOPBACK,
            )
        )
        assert isinstance(answer, Answer)
        assert answer.status == 200, answer.body


def _waits(status: dict[str, Any]) -> bool:
    held = any(entry["type"] == "QuotaReserved" and entry["status"] == "True" for entry in status.get("conditions", ()))
    return held and not status.get("clusterName") and any(c["state"] == "Pending" for c in status["admissionChecks"])
