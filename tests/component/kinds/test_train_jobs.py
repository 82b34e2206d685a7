# SPDX-License-Identifier: Apache-2.0
"""TrainJobs whose pods their runtime describes: queued, started, dispatched, and what a change of a runtime changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.crds import manifests
from multikueue.api.resource import EVENTS, WORKLOADS
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of, push_apart
from tests.support.crds import kinds
from tests.support.kind_federations import (
    LOCAL,
    NAMESPACE,
    KindFederation,
    Seen,
    kind_federation,
    open_queue,
    queue_of,
    remove,
)
from tests.support.kind_scenes import LABELS
from tests.support.managers import Object, eventually, is_true
from tests.support.operators.played_kinds import PLAYED_KINDS
from tests.support.sites import Transport

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio

TRAIN = next(each for each in PLAYED_KINDS if each.resource == kinds.TRAIN_JOBS)
RUNTIMES = kinds.CLUSTER_TRAINING_RUNTIMES
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
MADE_OF_ONE_NODE = {"dataset-initializer": 1, "node": 1}
OWN = {"key": "own", "operator": "Exists"}


def replicated(name: str, step: str, *containers: str) -> Object:
    """A replicated job of pods that run until they are deleted, and request 100m of cpu in sum."""
    requests = {"cpu": f"{100 // len(containers)}m"}
    made = [{"name": each, "image": "runtime", "resources": {"requests": requests}} for each in containers]
    spec = {"containers": made, "tolerations": [OWN]}
    template = {"metadata": {"annotations": {"multikueue.io/run-for": "forever"}}, "spec": spec}
    return {"name": name, "template": {"metadata": {"labels": {STEP: step}}, "spec": {"template": template}}}


def runtime(name: str, *, nodes: int = 1) -> Object:
    """An initializer, and nodes with a sidecar."""
    jobs = [
        replicated("dataset-initializer", "dataset-initializer", "dataset-initializer"),
        replicated("node", "trainer", "node", "sidecar"),
    ]
    return {
        "apiVersion": RUNTIMES.api_version,
        "kind": RUNTIMES.kind,
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


@dataclass(frozen=True)
class Trained:
    """The federation, and its clusters."""

    federation: KindFederation
    clusters: Sequence[Cluster]

    async def make_runtime(self, name: str, *, nodes: int = 1) -> None:
        """The same on all clusters."""
        for cluster in self.clusters:
            async with cluster.client() as client:
                await client.create(RUNTIMES, runtime(name, nodes=nodes))

    async def change_runtime(self, name: str, *, nodes: int) -> None:
        """On the hub alone."""
        await self.federation.hub.patch(RUNTIMES, name, {"spec": {"mlPolicy": {"numNodes": nodes}}})

    async def submit(self, name: str, place: str, **spec: object) -> Object:
        labels = {QUEUE_NAME_LABEL: queue_of(TRAIN, place)}
        body = {
            "apiVersion": TRAIN.resource.api_version,
            "kind": TRAIN.kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"runtimeRef": {"name": name}, **spec},
        }
        return await self.federation.submit(TRAIN, body)

    async def until(self, name: str, place: str, what: str, holds: object) -> Seen:
        return await self.federation.until(TRAIN, name, place, what, holds)  # type: ignore[arg-type]

    async def warnings(self, name: str) -> list[str]:
        page = await self.federation.hub.list_all(EVENTS, namespace=NAMESPACE)
        events: list[Object] = [orjson.loads(raw) for raw in page.items]
        return [each["note"] for each in events if each["regarding"]["name"] == name and each["type"] == "Warning"]


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def trained(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Trained]:
    folder = tmp_path_factory.mktemp(f"train-jobs-{request.param}")
    places = [str(each) for each in Transport]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provider_of(request, folder))
        clusters = []
        for name in ("hub", *places):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            cluster = await stack.enter_async_context(await provider.create(name, folder=folder / name, spec=spec))
            clusters.append(cluster)
            async with cluster.client() as client:
                await kinds.install(client, RUNTIMES, kinds.TRAINING_RUNTIMES)
        of_places = dict(zip(places, clusters[1:], strict=True))
        federation = await stack.enter_async_context(kind_federation(clusters[0], of_places, [TRAIN], local=True))
        for place in (LOCAL, *places):
            await open_queue(federation.hub, TRAIN, place)
        yield Trained(federation, clusters)


def patched(name: str, zone: str) -> Object:
    """A runtime patch of a user."""
    job = {"name": name, "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": zone}}}}}}
    patch = {"manager": "user", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    return {"spec": {"runtimePatches": [patch]}}


def pod_sets(seen: Seen) -> dict[str, int]:
    """The counts of the Workload's pod sets."""
    spec: Object = (seen.workload or {}).get("spec") or {}
    return {each["name"]: each["count"] for each in spec.get("podSets") or ()}


def uids(pods: Sequence[Object]) -> set[str]:
    return {each["metadata"]["uid"] for each in pods}


async def test_the_pods_of_a_runtime_are_queued_and_run_where_their_flavor_says(trained: Trained) -> None:
    await trained.make_runtime("described")
    await trained.submit("described", LOCAL)
    seen = await trained.until("described", LOCAL, "runs", lambda seen: len(seen.pods) == 2)
    assert pod_sets(seen) == {"dataset-initializer": 1, "node": 1}
    for pod in seen.pods:
        assert pod["spec"]["nodeSelector"].items() >= LABELS.items()
        assert OWN in pod["spec"]["tolerations"], "admission adds to the tolerations of the runtime"
    containers = {each["name"] for pod in seen.pods for each in pod["spec"]["containers"]}
    assert containers == {"dataset-initializer", "node", "sidecar"}
    await remove(trained.federation, TRAIN, "described")
    await trained.until("described", LOCAL, "is gone", lambda seen: not seen.pods and seen.workload is None)


async def test_a_job_waits_for_its_runtime_with_an_event(trained: Trained) -> None:
    await trained.submit("early", LOCAL)
    message = await eventually(lambda: trained.warnings("early"), what="an event")
    assert message[0].startswith("spec.runtimeRef: ClusterTrainingRuntime early not found; create it, or set")
    assert pod_sets(trained.federation.look(TRAIN, "early", LOCAL)) == {}
    await trained.make_runtime("early")
    await trained.until("early", LOCAL, "runs", lambda seen: len(seen.pods) == 2)
    await remove(trained.federation, TRAIN, "early")
    await trained.until("early", LOCAL, "is gone", lambda seen: not seen.pods and seen.workload is None)


async def test_a_runtime_that_changes_or_goes_counts_for_new_jobs_alone(trained: Trained) -> None:
    hub = trained.federation.hub
    for name in ("changed", "waits"):
        await trained.make_runtime(name)
        await trained.submit(name, LOCAL)
    before = await trained.until("changed", LOCAL, "runs", lambda seen: len(seen.pods) == 2)
    await trained.until("waits", LOCAL, "waits", lambda seen: pod_sets(seen) == MADE_OF_ONE_NODE)
    for name in ("changed", "waits"):
        await trained.change_runtime(name, nodes=7)
    await trained.submit("next", LOCAL, runtimeRef={"name": "waits"})
    await trained.until("next", LOCAL, "is larger", lambda seen: pod_sets(seen).get("node") == 7)
    for name in ("changed", "waits"):
        assert pod_sets(trained.federation.look(TRAIN, name, LOCAL)) == MADE_OF_ONE_NODE
    # What waits is made anew when the job itself says something else.
    await hub.patch(TRAIN.resource, "waits", patched("node", "spot"), namespace=NAMESPACE)
    await trained.until("waits", LOCAL, "is made anew", lambda seen: pod_sets(seen).get("node") == 7)
    for name in ("changed", "waits"):
        await hub.delete(RUNTIMES, name)
    # A change of another object that the reconcilers of both jobs see after the deletion.
    await remove(trained.federation, TRAIN, "next")
    await trained.until("next", LOCAL, "is gone", lambda seen: seen.workload is None)
    after = trained.federation.look(TRAIN, "changed", LOCAL)
    assert uids(after.pods) == uids(before.pods)
    assert is_true(after.workload, "Admitted")
    assert pod_sets(after) == MADE_OF_ONE_NODE
    assert pod_sets(trained.federation.look(TRAIN, "waits", LOCAL)).get("node") == 7
    for name in ("waits", "changed"):
        await remove(trained.federation, TRAIN, name)
        await trained.until(name, LOCAL, "is gone", lambda seen: not seen.pods and seen.workload is None)


async def test_pod_sets_that_a_user_makes_smaller_are_those_of_the_runtime_again(trained: Trained) -> None:
    await trained.make_runtime("runs")
    await trained.submit("runs", LOCAL)
    await trained.until("runs", LOCAL, "runs", lambda seen: len(seen.pods) == 2)
    await trained.make_runtime("cheats", nodes=5)
    await trained.submit("cheats", LOCAL)
    seen = await trained.until("cheats", LOCAL, "waits", lambda seen: pod_sets(seen).get("node") == 5)
    assert seen.workload is not None
    smaller = [each | {"count": 1} for each in seen.workload["spec"]["podSets"]]
    name = seen.workload["metadata"]["name"]
    # The seal is no longer that of the pod sets, so the runtime counts, though it has changed since.
    await trained.change_runtime("cheats", nodes=6)
    await trained.federation.hub.patch(WORKLOADS, name, {"spec": {"podSets": smaller}}, namespace=NAMESPACE)
    await trained.until("cheats", LOCAL, "is as the runtime says", lambda seen: pod_sets(seen).get("node") == 6)
    for each in ("cheats", "runs"):
        await remove(trained.federation, TRAIN, each)
        await trained.until(each, LOCAL, "is gone", lambda seen: not seen.pods and seen.workload is None)


@push_apart
async def test_a_job_runs_on_a_worker_by_the_runtime_there(trained: Trained, transport: Transport) -> None:
    name, place = f"remote-{transport}", str(transport)
    await trained.make_runtime(name)
    await trained.submit(name, place)
    before = await trained.until(name, place, "runs there", lambda seen: len(seen.remote_pods) == 2)
    assert before.remote is not None
    assert before.remote["spec"].keys() == {"runtimeRef", "runtimePatches", "suspend"}
    assert not before.pods
    await trained.change_runtime(name, nodes=7)
    await trained.submit(f"{name}-next", place, runtimeRef={"name": name})
    await trained.until(f"{name}-next", place, "is larger", lambda seen: pod_sets(seen).get("node") == 7)
    after = trained.federation.look(TRAIN, name, place)
    assert uids(after.remote_pods) == uids(before.remote_pods), "what runs is as it was when it was sent"
    assert is_true(after.workload, "Admitted")
    for each in (f"{name}-next", name):
        await remove(trained.federation, TRAIN, each)
        await trained.until(each, place, "is gone", lambda seen: not seen.remote_pods and seen.workload is None)
