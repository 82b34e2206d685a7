# SPDX-License-Identifier: Apache-2.0
"""A change of an object concerns the queues that counted it, and those that count it now."""

from __future__ import annotations

from typing import Any

from manager.scheduler.affected_queues import AffectedQueues
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from multikueue.core.keys import Key

QUEUE, WORKLOAD = Key("team", "jobs"), Key("team", "one")
LOCAL = (LOCAL_QUEUES, QUEUE)


def pointing_to(cluster_queue: str) -> dict[str, Any]:
    return {"spec": {"clusterQueue": cluster_queue}}


def workload(*, queue: str = "jobs", admitted_by: str = "") -> dict[str, Any]:
    status = {"admission": {"clusterQueue": admitted_by}} if admitted_by else {}
    return {"spec": {"queueName": queue}, "status": status}


def cluster_queue(name: str) -> tuple[object, Key]:
    return CLUSTER_QUEUES, Key("", name)


def test_a_pending_workload_counts_where_its_local_queue_points_to() -> None:
    queues = AffectedQueues()
    list(queues.of_change(LOCAL_QUEUES, QUEUE, pointing_to("a")))
    assert set(queues.of_change(WORKLOADS, WORKLOAD, workload())) == {LOCAL, cluster_queue("a")}


def test_a_workload_that_is_admitted_elsewhere_concerns_both_cluster_queues() -> None:
    queues = AffectedQueues()
    list(queues.of_change(LOCAL_QUEUES, QUEUE, pointing_to("a")))
    list(queues.of_change(WORKLOADS, WORKLOAD, workload()))
    changed = set(queues.of_change(WORKLOADS, WORKLOAD, workload(admitted_by="b")))
    assert changed == {LOCAL, cluster_queue("a"), cluster_queue("b")}


def test_a_deleted_workload_concerns_the_queues_that_counted_it() -> None:
    queues = AffectedQueues()
    list(queues.of_change(WORKLOADS, WORKLOAD, workload(admitted_by="b")))
    assert set(queues.of_change(WORKLOADS, WORKLOAD, None)) == {LOCAL, cluster_queue("b")}
    assert not set(queues.of_change(WORKLOADS, WORKLOAD, None))


def test_places_of_workloads_that_are_gone_are_not_kept() -> None:
    queues = AffectedQueues()
    for number in range(1000):
        list(queues.of_change(WORKLOADS, WORKLOAD, workload(queue=f"queue-{number}")))
    assert len(queues._shared) < 100


def test_a_local_queue_that_points_elsewhere_concerns_both_cluster_queues() -> None:
    queues = AffectedQueues()
    list(queues.of_change(LOCAL_QUEUES, QUEUE, pointing_to("a")))
    assert set(queues.of_change(LOCAL_QUEUES, QUEUE, pointing_to("b"))) == {
        LOCAL,
        cluster_queue("a"),
        cluster_queue("b"),
    }
    assert set(queues.of_change(LOCAL_QUEUES, QUEUE, pointing_to("b"))) == {LOCAL}
    assert set(queues.of_change(LOCAL_QUEUES, QUEUE, None)) == {LOCAL, cluster_queue("b")}


def test_any_other_object_concerns_itself() -> None:
    assert list(AffectedQueues().of_change(RESOURCE_FLAVORS, Key("", "spot"), {})) == [
        (RESOURCE_FLAVORS, Key("", "spot"))
    ]
