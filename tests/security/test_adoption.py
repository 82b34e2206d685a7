# SPDX-License-Identifier: Apache-2.0
"""Adopting a remote job needs a right, which the webhook checks for every request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.operators import definitions
from manager.dispatch.controller import DispatchController
from manager.dispatch.gather import adoption_for
from manager.seals import Seals
from manager.webhooks.access import AccessReviews
from multikueue.api.codec import documents
from multikueue.api.constants import ADOPTS_ANNOTATION, ADOPTS_SEAL_ANNOTATION, MULTIKUEUE_MANAGED_BY, QUEUE_NAME_LABEL
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_REPORTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    REMOTE_ASSIGNMENTS,
    ROLE_BINDINGS,
    ROLES,
    WORKLOADS,
)
from multikueue.cli.cluster.recovering import RecoveryAction, recover
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.dispatch.hub.facts import Adoption
from multikueue.dispatch.protocol.annotations import adoption_of, gate_opening_of, round_of, weight_of
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.protocol import RemoteIdentity
from multikueue.jobs.framework.registry import dispatched_integrations
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import Forbidden, NotFound, Unreachable
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.connection import Response
from tests.support.hubs import running_hub
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    job_manifest,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.operators.played_kinds import PLAYED_KINDS
from tests.support.tenant_hubs import EDITS_JOBS, allow, tenant
from tests.support.tenant_hubs import hub as hub
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check

TEAM = "team"
DESIRED = "one old-hub copy-1 1"
EDITS_STATUS = ({"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["patch"]},)
EDITS_WORKLOADS = ({"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "patch"]},)
RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
JOB_SET = next(each for each in PLAYED_KINDS if each.resource.kind == "JobSet")


def may_adopt(*clusters: str) -> tuple[Object, ...]:
    names = {"resourceNames": list(clusters)} if clusters else {}
    return ({"apiGroups": ["kueue.x-k8s.io"], "resources": ["multikueueclusters"], "verbs": ["adopt"], **names},)


def asking(name: str, desired: str = DESIRED, **more: Any) -> Object:
    """A Job that asks to adopt a remote job."""
    manifest = job_manifest(name, namespace=TEAM, queue=TEAM, suspend=True, **more)
    manifest["metadata"]["annotations"] = {ADOPTS_ANNOTATION: desired}
    return manifest


def seal_of(obj: Object | bytes) -> str:
    found = orjson.loads(obj) if isinstance(obj, bytes) else obj
    return str((found["metadata"].get("annotations") or {}).get(ADOPTS_SEAL_ANNOTATION, ""))


@asynccontextmanager
async def managed(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with connections_closed(), hub.client() as admin, running_manager(hub):
        await make_namespace(admin, TEAM)
        yield admin


@pytest.mark.anyio
async def test_a_tenant_may_not_ask_for_an_adoption_and_the_refusal_names_the_verb(hub: Cluster) -> None:
    async with (
        managed(hub) as admin,
        tenant(hub, admin, "kim", rules=(*EDITS_JOBS, *EDITS_STATUS, *EDITS_WORKLOADS)) as kim,
    ):
        with pytest.raises(Forbidden, match=r'user "kim" may not adopt multikueueclusters\.kueue\.x-k8s\.io "one"'):
            await kim.create(JOBS, asking("new"), namespace=TEAM)
        await make_job(kim, "old", namespace=TEAM, queue="nowhere")
        desired = {"metadata": {"annotations": {ADOPTS_ANNOTATION: DESIRED}}}
        with pytest.raises(Forbidden, match="the verb 'adopt' is for administrators"):
            await kim.patch(JOBS, "old", desired, namespace=TEAM)
        with pytest.raises(Forbidden, match="may not adopt"):
            await kim.patch(JOBS, "old", desired, namespace=TEAM, subresource="status")
        workload = await eventually(lambda: workload_of(admin, "old", namespace=TEAM), what="it has a Workload")
        assert workload is not None
        with pytest.raises(Forbidden, match="may not adopt"):
            await kim.patch(WORKLOADS, workload["metadata"]["name"], desired, namespace=TEAM)
        other = {"metadata": {"annotations": {"note": "mine"}}}
        await kim.patch(JOBS, "old", other, namespace=TEAM)


@pytest.mark.anyio
async def test_a_user_with_the_verb_may_for_the_clusters_that_it_is_for(hub: Cluster) -> None:
    async with managed(hub) as admin, tenant(hub, admin, "ada", rules=(*EDITS_JOBS, *may_adopt("one"))) as ada:
        assert seal_of(await ada.create(JOBS, asking("mine"), namespace=TEAM))
        with pytest.raises(Forbidden, match='"two"'):
            await ada.create(JOBS, asking("theirs", "two old-hub copy-1 1"), namespace=TEAM)
        # Without the verb a user may change the Job and withdraw the request, but not change the request.
        async with tenant(hub, admin, "bob") as bob:
            await bob.patch(JOBS, "mine", {"metadata": {"labels": {"a": "b"}}}, namespace=TEAM)
            for annotation in (ADOPTS_ANNOTATION, ADOPTS_SEAL_ANNOTATION):
                change = {"metadata": {"annotations": {annotation: "one old-hub copy-2 1"}}}
                with pytest.raises(Forbidden):
                    await bob.patch(JOBS, "mine", change, namespace=TEAM)
            await bob.patch(JOBS, "mine", {"metadata": {"annotations": {ADOPTS_ANNOTATION: None}}}, namespace=TEAM)


@pytest.mark.anyio
@pytest.mark.parametrize("desired", ["worker-1 m u ²", "one", "one m u -1", "one m u 99999999999999999999", ""])
async def test_an_invalid_request_is_refused_for_every_user(hub: Cluster, desired: str) -> None:
    async with managed(hub) as admin:
        with pytest.raises(Forbidden, match="expected CLUSTER MANAGER-UID JOB-UID EPOCH"):
            await admin.create(JOBS, asking("nonsense", desired), namespace=TEAM)


class Away:
    """An API server that answers no review."""

    async def request(self, *arguments: object, **more: object) -> None:
        raise Unreachable("hub: POST: connection refused")


@pytest.mark.anyio
async def test_without_an_answer_about_the_user_they_may_not() -> None:
    refusal = await AccessReviews(cast(KubeClient, Away())).refusal({"username": "kim"}, {"verb": "adopt"})
    assert refusal.startswith('cannot check whether user "kim" may')
    assert refusal.endswith("hub: POST: connection refused")


class Answering:
    """An API server that answers every review so."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def request(self, *arguments: object, **more: object) -> Response:
        return Response(201, {}, self.body)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"status": null}',
        b'{"status": ["allowed"]}',
        b'{"status": {"allowed": "true"}}',
    ],
)
async def test_an_answer_that_is_no_review_gives_no_right(body: bytes) -> None:
    reviews = AccessReviews(cast(KubeClient, Answering(body)))
    assert await reviews.refusal({"username": "kim"}, {"verb": "adopt"}) == 'user "kim" may not'


@pytest.mark.anyio
@pytest.mark.parametrize("desired", ["two old-hub copy-1 1", "worker-1 m u ²"], ids=["well formed", "nonsense"])
async def test_what_was_written_past_the_webhook_is_ignored_with_an_event(desired: str) -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_check(client, TEAM, ("one", "two"))
        await make_queue(client, TEAM, namespace=TEAM, cpu="64", checks=(TEAM,))
        workers = [FakeWorker(client, name) for name in ("one", "two")]
        for worker in workers:
            await worker.enrol()
        async with running_manager(hub.as_cluster, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController):
            for worker in workers:
                await worker.connect()
            await eventually(
                lambda: get(client, CLUSTER_QUEUES, TEAM),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
            manifest = asking("sly", desired)
            manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
            manifest["metadata"]["annotations"][ADOPTS_SEAL_ANNOTATION] = "0" * 64
            await client.create(JOBS, manifest, namespace=TEAM)
            await wait_condition(client, "sly", "QuotaReserved", namespace=TEAM)

            async def sent() -> list[Object]:
                return [orjson.loads(raw) for raw in (await client.list_all(REMOTE_ASSIGNMENTS)).items]

            assignments = await eventually(sent, what="it is sent like any other")
            assert not any("adopts" in each["spec"] for each in assignments)

            async def told() -> list[str]:
                page = await client.list_all(EVENTS, namespace=TEAM)
                return [orjson.loads(raw)["reason"] for raw in page.items]

            await eventually(told, what="an event is recorded", until=lambda seen: "AdoptionIgnored" in seen)


def test_a_seal_is_invalid_on_another_object_or_for_another_remote_job() -> None:
    seals = Seals.drawn(SystemClock())

    def job(name: str, desired: str, seal: str) -> Object:
        annotations = {ADOPTS_ANNOTATION: desired, ADOPTS_SEAL_ANNOTATION: seal}
        return {"kind": "Job", "metadata": {"name": name, "namespace": TEAM, "annotations": annotations}}

    seal = seals.adoption_seal(kind="Job", namespace=TEAM, name="j", value=DESIRED)
    empty: Object = {"kind": "Workload", "metadata": {"name": "w", "namespace": TEAM}}
    assert adoption_for(seals, empty, job("j", DESIRED, seal), epoch=1) == Adoption("one", "old-hub", "copy-1", 1)
    assert adoption_for(seals, empty, job("j", DESIRED, seal), epoch=2) is None
    for other in (
        job("k", DESIRED, seal),
        job("j", "one old-hub copy-2 1", seal),
        job("j", DESIRED, ""),
        job("j", DESIRED, "é"),
    ):
        assert adoption_for(seals, empty, other, epoch=1) is None
    assert adoption_for(Seals.drawn(SystemClock()), empty, job("j", DESIRED, seal), epoch=1) is None


NONSENSE = ("²", "١", "-1", "+1", "1_000", " 1", "1e3", "9" * 5000, "99999999999999999999", "", "\x00", "1\n")


@pytest.mark.parametrize("number", NONSENSE, ids=ascii)
def test_a_number_that_is_none_is_as_if_it_were_not_there(number: str) -> None:
    assert adoption_of({ADOPTS_ANNOTATION: f"one m u {number}"}) is None
    assert round_of({"multikueue.io/dispatch-round": f"{number} 1 2026-01-01T00:00:00Z"}) is None
    assert round_of({"multikueue.io/dispatch-round": f"1 {number} 2026-01-01T00:00:00Z"}) is None
    assert gate_opening_of({"multikueue.io/preemption-gate-opened": f"{number} one 2026-01-01T00:00:00Z"}) is None
    assert epoch_of([1], {"multikueue.io/epoch": number}) == 2


@pytest.mark.parametrize("text", ["nan", "²", "١", "1" * 5000, "--", "0x1"], ids=ascii)
def test_a_weight_that_is_none_weighs_one(text: str) -> None:
    assert weight_of({"multikueue.io/weight": text}) == 1.0


def test_an_epoch_is_bounded_so_that_evictions_can_follow() -> None:
    assert epoch_of([], {"multikueue.io/epoch": str(2**31 - 1)}) == 2**31 - 1
    assert epoch_of([], {"multikueue.io/epoch": str(2**31)}) == 1
    assert epoch_of([], {"multikueue.io/epoch": str(2**63 - 1)}) == 1


def orphan(name: str) -> Object:
    """What an agent reports about a remote job."""
    identity = RemoteIdentity(
        workload_name=f"job-{name}", origin="multikueue", epoch=3, manager_uid="old-hub", cluster="one", assignment="a"
    )
    job = job_manifest(name, namespace="lost-team", queue="nowhere")
    copy = BATCH_JOB.remote_manifest(job, (), identity=identity)
    # As every API server defaults them.
    copy["spec"]["template"]["spec"]["containers"][0] |= {
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "lost-team",
        "name": name,
        "uid": f"copy-of-{name}",
        "managerUID": "old-hub",
        "epoch": 3,
        "phase": "Running",
        "manifest": {"metadata": copy["metadata"], "spec": copy["spec"]},
    }


async def tell_of_orphans(
    admin: KubeClient, place: tuple[str, str], names: tuple[str, ...], of: Callable[[str], Object] = orphan
) -> None:
    """Answer, as an agent does, each request with the same page."""
    namespace, name = place
    while True:
        try:
            report = await admin.get_object(CLUSTER_REPORTS, name, namespace=namespace)
        except NotFound:
            report = {}
        asked = ((report.get("spec") or {}).get("recovery") or {}).get("request")
        if asked:
            orphans = {"request": asked, "total": len(names), "items": [of(each) for each in names]}
            try:
                await admin.patch(
                    CLUSTER_REPORTS, name, {"status": {"orphans": orphans}}, namespace=namespace, subresource="status"
                )
            except NotFound:
                continue
        await anyio.sleep(0.05)


async def bind_recover_role(admin: KubeClient, user: str) -> None:
    """The roles of deploy/rbac/recover.yaml, and nothing else."""
    kinds = {found.kind: found for found in (CLUSTER_ROLES, ROLES)}
    await make_namespace(admin, "kueue-system")
    for obj in documents((RBAC / "recover.yaml").read_text()):
        metadata = obj["metadata"]
        await admin.apply(
            kinds[obj["kind"]], metadata["name"], obj, namespace=metadata.get("namespace"), manager="test"
        )
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    for resource, kind, namespace in (
        (CLUSTER_ROLE_BINDINGS, "ClusterRole", None),
        (ROLE_BINDINGS, "Role", "kueue-system"),
    ):
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "recovers", **({"namespace": namespace} if namespace else {})},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "kueue-recover-role"},
            "subjects": [subject],
        }
        await admin.apply(resource, "recovers", body, namespace=namespace, manager="test")


@pytest.mark.anyio
@pytest.mark.parametrize("transport", ["pull", "push"])
async def test_recover_needs_no_more_than_its_role(hub: Cluster, transport: str) -> None:
    name = f"{transport}-cluster"
    async with connections_closed(), hub.client() as admin, anyio.create_task_group() as tasks:
        await bind_recover_role(admin, "rescuer")
        worker = FakeWorker(admin, name)
        await worker.enrol()
        if transport == "push":
            mark = {"metadata": {"annotations": {"multikueue.io/transport": "push"}}}
            await admin.patch(MULTIKUEUE_CLUSTERS, name, mark)
        async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
            place = ("kueue-system", name) if transport == "push" else (mailbox_namespace(name), "agent")
            if transport == "pull":
                await eventually(
                    lambda: get(admin, CLUSTER_REPORTS, "agent", namespace=place[0]), what="the mailbox is made"
                )
            copies = (f"{transport}-a", f"{transport}-b")
            tasks.start_soon(tell_of_orphans, admin, place, copies)
            rescuer = KubeClient(credentials.from_dict(hub.issue_client_certificate("rescuer")))
            async with rescuer:
                for _ in range(2):  # they are made, and then found to be made
                    found = await recover(rescuer, name, action=RecoveryAction.ADOPT, patience=20)
                assert [entry["name"] for entry in found.entries] == list(copies)
            for each in copies:
                job = await get(admin, JOBS, each, namespace="lost-team")
                assert job is not None
                assert seal_of(job)
        tasks.cancel_scope.cancel()


def orphaned_job_set(name: str) -> Object:
    """What an agent reports about a remote JobSet."""
    identity = RemoteIdentity(
        workload_name=f"jobset-{name}",
        origin="multikueue",
        epoch=3,
        manager_uid="old-hub",
        cluster="one",
        assignment="a",
    )
    job_set = JOB_SET.sample(name, {})
    job_set["metadata"] |= {"namespace": "lost-team", "labels": {QUEUE_NAME_LABEL: "nowhere"}}
    kind = dispatched_integrations()[JOB_SET.framework]
    copy = kind.remote_manifest(job_set, (), identity=identity)
    manifest = {"metadata": copy["metadata"], "spec": copy["spec"]}
    resource = kind.resource
    return {**orphan(name), "apiVersion": resource.api_version, "kind": resource.kind, "manifest": manifest}


@pytest.mark.anyio
async def test_recovery_of_another_kind_needs_the_role_of_its_kinds_and_no_more(hub: Cluster) -> None:
    settings = SCALED_DOWN + f"integrations: {{frameworks: [batch/job, {JOB_SET.framework}]}}\n"
    async with connections_closed(), hub.client() as admin, anyio.create_task_group() as tasks:
        await definitions.install(admin, JOB_SET.resource)
        await bind_recover_role(admin, "rescuer")
        await FakeWorker(admin, "kinds-cluster").enrol()
        async with running_manager(hub, settings=settings, dispatch=DispatchController):
            place = (mailbox_namespace("kinds-cluster"), "agent")
            await eventually(
                lambda: get(admin, CLUSTER_REPORTS, "agent", namespace=place[0]), what="the mailbox is made"
            )
            tasks.start_soon(tell_of_orphans, admin, place, ("sets-a",), orphaned_job_set)
            async with KubeClient(credentials.from_dict(hub.issue_client_certificate("rescuer"))) as rescuer:
                with pytest.raises(Forbidden):
                    await recover(rescuer, "kinds-cluster", action=RecoveryAction.ADOPT, patience=20)
                (role,) = documents((RBAC / "kinds" / "recover.yaml").read_text())
                await allow(admin, "rescuer", role["rules"], name=role["metadata"]["name"])
                found = await eventually(
                    lambda: adopted(rescuer, "kinds-cluster"),
                    what="the role is in effect",
                    until=lambda entries: entries == ["sets-a"],
                )
                assert found == ["sets-a"]
            job_set = await get(admin, JOB_SET.resource, "sets-a", namespace="lost-team")
            assert job_set is not None
            assert seal_of(job_set)
        tasks.cancel_scope.cancel()


async def adopted(client: KubeClient, cluster: str) -> list[str]:
    """The jobs that are adopted; none while the client may not."""
    try:
        found = await recover(client, cluster, action=RecoveryAction.ADOPT, patience=20)
    except Forbidden:
        return []
    return [entry["name"] for entry in found.entries]


@pytest.mark.anyio
async def test_without_the_webhook_recover_says_that_it_would_be_ignored(hub: Cluster) -> None:
    async with connections_closed(), hub.client() as admin, anyio.create_task_group() as tasks:
        await bind_recover_role(admin, "rescuer")
        await FakeWorker(admin, "bare").enrol()
        async with running_manager(hub, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController):
            place = (mailbox_namespace("bare"), "agent")
            await eventually(
                lambda: get(admin, CLUSTER_REPORTS, "agent", namespace=place[0]), what="the mailbox is made"
            )
            tasks.start_soon(tell_of_orphans, admin, place, ("bare-a",))
            async with KubeClient(credentials.from_dict(hub.issue_client_certificate("rescuer"))) as rescuer:
                with pytest.raises(BadInput, match="the manager's webhook did not seal"):
                    await recover(rescuer, "bare", action=RecoveryAction.ADOPT, patience=20)
            # An administrator who may read the key needs no webhook.
            await recover(admin, "bare", action=RecoveryAction.ADOPT, patience=20)
            job = await get(admin, JOBS, "bare-a", namespace="lost-team")
            assert job is not None
            assert seal_of(job)
        tasks.cancel_scope.cancel()
