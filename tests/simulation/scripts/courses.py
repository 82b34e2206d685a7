# SPDX-License-Identifier: Apache-2.0
"""The lives of some jobs, one after the other, of which every write is to fail once and for a minute.

Owns the scripts. Each waits for what it asked for before it goes on, so that it comes to the same end however long a
step takes. Together they are to make every write that managers and agents make in the background.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from multikueue.api import configuration_file
from multikueue.api.configuration import Configuration
from multikueue.api.constants import MAX_EXEC_TIME_LABEL
from tests.simulation.scripts.provisioning_course import provisioning
from tests.simulation.scripts.stage import Stage
from tests.simulation.world import federation
from tests.simulation.world.federation import GROUP, call, create
from tests.simulation.world.nominator import DISPATCHER

Script = Callable[[Stage], Awaitable[None]]

INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
CAPACITY: Final = "multikueue.io/dispatcher-capacity"
_SETTINGS: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 10m, gcInterval: 20s, dispatcherName: %s}
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 8s}
featureGates: {MultiKueueManagerQuotaAutomation: true}
"""


_RETENTION: Final = """
objectRetentionPolicies: {workloads: {afterFinished: 1m, afterDeactivatedByKueue: 1m}}
"""


@cache
def settings(dispatcher: str, *, retention: bool = False) -> Configuration:
    """What managers read; with `retention` they delete what has ended a minute ago."""
    return configuration_file.load(_SETTINGS % dispatcher + (_RETENTION if retention else ""))


@dataclass(frozen=True, slots=True)
class Course:
    """A script, and the federation that it is played on."""

    name: str
    about: str
    script: Script
    workers: tuple[str, ...] = ("w1",)
    pushed: tuple[str, ...] = ()
    dispatcher: str = ALL_AT_ONCE
    retention: bool = False


async def _one_life(stage: Stage) -> None:
    """Admitted, dispatched, run, finished, deleted."""
    stage.start()
    stage.submit("a", priority="low")
    await stage.runs("a")
    stage.change(f"{federation.USER_JOBS}/a", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
    await stage.until("a is of high priority", lambda: stage.workload("a")["spec"].get("priority") == 10)
    stage.finish("a")
    await stage.completes("a")
    stage.submit("b")
    await stage.runs("b")
    stage.delete_job("b")
    await stage.is_gone("b")


async def _preemption(stage: Stage) -> None:
    """Waiting, preempted, and resumed."""
    stage.start()
    stage.submit("small", cpu=4, priority="low")
    await stage.runs("small")
    stage.submit("urgent", cpu=4, priority="high")
    await stage.runs("urgent")
    await stage.waits("small")
    for name in ("big", "as-big"):
        stage.submit(name, cpu=100)
        await stage.waits(name)
    directive = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}
    stage.change(f"{federation.USER_JOBS}/big", directive)
    await stage.until("the workload of big follows its job", lambda: "fast" in str(stage.workload("big")["spec"]))
    stage.finish("urgent")
    await stage.completes("urgent")
    await stage.runs("small")
    stage.finish("small")
    await stage.completes("small")
    for name in ("big", "as-big"):
        stage.delete_job(name)
        await stage.is_gone(name)


async def _progress(stage: Stage) -> None:
    """Preempted after a part of its pods had succeeded; on the next cluster all of them run again."""
    stage.start()
    stage.submit("a", pods=4, priority="low")
    await stage.runs("a")
    stage.succeed("a", 1)
    await stage.until("a pod of a has released its quota", lambda: stage.reclaimable("a") == 1)
    stage.submit("urgent", cpu=4, priority="high")
    await stage.runs("urgent")
    await stage.waits("a")
    await stage.until("a needs quota for all its pods", lambda: stage.reclaimable("a") == 0)
    stage.finish("urgent")
    await stage.completes("urgent")
    await stage.runs("a")
    stage.finish("a")
    await stage.completes("a")


async def _administration(stage: Stage) -> None:
    """A queue is held and drained, a workload deactivated and deleted."""
    stage.start()
    stage.submit("a")
    await stage.runs("a")
    queue = f"{GROUP}/clusterqueues/queue"
    stage.change(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.waits("a")
    stage.change(queue, {"spec": {"stopPolicy": "None"}})
    await stage.runs("a")
    stage.change(stage.workload_path("a"), {"spec": {"active": False}})
    await stage.waits("a")
    stage.change(stage.workload_path("a"), {"spec": {"active": True}})
    await stage.runs("a")
    before = stage.workload("a")["metadata"]["uid"]
    call(stage.hub, "DELETE", stage.workload_path("a"))
    await stage.until(
        "a has another workload", lambda: stage.workload("a").get("metadata", {}).get("uid", before) != before
    )
    await stage.runs("a")
    stage.finish("a")
    await stage.completes("a")


async def _rejection(stage: Stage) -> None:
    """Only the last worker has capacity; the remote job is deleted there, and the job is dispatched again."""
    *full, last = stage.workers
    for name in full:
        status = {"allocatable": {"cpu": "0"}, "capacity": {"cpu": "0"}}
        call(stage.servers[name].api, "PATCH", "/api/v1/nodes/node/status", {"status": status})
    stage.start()
    stage.submit("a", cpu=2)
    await stage.runs("a")
    call(stage.servers[last].api, "DELETE", f"{federation.USER_JOBS}/a", {"propagationPolicy": "Foreground"})
    await stage.until("a is sent again", lambda: stage.evictions("a") == 1 and stage.live("a"))
    await stage.runs("a")
    stage.finish("a")
    await stage.completes("a")


async def _queues(stage: Stage) -> None:
    """Queues, cohorts and flavors come, change and go."""
    stage.start()
    kueue = federation.kueue
    create(stage.hub, f"{GROUP}/cohorts", kueue("Cohort", "all", spec={}))
    create(stage.hub, f"{GROUP}/resourceflavors", kueue("ResourceFlavor", "other", spec={}))
    flavor = {"name": "other", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    spec = {
        "cohortName": "all",
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
    }
    create(stage.hub, f"{GROUP}/clusterqueues", kueue("ClusterQueue", "other", spec=spec))
    local = f"{GROUP}/namespaces/{federation.NAMESPACE}/localqueues"
    create(stage.hub, local, kueue("LocalQueue", "other", spec={"clusterQueue": "other"}))
    await stage.until("the queue is active", lambda: stage.is_active("clusterqueues", "other"))
    await stage.until("the local queue is active", lambda: stage.is_active("localqueues", "team/other"))
    call(stage.hub, "DELETE", f"{GROUP}/resourceflavors/other")
    call(stage.hub, "DELETE", f"{GROUP}/clusterqueues/other")
    call(stage.hub, "DELETE", f"{local}/other")
    call(stage.hub, "DELETE", f"{GROUP}/cohorts/all")
    for collection, key in (
        ("clusterqueues.kueue.x-k8s.io", "other"),
        ("resourceflavors.kueue.x-k8s.io", "other"),
        ("localqueues.kueue.x-k8s.io", "team/other"),
        ("cohorts.kueue.x-k8s.io", "all"),
    ):
        await stage.until(f"{key} is gone", lambda c=collection, k=key: not stage.hub.context.exists(c, k))  # type: ignore[misc]


async def _clusters(stage: Stage) -> None:
    """A cluster is drained, taken away with its work, and comes back."""
    stage.start()
    stage.submit("a")
    await stage.runs("a")
    create(stage.hub, "/apis/multikueue.io/v1alpha1/clusterregistrations", federation.registration("w1"))
    path = "/apis/multikueue.io/v1alpha1/clusterregistrations/w1"
    stage.change(path, {"spec": {"cordoned": True, "drain": True, "drainDeadline": "2026-01-01T00:00:00Z"}})
    await stage.until("a is drained", lambda: not stage.live("a") and stage.evictions("a") >= 1)
    stage.change(path, {"spec": {"cordoned": False, "drain": False, "drainDeadline": None}})
    await stage.runs("a")
    stage.finish("a")
    await stage.completes("a")
    federation.delete_cluster(stage.hub, "w1")
    await stage.until(
        "the cluster is gone", lambda: not stage.hub.context.exists("multikueueclusters.kueue.x-k8s.io", "w1")
    )
    federation.create_cluster(stage.hub, "w1", pushed="w1" in stage.pushed)
    stage.submit("b")
    await stage.runs("b")
    stage.finish("b")
    await stage.completes("b")


async def _retention(stage: Stage) -> None:
    """Jobs and their classes change while they wait, one runs for too long, and what has ended is deleted."""
    stage.start()
    stage.submit("big", cpu=100, priority="low")
    await stage.waits("big")
    stage.change(f"{federation.USER_JOBS}/big", {"metadata": {"labels": {MAX_EXEC_TIME_LABEL: "600"}}})
    await stage.until(
        "the workload of big follows its job",
        lambda: stage.workload("big")["spec"].get("maximumExecutionTimeSeconds") == 600,
    )
    stage.change(f"{GROUP}/workloadpriorityclasses/low", {"value": -5})
    await stage.until("big has the new priority", lambda: stage.workload("big")["spec"].get("priority") == -5)
    stage.submit("long", seconds=60)
    await stage.runs("long")
    await stage.until("long is deactivated", lambda: stage.workload("long")["spec"].get("active") is False)
    await stage.is_gone("long")
    stage.submit("short")
    await stage.runs("short")
    stage.finish("short")
    await stage.until("the workload of short is deleted", lambda: not stage.workload("short"))
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "9" * 5000}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    odd = federation.kueue(
        "Workload", "odd", spec={"queueName": "queue", "podSets": [{"name": "main", "count": 1, "template": template}]}
    )
    create(stage.hub, f"{GROUP}/namespaces/{federation.NAMESPACE}/workloads", odd)
    await stage.until(
        "odd has a condition that says why it cannot be used", lambda: "quantity" in stage.reason("team/odd")
    )


async def _mailbox(stage: Stage) -> None:
    """An agent writes finalizers on what the manager made for it, and its cluster is removed."""
    stage.start()
    kinds = {
        "leases.coordination.k8s.io": "/apis/coordination.k8s.io/v1/namespaces/mk-w1/leases/agent",
        "clusterreports.multikueue.io": "/apis/multikueue.io/v1alpha1/namespaces/mk-w1/clusterreports/agent",
    }
    await stage.until(
        "there is a mailbox", lambda: all(stage.hub.context.exists(kind, "mk-w1/agent") for kind in kinds)
    )
    finalizers = {"metadata": {"finalizers": ["example.com/mine"]}}
    gone = "the finalizers are gone"
    for path in kinds.values():
        stage.change(path, finalizers)
    await stage.until(gone, lambda: not any(stage.has_finalizer(kind, "mk-w1/agent") for kind in kinds))
    federation.delete_cluster(stage.hub, "w1")
    call(stage.hub, "DELETE", "/api/v1/namespaces/mk-w1")
    for path in kinds.values():
        stage.change(path, finalizers)
    await stage.until(gone, lambda: not any(stage.has_finalizer(kind, "mk-w1/agent") for kind in kinds))


async def _joining(stage: Stage) -> None:
    """An agent joins by token and request, renews its certificate, and gets a job."""
    federation.create_clusters(stage.hub, ("w1",), pushed=())
    stage.start_manager()
    stage.start_joining_agent("w1")
    await stage.until("the agent has a certificate", lambda: stage.certificates >= 1)
    stage.submit("a")
    await stage.runs("a")
    before = stage.certificates
    await stage.until("the certificate is renewed twice", lambda: stage.certificates >= before + 2)
    stage.finish("a")
    await stage.completes("a")
    token = "secrets", "kueue-system/multikueue-bootstrap"
    await stage.until(
        "the token has ended", lambda: not [key for key in stage.keys(token[0]) if key.startswith(token[1])]
    )


async def _webhooks(stage: Stage) -> None:
    """Webhooks are installed, changed by another client, and repaired."""
    stage.start_manager(webhook_url="https://127.0.0.1:9443")
    hooks = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    await stage.until("the webhooks are installed", lambda: bool(stage.keys(hooks)))
    await stage.until("the manager leads", lambda: stage.has_finalizer("clusterqueues.kueue.x-k8s.io", "queue"))
    for collection in (hooks, "mutatingwebhookconfigurations.admissionregistration.k8s.io"):
        for key in stage.keys(collection):
            path = f"/apis/admissionregistration.k8s.io/v1/{collection.partition('.')[0]}/{key}"
            stage.change(path, {"webhooks": []})
    for found in stage.objects("secrets"):
        if not found.get("immutable"):  # the key of the seals is
            metadata = found["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"
            stage.change(path, {"data": None})
    await stage.until("the webhooks are mended", lambda: all(found.get("webhooks") for found in stage.objects(hooks)))
    await stage.until("there is a certificate", lambda: all(found.get("data") for found in stage.objects("secrets")))


async def _nominated(stage: Stage) -> None:
    """Somebody else's dispatcher nominates the cluster."""
    stage.start_nominator()
    await _one_life(stage)


async def _worker_queues(stage: Stage) -> None:
    """A worker with a Kueue of its own admits, and the hub's quota follows its quota."""
    name = stage.workers[0]
    stage.start_kueue(name)
    stage.start()
    stage.change(f"{GROUP}/multikueueconfigs/all", {"spec": {"quotaManagement": "Automated"}})
    await stage.until("the hub's quota is the worker's", lambda: stage.quota() == "4")
    stage.submit("a", priority="low")
    await stage.runs("a")
    stage.change(f"{federation.USER_JOBS}/a", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
    await stage.until("its clone is of high priority", lambda: stage.clone_priority(name) == 10)
    stage.finish("a")
    await stage.completes("a")
    await stage.until("the clone is gone", lambda: stage.clone_priority(name) is None)
    stage.submit("b")
    await stage.runs("b")
    stage.delete_job("b")
    await stage.is_gone("b")
    await stage.until("the clone is gone", lambda: stage.clone_priority(name) is None)


COURSES: Final = {
    course.name: course
    for course in (
        Course("pull", "a Job from creation to its end, by an agent", _one_life),
        Course("pull-capacity", "the same, with the capacity dispatcher", _one_life, dispatcher=CAPACITY),
        Course("external", "the same, with an external dispatcher", _nominated, dispatcher=DISPATCHER),
        Course("push", "a Job from creation to its end, by push", _one_life, pushed=("w1",)),
        Course("preemption", "pending, preempted, resumed", _preemption),
        Course("preemption-push", "the same, by push", _preemption, pushed=("w1",)),
        Course("progress", "preempted after a part of its pods had succeeded", _progress),
        Course("progress-push", "the same, by push", _progress, pushed=("w1",)),
        Course("administration", "held, deactivated, deleted", _administration),
        Course("rejection", "full, and evicted on the worker", _rejection, workers=("w1", "w2")),
        Course("rejection-push", "the same, by push", _rejection, workers=("w1", "w2"), pushed=("w1", "w2")),
        Course(
            "rejection-incremental",
            "the same, some clusters after the others",
            _rejection,
            workers=("w1", "w2", "w3", "w4"),
            dispatcher=INCREMENTAL,
        ),
        Course("queues", "queues are created and deleted", _queues),
        Course("clusters", "clusters are deleted and created", _clusters),
        Course(
            "retention", "jobs change, run too long, and are deleted when they have ended", _retention, retention=True
        ),
        Course("mailbox", "an agent prevents the deletion of its mailbox", _mailbox),
        Course("joining", "an agent joins by token and renews its certificate", _joining),
        Course("webhooks", "webhooks are installed and repaired", _webhooks),
        Course(
            "worker-queues", "a worker with queues of its own, whose quota the hub follows", _worker_queues, ("k1",)
        ),
        Course("worker-queues-push", "the same, by push", _worker_queues, ("k1",), pushed=("k1",)),
        Course("clusters-push", "the same, by push", _clusters, pushed=("w1",)),
        Course("provisioning", "a Job of the hub waits for capacity that an autoscaler provisions", provisioning),
    )
}
