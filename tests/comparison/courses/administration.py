# SPDX-License-Identifier: Apache-2.0
"""The courses of what administrators do: queues, flavors, checks and classes that are missing, changed or deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import anyio

from multikueue.api.constants import PREBUILT_WORKLOAD_LABEL
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from multikueue.kube.errors import Forbidden
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.looks import Look

RETENTION: Final = {
    "objectRetentionPolicies": {"workloads": {"afterFinished": "4s", "afterDeactivatedByKueue": "4s"}},
    "waitForPodsReady": {"timeout": "3s", "requeuingStrategy": {"backoffLimitCount": 0}},
}
UNMANAGED: Final = {
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {"matchLabels": {"managed": "yes"}},
}


async def missing(hub: ComparedHub) -> AsyncIterator[Look]:
    """What a queue refers to comes later, and goes."""
    await hub.make(LOCAL_QUEUES, "q", {"clusterQueue": "q"})
    await hub.submit("a")
    yield Look("there is no ClusterQueue")
    await hub.make(CLUSTER_QUEUES, "q", _queue(flavor="late", checks=("c",)))
    yield Look("there is no flavor and no check")
    await hub.make(RESOURCE_FLAVORS, "late", {})
    yield Look("there is the flavor")
    await hub.make(ADMISSION_CHECKS, "c", {"controllerName": "example.com/another"})
    yield Look("there is the check")
    await hub.check_is("c", active=True)
    yield Look("the check is active")
    await hub.check("a", "c", "Ready", "")
    await hub.run("a")
    yield Look("a runs")
    await hub.client.delete(RESOURCE_FLAVORS, "late")
    await hub.client.delete(ADMISSION_CHECKS, "c")
    await hub.submit("b")
    yield Look("flavor and check are deleted while they are used")
    await hub.client.delete(LOCAL_QUEUES, "q", namespace=NAMESPACE)
    yield Look("the LocalQueue is deleted")
    await hub.client.delete(CLUSTER_QUEUES, "q")
    yield Look("the ClusterQueue is deleted")
    await hub.end("a")
    yield Look("a has succeeded")


async def unqueued(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs name queues that there are not, or that are not for their namespace."""
    await hub.queue(cpu="4", namespaceSelector={"matchLabels": {"team": "a"}})
    await hub.submit("a")
    await hub.submit("b", queue_name="other")
    yield Look("the namespace does not match, and there is no such queue")
    await hub.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": "a"}}})
    yield Look("the namespace matches")
    await hub.make(LOCAL_QUEUES, "other", {"clusterQueue": "none"})
    yield Look("there is the queue, and no ClusterQueue")
    await hub.change(JOBS, "b", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    yield Look("b is in the queue")
    await hub.submit("c", memory="1Gi")
    await hub.submit("d", template={"priorityClassName": "none"})
    await hub.submit("e", priority_class="none")
    yield Look("one asks for a resource without quota, two name classes that there are not")
    await hub.client.delete(WORKLOAD_PRIORITY_CLASSES, "low")
    await hub.change(WORKLOAD_PRIORITY_CLASSES, "high", {"value": 7})
    await hub.submit("f", priority_class="high", cpu="8")
    yield Look("a class has another value")
    await hub.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": "b"}}})
    await hub.submit("g")
    yield Look("the namespace does not match any more")


async def alone(hub: ComparedHub) -> AsyncIterator[Look]:
    """Workloads without a job, which their users make and finish."""
    await hub.queue(cpu="4", preempts=True)
    await hub.make(WORKLOADS, "a", _workload("a"))
    yield Look("a is created")
    await hub.status(WORKLOADS, "a", _condition("PodsReady", "True"))
    yield Look("its pods are ready")
    await hub.make(WORKLOADS, "b", _workload("b", cpu="4", priority=10, active=False))
    yield Look("b is not active")
    await hub.change(WORKLOADS, "b", {"spec": {"active": True}})
    yield Look("b is active, and preempts a")
    await hub.release("a")
    yield Look("a holds nothing any more")
    await hub.status(WORKLOADS, "b", _condition("Finished", "True"))
    yield Look("b has finished")
    await hub.make(WORKLOADS, "c", _workload("c", cpu="3", maximumExecutionTimeSeconds=2))
    yield Look("c has run for too long", 5)
    await hub.release("c")
    await hub.client.delete(WORKLOADS, "a", namespace=NAMESPACE)
    yield Look("c holds nothing any more, and a is deleted")
    await hub.change(WORKLOADS, "c", {"spec": {"queueName": "other", "active": True}})
    yield Look("c is active in a queue that there is not")


async def prebuilt(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs with Workloads that were made before them, or not at all."""
    await hub.queue(cpu="4")
    await hub.submit("a", labels={PREBUILT_WORKLOAD_LABEL: "a-own"})
    yield Look("there is no such Workload")
    await hub.make(WORKLOADS, "a-own", _workload("main"))
    yield Look("there is the Workload")
    await hub.run("a")
    await hub.end("a")
    yield Look("a has succeeded")
    await hub.make(WORKLOADS, "b-own", _workload("main", cpu="2"))
    await hub.submit("b", labels={PREBUILT_WORKLOAD_LABEL: "b-own"})
    yield Look("the Workload of b asks for something else")
    await hub.make(WORKLOADS, "c-own", _workload("main"))
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("c", labels={PREBUILT_WORKLOAD_LABEL: "c-own"})
    yield Look("the Workload of c was admitted before")
    with suppress(Forbidden):  # this project's webhook refuses it
        await hub.submit("d", labels={PREBUILT_WORKLOAD_LABEL: "c-own"})
    yield Look("d names the Workload of c")
    await hub.client.delete(JOBS, "c", namespace=NAMESPACE, propagation="Background")
    yield Look("c is deleted")


async def retained(hub: ComparedHub) -> AsyncIterator[Look]:
    """Workloads that have ended, or were deactivated, are deleted after a while."""
    await hub.queue(cpu="4")
    await hub.submit("a")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    await hub.end("a")
    yield Look("a has succeeded")
    yield Look("its Workload was kept for long enough", 5)
    await hub.submit("b")
    yield Look("the pods of b are late", 4)
    yield Look("the Workload of b was kept for long enough", 6)


async def unmanaged(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs without a queue are suspended in some namespaces."""
    await hub.queue(cpu="4")
    await hub.submit("a", queue_name=None, suspend=False)
    yield Look("the namespace is not managed")
    await hub.client.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"managed": "yes"}}})
    await hub.submit("b", queue_name=None, suspend=False)
    yield Look("the namespace is managed")
    await hub.make(LOCAL_QUEUES, "default", {"clusterQueue": "q"})
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("c", queue_name=None, suspend=False)
    yield Look("there is a default queue")
    await hub.change(JOBS, "b", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    yield Look("b has a queue")


def _queue(*, flavor: str, checks: tuple[str, ...] = ()) -> Object:
    quotas = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "2"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quotas]}]
    named = {"admissionChecks": [{"name": each} for each in checks]}
    return {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": named}


def _workload(pods: str, *, cpu: str = "1", **spec: object) -> Object:
    ends = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}, "imagePullPolicy": "Always"}
    pod = {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}
    template = {"spec": {**pod, "restartPolicy": "Never", "securityContext": {}, "containers": [container | ends]}}
    return {"queueName": "q", "podSets": [{"name": pods, "count": 1, "template": template}], **spec}


def _condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status, "reason": "ByHand", "message": "It is so"}
