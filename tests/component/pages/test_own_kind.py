# SPDX-License-Identifier: Apache-2.0
"""docs/jobs/your-own-kind.md on a hub and a worker: its YAML and its flags are all that a kind of one's own needs."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import anyio
import orjson
import pytest
import yaml

from devcluster import manifests as applied
from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.operators.operated_kinds import OperatedKind, Progress, Role, State
from devcluster.operators.operator import operating
from devcluster.operators.templated import TemplatedOperator
from devcluster.providers.provider import ClusterSpec
from manager.dispatch.controller import DispatchController
from multikueue.api import configuration_file
from multikueue.api.codec import documents
from multikueue.api.crds import manifests
from multikueue.api.objects import JsonObject
from multikueue.api.resource import NAMESPACES, PODS, Resource
from multikueue.cli.cluster.agent_kinds import AgentKinds
from multikueue.cli.inspect import explain, timeline
from multikueue.cli.logs.log_sources import place_of
from multikueue.core.backoff import Backoff
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import known_integrations
from multikueue.kube.cache.informer import Informer
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.agents import agent_client
from tests.support.both_providers import BOTH_PROVIDERS, provider_of
from tests.support.limited_workers import ALL, INTERVALS, PUSH, enrol_by_kubeconfig, give_rights, rules_of
from tests.support.managers import ensure, eventually, get, make_namespace, running_manager, wait_condition
from tests.support.sites import Transport
from tests.support.workers import FakeWorker, make_check
from tests.unit.jobs.declared.builders import PAGES, blocks
from worker_agent import options as agent_options
from worker_agent.app import Agent

__all__ = ["kube_binaries"]
pytestmark = pytest.mark.anyio

CRD, DECLARATION, JOB, CONFIGURATION, ROLE = (yaml.safe_load(text) for text in blocks("your-own-kind"))
RENDERS: Final = Resource("studio.example.com", "v1", "Render", "renders")
RENDER: Final = "studio.example.com/render"
MANAGER: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
RBAC: Final = Path(__file__).parents[3] / "deploy" / "rbac"
FILM: Final = JOB["metadata"]["namespace"]
WORKER: Final = "farm"
QUICKLY: Final = replace(INTERVALS, kind_seconds=0.2)
PHASES: Final = {
    State.SUSPENDED: "Paused",
    State.PENDING: "Rendering",
    State.RUNNING: "Rendering",
    State.SUCCEEDED: "Rendered",
    State.FAILED: "Broken",
}


def _roles(obj: JsonObject) -> Iterator[Role]:
    spec, name = obj["spec"], obj["metadata"]["name"]
    for each in spec["layers"]:
        count = each.get("tiles", 1) * each.get("eyes", 1)
        yield Role(name=each["name"], count=count, template=_template(each["pod"], name))
    yield Role(name="join", count=1, template=_template(spec["join"]["pod"], name))


def _template(pod: JsonObject, name: str) -> JsonObject:
    """The template as the studio's controller uses it."""
    made = copy.deepcopy(pod)
    metadata: JsonObject = made.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), RENDER: name}
    metadata["annotations"] = {"multikueue.io/run-for": "300ms"}
    made["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return made


def _status(progress: Progress) -> JsonObject:
    layers = [
        {"name": name, "ready": each.ready, "running": each.active, "done": each.succeeded}
        for name, each in progress.roles.items()
        if name != "join"
    ]
    return {"phase": PHASES[progress.state], "layers": layers, "text": "all layers"}


STUDIO: Final = OperatedKind(
    resource=RENDERS,
    roles=_roles,
    controller=DECLARATION["spec"]["managedBy"]["controller"],
    suspend=("spec", "paused"),
    status=_status,
)
"""The kind's own controller, which knows nothing of us."""


@dataclass(frozen=True)
class Studio:
    """A hub and a worker of one provider, on which only the definition of the page is installed."""

    hub: Cluster
    worker: Cluster


@pytest.fixture(
    params=BOTH_PROVIDERS,
)
async def studio(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Studio]:
    folder = tmp_path_factory.mktemp(f"own-kind-{request.param}")
    provider = provider_of(request, folder)
    of_hub = ClusterSpec(controllers=True, scheduler=False, manifests=[*manifests(), CRD])
    of_worker = ClusterSpec(controllers=True, scheduler=True, manifests=[CRD])
    async with provider:
        hub = await provider.create("hub", folder=folder / "hub", spec=of_hub)
        worker = await provider.create("worker", folder=folder / "worker", spec=of_worker)
        async with hub, worker:
            yield Studio(hub, worker)


def configuration() -> JsonObject:
    """That of the page, with the whole document of its second step."""
    found = copy.deepcopy(CONFIGURATION)
    found["integrations"]["declarations"] = [DECLARATION]
    return {**found, "multiKueue": {"workerLostTimeout": "60s", "gcInterval": "2s"}}


def agent_flags(folder: Path) -> list[str]:
    """The flags of the page, with the file that registering the worker writes."""
    file = folder / "render-kind.yaml"
    file.write_text(registered_kinds().declared())
    (line,) = re.findall(r"`(--frameworks=\S+ --job-kinds=FILE)`", (PAGES / "your-own-kind.md").read_text())
    return str(line).replace("FILE", str(file)).split()


def registered_kinds() -> AgentKinds:
    """What the command of the page gives an agent, by the Configuration of the page."""
    (names,) = re.findall(r"`mkctl cluster register east --frameworks (\S+)`", (PAGES / "your-own-kind.md").read_text())
    return AgentKinds.chosen(
        frameworks=names, configuration=configuration_file.load(orjson.dumps(configuration()).decode())
    )


def queue() -> list[JsonObject]:
    """The queue that the job of the page names, whose jobs are dispatched."""
    api = "kueue.x-k8s.io/v1beta2"
    amounts = [{"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "200Gi"}]
    flavors = [{"name": "default", "resources": amounts}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": WORKER}]},
    }
    name = JOB["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    local = {"name": name, "namespace": FILM}
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "film"}, "spec": spec},
        {"apiVersion": api, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "film"}},
    ]


@asynccontextmanager
async def federated(studio: Studio, transport: Transport, folder: Path) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    """A manager with the rights of its role and of the page, and a worker that it reaches by that transport."""
    pull = transport is Transport.PULL
    async with AsyncExitStack() as stack:
        hub, worker = [await stack.enter_async_context(each.client()) for each in (studio.hub, studio.worker)]
        for client in (hub, worker):
            await ensure(client, NAMESPACES, enrolment.system_namespace())
            await make_namespace(client, FILM)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        for cluster in (studio.worker, studio.hub):
            nodes, plays = [await stack.enter_async_context(cluster.client()) for _ in range(2)]
            if cluster is studio.worker:
                large = several(2, allocatable={"cpu": "40", "memory": "100Gi", "pods": "110"})
                tasks.start_soon(VirtualNodes(nodes, nodes=large).run)
            await stack.enter_async_context(operating(TemplatedOperator(plays, STUDIO)))
        for file in ("manager.yaml", "users.yaml"):
            await applied.apply_all(hub, list(documents((RBAC / file).read_text())))
        await applied.apply_all(hub, [ROLE, binding(MANAGER)])
        of_kind = [rule for role in registered_kinds().roles() for rule in role.get("rules") or ()]
        await give_rights(worker, WORKER, [*rules_of(ALL), *(of_kind if pull else ROLE["rules"])])
        kubeconfig = studio.worker.issue_client_certificate(WORKER)
        if pull:
            await FakeWorker(hub, WORKER).enrol()
        else:
            await enrol_by_kubeconfig(hub, WORKER, kubeconfig)
        settings = orjson.dumps(configuration()).decode()
        data = {"controller_manager_config.yaml": settings}
        metadata = {"name": "kueue-manager-config", "namespace": "kueue-system"}
        await applied.apply_all(hub, [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])
        dispatch = partial(DispatchController, push=replace(PUSH, intervals=QUICKLY))
        await stack.enter_async_context(running_manager(studio.hub, settings=settings, dispatch=dispatch, user=MANAGER))
        if pull:
            flags = ["--cluster", WORKER, "--hub-kubeconfig", "unused", *agent_flags(folder)]
            served = agent_options.parse(flags).integrations
            await stack.enter_async_context(running_agent(studio.hub, kubeconfig, served))
        await make_check(hub, WORKER, (WORKER,))
        await applied.apply_all(hub, queue())
        yield hub, worker


@asynccontextmanager
async def running_agent(hub: Cluster, kubeconfig: JsonObject, served: Sequence[JobIntegration]) -> AsyncIterator[None]:
    async with (
        agent_client(hub, WORKER) as to_hub,
        KubeClient(credentials.from_dict(kubeconfig)) as to_worker,
        anyio.create_task_group() as tasks,
    ):
        agent = Agent(to_hub, to_worker, cluster=WORKER, intervals=QUICKLY, random=Random(1), integrations=served)
        tasks.start_soon(agent.run)
        yield
        tasks.cancel_scope.cancel()


def binding(user: str) -> JsonObject:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE["metadata"]["name"]},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE["metadata"]["name"]},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


@asynccontextmanager
async def history(client: KubeClient, resource: Resource) -> AsyncIterator[list[JsonObject]]:
    """Every state that objects of a kind have from now on, however short."""
    states: list[JsonObject] = []
    informer = Informer(client, resource, clock=SystemClock(), backoff=Backoff(base=0.1, cap=1.0))
    informer.add_handler(lambda change: states.append(change.row.object()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        await informer.synced.wait()
        yield states
        tasks.cancel_scope.cancel()


def counts(job: JsonObject, name: str) -> list[int]:
    return [each[name] for each in (job.get("status") or {}).get("layers") or ()]


@pytest.mark.parametrize("transport", list(Transport))
async def test_a_kind_that_the_code_has_never_seen_runs_on_a_worker_by_what_the_page_says(
    studio: Studio, transport: Transport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RENDER not in known_integrations()
    async with (
        federated(studio, transport, tmp_path) as (hub, worker),
        studio.worker.client() as looks,
        history(looks, RENDERS) as renders,
        history(worker, PODS) as pods,
    ):
        stored = orjson.loads(await hub.create(RENDERS, JOB, namespace=FILM))
        assert (stored["spec"]["paused"], stored["spec"]["managedBy"]) == (True, "kueue.x-k8s.io/multikueue")
        workload = await wait_condition(hub, "opening", "Finished", namespace=FILM, reason="Succeeded")
        assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [
            ("sky", 4),
            ("people", 6),
            ("join", 1),
        ]
        ended = await eventually(
            lambda: get(hub, RENDERS, "opening", namespace=FILM),
            what="the hub shows the end",
            until=lambda each: each is not None and (each.get("status") or {}).get("phase") == "Rendered",
        )
        assert ended is not None
        assert counts(ended, "done") == [4, 6]
        await eventually(
            lambda: get(worker, RENDERS, "opening", namespace=FILM),
            what="the remote job is removed",
            until=lambda each: each is None,
        )
        first, *later = renders
        assert first["spec"].keys() == {"paused", "layers", "join"}
        assert first["spec"]["paused"] is False
        assert any(counts(each, "done") == [4, 6] for each in later)
        made = {each["metadata"]["name"] for each in pods if each["metadata"]["namespace"] == FILM}
        assert len(made) == 4 + 6 + 1
        assert not (await hub.list_all(PODS, namespace=FILM)).items
        place = await place_of(hub, known_integrations([DECLARATION])[RENDER], Key(FILM, "opening"))
        assert (place.cluster, place.ended, place.selector) == (WORKER, True, f"{RENDER}=opening")
        for command in (explain, timeline):
            arguments = ["render/film/opening", "--kubeconfig", str(studio.hub.kubeconfig)]
            assert await anyio.to_thread.run_sync(command.main, arguments) == 0, capsys.readouterr().err
            assert "Render" in capsys.readouterr().out
