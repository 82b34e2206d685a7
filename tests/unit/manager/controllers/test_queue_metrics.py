# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field, replace

import orjson
from prometheus_client import CollectorRegistry

from manager.cache.ended_workloads import ENDED_INDEX, ended
from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.cache.views import View
from manager.controllers.queue_metrics import QueueMetrics
from multikueue.api.reasons import ClusterQueueReason, LocalQueueReason
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.engine.decisions import ClusterQueueState, LocalQueueState
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Settings
from multikueue.kube.cache.store import Indexer, Store

QUEUE, LOCAL = Key("", "cq"), Key("team", "lq")
INDEXES: dict[str, Indexer] = {ENDED_INDEX: ended}
LOCAL_INDEXES: dict[str, Indexer] = {CLUSTER_QUEUE_INDEX: lambda obj: ["cq"]}
STATE = ClusterQueueState(name="cq", active=True, reason=ClusterQueueReason.READY, message="")
LOCAL_STATE = LocalQueueState(key=LOCAL, active=True, reason=LocalQueueReason.READY, message="")


@dataclass
class Queues:
    """A ClusterQueue and a LocalQueue with the figures that the test sets, and the registry that is scraped."""

    state: ClusterQueueState = STATE
    local_state: LocalQueueState | None = LOCAL_STATE
    views: dict[Resource, View] = field(default_factory=dict)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    version: int = 0
    measured: bool = True

    def __post_init__(self) -> None:
        self.views[WORKLOADS] = View(WORKLOADS, clock=ManualClock(), store=Store(INDEXES))
        for resource, key in ((CLUSTER_QUEUES, QUEUE), (LOCAL_QUEUES, LOCAL)):
            store = Store(LOCAL_INDEXES if resource is LOCAL_QUEUES else {})
            self.views[resource] = View(resource, clock=ManualClock(), store=store)
            self.put(resource, key)
        self.registry.register(
            QueueMetrics(
                self.views[CLUSTER_QUEUES],
                self.views[LOCAL_QUEUES],
                self.views[WORKLOADS],
                engine=lambda: Engine(Settings()),
                by_local_queue=lambda key: self.measured,
                with_quota=False,
                with_cohorts=False,
                state=lambda key: self.state,
                local_state=lambda key: self.local_state,
                role=lambda: "leader",
            )
        )

    def put(self, resource: Resource, key: Key, **metadata: str) -> None:
        self.version += 1
        named = {"name": key.name, "namespace": key.namespace, "uid": key.name, "resourceVersion": str(self.version)}
        self.views[resource].on_write(orjson.dumps({"metadata": {**named, "generation": 1, **metadata}, "spec": {}}))

    def of_cluster_queue(self, series: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(series, {"cluster_queue": "cq", "replica_role": "leader", **labels})

    def of_local_queue(self, series: str, **labels: str) -> float | None:
        labels = {"name": "lq", "namespace": "team", "replica_role": "leader", **labels}
        return self.registry.get_sample_value(series, labels)


def test_the_gauges_of_a_cluster_queue_are_those_of_this_moment() -> None:
    queues = Queues()
    assert queues.of_cluster_queue("kueue_pending_workloads", status="active") == 0
    queues.state = replace(STATE, pending=5, inadmissible=2, reserving=4, admitted=3)
    assert queues.of_cluster_queue("kueue_pending_workloads", status="active") == 3
    assert queues.of_cluster_queue("kueue_pending_workloads", status="inadmissible") == 2
    assert queues.of_cluster_queue("kueue_reserving_active_workloads") == 4
    assert queues.of_cluster_queue("kueue_admitted_active_workloads") == 3


def test_what_is_pending_in_a_queue_that_admits_nothing_is_inadmissible() -> None:
    queues = Queues(
        state=replace(STATE, active=False, pending=5, inadmissible=2),
        local_state=replace(LOCAL_STATE, active=False, pending=5),
    )
    for status, count in (("active", 0), ("inadmissible", 5)):
        assert queues.of_cluster_queue("kueue_pending_workloads", status=status) == count
        assert queues.of_local_queue("kueue_local_queue_pending_workloads", status=status) == count


def test_a_cluster_queue_is_in_one_state() -> None:
    queues = Queues()

    def shown() -> dict[str, float | None]:
        statuses = ("pending", "active", "terminating")
        return {each: queues.of_cluster_queue("kueue_cluster_queue_status", status=each) for each in statuses}

    assert shown() == {"pending": 0, "active": 1, "terminating": 0}
    queues.state = replace(STATE, active=False)
    assert shown() == {"pending": 1, "active": 0, "terminating": 0}
    queues.put(CLUSTER_QUEUES, QUEUE, deletionTimestamp="2026-01-01T00:00:00Z")
    assert shown() == {"pending": 0, "active": 0, "terminating": 1}


def test_the_gauges_of_a_local_queue_are_those_of_this_moment() -> None:
    queues = Queues(local_state=replace(LOCAL_STATE, pending=5, reserving=4, admitted=3))
    assert queues.of_local_queue("kueue_local_queue_pending_workloads", status="active") == 5
    assert queues.of_local_queue("kueue_local_queue_reserving_active_workloads") == 4
    assert queues.of_local_queue("kueue_local_queue_admitted_active_workloads") == 3
    assert queues.of_local_queue("kueue_local_queue_status", active="True") == 1
    assert queues.of_local_queue("kueue_local_queue_status", active="False") == 0


def test_a_local_queue_that_is_not_measured_has_no_gauges() -> None:
    queues = Queues()
    queues.measured = False
    assert queues.of_local_queue("kueue_local_queue_status", active="True") is None
    assert queues.of_cluster_queue("kueue_finished_workloads") == 0


def test_finished_workloads_that_are_still_stored_are_counted_for_both_queues() -> None:
    queues = Queues()
    finished = {"conditions": [{"type": "Finished", "status": "True"}]}
    for name, status in (("a", finished), ("b", finished), ("c", {})):
        metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
        obj = {"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}
        queues.views[WORKLOADS].on_write(orjson.dumps(obj))
    assert queues.of_local_queue("kueue_local_queue_finished_workloads") == 2
    assert queues.of_cluster_queue("kueue_finished_workloads") == 2


def test_a_queue_that_is_gone_has_no_gauges() -> None:
    queues = Queues()
    queues.views[CLUSTER_QUEUES].on_not_found(QUEUE)
    queues.local_state = None
    assert queues.of_cluster_queue("kueue_pending_workloads", status="active") is None
    assert queues.of_cluster_queue("kueue_cluster_queue_status", status="active") is None
    assert queues.of_local_queue("kueue_local_queue_status", active="True") is None
