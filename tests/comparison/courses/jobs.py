# SPDX-License-Identifier: Apache-2.0
"""The courses of Jobs.

A course yields a `Look` after each step: what has happened, and how long to wait at least for what follows from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio

from multikueue.api.constants import MAX_EXEC_TIME_LABEL
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS, Resource
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.federation import ComparedFederation
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.looks import Look


async def lifecycle(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs succeed and fail."""
    await hub.queue(cpu="3")
    await hub.submit("a")
    yield Look("a is created")
    await hub.run("a")
    yield Look("a runs")
    await hub.end("a")
    yield Look("a has succeeded")
    await hub.submit("b")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.end("b", succeeded=False)
    yield Look("b has failed")


async def late(hub: ComparedHub) -> AsyncIterator[Look]:
    """The pods of a Job are never ready."""
    await hub.queue(cpu="3")
    await hub.submit("a")
    yield Look("a was not ready in time, again and again", 16)


async def recovers(hub: ComparedHub) -> AsyncIterator[Look]:
    """The pods of a Job are not ready any more."""
    await hub.queue(cpu="3")
    await hub.submit("a")
    await anyio.sleep(1)
    await hub.run("a")
    yield Look("a is ready")
    await hub.run("a", ready=0)
    yield Look("its pod is not ready any more, for too long", 5)


async def waits(hub: ComparedHub) -> AsyncIterator[Look]:
    """A Job waits until the pods of another are ready; one that holds quota is deactivated."""
    await hub.queue(checks=("c",), cpu="9")
    await hub.submit("a")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("b")
    yield Look("a holds quota, and its check is pending")
    await hub.check("a", "c", "Ready", "")
    await hub.run("a")
    yield Look("a is ready")
    await hub.activate("b", active=False)
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("d")
    yield Look("b, which held quota, is deactivated")


async def retry(hub: ComparedHub) -> AsyncIterator[Look]:
    """A check wants other tries, before and while a Job runs."""
    await hub.queue(checks=("c",), cpu="3")
    await hub.submit("a")
    yield Look("a holds quota")
    await hub.check("a", "c", "Retry", "try again")
    yield Look("its check wants another try")
    await hub.check("a", "c", "Ready", "good")
    yield Look("its check is ready")
    await hub.run("a")
    await hub.check("a", "c", "Retry", "lost")
    yield Look("its check wants another try while it runs")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.check("a", "c", "Retry", "later", requeueAfterSeconds=6)
    yield Look("its check wants another try in a while")
    yield Look("that has passed", 6)


async def rejected(hub: ComparedHub) -> AsyncIterator[Look]:
    """A check rejects a Job that runs."""
    await hub.queue(checks=("c", "d"), cpu="3")
    await hub.submit("a")
    await hub.check("a", "c", "Ready", "")
    yield Look("one of two checks is ready")
    await hub.check("a", "d", "Ready", "")
    await hub.run("a")
    yield Look("a runs")
    await hub.check("a", "d", "Rejected", "no")
    yield Look("a check rejects it while it runs")
    await hub.stop("a")
    yield Look("a has stopped")


def held(resource: Resource) -> Callable[[ComparedHub], AsyncIterator[Look]]:
    """A queue of that kind is held, drained and opened."""

    async def steps(hub: ComparedHub) -> AsyncIterator[Look]:
        await hub.queue(checks=("c",), cpu="9")
        await hub.submit("a")
        await hub.submit("b")
        await hub.check("a", "c", "Ready", "")
        await hub.run("a")
        yield Look("a runs, and b holds quota")
        await hub.change(resource, "q", {"spec": {"stopPolicy": "Hold"}})
        await hub.submit("d")
        yield Look("the queue is held")
        await hub.change(resource, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
        yield Look("the queue is drained")
        await hub.stop("a")
        yield Look("a has stopped")
        await hub.change(resource, "q", {"spec": {"stopPolicy": "None"}})
        yield Look("the queue is open again")

    return steps


async def deactivated(hub: ComparedHub) -> AsyncIterator[Look]:
    """A user deactivates and activates a Workload."""
    await hub.queue(cpu="1")
    await hub.submit("a")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    await hub.submit("b")
    yield Look("a runs, and b waits")
    await hub.activate("b", active=False)
    yield Look("b is deactivated while it waits")
    await hub.activate("b", active=True)
    yield Look("b is active again")
    await hub.activate("a", active=False)
    yield Look("a is deactivated")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.activate("a", active=True)
    yield Look("a is active again")


async def too_long(hub: ComparedHub) -> AsyncIterator[Look]:
    """A Job has a maximum execution time."""
    await hub.queue(cpu="1")
    await hub.submit("a", labels={MAX_EXEC_TIME_LABEL: "4"})
    await anyio.sleep(1)
    await hub.run("a")
    yield Look("a has run for too long", 6)
    await hub.stop("a")
    yield Look("a has stopped")


async def preempted(hub: ComparedHub) -> AsyncIterator[Look]:
    """A Job preempts another."""
    await hub.queue(preempts=True, cpu="1")
    await hub.submit("a", priority_class="low")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    await hub.submit("b", priority_class="high")
    yield Look("b preempts a")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.run("b")
    await hub.end("b")
    yield Look("b has succeeded")


async def changed(hub: ComparedHub) -> AsyncIterator[Look]:
    """Users change Jobs that wait and run."""
    await hub.queue(cpu="2")
    await hub.queue("p", cpu="2")
    await hub.submit("a", parallelism=2)
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a", pods=2)
    await hub.submit("b", priority_class="low", parallelism=2)
    yield Look("b waits")
    await hub.change(JOBS, "b", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
    yield Look("b has another priority")
    await hub.change(JOBS, "b", {"spec": {"parallelism": 1}})
    yield Look("b has fewer pods")
    await hub.show("a", active=1, ready=1, succeeded=1)
    yield Look("one of the pods of a has succeeded")
    await hub.submit("d", parallelism=2)
    await anyio.sleep(RESERVED_SECONDS)
    await hub.change(JOBS, "d", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "p"}}})
    yield Look("d is in another queue")
    await hub.change(JOBS, "a", {"spec": {"suspend": True}})
    yield Look("a user suspends a")


async def smaller(hub: ComparedHub) -> AsyncIterator[Look]:
    """A user gives a Job that runs fewer pods."""
    await hub.queue(cpu="9")
    await hub.submit("a", parallelism=2)
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a", pods=2)
    await hub.change(JOBS, "a", {"spec": {"parallelism": 1}})
    yield Look("a has 1")
    job = await hub.client.get_object(JOBS, "a", namespace=NAMESPACE)
    if job["spec"]["suspend"]:
        await hub.stop("a")
    yield Look("its pods have stopped")


async def deleted(hub: ComparedHub) -> AsyncIterator[Look]:
    """A user deletes the Workload of a Job that runs."""
    await hub.queue(cpu="1")
    await hub.submit("a")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    found = await hub.workload("a")
    await hub.client.delete(WORKLOADS, found["metadata"]["name"], namespace=NAMESPACE)
    yield Look("the Workload of a is deleted")
    await hub.stop("a")
    yield Look("a has stopped")


async def dispatched(both: ComparedFederation) -> AsyncIterator[Look]:
    """MultiKueue: Jobs are sent to a worker cluster, end, are evicted and deleted, on the hub and there."""
    yield Look("the cluster is connected", 3)
    await both.submit("a")
    yield Look("a is created")
    await both.pods("a", "Running")
    yield Look("a runs there")
    await both.pods("a", "Succeeded")
    yield Look("a has succeeded there", 2)
    await both.submit("b", cpu="6")
    await both.pods("b", "Running")
    await both.submit("c", cpu="6")
    yield Look("there is no quota for c there", 3)
    await both.pods("b", "Succeeded")
    yield Look("b has succeeded there", 3)
    await both.pods("c", "Running")
    await anyio.sleep(RESERVED_SECONDS)
    await both.worker.activate("c", active=False)
    yield Look("the remote Workload of c is deactivated", 6)
    await both.hub.client.delete(JOBS, "c", namespace=NAMESPACE, propagation="Background")
    yield Look("c is deleted on the hub", 3)
    await both.submit("d")
    await both.pods("d", "Running")
    await anyio.sleep(RESERVED_SECONDS)
    await both.pods("d", "Failed")
    yield Look("d has failed there", 2)
    await both.submit("e")
    await both.pods("e", "Running")
    await anyio.sleep(RESERVED_SECONDS)
    await both.worker.client.delete(JOBS, "e", namespace=NAMESPACE, propagation="Background")
    yield Look("e is deleted there", 5)
    await both.hub.change(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
    yield Look("the queue of the hub is drained", 5)
    await both.hub.change(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "None"}})
    yield Look("the queue of the hub is open again", 4)
    await both.worker.change(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
    yield Look("the queue of the worker is drained", 6)
    await both.worker.change(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "None"}})
    yield Look("the queue of the worker is open again", 5)
    await both.hub.activate("e", active=False)
    yield Look("e is deactivated on the hub", 4)


async def measured_course(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs succeed and fail, are preempted, rejected, deactivated and held back, and wait."""
    await hub.queue(preempts=True, cpu="2")
    await hub.queue("p", checks=("c",), cpu="2")
    yield Look("there are two queues")
    await hub.submit("a", priority_class="low", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    yield Look("a runs")
    await hub.run("a", ready=0)
    yield Look("its pod is not ready any more")
    await hub.run("a")
    yield Look("its pod is ready again")
    await hub.submit("b", priority_class="high", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    yield Look("b preempts a")
    await hub.stop("a")
    await hub.run("b")
    yield Look("a has stopped, and b runs")
    await hub.end("b")
    await hub.run("a")
    yield Look("b has succeeded, and a runs again")
    await hub.end("a", succeeded=False)
    await hub.submit("d", queue_name="p", cpu="2")
    yield Look("a has failed, and d holds quota")
    await hub.submit("e", queue_name="p")
    yield Look("e waits behind d")
    await hub.check("d", "c", "Ready", "")
    await hub.run("d")
    yield Look("d runs")
    await hub.check("d", "c", "Retry", "again")
    yield Look("a check of d wants another try")
    await hub.stop("d")
    yield Look("d has stopped")
    await hub.change(CLUSTER_QUEUES, "p", {"spec": {"stopPolicy": "HoldAndDrain"}})
    yield Look("the queue is drained")
    await hub.change(CLUSTER_QUEUES, "p", {"spec": {"stopPolicy": "None"}})
    await hub.activate("e", active=False)
    yield Look("the queue is open again, and e is deactivated")
    await hub.client.delete(JOBS, "d", namespace=NAMESPACE, propagation="Background")
    yield Look("d is deleted")
    await hub.client.delete(LOCAL_QUEUES, "p", namespace=NAMESPACE)
    await hub.client.delete(CLUSTER_QUEUES, "p")
    yield Look("the second queue is deleted")
