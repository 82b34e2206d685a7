# SPDX-License-Identifier: Apache-2.0
"""Nodes that are taken away, and the pods that are left on them.

A kubelet that is gone ends no pod, and a Job waits for each of its pods. Each node is a key of a work queue until it is
gone and no pod is left on it: what a server refuses is tried again with a growing pause. After the node is gone, a Job
that is stopped meanwhile has `LOST_SECONDS` to delete its pods itself, so that they do not count as failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import orjson

from devcluster.controllers.caches import BACKOFF
from multikueue.api.resource import NODES, PODS
from multikueue.core.clock import Clock
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

LOST_SECONDS: Final = 2.0


class RemovedNodes:
    """The nodes that are being removed from one cluster."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._gone_at: dict[str, float | None] = {}
        """When each node was found to be gone; None while it may exist."""
        self.controller: Controller[str] = Controller(
            "removed-nodes", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )

    @property
    def pending(self) -> frozenset[str]:
        """Those that may exist, or have pods."""
        return frozenset(self._gone_at)

    def add(self, names: Iterable[str]) -> None:
        """Remove these nodes, and the pods on them."""
        for name in names:
            self._gone_at.setdefault(name, None)
            self.controller.enqueue(name)

    def discard(self, names: Iterable[str]) -> None:
        """Remove these nodes no longer: they are added again."""
        for name in names:
            self._gone_at.pop(name, None)

    async def reconcile(self, name: str) -> Result | None:
        """The next step of one node. Raises `KubeError`, after which the node is still pending."""
        if name not in self._gone_at:
            return None
        now = self._clock.monotonic()
        gone_at = self._gone_at[name]
        if gone_at is None:
            try:
                await self._client.delete(NODES, name)
            except NotFound:
                log.debug("node is gone already name=%s", name)
            if name in self._gone_at:
                self._gone_at[name] = self._clock.monotonic()
            return Result(after=LOST_SECONDS)
        if now < gone_at + LOST_SECONDS:
            return Result(after=gone_at + LOST_SECONDS - now)
        if await self._end_pods(name):
            return Result(after=LOST_SECONDS)  # a finalizer may keep one, and one may have been bound late
        self._gone_at.pop(name, None)
        return None

    async def _end_pods(self, node: str) -> int:
        """Delete the pods on a node; gives how many there were. Raises the last `KubeError` after trying each."""
        pods = (await self._client.list_all(PODS, field_selector=f"spec.nodeName={node}")).items
        failure: KubeError | None = None
        for raw in pods:
            metadata = orjson.loads(raw)["metadata"]
            try:
                await self._client.delete(
                    PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
                )
            except NotFound:
                continue
            except KubeError as error:
                failure = error
        if failure is not None:
            raise failure
        return len(pods)
