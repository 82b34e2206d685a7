# SPDX-License-Identifier: Apache-2.0
"""Queues and workloads in caches and an engine, for the tests of the visibility API."""

from __future__ import annotations

from typing import Any

import orjson

from manager.cache.caches import Caches
from manager.cache.indexes import followed
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.engine import decode
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Settings
from multikueue.kube.rest.client import KubeClient

Object = dict[str, Any]
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}


class Hub:
    """The caches of a manager, and an engine that follows them."""

    def __init__(self, client: KubeClient | None = None) -> None:
        self.clock = ManualClock()
        self.caches = Caches(client, followed(namespace="kueue-system", jobs=()), clock=self.clock)  # type: ignore[arg-type]
        self.engine = Engine(Settings())
        self.asked = 0
        self._version = 0

    async def current(self) -> Engine:
        """The engine."""
        self.asked += 1
        return self.engine

    def queue(self, name: str, *local_queues: str, namespace: str = "team") -> None:
        """A ClusterQueue and the LocalQueues that point to it."""
        self._add(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": {"namespaceSelector": {}}})
        for local in local_queues:
            metadata = {"name": local, "namespace": namespace}
            self._add(LOCAL_QUEUES, {"metadata": metadata, "spec": {"clusterQueue": name}})

    def workload(self, name: str, queue: str, *, priority: int = 0, created: int = 0, namespace: str = "team") -> None:
        """A pending workload; `created` is a second of the hour."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        self._add(
            WORKLOADS,
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
                    "ownerReferences": [OWNER],
                    "labels": {"secret": "not shown"},
                },
                "spec": {
                    "queueName": queue,
                    "priority": priority,
                    "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
                },
            },
        )

    def _add(self, resource: Resource, obj: Object) -> None:
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", "resourceVersion": str(self._version), "generation": 1}
        whole = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **obj,
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", **metadata, **obj["metadata"]},
        }
        self.caches.view(resource).on_write(orjson.dumps(whole))
        now = self.clock.now()
        if resource is CLUSTER_QUEUES:
            self.engine.upsert_cluster_queue(decode.cluster_queue(whole), now)
        elif resource is LOCAL_QUEUES:
            self.engine.upsert_local_queue(decode.local_queue(whole), now)
        else:
            self.engine.upsert_workload(decode.workload(whole, decode.Shapes()), now)
