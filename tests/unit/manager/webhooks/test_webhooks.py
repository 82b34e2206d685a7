# SPDX-License-Identifier: Apache-2.0
"""What webhooks wait for before they answer."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer

from manager.cache.caches import Caches
from manager.cache.views import View
from manager.namespaces import ManagedNamespaces
from manager.seals import Seals
from manager.webhooks.configurations import job_hooks
from manager.webhooks.handlers import Handlers
from manager.webhooks.review import AdmissionRequest, ReviewAnswer
from manager.webhooks.server import application
from multikueue.api.configuration import Configuration
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, MULTIKUEUE_MANAGED_BY, QUEUE_NAME_LABEL
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, Resource
from multikueue.core.clock import ManualClock
from multikueue.jobs.framework.registry import JobRegistry
from tests.support.access import NobodyMay, NoKinds, nobody_owns

DEFAULT_JOB, VALIDATE_JOB = job_hooks(JobRegistry(("batch/job",)))


class Seen:
    """Caches that hold what a test has put there."""

    def __init__(self) -> None:
        self.views: dict[Resource, View] = {}

    def view(self, resource: Resource) -> View:
        return self.views.setdefault(resource, View(resource, clock=ManualClock()))

    def put(self, resource: Resource, name: str, spec: dict[str, Any], *, namespace: str = "") -> None:
        metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
        self.view(resource).on_write(orjson.dumps({"metadata": metadata, "spec": spec}))


def handlers(seen: Seen) -> Handlers:
    configuration = Configuration()
    return Handlers(
        configuration=configuration,
        caches=cast(Caches, seen),
        registry=JobRegistry(("batch/job",)),
        namespaces=ManagedNamespaces(configuration, seen.view(NAMESPACES)),
        jobs=True,
        seals=Seals.drawn(ManualClock()),
        access=NobodyMay(),
        owners=nobody_owns(),
        kinds=NoKinds(),
    )


def creation(**labels: str) -> AdmissionRequest:
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": labels},
        "spec": {"template": {"spec": {}}},
    }
    return AdmissionRequest(uid="u", operation="CREATE", namespace="team", name="j", object=job)


def test_a_job_is_known_when_all_behind_its_queue_was_seen() -> None:
    seen = Seen()
    seen.put(NAMESPACES, "team", {})
    made = handlers(seen)
    request = creation(**{QUEUE_NAME_LABEL: "q"})
    assert not made.is_cached(DEFAULT_JOB, request)
    seen.put(LOCAL_QUEUES, "q", {"clusterQueue": "cq"}, namespace="team")
    assert not made.is_cached(DEFAULT_JOB, request)
    seen.put(CLUSTER_QUEUES, "cq", {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})
    assert not made.is_cached(DEFAULT_JOB, request)
    seen.put(ADMISSION_CHECKS, "mk", {"controllerName": MULTIKUEUE_CONTROLLER})
    assert made.is_cached(DEFAULT_JOB, request)


@pytest.mark.parametrize("hook", [DEFAULT_JOB, VALIDATE_JOB], ids=["to default it", "to validate it"])
def test_a_job_is_not_known_before_its_namespace_was_seen(hook: Any) -> None:
    seen = Seen()
    made, request = handlers(seen), creation()
    assert not made.is_cached(hook, request)
    seen.put(NAMESPACES, "team", {})
    assert made.is_cached(hook, request)


@pytest.mark.parametrize(
    ("hook", "request_"),
    [
        pytest.param(VALIDATE_JOB, creation(**{QUEUE_NAME_LABEL: "q"}), id="what is only validated"),
        pytest.param(DEFAULT_JOB, creation(), id="a job without a queue"),
    ],
)
def test_nothing_is_waited_for(hook: Any, request_: AdmissionRequest) -> None:
    seen = Seen()
    seen.put(NAMESPACES, "team", {})
    assert handlers(seen).is_cached(hook, request_)


@pytest.mark.anyio
async def test_a_job_that_comes_a_moment_before_its_queue_is_dispatched() -> None:
    seen = Seen()
    seen.put(NAMESPACES, "team", {})
    made = handlers(seen)
    asked = 0

    def knows(hook: Any, request: AdmissionRequest) -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            seen.put(LOCAL_QUEUES, "q", {"clusterQueue": "cq"}, namespace="team")
            seen.put(CLUSTER_QUEUES, "cq", {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})
            seen.put(ADMISSION_CHECKS, "mk", {"controllerName": MULTIKUEUE_CONTROLLER})
        return made.is_cached(hook, request)

    async def ready() -> None:
        return

    answers: list[ReviewAnswer] = []
    by_path = made.by_path()
    hook, default = by_path[DEFAULT_JOB.path]

    def handle(request: AdmissionRequest) -> ReviewAnswer:
        answer = default(request)
        assert isinstance(answer, ReviewAnswer)
        answers.append(answer)
        return answer

    request = creation(**{QUEUE_NAME_LABEL: "q"})
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "team", "name": "j", "object": request.object},
    }
    app = application({DEFAULT_JOB.path: (hook, handle)}, ready=ready, is_cached=knows)
    async with TestClient(TestServer(app)) as client, client.post(DEFAULT_JOB.path, json=body) as response:
        assert response.status == 200
    assert asked == 3
    assert answers[0].object is not None
    assert answers[0].object["spec"]["managedBy"] == MULTIKUEUE_MANAGED_BY


def moved(*, old: str, new: str, managed_by: str = "", **status: object) -> AdmissionRequest:
    """A suspended Job whose queue label is changed."""

    def job(queue: str) -> dict[str, Any]:
        made = creation(**{QUEUE_NAME_LABEL: queue}).object
        assert made is not None
        spec = {**made["spec"], "suspend": True} | ({"managedBy": managed_by} if managed_by else {})
        return {**made, "spec": spec, "status": status}

    return AdmissionRequest(
        uid="u", operation="UPDATE", namespace="team", name="j", object=job(new), old_object=job(old)
    )


def two_queues() -> Seen:
    """LocalQueue `here` runs Jobs on the hub, LocalQueue `away` on workers."""
    seen = Seen()
    seen.put(NAMESPACES, "team", {})
    seen.put(ADMISSION_CHECKS, "mk", {"controllerName": "kueue.x-k8s.io/multikueue"})
    seen.put(CLUSTER_QUEUES, "here", {})
    seen.put(CLUSTER_QUEUES, "away", {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})
    for name in ("here", "away"):
        seen.put(LOCAL_QUEUES, name, {"clusterQueue": name}, namespace="team")
    return seen


def warnings(request: AdmissionRequest) -> list[str]:
    hook = VALIDATE_JOB
    answer = handlers(two_queues()).by_path()[hook.path][1](request)
    assert isinstance(answer, ReviewAnswer)
    assert not answer.refusals
    return list(answer.warnings)


def test_moving_a_job_to_a_queue_of_workers_warns_that_it_must_be_created_again() -> None:
    (warning,) = warnings(moved(old="here", new="away"))
    assert "cannot be changed" in warning
    assert "kubectl delete job j -n team && kubectl create -n team -f FILE" in warning


def test_moving_a_job_of_workers_to_a_queue_of_the_hub_warns_too() -> None:
    (warning,) = warnings(moved(old="away", new="here", managed_by="kueue.x-k8s.io/multikueue"))
    assert "LocalQueue here runs Jobs on this cluster" in warning


@pytest.mark.parametrize(
    "request_",
    [
        moved(old="away", new="away"),
        moved(old="away", new="here"),
        moved(old="here", new="away", managed_by="kueue.x-k8s.io/multikueue"),
        moved(old="here", new="unknown"),
        moved(old="here", new="away", conditions=[{"type": "Complete", "status": "True"}]),
    ],
    ids=["the same queue", "back to the hub", "to where it was made for", "no such queue", "that has ended"],
)
def test_a_move_that_works_causes_no_warning(request_: AdmissionRequest) -> None:
    assert warnings(request_) == []
