# SPDX-License-Identifier: Apache-2.0
"""Which pods of a namespace are those of a remote job, for jobs whose pods have owners in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
import pytest

from multikueue.api.constants import ASSIGNMENT_ANNOTATION
from multikueue.api.resource import JOBS, Resource
from multikueue.jobs.framework.registry import known_integrations
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient
from tests.support.api_refusals import refused
from worker_agent.pod_owners import MAX_DEPTH, MOST_OWNERS, LoggedPods, PodOwners, logged_pods

pytestmark = pytest.mark.anyio

Object = dict[str, Any]

KINDS: Final = known_integrations()
JOB_SETS: Final = KINDS["jobset.x-k8s.io/jobset"].resource
OF_JOB_SET: Final = LoggedPods(namespace="ns", job_uid="set", selector="jobset=set")


def reference(kind: str, name: str, uid: str, *, api: str = "batch/v1", controller: bool = True) -> Object:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": controller}


def pod(*owners: Object, uid: str = "p", namespace: str = "ns") -> Object:
    return {"metadata": {"name": "p", "namespace": namespace, "uid": uid, "ownerReferences": list(owners)}}


OWNING_JOB: Final = reference("Job", "set-workers-0", "j")
OWNING_SET: Final = reference("JobSet", "set", "set", api="jobset.x-k8s.io/v1alpha2")
OWNING_CLUSTER: Final = reference("RayCluster", "c", "c", api="ray.io/v1")


class Worker:
    """The owners on the worker's API server, by name."""

    def __init__(self, refuses: str = "", **owners: tuple[str, Object | None]) -> None:
        self.owners: Mapping[str, tuple[str, Object | None]] = owners
        self.refuses = refuses
        self.read: list[str] = []

    async def get(self, resource: Resource, name: str, *, namespace: str, metadata_only: bool) -> bytes:
        assert (namespace, metadata_only) == ("ns", True)
        self.read.append(f"{resource.plural}/{name}")
        if resource.plural == self.refuses:
            raise refused(errors.Forbidden, 403)
        found = self.owners.get(name.replace("-", "_"))
        if found is None:
            raise refused(errors.NotFound, 404)
        uid, controller = found
        owners = [] if controller is None else [controller]
        return orjson.dumps({"metadata": {"name": name, "uid": uid, "ownerReferences": owners}})


def owners_on(worker: Worker, *kinds: Resource) -> PodOwners:
    return PodOwners(cast(KubeClient, worker), kinds or (JOBS, JOB_SETS))


async def test_a_pod_of_a_job_of_the_job_set_is_its_own_and_each_owner_is_read_once() -> None:
    worker = Worker(set_workers_0=("j", OWNING_SET))
    owners = owners_on(worker)
    for uid in ("p1", "p2", "p3"):
        assert await owners.lead_to(OF_JOB_SET, pod(OWNING_JOB, uid=uid))
    assert worker.read == ["jobs/set-workers-0"]


async def test_a_pod_that_names_the_job_itself_is_its_own_without_a_request() -> None:
    worker = Worker()
    assert await owners_on(worker).lead_to(OF_JOB_SET, pod({**OWNING_SET, "controller": False}))
    assert worker.read == []


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(None, id="is gone"),
        pytest.param(("another", OWNING_SET), id="has another uid"),
        pytest.param(("j", None), id="has no controller"),
        pytest.param(("j", {**OWNING_SET, "controller": False}), id="is only referred to"),
        pytest.param(("j", {**OWNING_SET, "uid": "other"}), id="is of another JobSet of that name"),
    ],
)
async def test_a_pod_is_not_read_whose_owner(found: tuple[str, Object | None] | None) -> None:
    owners = {} if found is None else {"set_workers_0": found}
    assert not await owners_on(Worker("", **owners)).lead_to(OF_JOB_SET, pod(OWNING_JOB))


async def test_a_pod_without_a_controller_or_of_another_namespace_is_not_read() -> None:
    owners = owners_on(Worker(set_workers_0=("j", OWNING_SET)))
    assert not await owners.lead_to(OF_JOB_SET, pod())
    assert not await owners.lead_to(OF_JOB_SET, pod({**OWNING_JOB, "controller": False}))
    assert not await owners.lead_to(OF_JOB_SET, pod(OWNING_JOB, namespace="other"))
    assert not await owners.lead_to(OF_JOB_SET, pod(OWNING_SET, namespace="other"))


@pytest.mark.parametrize("framework", ["ray.io/rayjob", "trainer.kubeflow.org/trainjob"])
async def test_an_owner_that_the_agent_does_not_serve_leaves_the_labels_of_the_kind(framework: str) -> None:
    kind = KINDS[framework]
    job = {"metadata": {"name": "r", "namespace": "ns", "uid": "r"}, "spec": {}}
    pods = logged_pods(kind, "ns", job)
    assert pods.selector
    assert not pods.direct
    worker = Worker()
    assert await owners_on(worker, kind.resource).lead_to(pods, pod(OWNING_CLUSTER))
    assert worker.read == []


async def test_an_owner_that_the_agent_may_not_read_is_asked_for_once() -> None:
    worker = Worker(refuses="jobs")
    owners = owners_on(worker)
    for name in ("a", "b", "c"):
        assert await owners.lead_to(OF_JOB_SET, pod(reference("Job", name, name)))
    assert worker.read == ["jobs/a"]


async def test_the_pods_of_a_job_have_no_owner_in_between() -> None:
    job = {"metadata": {"name": "j", "uid": "j"}, "spec": {"selector": {"matchLabels": {"controller-uid": "j"}}}}
    pods = logged_pods(KINDS["batch/job"], "ns", job)
    assert pods == LoggedPods(namespace="ns", job_uid="j", selector="controller-uid=j", direct=True)
    worker = Worker()
    owners = owners_on(worker)
    assert await owners.lead_to(pods, pod(OWNING_JOB))
    for forged in (OWNING_CLUSTER, OWNING_SET, {**OWNING_JOB, "uid": "another"}):
        assert not await owners.lead_to(pods, pod(forged))
    assert worker.read == []


async def test_a_single_pod_and_the_pods_of_a_group_are_known_by_their_own_uid() -> None:
    kind = KINDS["pod"]
    single = pod(uid="one")
    single["metadata"]["annotations"] = {ASSIGNMENT_ANNOTATION: "a"}
    pods = logged_pods(kind, "ns", single)
    assert pods.selector
    group = {"metadata": {**single["metadata"], "uid": "digest"}, "members": [single, pod(uid="two")]}
    owners = owners_on(Worker())
    assert await owners.lead_to(pods, single)
    assert not await owners.lead_to(pods, pod(uid="two"))
    assert await owners.lead_to(logged_pods(kind, "ns", group), pod(uid="two"))
    assert not await owners.lead_to(logged_pods(kind, "ns", group), pod(OWNING_CLUSTER, uid="three"))


async def test_a_group_is_read_on_when_its_pods_change() -> None:
    one, two = (
        logged_pods(KINDS["pod"], "ns", {"metadata": {"uid": "g"}, "members": [pod(uid=uid)]}) for uid in ("a", "b")
    )
    assert one == two
    assert one.members != two.members


async def test_forged_owners_cost_a_bounded_number_of_requests() -> None:
    worker = Worker()
    owners = owners_on(worker)
    for number in range(MOST_OWNERS + 50):
        assert not await owners.lead_to(OF_JOB_SET, pod(reference("Job", f"forged-{number}", "f")))
    assert len(worker.read) == MOST_OWNERS
    assert owners.left_out
    loop = Worker(a=("a", reference("Job", "b", "b")), b=("b", reference("Job", "a", "a")))
    assert not await owners_on(loop).lead_to(OF_JOB_SET, pod(reference("Job", "a", "a")))
    assert len(loop.read) <= MAX_DEPTH


@pytest.mark.parametrize("name", ["../other", "a/b", "", None, 7, "x" * 300], ids=repr)
async def test_an_owner_whose_name_is_none_is_not_asked_for(name: Any) -> None:
    worker = Worker()
    assert not await owners_on(worker).lead_to(OF_JOB_SET, pod({**OWNING_JOB, "name": name}))
    assert worker.read == []
