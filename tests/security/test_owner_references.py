# SPDX-License-Identifier: Apache-2.0
"""An owner reference leaves an object to the quota of its owner only if its writer may own objects of that kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.resource import JOBS, PODS, WORKLOADS
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.security.test_app_owners import a_pod, owned_by
from tests.support.app_sets import QUEUE, Apps, K, Object, hub, is_gated
from tests.support.crds import kinds
from tests.support.managers import condition, eventually, is_true, job_manifest, make_queue, running_manager
from tests.support.operators.job_sets import JobSetOperator
from tests.support.operators.operator import operating
from tests.support.operators.samples import job_set, pod_template
from tests.support.tenant_hubs import EDITS_JOBS, allow, tenant

__all__ = ["hub", "kube_binaries"]

pytestmark = pytest.mark.anyio

SETTINGS = "integrations: {frameworks: [batch/job, pod, jobset.x-k8s.io/jobset]}"
NEEDS = r"its writer needs the right to update %s/finalizers in namespace %s: user \"%s\" may not"
ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]
EDITS_PODS = ({"apiGroups": [""], "resources": ["pods"], "verbs": ALL},)
OPERATES = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ALL},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets", "jobsets/status"], "verbs": ALL},
)
OWNS = ({"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets/finalizers"], "verbs": ["update"]},)
GHOST: Object = {"metadata": {"name": "ghost", "uid": "4d1c32f6-0c1f-4a55-bb0a-9f1a8cb2e7b0"}}


@pytest.fixture(scope="module")
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with hub.client() as client:
        await kinds.install(client, kinds.JOB_SETS)
        async with running_manager(hub, settings=SETTINGS, dispatch=DispatchController):
            yield client


@pytest.fixture(scope="module")
async def kim(hub: Cluster, admin: KubeClient) -> AsyncIterator[KubeClient]:
    """A tenant with the rights of the role `edit` to Jobs and pods."""
    async with tenant(hub, admin, "kim", rules=(*EDITS_JOBS, *EDITS_PODS)) as client:
        yield client


async def place(client: KubeClient, name: str, *, cpu: str = "1") -> Apps:
    """A namespace with a queue of its name."""
    await make_queue(client, name, namespace=name, cpu=cpu)
    return Apps(client, name)


async def a_running_job(apps: Apps, *, cpu: str = "1") -> Object:
    """A Job that takes that much of its queue."""
    body = job_manifest("owner", namespace=apps.namespace, queue=apps.namespace, cpu=cpu)
    body["spec"]["template"]["metadata"] = {"annotations": {"multikueue.io/run-for": "forever"}}
    stored: Object = orjson.loads(await apps.client.create(JOBS, body, namespace=apps.namespace))
    await apps.running(1)
    return stored


def needs(right: str, namespace: str, user: str) -> str:
    return NEEDS % (right, namespace, user)


async def test_the_pods_of_a_queued_job_run_on_its_quota(admin: KubeClient) -> None:
    apps = await place(admin, "pods-of-job")
    await a_running_job(apps)
    pods = await apps.listed(PODS)
    assert [K + "managed" in pod["metadata"].get("labels", {}) for pod in pods] == [False]
    assert [each["metadata"]["name"].startswith("job-owner-") for each in await apps.listed(WORKLOADS)] == [True]


async def test_a_tenant_makes_no_pod_in_the_name_of_a_queued_job(admin: KubeClient, kim: KubeClient) -> None:
    apps = await place(admin, "pod-of-job")
    owner = await a_running_job(apps)
    body = a_pod("free", cpu="8", owners=owned_by(owner, JOBS), labels={QUEUE: "pod-of-job"})
    with pytest.raises(Forbidden, match=needs("jobs.batch", "pod-of-job", "kim")):
        await kim.create(PODS, body, namespace="pod-of-job")
    body = a_pod("free", owners=owned_by(GHOST, JOBS), labels={QUEUE: "pod-of-job"})
    with pytest.raises(Forbidden, match=needs("jobs.batch", "pod-of-job", "kim")):
        await kim.create(PODS, body, namespace="pod-of-job")
    assert len(await apps.listed(PODS)) == 1


async def test_a_tenant_adds_no_owner_to_a_pod_later(admin: KubeClient, kim: KubeClient) -> None:
    apps = await place(admin, "later")
    owner = await a_running_job(apps)
    body = a_pod("waits", labels={QUEUE: "later"})
    assert is_gated(orjson.loads(await kim.create(PODS, body, namespace="later")))
    with pytest.raises(Forbidden, match=needs("jobs.batch", "later", "kim")):
        await kim.patch(PODS, "waits", {"metadata": {"ownerReferences": owned_by(owner, JOBS)}}, namespace="later")
    await kim.patch(PODS, "waits", {"metadata": {"annotations": {"note": "mine"}}}, namespace="later")


async def test_a_pod_that_a_controller_adopts_waits_for_its_own_quota(admin: KubeClient, kim: KubeClient) -> None:
    apps = await place(admin, "adopted")
    owner = await a_running_job(apps)
    await kim.create(PODS, a_pod("orphan", cpu="8", labels={QUEUE: "adopted"}), namespace="adopted")
    await apps.workloads(lambda found: len(found) == 2, what="the pod has a Workload")
    await apps.change(PODS, "orphan", metadata={"ownerReferences": owned_by(owner, JOBS)})
    await apps.change(PODS, "orphan", spec={"schedulingGates": None})
    await apps.pods(lambda pods: "orphan" not in [pod["metadata"]["name"] for pod in pods], what="it is deleted")


async def test_a_tenant_makes_no_job_in_the_name_of_a_queued_job_set(admin: KubeClient, kim: KubeClient) -> None:
    await place(admin, "job-of-set")
    body = job_manifest("free", namespace="job-of-set", queue="job-of-set", cpu="8")
    body["metadata"]["ownerReferences"] = owned_by(GHOST, kinds.JOB_SETS)
    with pytest.raises(Forbidden, match=needs("jobsets.jobset.x-k8s.io", "job-of-set", "kim")):
        await kim.create(JOBS, body, namespace="job-of-set")


async def test_a_tenant_names_owners_where_nothing_is_queued(admin: KubeClient, kim: KubeClient) -> None:
    await place(admin, "lax")
    body = a_pod("plain", owners=owned_by(GHOST, JOBS))
    stored = orjson.loads(await kim.create(PODS, body, namespace="lax", dry_run=True))
    assert not is_gated(stored), "a pod without a queue is not queued either"


@asynccontextmanager
async def an_operator(hub: Cluster, admin: KubeClient, user: str, *rules: Object) -> AsyncIterator[None]:
    """The operator of JobSets as a user with these rights."""
    await allow(admin, user, rules)
    async with KubeClient(credentials.from_dict(hub.issue_client_certificate(user))) as client:
        async with operating(JobSetOperator(client, clock=None)):
            yield


async def test_an_operator_that_may_own_jobs_runs_a_job_set_where_everything_is_queued(
    hub: Cluster, admin: KubeClient
) -> None:
    await make_queue(admin, "default", namespace="all-queued", cpu="10")
    apps = Apps(admin, "all-queued")
    async with an_operator(hub, admin, "without", *OPERATES):
        await admin.create(kinds.JOB_SETS, a_set("set"), namespace="all-queued")
        # Its controller tries again; meanwhile the Jobs of the set are not made at all.
        await apps.workloads(
            lambda found: [is_true(each, "Admitted") for each in found] == [True], what="the JobSet is admitted"
        )
        with pytest.raises(Forbidden, match=needs("jobsets.jobset.x-k8s.io", "all-queued", "without")):
            await child_of_set(hub, apps, "without")
        assert await apps.listed(JOBS) == []
    async with an_operator(hub, admin, "with", *OPERATES, *OWNS):
        pods = await apps.running(5)
    assert not any(K + "managed" in pod["metadata"].get("labels", {}) for pod in pods)
    assert len(await apps.listed(WORKLOADS)) == 1, "Jobs and pods have none of their own"


async def test_a_job_that_names_a_queued_job_set_takes_no_more_than_the_quota_of_that(
    hub: Cluster, admin: KubeClient
) -> None:
    """Its writer counts as one that the webhook did not see: an administrator may write what it would refuse."""
    apps = await place(admin, "unseen", cpu="20")
    async with an_operator(hub, admin, "operates", *OPERATES, *OWNS):
        body = a_set("set")
        body["metadata"] |= {"namespace": "unseen", "labels": {QUEUE: "unseen"}}
        owner = orjson.loads(await admin.create(kinds.JOB_SETS, body, namespace="unseen"))
        await apps.running(5)
    # The operator would delete a Job that it did not create, sooner or later.
    body = job_manifest("free", namespace="unseen", queue="unseen", cpu="8", suspend=False)
    body["metadata"]["ownerReferences"] = owned_by(owner, kinds.JOB_SETS)
    await admin.create(JOBS, body, namespace="unseen")

    async def stopped() -> Object | None:
        return await apps.get(JOBS, "free")

    await eventually(
        stopped, what="it is suspended", until=lambda seen: seen is not None and seen["spec"]["suspend"] is True
    )
    why = await apps.noted("Stopped", about="Job")
    assert "JobSet set, its owner, has less quota than its jobs request: cpu" in why
    await apps.running(5)


def a_set(name: str) -> Object:
    body: Object = job_set(name, pod_template({"multikueue.io/run-for": "forever"}, terminationGracePeriodSeconds=0))
    body["metadata"]["namespace"] = "all-queued"
    return body


async def child_of_set(hub: Cluster, apps: Apps, user: str) -> None:
    """A Job of the JobSet, made by that user."""
    owner = await apps.get(kinds.JOB_SETS, "set")
    assert owner is not None
    body = job_manifest("child", namespace=apps.namespace, queue=None)
    body["metadata"]["ownerReferences"] = owned_by(owner, kinds.JOB_SETS)
    async with KubeClient(credentials.from_dict(hub.issue_client_certificate(user))) as client:
        await client.create(JOBS, body, namespace=apps.namespace, dry_run=True)


async def test_a_tenant_does_not_remove_the_gate_of_a_pod(admin: KubeClient, kim: KubeClient) -> None:
    apps = await place(admin, "gate", cpu="100m")
    await kim.create(PODS, a_pod("waits", cpu="1", labels={QUEUE: "gate"}), namespace="gate")
    with pytest.raises(
        Forbidden, match=r"needs the right to patch workloads\.kueue\.x-k8s\.io/status: user \"kim\" may not"
    ):
        await kim.patch(PODS, "waits", {"spec": {"schedulingGates": None}}, namespace="gate")
    await kim.create(PODS, a_pod("fits", labels={QUEUE: "gate"}), namespace="gate")
    await apps.running(1, gated=1)


async def test_a_pod_of_a_finished_group_has_no_quota(admin: KubeClient, kim: KubeClient) -> None:
    apps = await place(admin, "ended")
    labels = {QUEUE: "ended", K + "pod-group-name": "g"}
    annotations = {K + "pod-group-total-count": "1", "multikueue.io/run-for": "100ms"}
    first = a_pod("first", labels=labels, annotations=annotations)
    first["spec"]["restartPolicy"] = "Never"
    await kim.create(PODS, first, namespace="ended")

    async def group() -> Object | None:
        return await apps.get(WORKLOADS, "g")

    await eventually(group, what="the group has finished", until=lambda seen: seen is not None and _ended(seen))
    annotations = {**annotations, "multikueue.io/run-for": "forever"}
    body = a_pod("second", cpu="8", labels=labels, annotations=annotations)
    assert is_gated(orjson.loads(await kim.create(PODS, body, namespace="ended")))
    await apps.change(PODS, "second", spec={"schedulingGates": None})
    await apps.pods(lambda pods: "second" not in [pod["metadata"]["name"] for pod in pods], what="it is deleted")


def _ended(workload: Object) -> bool:
    return condition(workload, "Finished").get("status") == "True"
