# SPDX-License-Identifier: Apache-2.0
"""What an agent tells of the quotas of its cluster's own queues: what is asked for, and what it may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import anyio
import pytest
import yaml

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.server import ApiServer
from multikueue.api.clusterreport import ClusterReportStatus
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
)
from multikueue.cli.cluster import joining_instructions
from multikueue.cli.cluster.registering import Registration
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import QUICK
from tests.support.embedded import ADMIN, signing_key
from tests.support.managers import Object, eventually, make_queue
from tests.support.push_workers import kubeconfigs_of
from worker_agent.app import Agent
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox

pytestmark = pytest.mark.anyio

TEAM = "team"
AGENT = "agent"
NAME = f"system:serviceaccount:{joining_instructions.NAMESPACE}:{joining_instructions.AGENT}"


def client_of(url: str, token: str) -> KubeClient:
    """Whoever has that token."""
    return KubeClient(
        credentials.from_dict({**kubeconfigs_of(url), "users": [{"name": "own", "user": {"token": token}}]})
    )


def rights(*without: str) -> list[Object]:
    """The cluster-wide rights of an agent, as an administrator of a worker is told to give them, but for these."""
    made = Registration(cluster="w", token_id="t", kubeconfig={}, expires=SystemClock().now(), accepted=True)
    found = [
        document
        for document in yaml.safe_load_all(joining_instructions.manifest(made))
        if document["kind"].startswith("ClusterRole")
    ]
    for rule in found[0]["rules"]:
        rule["resources"] = [name for name in rule["resources"] if name not in without]
    return found


@dataclass(frozen=True)
class Scene:
    """A worker with queues, and the mailbox that its agent writes into."""

    api: ApiServer
    client: KubeClient
    worker: KubeClient
    mailbox: InMemoryMailbox
    first: list[Object]
    """The first report."""

    @property
    def quotas(self) -> Object | None:
        """What the last report tells of them."""
        found: Object | None = (self.mailbox.report.get("status") or {}).get("quotas")
        return found

    async def told(self, wanted: Object | None) -> None:
        """Wait until a report tells that."""

        async def probe() -> Object | None:
            return self.quotas

        await eventually(probe, what=f"the report tells {wanted}", until=lambda seen: seen == wanted)

    async def free(self) -> dict[str, str]:
        """The cpu that the last report tells is free, by ClusterQueue, of those with one flavor."""
        found: list[Object] = (self.mailbox.report.get("status") or {}).get("clusterQueues") or []
        return {each["name"]: each["flavors"][0]["resources"][0].get("free", "0") for each in found}

    async def has_free(self, name: str, cpu: str) -> None:
        """Wait until a report tells that the queue has so much free."""
        await eventually(self.free, what=f"{name} has {cpu} cpu free", until=lambda seen: seen.get(name) == cpu)

    async def uses(self, name: str, cpu: str) -> None:
        """Its engine says that so much of the queue is reserved."""
        amounts = [{"name": "cpu", "total": cpu}]
        used = [{"name": "default", "resources": amounts}]
        body = {"status": {"flavorsReservation": used, "flavorsUsage": used}}
        await self.client.patch(CLUSTER_QUEUES, name, body, subresource="status")

    async def flavors(self) -> list[Object]:
        """The flavors that the last report tells of."""
        found: list[Object] = (self.mailbox.report.get("status") or {}).get("flavors") or []
        return found

    async def has_flavors(self, *wanted: Object) -> None:
        """Wait until a report tells of these."""
        await eventually(self.flavors, what=f"the report has {wanted}", until=lambda seen: seen == list(wanted))

    async def says_problem(self, part: str) -> None:
        """Wait until a report tells of that instead."""

        async def probe() -> str:
            return str((self.quotas or {}).get("problem", ""))

        await eventually(probe, what=f"the report tells that {part}", until=lambda seen: part in seen)

    async def local_queues(self) -> list[Object]:
        """Those that the last report tells of."""
        found: list[Object] = (self.mailbox.report.get("status") or {}).get("localQueues") or []
        return found

    async def reported(self) -> int:
        """Wait for one more report."""
        before = self.mailbox.report.get("status", {}).get("sequence", 0)

        async def probe() -> int:
            return int(self.mailbox.report.get("status", {}).get("sequence", 0))

        return await eventually(probe, what="there is one more report", until=lambda seen: seen > before + 1)

    async def activate(self, queue: str, *, value: str = "True") -> None:
        """What its engine says of the queue."""
        now = format_time(SystemClock().now())
        active = {"type": "Active", "status": value, "reason": "Ready", "message": "", "lastTransitionTime": now}
        await self.client.patch(CLUSTER_QUEUES, queue, {"status": {"conditions": [active]}}, subresource="status")


@asynccontextmanager
async def scene(*without: str, before: str = "", flavor: Object | None = None) -> AsyncIterator[Scene]:
    """An agent with exactly the rights that it is to be given, or without those on some kinds, as in older versions.

    `before` is a queue that is there before the agent starts, whose flavor has the spec `flavor`.
    """
    api = ApiServer(
        signing_key=signing_key(), static_tokens={"own": ADMIN, AGENT: User(NAME, ("system:authenticated",))}
    )
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(Listener(api))
        client = await stack.enter_async_context(client_of(listener.url, "own"))
        worker = await stack.enter_async_context(client_of(listener.url, AGENT))
        for definition in manifests():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        role, binding = rights(*without)
        await client.create(CLUSTER_ROLES, role)
        await client.create(CLUSTER_ROLE_BINDINGS, binding)
        if before:
            await make_queue(client, before, namespace=TEAM, cpu="4")
            await client.patch(RESOURCE_FLAVORS, "default", {"spec": flavor or {}})
        first: list[Object] = []

        def note_first() -> None:
            # Nothing was listed when a required right was reported missing.
            if not first and "kubernetesVersion" in mailbox.report["status"]:
                first.append(mailbox.report["status"])

        mailbox = InMemoryMailbox(
            "w", manager_uid="m", workload_uid=lambda key: "", changed=lambda obj: None, reported=note_first
        )
        agent = Agent(mailbox, worker, cluster="w", intervals=QUICK, random=Random(1))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(agent.run)
        stack.callback(tasks.cancel_scope.cancel)
        yield Scene(api, client, worker, mailbox, first)


def queue(name: str, *local: str, cpu: str, active: bool = True) -> Object:
    """A queue as a report tells of it."""
    return {
        "name": name,
        "active": active,
        "localQueues": [{"namespace": TEAM, "name": each} for each in local or (name,)],
        "resources": [{"name": "cpu", "nominal": cpu}],
    }


async def test_free_quota_is_always_reported_and_nominal_quota_on_request() -> None:
    async with scene() as made:
        await make_queue(made.client, "batch", namespace=TEAM, cpu="4")
        await made.has_free("batch", "4")
        await made.reported()
        assert made.quotas is None


async def test_the_first_report_has_the_quota_or_the_hub_would_count_by_nodes() -> None:
    async with scene(before="batch") as made:
        await made.reported()
        (status,) = made.first
        assert [each["name"] for each in status["clusterQueues"]] == ["batch"]


async def test_a_request_gets_the_cluster_queues_of_local_queues_and_each_change() -> None:
    async with scene() as made:
        await make_queue(made.client, "batch", namespace=TEAM, cpu="4")
        await make_queue(made.client, "lonely", namespace=TEAM, cpu="1")
        await made.client.delete(LOCAL_QUEUES, "lonely", namespace=TEAM)
        made.mailbox.request_quotas(quotas=True)
        await made.told({"clusterQueues": [queue("batch", cpu="4", active=False)]})
        await made.activate("batch")
        await made.told({"clusterQueues": [queue("batch", cpu="4")]})
        status: Object = made.mailbox.report["status"]
        read = ClusterReportStatus.model_validate(status).quotas
        assert read is not None
        assert str(read.cluster_queues[0].resources[0].nominal) == "4"

        flavors = [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": amount}]}
            for name, amount in (("default", "3"), ("spot", "500m"))
        ]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        await made.client.patch(CLUSTER_QUEUES, "batch", {"spec": {"resourceGroups": groups}})
        await made.told({"clusterQueues": [queue("batch", cpu="3500m")]})

        second = {"metadata": {"name": "night", "namespace": TEAM}, "spec": {"clusterQueue": "batch"}}
        await made.client.create(LOCAL_QUEUES, {**kind_of_local_queue(), **second}, namespace=TEAM)
        await made.told({"clusterQueues": [queue("batch", "batch", "night", cpu="3500m")]})
        for name in ("batch", "night"):
            await made.client.delete(LOCAL_QUEUES, name, namespace=TEAM)
        await made.told({"clusterQueues": []})

        made.mailbox.request_quotas(quotas=False)
        await made.told(None)


SPOT = {
    "nodeLabels": {"pool": "spot"},
    "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}


async def test_which_pods_flavors_are_for_is_reported_and_each_change() -> None:
    async with scene(before="batch") as made:
        await made.reported()
        assert await made.flavors() == [{"name": "default"}]
        await made.client.patch(RESOURCE_FLAVORS, "default", {"spec": SPOT})
        await made.has_flavors({"name": "default", **SPOT})
        status = ClusterReportStatus.model_validate(made.mailbox.report["status"])
        assert status.flavors[0].node_taints[0].effect == "NoSchedule"
        await make_flavor(made.client, "of-no-queue", {"nodeLabels": {"pool": "none"}})
        await made.client.patch(RESOURCE_FLAVORS, "default", {"spec": {"tolerations": None}})
        await made.has_flavors({"name": "default", **{key: SPOT[key] for key in ("nodeLabels", "nodeTaints")}})
        await made.client.patch(RESOURCE_FLAVORS, "default", {"spec": {"nodeLabels": None, "nodeTaints": None}})
        await made.has_flavors({"name": "default"})
        await made.client.patch(RESOURCE_FLAVORS, "default", {"spec": {"nodeLabels": {"a": "b"}, "topologyName": "t"}})
        await made.has_flavors({"name": "default", "nodeLabels": {"a": "b"}, "topology": True})


async def test_the_first_report_has_the_flavors_or_the_hub_would_send_pods_that_match_none() -> None:
    async with scene(before="batch", flavor=SPOT) as made:
        await made.reported()
        (status,) = made.first
        assert [each["name"] for each in status["flavors"]] == ["default"]


async def test_an_agent_that_may_not_read_flavors_reports_everything_else() -> None:
    async with scene("resourceflavors", "cohorts", before="batch", flavor=SPOT) as made:
        await made.has_free("batch", "4")

        async def missing() -> list[Object]:
            found: list[Object] = made.mailbox.report["status"].get("missingRights") or []
            return found

        wanted = {"verb": "list", "resource": "resourceflavors.kueue.x-k8s.io", "required": False}
        await eventually(missing, what="the right is reported missing", until=lambda seen: wanted in seen)
        assert await made.flavors() == []


async def test_an_agent_that_may_not_read_them_reports_that_and_everything_else() -> None:
    async with scene("clusterqueues") as made:
        made.mailbox.request_quotas(quotas=True)
        await make_queue(made.client, "batch", namespace=TEAM, cpu="4")

        await made.says_problem("it may not read the ClusterQueues: ")
        await made.reported()
        told = made.mailbox.report["status"]
        told_of = {"namespace": TEAM, "name": "batch", "active": True, "clusterQueue": "batch"}
        assert told["localQueues"] == [told_of]
        assert "clusterQueues" not in told["quotas"]
        assert "clusterQueues" not in told, "quota that is not known is not told as none"


async def test_a_revoked_right_is_reported_and_the_former_quota_is_not() -> None:
    async with scene() as made:
        made.mailbox.request_quotas(quotas=True)
        await make_queue(made.client, "batch", namespace=TEAM, cpu="4")
        await made.told({"clusterQueues": [queue("batch", cpu="4", active=False)]})
        role, _ = rights("clusterqueues")
        await made.client.patch(CLUSTER_ROLES, role["metadata"]["name"], {"rules": role["rules"]})
        made.api.cut_watches()
        await made.says_problem("it may not read the ClusterQueues: ")
        role, _ = rights()
        await made.client.patch(CLUSTER_ROLES, role["metadata"]["name"], {"rules": role["rules"]})
        await made.told({"clusterQueues": [queue("batch", cpu="4", active=False)]})


async def test_an_amount_that_cannot_be_read_is_reported_and_ends_nothing() -> None:
    async with scene() as made:
        made.mailbox.request_quotas(quotas=True)
        await make_queue(made.client, "batch", namespace=TEAM, cpu="1e99")
        await made.says_problem("a quota cannot be read: ")
        resources = [{"name": "cpu", "nominalQuota": "2"}]
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]
        await made.client.patch(CLUSTER_QUEUES, "batch", {"spec": {"resourceGroups": groups}})
        await made.told({"clusterQueues": [queue("batch", cpu="2", active=False)]})


async def make_flavor(client: KubeClient, name: str, spec: Object) -> None:
    """A ResourceFlavor."""
    kind = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.kind}
    await client.create(RESOURCE_FLAVORS, {**kind, "metadata": {"name": name}, "spec": spec})


def kind_of_local_queue() -> Object:
    """What each of them is."""
    return {"apiVersion": LOCAL_QUEUES.api_version, "kind": LOCAL_QUEUES.kind}
