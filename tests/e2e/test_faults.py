# SPDX-License-Identifier: Apache-2.0
"""Every process killed, frozen or cut off, under 300 Jobs in flight: nothing is lost and nothing is left behind.

Half of the Jobs are `fenced` and run to their end exactly once, the others are `failover` and do so at least once. Of a
fenced Job never runs twice, except while its agent is frozen: it can neither stop them then nor report that
(`docs/adr/0011-what-fenced-promises.md`). Jobs run for longer than that lasts, so none ends there meanwhile.
What happened is printed. `MK_FAULTS_JOBS` and `MK_FAULTS_RUN_SECONDS` make a smaller drill of it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from zlib import crc32

import anyio
import pytest
import yaml

from devcluster import manifests
from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec, WorkerSpec
from devcluster.kubelet import journal
from devcluster.kubelet.node import several
from multikueue.api.constants import PARTITION_POLICY_ANNOTATION, PartitionPolicy
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import parse_time
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import MakeFederation
from tests.support.faulty_proxy import TcpProxy, tcp_proxy
from tests.support.federations import finished, job, left_over, objects, wait_until
from tests.support.managers import condition, is_true, make_namespace, make_queue
from tests.support.workers import make_check

pytestmark = [pytest.mark.faults, pytest.mark.binaries, pytest.mark.timeout(2400)]

JOB_COUNT = int(os.environ.get("MK_FAULTS_JOBS", "300"))
NAMESPACE = "faults"
RUN_SECONDS = int(os.environ.get("MK_FAULTS_RUN_SECONDS", "600"))
DOWN_SECONDS = 3.0
AGENT = ("--renew-seconds=3", "--lease-seconds=10")
FENCED_LEAVES_SECONDS = 130.0
"""After the hub's lease of 40 s and the grace of 60 s fenced work goes elsewhere, if it may at all."""


class Drill:
    """One federation and its faults; logs what it does."""

    def __init__(self, federation: Federation, hub: KubeClient) -> None:
        self.federation = federation
        self.hub = hub
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """A line of the protocol."""
        print(f"{time.monotonic() - self._began:6.0f} s  {text}", flush=True)  # noqa: T201

    async def granted(self) -> dict[str, str]:
        """The Jobs that have not ended, and the cluster that each was granted to; empty while it is none."""
        found = [each for each in await objects(self.hub, WORKLOADS) if not is_true(each, "Finished")]
        return {
            each["metadata"]["ownerReferences"][0]["name"]: (each.get("status") or {}).get("clusterName") or ""
            for each in found
        }

    async def unfinished(self, on: str) -> set[str]:
        """The Jobs that were granted to the cluster `on` and have not ended."""
        return {name for name, cluster in (await self.granted()).items() if cluster == on}

    async def killed(
        self, what: str, kill: Callable[[], Awaitable[None]], start: Callable[[], Awaitable[None]]
    ) -> None:
        """SIGKILL, a moment without it, and a start."""
        self.tell(f"kill -9: {what}")
        await kill()
        await anyio.sleep(DOWN_SECONDS)
        await start()

    @asynccontextmanager
    async def silent(
        self, worker: str, why: str, *, stays: Callable[[str], bool] = lambda name: False
    ) -> AsyncIterator[None]:
        """Until all work of a disconnected cluster has been sent elsewhere, except what `stays`; then it reconnects.

        What stays does so for longer than any work that leaves.
        """
        before = await self.unfinished(worker)
        staying = {name for name in before if stays(name)}
        self.tell(f"{why}: {len(before)} workloads on {worker}, of which {len(staying)} are to stay")
        assert before - staying, "an outage without work proves nothing"
        assert any(map(fenced, before)), "nor does one that concerns no fenced work"
        began = time.monotonic()
        yield
        await self.until(lambda: self.unfinished(worker), lambda left: left <= staying, f"all have left {worker}")
        if staying:
            await anyio.sleep(max(0.0, began + FENCED_LEAVES_SECONDS - time.monotonic()))
            assert await self.unfinished(worker) == staying
        self.tell(f"all have left {worker} but {len(staying)}")

    async def heard(self, worker: str) -> None:
        """Until the cluster is connected again, and what is to run does where it was granted, and nowhere else."""

        async def active() -> bool:
            return is_true(await self.hub.get_object(MULTIKUEUE_CLUSTERS, worker), "Active")

        await self.until(active, bool, f"{worker} is connected again")
        await self.until(self._settling, lambda moving: not moving, "everything runs again, once")
        spread = Counter((await self.granted()).values())
        self.tell(f"{worker} is back, {dict(sorted(spread.items()))} run, {len(await finished(self.hub))} are complete")

    async def _settling(self) -> set[tuple[str, str]]:
        """The Jobs that do not run where they were granted, or run where they were not."""
        return live(self.federation) ^ set((await self.granted()).items())

    async def until(
        self, probe: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], what: str, *, within: float = 400
    ) -> None:
        """Wait until that holds of what `probe` gives."""

        async def asked() -> bool:
            try:
                return holds(await probe())
            except KubeError:
                return False  # an API server that has just come back

        await wait_until(asked, within=within, what=what)

    async def settled(self) -> None:
        """Until every Job is complete."""
        await self.until(
            lambda: finished(self.hub),
            lambda found: len(found) == JOB_COUNT,
            "every Job is complete",
            within=RUN_SECONDS + 300,
        )


def live(federation: Federation) -> set[tuple[str, str]]:
    """The Jobs of which a pod runs, and where."""
    running: dict[str, tuple[str, str]] = {}
    for entry in federation.journal():
        if entry.event == journal.STARTED:
            running[entry.uid] = (entry.owner.removeprefix("Job/"), entry.cluster)
        else:
            running.pop(entry.uid, None)
    return set(running.values())


def completions(federation: Federation) -> Counter[str]:
    """How often a pod of each Job ran to its end."""
    ended = {entry.uid: entry for entry in federation.journal() if entry.event == journal.ENDED and not entry.exit_code}
    return Counter(entry.owner.removeprefix("Job/") for entry in ended.values() if entry.namespace == NAMESPACE)


def overlaps(federation: Federation, *, excused: tuple[datetime, datetime] | None = None) -> Counter[str]:
    """How often two pods of a Job ran at one time on two clusters, for two seconds or more.

    Those do not count of which the second began in the time that is `excused`.
    """
    begun: dict[str, journal.JournalEntry] = {}
    spans: dict[str, list[tuple[datetime, datetime, str]]] = {}
    for entry in federation.journal():
        if entry.event == journal.STARTED:
            begun.setdefault(entry.uid, entry)
        elif entry.uid in begun:
            start = begun.pop(entry.uid)
            span = (parse_time(start.time), parse_time(entry.time), entry.cluster)
            spans.setdefault(entry.owner.removeprefix("Job/"), []).append(span)
    found: Counter[str] = Counter()
    for name, of_job in spans.items():
        ordered = sorted(of_job)
        for (_, until, here), (since, _, there) in pairwise(ordered):
            counts = excused is None or not excused[0] <= since <= excused[1]
            found[name] += counts and here != there and until - since > timedelta(seconds=2)
    return +found


def fenced(name: str) -> bool:
    """Whether that is the policy of the Job: of every second one, in no order, since clusters get Jobs in turns."""
    return crc32(name.encode()) % 2 == 0


def make(number: int) -> dict[str, Any]:
    """One of the Jobs."""
    made = job(f"job-{number:03}", namespace=NAMESPACE, run_for=f"{RUN_SECONDS}s", cpu="20m")
    policy = PartitionPolicy.FENCED if fenced(made["metadata"]["name"]) else PartitionPolicy.FAILOVER
    made["metadata"]["annotations"] = {PARTITION_POLICY_ANNOTATION: str(policy)}
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = NAMESPACE
    del made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"]
    return made


async def through(proxy: TcpProxy, federation: Federation, worker: str) -> None:
    """Let the agent of `worker` reach the hub through the proxy."""
    path = anyio.Path(federation.workers[worker].folder / "agent.kubeconfig")
    kubeconfig = yaml.safe_load(await path.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = proxy.url
    await path.write_text(yaml.safe_dump(kubeconfig))
    await federation.agents[worker].stop()
    await federation.agents[worker].start()


async def test_300_jobs_end_as_their_policy_says_whatever_is_killed_frozen_or_cut_off(
    make_federation: MakeFederation,
) -> None:
    workers = [WorkerSpec(name=name, nodes=several(2)) for name in ("worker-1", "worker-2")]
    settings = {"multiKueue": {"workerLostTimeout": "10s", "gcInterval": "10s"}}
    spec = FederationSpec(name="faults", workers=workers, configuration=settings, agent_arguments=AGENT)
    federation = await make_federation(spec)
    one, two = federation.workers.values()
    async with federation.hub.client() as hub, tcp_proxy(federation.hub.server) as proxy:
        await through(proxy, federation, two.name)
        for cluster in federation.workers.values():
            async with cluster.client() as client:
                await make_namespace(client, NAMESPACE)
        await make_check(hub, NAMESPACE, (one.name, two.name))
        await make_queue(hub, NAMESPACE, namespace=NAMESPACE, cpu="1000", checks=(NAMESPACE,))
        drill = Drill(federation, hub)
        # Only then does the webhook know whose jobs they are.
        await drill.until(
            lambda: hub.get_object(CLUSTER_QUEUES, NAMESPACE), lambda it: is_true(it, "Active"), "a queue"
        )
        jobs = [make(number) for number in range(JOB_COUNT)]
        await manifests.create_all(hub, jobs)
        drill.tell(f"{JOB_COUNT} Jobs were created")

        await drill.killed("the manager", federation.manager.kill, federation.manager.start)
        for name, agent in federation.agents.items():
            await drill.killed(f"the agent of {name}", agent.kill, agent.start)
        for cluster in (one, federation.hub):
            await drill.killed(
                f"the API server of {cluster.name}",
                partial(cluster.kill, "apiserver"),
                partial(cluster.start, "apiserver"),
            )
        await drill.heard(one.name)

        agent = federation.agents[one.name]
        frozen = SystemClock().now()
        async with drill.silent(one.name, "SIGSTOP: the agent"):
            agent.pause()
        agent.resume()
        await drill.heard(one.name)
        thawed = SystemClock().now()

        # Its agent reports that, and the hub does not move what cannot be stopped.
        async with drill.silent(two.name, "SIGSTOP: the API server of the worker", stays=fenced):
            two.pause("apiserver")
        two.resume("apiserver")
        await drill.heard(two.name)

        async with drill.silent(two.name, "a half-open link: the agent"):
            proxy.stall()
        proxy.flow()
        await drill.heard(two.name)

        await drill.settled()
        for each in await objects(hub, WORKLOADS):
            assert condition(each, "Finished")["reason"] == "Succeeded"
        ran, twice = completions(federation), overlaps(federation)
        unexcused = overlaps(federation, excused=(frozen, thawed))
        drill.tell(f"complete: {len(await finished(hub))} of {JOB_COUNT}")
        for policy, chosen in (("fenced", True), ("failover", False)):
            names = [each["metadata"]["name"] for each in jobs if fenced(each["metadata"]["name"]) is chosen]
            often = dict(sorted(Counter(ran[name] for name in names).items()))
            ever, else_when = (sum(found[name] > 0 for name in names) for found in (twice, unexcused))
            drill.tell(
                f"{policy}: runs to the end per Job {often}; running twice at some moment: {ever} Jobs, "
                f"{else_when} of them when the agent was not frozen"
            )
        assert [name for name in (each["metadata"]["name"] for each in jobs) if not ran[name]] == []
        wrong = {f"Job/{name}" for name, count in ran.items() if fenced(name) and count != 1}
        wrong |= {f"Job/{name}" for name in unexcused if fenced(name)}
        assert [entry for entry in federation.journal() if entry.owner in wrong] == []

        for each in jobs:
            try:
                await hub.delete(JOBS, each["metadata"]["name"], namespace=NAMESPACE, propagation="Background")
            except NotFound:
                continue

        left: list[str] = []

        async def empty() -> bool:
            left[:] = await left_over(federation)
            return not left

        with anyio.move_on_after(180):
            await wait_until(empty, within=600, what="nothing is left anywhere")
        assert left == []
        drill.tell("nothing is left anywhere")
