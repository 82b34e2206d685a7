# SPDX-License-Identifier: Apache-2.0
"""Where `mkctl logs` finds the pods of a Job, of a group, and of one pod of it, on the hub and on a worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import orjson
import pytest

from multikueue.api.constants import (
    BATCH_CONTROLLER_UID_LABEL,
    MANAGED_LABEL,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_LABEL,
    POD_GROUP_NAME_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    REMOTE_POD_LABEL,
    WORKLOAD_NAME_ANNOTATION,
)
from multikueue.api.resource import JOBS, PODS, WORKLOADS, Resource
from multikueue.cli.logs.log_sources import place_of, pod_of_group, pods_of
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import known_integrations
from multikueue.kube import errors
from multikueue.kube.errors import Details
from multikueue.kube.rest.client import KubeClient

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
PODS_KIND: Final = known_integrations()["pod"]
JOBS_KIND: Final = known_integrations()["batch/job"]
JOB_SETS_KIND: Final = known_integrations()["jobset.x-k8s.io/jobset"]
MARKS: Final = {ORIGIN_LABEL: "multikueue"}, {PREBUILT_WORKLOAD_ANNOTATION: "w"}
GROUP: Final = Key("ns", "g")


def pod(name: str, *, group: str = "", phase: str = "Pending", number: int = 0, **labels: str) -> Object:
    marks = {MANAGED_LABEL: "true", **({POD_GROUP_NAME_LABEL: group} if group else {}), **labels}
    created = f"2026-01-01T00:00:0{number}Z"
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "labels": marks, "creationTimestamp": created}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"} if group else {}
    return {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"containers": []},
        "status": {"phase": phase},
    }


def workload(*owners: str, cluster: str = "east", finished: bool = False, controls: bool = False) -> Object:
    control = {"controller": True} if controls else {}
    references = [{"apiVersion": "v1", "kind": "Pod", "name": each, "uid": f"u-{each}", **control} for each in owners]
    conditions = [{"type": "Finished", "status": "True"}] if finished else []
    return {
        "metadata": {"namespace": "ns", "name": "w", "uid": "w", "ownerReferences": references},
        "status": {"clusterName": cluster, "conditions": conditions},
    }


def job(uid: str, *, kind: Resource = JOBS, labels: Object | None = None, annotations: Object | None = None) -> Object:
    """The Job `j` as the API server has it that gave it that uid."""
    metadata = {"namespace": "ns", "name": "j", "uid": uid, "labels": labels or {}, "annotations": annotations or {}}
    selector = {"matchLabels": {BATCH_CONTROLLER_UID_LABEL: uid}} if kind == JOBS else {}
    return {
        "kind": kind.kind,
        "metadata": metadata,
        "spec": {"managedBy": MULTIKUEUE_MANAGED_BY, **({"selector": selector} if selector else {})},
    }


def workload_of_job() -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "on-the-hub", "controller": True}
    return {
        "metadata": {"namespace": "ns", "name": "w", "uid": "w", "ownerReferences": [owner]},
        "status": {"clusterName": "east"},
    }


class Server:
    """An API server with these pods, Workloads and jobs."""

    def __init__(
        self,
        *pods: Object,
        workloads: tuple[Object, ...] = (),
        jobs: tuple[Object, ...] = (),
        forbids_jobs: bool = False,
    ) -> None:
        self.pods = pods
        self.workloads = workloads
        self.jobs = jobs
        self.forbids_jobs = forbids_jobs

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)

    async def get_object(self, resource: Resource, name: str, *, namespace: str) -> Object:
        if self.forbids_jobs and resource != PODS:
            raise errors.Forbidden(request="GET", status=403, reason="", message="may not", details=Details())
        jobs = [each for each in self.jobs if each["kind"] == resource.kind]
        found = [each for each in (self.pods if resource == PODS else jobs) if each["metadata"]["name"] == name]
        if not found:
            raise errors.NotFound(request="GET", status=404, reason="", message="not found", details=Details())
        return found[0]

    async def get(self, resource: Resource, name: str, *, namespace: str, metadata_only: bool) -> bytes:
        return orjson.dumps(await self.get_object(resource, name, namespace=namespace))

    async def list_all(self, resource: Resource, *, namespace: str, label_selector: str = "") -> SimpleNamespace:
        objects = self.pods if resource == PODS else self.workloads
        assert resource in (PODS, WORKLOADS)
        labelled = list(objects)
        for term in filter(None, label_selector.split(",")):
            key, _, value = term.partition("=")
            with_key = [each for each in labelled if key in each["metadata"]["labels"]]
            labelled = [each for each in with_key if value in ("", each["metadata"]["labels"][key])]
        return SimpleNamespace(items=[orjson.dumps(each) for each in labelled])

    async def list_page(
        self, resource: Resource, *, namespace: str, label_selector: str, limit: int
    ) -> SimpleNamespace:
        assert label_selector, "every pod of the namespace would be listed"
        return await self.list_all(resource, namespace=namespace, label_selector=label_selector)


def names(pods: list[Object]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def labelled(name: str, key: str, value: str) -> Object:
    made = pod(name)
    made["metadata"]["labels"][key] = value
    return made


def pods_of_jobs(*uids: str) -> tuple[Object, ...]:
    return tuple(labelled(f"of-{uid}", BATCH_CONTROLLER_UID_LABEL, uid) for uid in uids)


@pytest.mark.parametrize("name", [PREBUILT_WORKLOAD_ANNOTATION, WORKLOAD_NAME_ANNOTATION])
async def test_the_pods_of_a_job_are_found_by_the_uid_of_the_remote_job(name: str) -> None:
    hub = Server(workloads=(workload_of_job(),), jobs=(job("on-the-hub"),))
    place = await place_of(hub.client, JOBS_KIND, Key("ns", "j"))
    remote = job("on-the-worker", labels={ORIGIN_LABEL: "multikueue"}, annotations={name: "w"})
    worker = Server(*pods_of_jobs("on-the-worker", "on-the-hub", "another"), jobs=(remote,))
    assert names(await pods_of(worker.client, place)) == ["of-on-the-worker"]
    assert names(await pods_of(worker.client, place, all_pods=True)) == ["of-on-the-worker"]


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [({}, {}), ({}, MARKS[1]), (MARKS[0], {}), (MARKS[0], {PREBUILT_WORKLOAD_ANNOTATION: "another"})],
    ids=["a user's", "without the origin", "without a Workload", "of another Workload"],
)
async def test_another_job_of_that_name_on_the_worker_is_not_read(labels: Object, annotations: Object) -> None:
    hub = Server(workloads=(workload_of_job(),), jobs=(job("on-the-hub"),))
    place = await place_of(hub.client, JOBS_KIND, Key("ns", "j"))
    worker = Server(*pods_of_jobs("local"), jobs=(job("local", labels=labels, annotations=annotations),))
    assert await pods_of(worker.client, place) == []


async def test_a_job_that_the_worker_has_not_has_no_pods_and_one_that_may_not_be_read_is_an_error() -> None:
    hub = Server(workloads=(workload_of_job(),), jobs=(job("on-the-hub"),))
    place = await place_of(hub.client, JOBS_KIND, Key("ns", "j"))
    assert await pods_of(Server(*pods_of_jobs("on-the-hub")).client, place) == []
    with pytest.raises(errors.Forbidden):
        await pods_of(Server(forbids_jobs=True).client, place)


async def test_a_job_that_is_not_dispatched_is_found_by_its_own_uid() -> None:
    local = job("on-the-hub")
    del local["spec"]["managedBy"]
    hub = Server(*pods_of_jobs("on-the-hub"), jobs=(local,))
    place = await place_of(hub.client, JOBS_KIND, Key("ns", "j"))
    assert names(await pods_of(hub.client, place)) == ["of-on-the-hub"]


@pytest.mark.parametrize("case", ["remote", "gone", "forbidden", "local"])
async def test_pods_with_labels_of_the_name_of_their_job_need_no_right_to_the_job(case: str) -> None:
    kind = JOB_SETS_KIND.resource
    hub = Server(workloads=(workload_of_job(),), jobs=(job("on-the-hub", kind=kind),))
    place = await place_of(hub.client, JOB_SETS_KIND, Key("ns", "j"))
    key, _, value = place.selector.partition("=")
    labels, annotations = MARKS if case == "remote" else ({}, {})
    jobs = (job("on-the-worker", kind=kind, labels=labels, annotations=annotations),)
    worker = Server(labelled("p", key, value), jobs=() if case == "gone" else jobs, forbids_jobs=case == "forbidden")
    assert names(await pods_of(worker.client, place)) == ([] if case == "local" else ["p"])


async def test_a_pod_of_a_group_is_read_alone_and_with_its_group() -> None:
    hub = Server(pod("g-0", group="g"), pod("g-1", group="g"), workloads=(workload("g-0", "g-1"),))
    place = await place_of(hub.client, PODS_KIND, Key("ns", "g-1"))
    assert (place.cluster, place.group) == ("east", frozenset({"g-0", "g-1"}))
    worker = Server(
        pod("g-1", number=2, **{REMOTE_POD_LABEL: "x"}),
        pod("g-0", number=1, **{REMOTE_POD_LABEL: "x"}),
        pod("another", number=0, **{REMOTE_POD_LABEL: "y"}),
        pod("g-0-of-a-user"),
    )
    assert names(await pods_of(worker.client, place)) == ["g-1"]
    assert names(await pods_of(worker.client, place, all_pods=True)) == ["g-0", "g-1"]
    assert names(await pods_of(Server().client, place)) == []
    assert names(await pods_of(Server().client, place, all_pods=True)) == []


async def test_the_pods_of_a_group_that_is_not_dispatched_are_read_on_the_hub() -> None:
    hub = Server(pod("g-0", group="g"), pod("g-1", group="g", number=1), pod("p"), workloads=())
    hub.workloads = (workload("g-0", "g-1", cluster=""),)
    place = await place_of(hub.client, PODS_KIND, Key("ns", "g-0"), all_pods=True)
    assert place.cluster == ""
    assert names(await pods_of(hub.client, place, all_pods=True)) == ["g-0", "g-1"]


async def test_a_pod_has_ended_before_its_group() -> None:
    pods = (pod("g-0", group="g", phase="Succeeded"), pod("g-1", group="g"))
    hub, key = Server(*pods, workloads=(workload("g-0", "g-1"),)), Key("ns", "g-0")
    assert (await place_of(hub.client, PODS_KIND, key)).ended
    assert not (await place_of(hub.client, PODS_KIND, key, all_pods=True)).ended
    hub.workloads = (workload("g-0", "g-1", finished=True),)
    assert (await place_of(hub.client, PODS_KIND, key, all_pods=True)).ended


async def test_a_pod_of_its_own_has_no_group() -> None:
    hub = Server(pod("p", phase="Running"), workloads=(workload("p", controls=True),))
    place = await place_of(hub.client, PODS_KIND, Key("ns", "p"), all_pods=True)
    assert (place.cluster, place.group, place.ended) == ("east", frozenset(), False)
    assert names(await pods_of(Server(pod("p")).client, place, all_pods=True)) == ["p"]


async def test_a_group_is_known_by_its_name_and_begins_with_a_pod_that_runs() -> None:
    hub = Server(
        pod("g-0", group="g", number=0),
        pod("g-1", group="g", phase="Running", number=1),
        pod("g-2", group="g", phase="Succeeded", number=2),
        pod("h-0", group="h", phase="Running", number=3),
    )
    assert await pod_of_group(hub.client, PODS_KIND, GROUP) == Key("ns", "g-1")


async def test_a_pod_with_the_name_of_a_group_is_meant_itself() -> None:
    hub = Server(pod("g"), pod("g-0", group="g"))
    assert await pod_of_group(hub.client, PODS_KIND, GROUP) is None
    assert await pod_of_group(Server().client, JOBS_KIND, GROUP) is None


async def test_a_name_of_neither_is_not_found() -> None:
    hub = Server(pod("h-0", group="h"))
    assert await pod_of_group(hub.client, PODS_KIND, GROUP) is None
    with pytest.raises(BadInput, match="Pod ns/g not found"):
        await place_of(hub.client, PODS_KIND, GROUP)
