# SPDX-License-Identifier: Apache-2.0
"""This project's manager takes the place of Kueue's on a cluster where jobs of every kind run and wait.

What runs is to run on: what is shown before and after is compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from devcluster.kubelet.node import NodeSpec
from devcluster.ports import PortRegistry
from devcluster.providers.embedded.provider import EmbeddedProvider
from multikueue.api.constants import POD_GROUP_NAME_LABEL, POD_GROUP_TOTAL_COUNT_ANNOTATION, QUEUE_NAME_LABEL
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, PODS
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_manager
from tests.bench.queueing.kueue import running_kueue
from tests.comparison.courses import kinds, topology
from tests.comparison.federation import running_federation
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.kinds_hub import FRAMEWORKS, RESOURCES, kinds_cluster
from tests.comparison.looks import Look, Looks
from tests.comparison.placed import placed
from tests.comparison.shown import events, lines
from tests.support.managers import job_manifest, make_queue
from tests.support.operators.samples import pod_template

_SETTLING_SECONDS: Final = 8.0
_HELD: Final = "held"
"""The queue that is held, and the end of the names of jobs that wait in it."""
_RUNS: Final = {"multikueue.io/run-for": "forever"}


@dataclass(frozen=True, slots=True)
class Taken:
    """What is shown with Kueue's manager, and what with this project's in its place."""

    after: str
    theirs: list[str]
    ours: list[str]


async def taken_over(folder: Path, *, kueue: Path, configuration: Mapping[str, Any]) -> list[Taken]:
    """Jobs that run and wait on the hub."""

    async def arrive(hub: ComparedHub) -> None:
        await kinds.running_and_waiting(hub)
        await _jobs_and_pods(hub)

    shown = partial(lines, jobs=RESOURCES)
    return [await _taken_over(folder, kueue, configuration, arrive=arrive, shown=shown)]


async def topologies_taken_over(folder: Path, *, kueue: Path, configuration: Mapping[str, Any]) -> list[Taken]:
    """Jobs and pods with places of a topology: they keep them, and pods that are made anew go there."""

    async def lose_pods(hub: ComparedHub) -> None:
        for job in ("rack", "indexed"):
            await hub.lose_pod(job)

    taken = await _taken_over(
        folder,
        kueue,
        configuration,
        arrive=topology.running_and_waiting,
        meanwhile=lose_pods,
        shown=partial(placed, jobs=RESOURCES),
        nodes=topology.HOSTS,
    )
    # There are events of the pods that were deleted and made anew.
    return [replace(taken, ours=_without_events(taken.ours))]


async def _nothing(hub: ComparedHub) -> None:
    """What happens while no manager runs, by default."""


async def _taken_over(
    folder: Path,
    kueue: Path,
    configuration: Mapping[str, Any],
    *,
    arrive: Callable[[ComparedHub], Awaitable[None]],
    shown: Callable[[KubeClient, str], Awaitable[list[str]]],
    meanwhile: Callable[[ComparedHub], Awaitable[None]] = _nothing,
    nodes: Sequence[NodeSpec] = (),
) -> Taken:
    """A hub whose jobs `arrive` with Kueue's manager; `meanwhile` happens while none runs."""
    own = {**configuration, "integrations": {"frameworks": list(FRAMEWORKS)}}
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(PortRegistry())
        provider = await stack.enter_async_context(EmbeddedProvider(folder=folder))
        cluster = await stack.enter_async_context(kinds_cluster(stack, provider, folder / "hub", nodes=nodes))
        hub = ComparedHub(await stack.enter_async_context(cluster.client()))
        looks = Looks(partial(shown, hub.client, NAMESPACE), partial(events, hub.client, NAMESPACE))
        for each in ("theirs", "ours"):
            (folder / each).mkdir()
        frameworks = {"integrations": own["integrations"]}
        async with running_kueue(cluster, kueue, folder=folder / "theirs", ports=ports, configuration=frameworks):
            await arrive(hub)
            await looks.take(Look("they run and wait", _SETTLING_SECONDS))
        await meanwhile(hub)
        manager = await running_manager(cluster, folder / "ours", own, ports=ports, extra=())
        stack.push_async_callback(manager.process.stop)
        await looks.take(Look("this project's manager runs", 2 * _SETTLING_SECONDS))
        (_, before), (after, now) = looks.shown
        return Taken(after, _without_events(before), now)


async def dispatched_taken_over(folder: Path, *, kueue: Path, configuration: Mapping[str, Any]) -> list[Taken]:
    """The same of a hub that has sent jobs of all kinds, and pods, to a worker cluster with Kueue's manager.

    Others wait in a queue that is held, and are sent when it is opened afterwards: they are to run as those before.
    """
    made = running_federation(
        folder,
        hub_kueue=kueue,
        worker_kueue=kueue,
        configuration={},
        on_worker={},
        every_kind=True,
        taking_over=configuration,
    )
    async with made as both:
        looks = Looks(both.lines, partial(events, both.hub.client, NAMESPACE))
        await make_queue(both.hub.client, _HELD, namespace=NAMESPACE, cpu="40", checks=("mk",))
        await both.hub.change(CLUSTER_QUEUES, _HELD, {"spec": {"stopPolicy": "Hold"}})
        await both.worker.queue(_HELD, cpu="9")
        for name, queue in (("long", "q"), (_HELD, _HELD)):
            await kinds.running_on_worker(both, name, queue=queue)
            await kinds.deployment_on_worker(both, name, queue=queue)
            await kinds.pod_groups_on_worker(both, name, queue=queue)
        await looks.take(Look("they run there", 2 * _SETTLING_SECONDS))
        await both.take_over()
        await looks.take(Look("this project's manager runs", _SETTLING_SECONDS))
        await both.hub.change(CLUSTER_QUEUES, _HELD, {"spec": {"stopPolicy": "None"}})
        await looks.take(Look("those that waited run", 2 * _SETTLING_SECONDS))
        (_, before), (after, now), (later, all_now) = looks.shown
        before = _without_events(before)
        theirs = [line for line in before if "-long" in line]
        waited = [line for line in _without_events(all_now) if f"-{_HELD}" in line]
        ours = [line.replace(f"-{_HELD}", "-long").replace(f" {_HELD}", " q") for line in waited]
        return [Taken(after, before, now), Taken(later, theirs, ours)]


def _without_events(shown: list[str]) -> list[str]:
    return [line for line in shown if not line.startswith("event ")]


async def _jobs_and_pods(hub: ComparedHub) -> None:
    """Jobs, pods and pod groups, of each some that run and some that wait, for quota and for a check."""
    await kinds.make_queue(hub, "jobs", pods=3)
    for name in ("runs", "waits"):
        job = job_manifest(name, namespace=NAMESPACE, queue="jobs", cpu="100m", parallelism=2, suspend=True)
        job["spec"]["template"]["metadata"] = {"annotations": _RUNS}
        await hub.client.create(JOBS, job, namespace=NAMESPACE)
    await kinds.make_queue(hub, "pods", pods=4)
    for name, group in (("a", ""), ("b1", "b"), ("b2", "b"), ("c", ""), ("d", ""), ("e1", "e"), ("e2", "e")):
        await hub.client.create(PODS, _pod(name, group), namespace=NAMESPACE)
    await hub.queue("checked", cpu="1", checks=("by-hand",))
    for name, group in (("f", ""), ("g1", "g"), ("g2", "g")):
        await hub.client.create(PODS, _pod(name, group, queue="checked"), namespace=NAMESPACE)


def _pod(name: str, group: str, *, queue: str = "pods") -> Object:
    template = pod_template(_RUNS, terminationGracePeriodSeconds=0)
    metadata: Object = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: queue}}
    metadata["annotations"] = dict(_RUNS)
    if group:
        metadata["labels"][POD_GROUP_NAME_LABEL] = group
        metadata["annotations"][POD_GROUP_TOTAL_COUNT_ANNOTATION] = "2"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
