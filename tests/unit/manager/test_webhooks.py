# SPDX-License-Identifier: Apache-2.0
"""What webhooks wait for before they answer."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer

from manager.caches import Caches
from manager.namespaces import ManagedNamespaces
from manager.views import View
from manager.webhooks.configurations import JOB_HOOKS
from manager.webhooks.handlers import Handlers
from manager.webhooks.review import AdmissionRequest, Answer
from manager.webhooks.server import application
from multikueue.api.configuration import Configuration
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, MULTIKUEUE_MANAGED_BY, QUEUE_NAME_LABEL
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, Resource
from multikueue.core.clock import ManualClock
from multikueue.integrations.registry import Registry

DEFAULT_JOB, VALIDATE_JOB = JOB_HOOKS


class Seen:
    """Caches that hold what a test has put there."""

    def __init__(self) -> None:
        self.views: dict[Resource, View] = {}

    def view(self, resource: Resource) -> View:
        return self.views.setdefault(resource, View(resource, clock=ManualClock()))

    def put(self, resource: Resource, name: str, spec: dict[str, Any], *, namespace: str = "") -> None:
        metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
        self.view(resource).observe(orjson.dumps({"metadata": metadata, "spec": spec}))


def handlers(seen: Seen) -> Handlers:
    configuration = Configuration()
    return Handlers(
        configuration=configuration,
        caches=cast(Caches, seen),
        registry=Registry(("batch/job",)),
        namespaces=ManagedNamespaces(configuration, seen.view(NAMESPACES)),
        jobs=True,
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
    assert not made.knows(DEFAULT_JOB, request)
    seen.put(LOCAL_QUEUES, "q", {"clusterQueue": "cq"}, namespace="team")
    assert not made.knows(DEFAULT_JOB, request)
    seen.put(CLUSTER_QUEUES, "cq", {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})
    assert not made.knows(DEFAULT_JOB, request)
    seen.put(ADMISSION_CHECKS, "mk", {"controllerName": MULTIKUEUE_CONTROLLER})
    assert made.knows(DEFAULT_JOB, request)


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
    assert handlers(seen).knows(hook, request_)


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
        return made.knows(hook, request)

    async def ready() -> None:
        return

    answers: list[Answer] = []
    by_path = made.by_path()
    hook, default = by_path[DEFAULT_JOB.path]

    def handle(request: AdmissionRequest) -> Answer:
        answers.append(default(request))
        return answers[-1]

    request = creation(**{QUEUE_NAME_LABEL: "q"})
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "team", "name": "j", "object": request.object},
    }
    app = application({DEFAULT_JOB.path: (hook, handle)}, ready=ready, knows=knows)
    async with TestClient(TestServer(app)) as client, client.post(DEFAULT_JOB.path, json=body) as response:
        assert response.status == 200
    assert asked == 3
    assert answers[0].object is not None
    assert answers[0].object["spec"]["managedBy"] == MULTIKUEUE_MANAGED_BY
