# SPDX-License-Identifier: Apache-2.0
"""Which ProvisioningRequests of a former manager nothing needs any more, and which a remote job still consumes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import orjson
import pytest

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
)
from multikueue.api.resource import PROVISIONING_REQUESTS
from multikueue.core.keys import Key
from multikueue.kube import errors
from multikueue.kube.cache.store import Store, row_of
from tests.support.api_refusals import refused
from worker_agent.local.orphans import Orphans
from worker_agent.local.provisioning import WorkerProvisioning, consumes

pytestmark = pytest.mark.anyio

Object = dict[str, Any]

CONSUME: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
OWNER, FORMER, OTHER = "hub-now", "hub-before", "hub-beside"


def request(name: str, *, manager: str = FORMER, namespace: str = "team") -> Object:
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {ORIGIN_LABEL: "o"},
            "annotations": {ASSIGNMENT_ANNOTATION: "a", CLUSTER_LABEL: "w", MANAGER_UID_ANNOTATION: manager},
        },
    }


def job(*names: str, namespace: str = "team", deleting: bool = False) -> Object:
    """A remote job whose pods consume these requests."""
    annotations = {f"{CONSUME}-{number}" if number else CONSUME: name for number, name in enumerate(names)}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    metadata: Object = {"name": "j", "namespace": namespace, "uid": "j", "resourceVersion": "1"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"template": template}, "status": {"message": "unused"}}


class Kind:
    """The remote jobs of one kind, as far as orphans ask for them; none of them is an orphan."""

    def __init__(self, *jobs: Object, known: bool = True) -> None:
        self.known = known
        self.informer = self
        self.store = Store()
        for each in jobs:
            self.store.put(row_of(each, orjson.dumps(each)))

    def of_others(self, manager_uid: str) -> tuple[Key, ...]:
        return ()


class Requests:
    """Those of one agent on its cluster."""

    def __init__(self, *requests: Object) -> None:
        self.requests = requests
        self.deleted: list[str] = []
        self.refusing = False

    def of_others(self, manager_uid: str) -> tuple[Object, ...]:
        marks = MANAGER_UID_ANNOTATION
        return tuple(each for each in self.requests if each["metadata"]["annotations"][marks] != manager_uid)

    async def discard(self, request: Object) -> None:
        if self.refusing:
            raise refused(errors.Forbidden, 403)
        self.deleted.append(request["metadata"]["name"])


class Mailbox:
    namespace = "mk-w"

    async def owner(self) -> str:
        return OWNER


def orphans(requests: Requests, *kinds: Kind) -> Orphans:
    made: Any = Orphans
    without_clones = SimpleNamespace(clones=SimpleNamespace(assignments=tuple))
    found: Orphans = made(Mailbox(), kinds, without_clones, cast(WorkerProvisioning, requests))
    return found


async def page(of: Orphans, request: str = "1", **wanted: Any) -> Object:
    of.set_request({"request": request, **wanted})
    found: Object = (await of.report())["orphans"]
    return found


def test_a_job_consumes_the_request_that_its_pods_name() -> None:
    assert consumes(job("wl-check-1"), request("wl-check-1"))
    assert not consumes(job("wl-check-1"), request("wl-check-11"))
    assert not consumes(job("wl-check-11"), request("wl-check-1"))
    assert not consumes(job("unused"), request("other"))
    assert not consumes(job(), request("unused")), "what its status has does not count"


def test_a_job_of_another_namespace_consumes_no_request_of_that_name() -> None:
    assert not consumes(job("wl", namespace="other"), request("wl"))


def test_a_pod_of_a_group_consumes_what_its_own_annotation_names() -> None:
    pod = {"metadata": {"name": "p", "namespace": "team", "annotations": {CONSUME: "wl"}}, "spec": {}}
    assert consumes(pod, request("wl"))


async def test_a_request_of_a_former_manager_that_no_job_consumes_is_an_orphan() -> None:
    found = await page(orphans(Requests(request("one")), Kind()))
    assert found["total"] == 1
    (item,) = found["items"]
    assert (item["kind"], item["name"], item["managerUID"]) == ("ProvisioningRequest", "one", FORMER)
    assert "spec" not in item["manifest"]


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([Kind(job("one"))], id="by a job of any manager"),
        pytest.param([Kind(), Kind(job("other", "one"))], id="by a job of another kind"),
        pytest.param([Kind(job("one", deleting=True))], id="by a job whose pods are stopping"),
        pytest.param([Kind(), Kind(known=False)], id="perhaps by a job that was not read yet"),
    ],
)
async def test_a_request_is_no_orphan_and_is_not_discarded_while_it_is_consumed(kinds: list[Kind]) -> None:
    requests = Requests(request("one"))
    found = await page(orphans(requests, *kinds), discard=["uid-one"])
    assert (found["total"], found["items"]) == (0, [])
    assert requests.deleted == []


async def test_a_request_of_the_present_manager_is_never_an_orphan() -> None:
    requests = Requests(request("one", manager=OWNER))
    assert (await page(orphans(requests, Kind()), discard=["uid-one"]))["total"] == 0
    assert requests.deleted == []


async def test_a_request_is_deleted_only_if_an_administrator_has_named_its_uid() -> None:
    """It may be of a manager that shares the worker under the same name of the cluster."""
    requests = Requests(request("one"), request("two", manager=OTHER))
    of = orphans(requests, Kind())
    assert (await page(of))["total"] == 2
    assert requests.deleted == []
    left = await page(of, "2", discard=["uid-one", "uid-unknown"])
    assert requests.deleted == ["one"]
    assert [each["name"] for each in left["items"]] == ["two"]


async def test_a_deletion_that_is_refused_is_reported_and_can_be_requested_again() -> None:
    requests = Requests(request("one"))
    requests.refusing = True
    of = orphans(requests, Kind())
    (refusal,) = (await page(of, discard=["uid-one"]))["refused"]
    assert refusal["uid"] == "uid-one"
    requests.refusing = False
    assert (await page(of, "2", discard=["uid-one"]))["total"] == 0
    assert requests.deleted == ["one"]


async def test_pages_of_jobs_and_requests_are_in_one_order() -> None:
    names = [f"r-{number:03}" for number in range(150)]
    of = orphans(Requests(*map(request, names)), Kind())
    first = await page(of)
    second = await page(of, "2", after=first["next"])
    assert [each["name"] for each in (*first["items"], *second["items"])] == names
