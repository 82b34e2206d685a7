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
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.cache.store import Store
from multikueue.kube.errors import Conflict, Details

Object = dict[str, Any]


class Hub:
    """An API server that keeps what it is sent, and the manager's context for it."""

    def __init__(self) -> None:
        self.created: list[tuple[Object, str | None]] = []
        self.stored = "1"
        self.deleted: list[str] = []
        views: dict[object, View] = {}

        def view(resource: Any) -> View:
            return views.setdefault(resource, View(resource, clock=SystemClock(), store=Store()))

        context = SimpleNamespace(
            caches=SimpleNamespace(view=view),
            client=SimpleNamespace(create=self._create, delete=self._delete),
            clock=SystemClock(),
            configuration=Configuration(),
            metrics=ManagerMetrics(),
            recorder=SimpleNamespace(event=lambda *_, **__: None),
        )
        runtimes = cast(JobRuntimes, SimpleNamespace(marks=lambda *_: {}))
        self.workloads = JobWorkloads(cast(ManagerContext, context), BATCH_JOB, runtimes)

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
