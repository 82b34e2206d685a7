# SPDX-License-Identifier: Apache-2.0
"""The Workloads of jobs: reviewed before they are sent, as no webhook is called for them; deleted as they were seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from manager.cache.views import View
from manager.context import ManagerContext
from manager.controllers.job_runtimes import JobRuntimes
from manager.controllers.job_workloads import JobWorkloads, WorkloadRefused
from manager.metrics import ManagerMetrics
from multikueue.api.configuration import Configuration
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.kube.cache.store import Store
from multikueue.kube.errors import Conflict, Details

Object = dict[str, Any]


class Hub:
    """An API server that keeps what it is sent, and the manager's context for it."""

    def __init__(self, integration: JobIntegration = BATCH_JOB) -> None:
        self.created: list[tuple[Object, str | None]] = []
        self.stored = "1"
        self.deleted: list[str] = []
        self.events: list[tuple[str, str]] = []
        views: dict[object, View] = {}

        def view(resource: Any) -> View:
            return views.setdefault(resource, View(resource, clock=SystemClock(), store=Store()))

        context = SimpleNamespace(
            caches=SimpleNamespace(view=view),
            client=SimpleNamespace(create=self._create, delete=self._delete),
            clock=SystemClock(),
            configuration=Configuration(),
            metrics=ManagerMetrics(),
            recorder=SimpleNamespace(
                event=lambda _about, _kind, reason, message: self.events.append((reason, message))
            ),
        )
        runtimes = cast(JobRuntimes, SimpleNamespace(marks=lambda *_: {}))
        self.workloads = JobWorkloads(cast(ManagerContext, context), integration, runtimes)

    async def _create(
        self, resource: object, body: Object, *, namespace: str, field_manager: str | None = None
    ) -> bytes:
        assert resource is WORKLOADS
        self.created.append((body, field_manager))
        metadata = body["metadata"] | {"namespace": namespace, "uid": "u", "resourceVersion": "1"}
        return orjson.dumps(body | {"metadata": metadata})

    async def _delete(self, resource: object, name: str, *, namespace: str, uid: str, resource_version: str) -> bytes:
        assert (resource, namespace, uid) == (WORKLOADS, "team", "u")
        if resource_version != self.stored:
            raise Conflict(request="DELETE", status=409, reason="Conflict", message="", details=Details())
        self.deleted.append(name)
        return b"{}"


def job(labels: dict[str, str]) -> Object:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": "job-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "suspend": True,
            "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": containers}},
        },
    }


async def test_a_workload_that_the_webhook_would_refuse_is_not_sent() -> None:
    hub = Hub()
    with pytest.raises(
        WorkloadRefused, match=r"Workload team/job-train-.*: spec.podSets\[0\].template.metadata.labels"
    ):
        await hub.workloads.create(job({"not a label": "x"}))
    assert hub.created == []


async def test_a_workload_that_was_reviewed_is_created_under_the_name_that_the_webhook_leaves_out() -> None:
    hub = Hub()
    await hub.workloads.create(job({"app": "x"}))
    ((body, field_manager),) = hub.created
    assert (body["spec"]["queueName"], field_manager) == ("lq", "multikueue-job-workloads")


@pytest.mark.parametrize(
    ("queue", "lack"),
    [
        pytest.param(
            "lq",
            "LocalQueue team/lq doesn't exist; create it or correct the label kueue.x-k8s.io/queue-name",
            id="it names one that does not exist",
        ),
        pytest.param(
            "",
            "It names no LocalQueue, and waits until it has the label kueue.x-k8s.io/queue-name",
            id="it names none",
        ),
    ],
)
@pytest.mark.parametrize(
    ("managed_by", "check"),
    [
        pytest.param(None, "a", id="created for this cluster"),
        pytest.param("kueue.x-k8s.io/multikueue", "no", id="created for worker clusters"),
    ],
)
async def test_a_job_without_a_local_queue_is_told_when_creating_the_queue_is_not_enough(
    queue: str, lack: str, managed_by: str | None, check: str
) -> None:
    hub, made = Hub(), job({})
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    made["spec"]["managedBy"] = managed_by
    await hub.workloads.create(made)
    again = f"; if that queue has {check} MultiKueue check, then delete the Job and create it again"
    assert hub.events[-1] == ("LocalQueueNotFound", lack + again)


async def test_a_pod_is_told_to_create_its_local_queue_and_no_more() -> None:
    hub, made = Hub(BARE_POD), job({})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": made["metadata"], "spec": made["spec"]["template"]["spec"]}
    await hub.workloads.create(pod)
    assert hub.events[-1][1].endswith("create it or correct the label kueue.x-k8s.io/queue-name")


async def test_a_workload_is_deleted_only_as_it_was_when_that_was_decided() -> None:
    hub = Hub()
    seen: Object = {"metadata": {"name": "slice", "namespace": "team", "uid": "u", "resourceVersion": "1"}}
    hub.stored = "2"  # it has got quota meanwhile
    with pytest.raises(Conflict):
        await hub.workloads.delete(job({}), seen)
    assert hub.deleted == []
    hub.stored = "1"
    await hub.workloads.delete(job({}), seen)
    assert hub.deleted == ["slice"]
