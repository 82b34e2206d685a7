# SPDX-License-Identifier: Apache-2.0
"""What a management cluster that was taken over may have made on a worker: the agent refuses by its own rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import anyio
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import CLUSTER_LABEL, EPOCH_ANNOTATION, MANAGER_UID_ANNOTATION, SEND_OBJECTS_ANNOTATION
from multikueue.api.crds import manifests
from multikueue.api.resource import JOBS, LOCAL_QUEUES, NODES, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.dispatch.policy.dispatch_policy import PolicyRules
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.agents import MANAGER_UID, QUICK, agent_client, assignment_manifest, make_mailbox, make_node
from tests.support.managers import Object, connections_closed, ensure, eventually, get, make_namespace
from tests.support.sites import Transport
from tests.support.sockets import sockets_settle
from worker_agent.app import Agent
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox
from worker_agent.options import parse

__all__ = ["kube_binaries", "sockets_settle"]

pytestmark = pytest.mark.anyio

TEAM = "team-a"
QUEUE = "queue"


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("binaries", marks=pytest.mark.binaries)], ids=lambda name: name
)
async def cluster(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """One API server that is hub and worker at once, with Kueue's kinds and queues in every namespace of the tests."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    provider: EmbeddedProvider | BinariesProvider
    if request.param == "embedded":
        provider = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests())
    async with provider, await provider.create("both", folder=folder / "both", spec=spec) as made:
        async with made.client() as client:
            await make_node(client, "n1", cpu="64")
            await client.patch(NODES, "n1", {"spec": {"taints": None}})
        yield made


def local_queue(namespace: str) -> Object:
    """A queue of the worker without an engine."""
    return {
        "apiVersion": LOCAL_QUEUES.api_version,
        "kind": LOCAL_QUEUES.kind,
        "metadata": {"name": QUEUE, "namespace": namespace},
        "spec": {"clusterQueue": QUEUE},
    }


class AssignmentBox(Protocol):
    """The mailbox of an agent, as whoever rules the hub writes it."""

    async def put(self, body: Object) -> None:
        """Write an assignment."""

    async def status(self, name: str) -> Object:
        """What the agent has answered."""


@dataclass(frozen=True)
class _Pulled:
    client: KubeClient
    namespace: str

    async def put(self, body: Object) -> None:
        await self.client.create(REMOTE_ASSIGNMENTS, body, namespace=self.namespace)

    async def status(self, name: str) -> Object:
        found = await get(self.client, REMOTE_ASSIGNMENTS, name, namespace=self.namespace)
        return (found or {}).get("status") or {}


@dataclass(frozen=True)
class _Pushed:
    mailbox: InMemoryMailbox

    async def put(self, body: Object) -> None:
        self.mailbox.put(body)

    async def status(self, name: str) -> Object:
        return (self.mailbox.get(name) or {}).get("status") or {}


@dataclass(frozen=True)
class HostileHub:
    """Whoever rules the hub, and a look at what came of it on the worker."""

    client: KubeClient
    box: AssignmentBox
    name: str
    worker: KubeClient
    """That of the agent."""
    written: list[tuple[str, str]] = field(default_factory=list)

    async def assigns(self, job: str, namespace: str, *, clone: Object | None = None, **changes: Object) -> str:
        """Write an assignment of a Job that is to run; gives its name.

        `metadata` and `pod` are changes to the manifest; `clone` is the pod by which a queue of the worker starts it.
        """
        body = assignment_manifest(job, cluster=self.name, namespace=namespace, intent="Run")
        manifest = body["spec"]["job"]["manifest"]
        pod = manifest["spec"]["template"]["spec"]
        del pod["nodeSelector"]
        if clone is not None:
            pod_sets = [{"name": "main", "count": 1, "template": {"spec": {**pod, **clone}}}]
            body["spec"] |= {"queueName": QUEUE, "workloadSpec": {"queueName": QUEUE, "podSets": pod_sets}}
        manifest["metadata"] |= changes.get("metadata", {})
        pod |= changes.get("pod", {})
        await self.box.put(body)
        self.written.append((namespace, job))
        return str(body["metadata"]["name"])

    async def hears(self, assignment: str, phase: str, reason: str = "") -> Object:
        """The agent's answer once it is that."""
        return await eventually(
            lambda: self.box.status(assignment),
            what=f"the agent says {phase} {reason} of {assignment}",
            until=lambda seen: seen.get("phase") == phase and seen.get("reason", "") == reason,
        )

    async def made(self) -> list[str]:
        """What of all that was written is on the worker."""
        found = []
        for namespace, job in self.written:
            for resource, name in ((JOBS, job), (WORKLOADS, f"job-{job}")):
                if await get(self.client, resource, name, namespace=namespace) is not None:
                    found.append(f"{resource.kind} {namespace}/{name}")
        return found


@asynccontextmanager
async def hostile(cluster: Cluster, transport: Transport, name: str, *flags: str) -> AsyncIterator[HostileHub]:
    """An agent with those flags, and the hub that it serves."""
    policy = parse(["--cluster", name, "--hub-kubeconfig", "f", *flags]).policy
    async with connections_closed(), AsyncExitStack() as stack:
        client = await stack.enter_async_context(cluster.client())
        for namespace in ("kube-system", "multikueue-system", "default", TEAM):
            await make_namespace(client, namespace)
            await ensure(client, LOCAL_QUEUES, local_queue(namespace))
        worker = await stack.enter_async_context(cluster.client())
        box: AssignmentBox
        hub: KubeClient | InMemoryMailbox
        if transport is Transport.PULL:
            # Whoever rules the hub may allow that objects are sent.
            sending = {SEND_OBJECTS_ANNOTATION: "ConfigMap,Secret"}
            namespace = await make_mailbox(client, name, annotations=sending)
            hub = await stack.enter_async_context(agent_client(cluster, name))
            box = _Pulled(client, namespace)
        else:
            hub = InMemoryMailbox(name, manager_uid=MANAGER_UID, workload_uid=lambda key: "", changed=lambda obj: None)
            box = _Pushed(hub)

        def rules() -> tuple[PolicyRules, ...]:
            return (policy,)

        agent = Agent(hub, worker, cluster=name, intervals=QUICK, random=Random(1), rules=rules)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(agent.run)
        stack.callback(tasks.cancel_scope.cancel)
        found = HostileHub(client, box, name, worker)
        yield found
        tasks.cancel_scope.cancel()
        for where, job in found.written:
            for resource, left in ((JOBS, job), (WORKLOADS, f"job-{job}")):
                if await get(client, resource, left, namespace=where) is not None:
                    await client.delete(resource, left, namespace=where, propagation="Background")


@pytest.mark.parametrize("transport", list(Transport), ids=str)
@pytest.mark.parametrize("clone", [None, {}], ids=["a Job", "a Workload in the worker's queue"])
async def test_an_agent_makes_nothing_in_namespaces_that_are_not_for_tenants(
    cluster: Cluster, transport: Transport, clone: Object | None
) -> None:
    name = f"ns-{transport}-{'job' if clone is None else 'clone'}"
    async with hostile(cluster, transport, name, "--denied-namespaces=default") as hub:
        for namespace in ("kube-system", "multikueue-system", "default"):
            assignment = await hub.assigns(f"{name}-x", namespace, clone=clone, pod={"serviceAccountName": "admin"})
            said = await hub.hears(assignment, "Refused", "ForbiddenByPolicy")
            assert f'"{namespace}"' in said["message"]
        assert await hub.made() == []
        # What is for tenants is made, by the same agent.
        await hub.assigns(f"{name}-good", TEAM, clone=clone)
        kind = "Job" if clone is None else "Workload"
        made = await eventually(hub.made, what="the good one is made", until=bool)
        assert made == [f"{kind} {TEAM}/{'' if clone is None else 'job-'}{name}-good"]


@pytest.mark.parametrize("transport", list(Transport), ids=str)
@pytest.mark.parametrize(
    ("flag", "pod", "field"),
    [
        ("--allowed-service-accounts=batch", {}, "serviceAccountName"),
        ("--pod-security=baseline", {"hostPID": True}, "hostPID"),
        ("--pod-security=privileged", {"nodeName": "n1"}, "nodeName"),
        ("--pod-security=privileged", {"priorityClassName": "system-node-critical"}, "priorityClassName"),
    ],
    ids=["service account", "host namespace", "node", "priority of the system"],
)
async def test_an_agent_makes_no_pods_with_powers_that_it_does_not_give(
    cluster: Cluster, transport: Transport, flag: str, pod: Object, field: str
) -> None:
    async with hostile(cluster, transport, f"pods-{transport}-{field}".lower(), flag) as hub:
        of_job = await hub.hears(await hub.assigns(f"{hub.name}-x", TEAM, pod=pod), "Refused", "ForbiddenByPolicy")
        assert f"spec.template.spec.{field}" in of_job["message"]
        # The worker's queue would start the job with the pod of the Workload, not with that of the manifest.
        harmless = {"serviceAccountName": "batch"}
        asked = await hub.assigns(f"{hub.name}-y", TEAM, clone=pod, pod=harmless)
        of_clone = await hub.hears(asked, "Refused", "ForbiddenByPolicy")
        assert f"spec.workloadSpec.podSets[0].template.spec.{field}" in of_clone["message"]
        assert await hub.made() == []


@pytest.mark.parametrize("transport", list(Transport), ids=str)
async def test_a_manifest_and_a_workload_that_may_be_made_do_not_add_up_to_pods_that_may_not(
    cluster: Cluster, transport: Transport
) -> None:
    bounded = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    unprivileged = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "c", "image": "i", "securityContext": bounded}
    # Its init container relies on what the manifest says of the pod, and the Workload says something else of that.
    pod = {
        "containers": [container],
        "initContainers": [{**container, "name": "root"}],
        "securityContext": unprivileged,
    }
    clone = {
        "containers": [{**container, "securityContext": bounded | unprivileged}],
        "securityContext": {"fsGroup": 1},
    }
    async with hostile(cluster, transport, f"sum-{transport}", "--pod-security=restricted") as hub:
        asked = await hub.assigns(f"{hub.name}-x", TEAM, clone=clone, pod=pod)
        await eventually(hub.made, what="the Workload is made", until=bool)
        admitted = {
            "type": "Admitted",
            "status": "True",
            "reason": "Admitted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"status": {"conditions": [admitted]}}
        await hub.client.patch(WORKLOADS, f"job-{hub.name}-x", status, namespace=TEAM, subresource="status")
        said = await hub.hears(asked, "Refused", "ForbiddenByPolicy")
        assert "initContainers[0]" in said["message"]
        assert await get(hub.client, JOBS, f"{hub.name}-x", namespace=TEAM) is None


@pytest.mark.parametrize("transport", list(Transport), ids=str)
async def test_a_job_on_a_worker_has_no_owner_no_finalizer_and_no_marks_but_its_own(
    cluster: Cluster, transport: Transport
) -> None:
    async with hostile(cluster, transport, f"meta-{transport}") as hub:
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "u", "controller": True}
        metadata = {
            "ownerReferences": [owner],
            "finalizers": ["example.com/stays"],
            "labels": {"multikueue.io/cluster": "another", "app": "x"},
            "annotations": {EPOCH_ANNOTATION: "99", MANAGER_UID_ANNOTATION: "another", CLUSTER_LABEL: "another"},
        }
        await hub.assigns(f"{hub.name}-x", TEAM, metadata=metadata)
        await eventually(hub.made, what="the Job is made", until=bool)
        found = (await hub.client.get_object(JOBS, f"{hub.name}-x", namespace=TEAM))["metadata"]
        assert "ownerReferences" not in found
        assert "finalizers" not in found
        assert (found["labels"].get("multikueue.io/cluster"), found["labels"]["app"]) == (None, "x")
        marks = [found["annotations"][key] for key in (EPOCH_ANNOTATION, MANAGER_UID_ANNOTATION, CLUSTER_LABEL)]
        assert marks == ["1", MANAGER_UID, hub.name]


@pytest.mark.parametrize("transport", list(Transport), ids=str)
async def test_a_manifest_of_another_name_or_namespace_is_refused(cluster: Cluster, transport: Transport) -> None:
    async with hostile(cluster, transport, f"names-{transport}") as hub:
        elsewhere = await hub.assigns(f"{hub.name}-x", TEAM, metadata={"namespace": "kube-system"})
        await hub.hears(elsewhere, "Refused", "BadAssignment")
        renamed = await hub.assigns(f"{hub.name}-y", TEAM, metadata={"name": "z"})
        await hub.hears(renamed, "Refused", "BadManifest")
        hub.written.extend([("kube-system", f"{hub.name}-x"), (TEAM, "z")])
        assert await hub.made() == []
