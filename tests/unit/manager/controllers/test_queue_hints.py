# SPDX-License-Identifier: Apache-2.0
"""Events about work that bypasses the queues of its namespace, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import orjson
import pytest

from manager.cache.views import View
from manager.controllers.queue_hints import NAMESPACE_BURST, NEW_SECONDS, QueueHints
from multikueue.api.constants import ORIGIN_LABEL
from multikueue.api.resource import LOCAL_QUEUES
from multikueue.core.clock import ManualClock
from multikueue.core.timestamps import format_time
from multikueue.kube.runtime.events import EventRecorder, Reference
from tests.unit.manager.builders import NOW

Object = dict[str, Any]


class Recorder:
    """Keeps what was recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.texts: list[str] = []

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        self.events.append((about.kind, about.name, reason))
        self.texts.append(message)


class Hinting:
    """Hints for the namespace `team`, which has a LocalQueue, and `bare`, which has none."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.recorder = Recorder()
        self.queues = queues = View(LOCAL_QUEUES, clock=ManualClock())  # what was put there stays
        for namespace in ("team", "kube-system", "kueue-system"):
            metadata = {"name": "q", "namespace": namespace, "uid": namespace, "resourceVersion": "1"}
            queues.on_write(orjson.dumps({"metadata": metadata, "spec": {}}))
        self.hints = QueueHints(
            cast(EventRecorder, self.recorder),
            queues,
            manages_namespace=lambda name: name != "unmanaged",
            namespace="kueue-system",
            frameworks=["batch/job"],
            clock=self.clock,
        )

    def job(self, job: Object, *, finished: bool = False) -> list[tuple[str, str, str]]:
        self.hints.job(job, finished=finished)
        return self.recorder.events


def job(name: str = "j", *, namespace: str = "team", age: float = 1, **metadata: Any) -> Object:
    created = format_time(NOW - timedelta(seconds=age))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",
            "creationTimestamp": created,
            **metadata,
        },
    }


def owned_by(kind: str, name: str = "o") -> Object:
    return {"ownerReferences": [{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": name, "controller": True}]}


def test_a_job_without_a_queue_label_gets_one_event_with_the_queues_there_are() -> None:
    hinting = Hinting()
    for _ in range(3):
        hinting.job(job())
    assert hinting.recorder.events == [("Job", "j", "QueueNameMissing")]
    assert "LocalQueues of namespace team: q." in hinting.recorder.texts[0]


@pytest.mark.parametrize(
    "quiet",
    [
        job(namespace="bare"),
        job(namespace="kube-system"),
        job(namespace="kueue-system"),
        job(namespace="unmanaged"),
        job(age=NEW_SECONDS + 1),
        job(deletionTimestamp="2026-01-01T00:00:00Z"),
        job(labels={ORIGIN_LABEL: "hub"}),
        job(**owned_by("JobSet")),
        job(creationTimestamp="never"),
    ],
    ids=[
        "in a namespace without a LocalQueue",
        "in a namespace of the system",
        "in the manager's own namespace",
        "in a namespace that is not managed",
        "that is old",
        "that is being deleted",
        "that is a remote job of another cluster",
        "that a controller made",
        "without a time of creation",
    ],
)
def test_a_job_gets_no_event(quiet: Object) -> None:
    assert Hinting().job(quiet) == []


def test_a_finished_job_gets_no_event() -> None:
    assert Hinting().job(job(), finished=True) == []


def test_the_jobs_of_a_cron_job_cause_one_event_about_the_cron_job() -> None:
    hinting = Hinting()
    for number in range(5):
        hinting.job(job(f"j{number}", **owned_by("CronJob", "nightly")))
    assert hinting.recorder.events == [("CronJob", "nightly", "QueueNameMissing")]


def test_twenty_thousand_jobs_of_one_tenant_make_a_handful_of_events() -> None:
    hinting = Hinting()
    for number in range(20_000):
        hinting.job(job(f"j{number}"))
    assert len(hinting.recorder.events) == NAMESPACE_BURST
    hinting.clock.advance(120)
    for number in range(20_000):
        hinting.job(job(f"later{number}"))
    assert len(hinting.recorder.events) == NAMESPACE_BURST + 2


def test_one_tenants_flood_leaves_the_others_their_events() -> None:
    hinting = Hinting()
    metadata = {"name": "q", "namespace": "other", "uid": "other", "resourceVersion": "1"}
    hinting.queues.on_write(orjson.dumps({"metadata": metadata, "spec": {}}))
    for number in range(1000):
        hinting.job(job(f"j{number}"))
    hinting.job(job("mine", namespace="other"))
    assert ("Job", "mine", "QueueNameMissing") in hinting.recorder.events


def test_a_pod_with_a_queue_label_gets_an_event_that_pods_are_not_queued() -> None:
    hinting = Hinting()
    hinting.hints.pod(job("p"))
    assert hinting.recorder.events == [("Pod", "p", "QueueNameIgnored")]
    assert "batch/job (integrations.frameworks)" in hinting.recorder.texts[0]


def test_the_pods_of_a_controller_get_no_event() -> None:
    hinting = Hinting()
    hinting.hints.pod(job("p", **owned_by("Job")))
    assert hinting.recorder.events == []
