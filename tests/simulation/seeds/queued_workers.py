# SPDX-License-Identifier: Apache-2.0
"""Workers with a Kueue of their own, whose users submit Jobs there too: what they are, do, and may not exceed.

Every second worker has queues (`w1`, `w3`, `w5`), the others have none. The Kueue there is our manager. A local Job may
preempt a remote one, which the hub then sends elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.entry import StoredChange
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    EPOCH_ANNOTATION,
    ORIGIN_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.core.conditions import is_true_in
from tests.simulation.seeds.scenario import Theme
from tests.simulation.world import federation
from tests.simulation.world.federation import GROUP, NAMESPACE, PRIORITIES, USER_JOBS, Process, call, create
from tests.simulation.world.pods import JOBS, Copy, Pods

if TYPE_CHECKING:
    from tests.simulation.seeds.play import Play
    from tests.simulation.world.network import Link

Object = dict[str, Any]

_CPU: Final = 4
_URGENT: Final = {"urgent": 1000}
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_ASSIGNMENTS: Final = "remoteassignments.multikueue.io"
_CLUSTER_QUEUE: Final = f"{GROUP}/clusterqueues/queue"
_LOCAL_QUEUES: Final = f"{GROUP}/namespaces/{NAMESPACE}/localqueues"
_MOST_STARTS: Final = 4  # a Kueue whose worker has no agent preempts a Job, and admits it again later
_LAST: Final = 70.0
"""Until when something begins."""


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A Job that a user of a worker submits there."""

    name: str
    worker: str
    at: float
    seconds: float
    cpu: int
    priority: str


class Lacks(StrEnum):
    """What a worker lacks: its Kueue does not run, its ClusterQueue is stopped, or its LocalQueue was deleted."""

    KUEUE = "Kueue"
    OPEN_QUEUE = "open queue"
    LOCAL_QUEUE = "LocalQueue"


@dataclass(frozen=True, slots=True)
class _Outage:
    """Something of a worker is not there for a while."""

    worker: str
    at: float
    seconds: float
    what: Lacks


def has_queues(worker: str) -> bool:
    """Whether the worker of that name has queues of its own."""
    return worker in ("w1", "w3", "w5")


def prepare(name: str, server: ApiServer) -> None:
    """Make Kueue's kinds and a queue on a worker that has queues."""
    if has_queues(name):
        federation.give_queue(server, cpu=_CPU, preemption={"withinClusterQueue": "LowerPriority"})
        for priority, value in (PRIORITIES | _URGENT).items():
            made = federation.kueue("WorkloadPriorityClass", priority, value=value)
            create(server, f"{GROUP}/workloadpriorityclasses", made)


class QueuedWorkers:
    """Those of one seed."""

    def __init__(self, play: Play, *, settings: Configuration) -> None:
        self._play = play
        self._settings = settings
        own = Random(f"{play.scenario.seed} queues of workers")
        self.names = tuple(name for name in play.scenario.workers if has_queues(name))
        self.jobs = tuple(self._draw(own, number) for number in range(1, own.randint(0, 4) + 1))
        self._outages = [self._outage(own) for _ in range(own.choice((0, 0, 1, 2)))]
        self._restarts: dict[str, float] = {}
        """When the agent of a worker restarts, while its Kueue runs."""
        if play.scenario.theme is Theme.FENCING:  # while its lease expires, and another cluster gets its work
            away = {name for name in self.names if own.random() < 0.5}
            self._outages += [_Outage(name, own.uniform(15.0, 50.0), 120.0, Lacks.KUEUE) for name in sorted(away)]
            stay = (name for name in self.names if name not in away and name not in play.scenario.pushed)
            self._restarts = {name: own.uniform(20.0, 100.0) for name in stay}
        self._meddled = [(own.choice(self.names), own.uniform(2.0, _LAST)) for _ in range(own.choice((0, 0, 1, 2)))]
        """Where and when an administrator of a worker deletes or deactivates a clone."""
        kueues = Random(f"{play.scenario.seed} ends of Kueues")
        dying = (name for name in self.names if kueues.random() < 0.3)
        self._dying = {name: (kueues.uniform(0.0, 40.0), kueues.uniform(5.0, 90.0)) for name in dying}
        """From when on the Kueue of a worker ends with the next clone that it admits, and for how long."""
        self._admits = {name: asyncio.Event() for name in self._dying}
        self._cpu = {work.name: work.cpu for work in play.scenario.jobs} | {each.name: each.cpu for each in self.jobs}
        self._random = own
        self._local: dict[str, Pods] = {}
        self._restored: set[str] = set()
        self._starts = Counter[str]()
        """How often the pods of a Job were started, by its uid."""
        self._since: dict[tuple[str, Lacks], float] = {}
        """When the last outage of a worker has begun, by what it lacks."""

    def _draw(self, own: Random, number: int) -> LocalJob:
        return LocalJob(
            name=f"local-{number}",
            worker=own.choice(self.names),
            at=own.uniform(1.0, _LAST),
            seconds=own.choice((own.uniform(1, 10), own.uniform(10, 60))),
            cpu=own.randint(1, _CPU),
            priority=own.choice(("", "low", "high", "urgent", "urgent")),
        )

    def _outage(self, own: Random) -> _Outage:
        at, seconds = own.uniform(2.0, _LAST), own.choice((own.uniform(0.1, 40.0), own.uniform(40.0, 120.0)))
        return _Outage(own.choice(self.names), at, seconds, own.choice(tuple(Lacks)))

    @property
    def healed(self) -> float:
        """When all local Jobs were submitted and every outage is over."""
        ends = [each.at for each in self.jobs] + [each.at + each.seconds for each in self._outages]
        ends += [_LAST + seconds for _, seconds in self._dying.values()]
        return max(ends, default=0.0) + 1.0

    def seconds(self) -> dict[str, float]:
        """How long the local Jobs run, by name."""
        return {each.name: each.seconds for each in self.jobs}

    def processes(self, link: Callable[[str, str], Link]) -> dict[str, Process]:
        """The Kueue of each worker; `link` makes the way of a process to a server."""
        play = self._play
        return {
            f"kueue of {name}": federation.local_kueue(
                link(f"kueue of {name}", name),
                play.clock(name),
                Random(self._random.getrandbits(64)),
                own=self._settings,
            )
            for name in self.names
        }

    def follow(self, worker: str) -> None:
        """Follow a worker, and have its users' Jobs run there, if the users of the hub submit others."""
        if worker in self.names:
            self._play.servers[worker].api.context.store.listen(partial(self.on_write, worker))
        if worker in self.names and self._play.work.collection != JOBS:
            server, own = self._play.servers[worker], Random(self._random.getrandbits(64))
            tell = partial(self._play.on_pods, worker)
            self._local[worker] = Pods(server, own, seconds=self.seconds().__getitem__, tell=tell)

    def hurry(self, longest: float) -> None:
        """From now on no local Job takes longer than this."""
        for pods in self._local.values():
            pods.hurry(longest)

    def courses(self) -> list[Any]:
        """What happens on these workers beside the scenario, as coroutines."""
        restarts = (self._restart(name, at) for name, at in self._restarts.items())
        meddling = (self._meddle(name, at) for name, at in self._meddled)
        dying = (self._die(name, *when) for name, when in self._dying.items())
        return [*map(self._submit, self.jobs), *map(self._happen, self._outages), *restarts, *meddling, *dying]

    async def _submit(self, local: LocalJob) -> None:
        await asyncio.sleep(local.at)
        await self._is_up(local.worker)
        self._play.watcher.tell(
            f"a user of {local.worker} creates {local.name}: {local.seconds:.1f} s, {local.cpu} cpu, priority"
            f" {local.priority or 'none'}"
        )
        labels = {QUEUE_NAME_LABEL: "queue"} | ({PRIORITY_CLASS_LABEL: local.priority} if local.priority else {})
        made = federation.job(local.name, cpu=local.cpu, labels=labels)
        made["spec"]["suspend"] = True
        create(self._play.servers[local.worker].api, USER_JOBS, made)

    async def _happen(self, outage: _Outage) -> None:
        play, worker, what = self._play, outage.worker, outage.what
        await asyncio.sleep(outage.at)
        play.watcher.tell(f"MISHAP {worker} has no {what} for {outage.seconds:.1f} s")
        self._since[worker, what] = begun = play.loop.time()
        await self._take(worker, what)
        await asyncio.sleep(outage.seconds)
        if self._since[worker, what] == begun:  # otherwise another outage has begun meanwhile, and ends both
            await self._give(worker, what)
        play.watcher.tell(f"over: {worker} has no {what}")

    async def _die(self, worker: str, at: float, seconds: float) -> None:
        await asyncio.sleep(at)
        self._admits[worker].clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST - at):
                await self._admits[worker].wait()
            await self._happen(_Outage(worker, 0.0, seconds, Lacks.KUEUE))

    async def _take(self, worker: str, what: Lacks) -> None:
        match what:
            case Lacks.KUEUE:
                await self._play.processes[f"kueue of {worker}"].kill()
            case Lacks.OPEN_QUEUE:
                await self._call(worker, "PATCH", _CLUSTER_QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
            case Lacks.LOCAL_QUEUE:
                await self._call(worker, "DELETE", f"{_LOCAL_QUEUES}/queue")

    async def _give(self, worker: str, what: Lacks) -> None:
        match what:
            case Lacks.KUEUE:
                self._play.processes[f"kueue of {worker}"].start()
            case Lacks.OPEN_QUEUE:
                await self._call(worker, "PATCH", _CLUSTER_QUEUE, {"spec": {"stopPolicy": "None"}})
            case Lacks.LOCAL_QUEUE if not self._has_local_queue(worker):
                made = federation.kueue("LocalQueue", "queue", spec={"clusterQueue": "queue"})
                await self._call(worker, "POST", _LOCAL_QUEUES, made)

    def _has_local_queue(self, worker: str) -> bool:
        found = self._play.servers[worker].api.context.get("localqueues.kueue.x-k8s.io", f"{NAMESPACE}/queue")
        return found is not None

    async def _call(self, worker: str, method: str, path: str, body: object = None) -> None:
        await self._is_up(worker)
        call(self._play.servers[worker].api, method, path, body)

    async def _meddle(self, worker: str, at: float) -> None:
        await asyncio.sleep(at)
        await self._is_up(worker)
        api = self._play.servers[worker].api
        clones = self._clones(worker)
        if clones:
            name = self._random.choice(clones)["metadata"]["name"]
            path = f"{GROUP}/namespaces/{NAMESPACE}/workloads/{name}"
            deletes = self._random.random() < 0.5
            self._play.watcher.tell(f"MISHAP the clone {name} is {'deleted' if deletes else 'deactivated'} on {worker}")
            call(api, "DELETE" if deletes else "PATCH", path, None if deletes else {"spec": {"active": False}})

    def _clones(self, worker: str) -> list[Object]:
        found = self._play.servers[worker].api.context.objects(_WORKLOADS, namespace=NAMESPACE)
        return [each for each in found if ORIGIN_LABEL in (each["metadata"].get("labels") or {})]

    async def _restart(self, worker: str, at: float) -> None:
        await asyncio.sleep(at)
        self._play.watcher.tell(f"the agent of {worker} restarts")
        agent = self._play.processes[worker]
        if agent.running:
            await agent.kill()
            agent.start()

    async def _is_up(self, worker: str) -> None:
        while not self._play.servers[worker].up:
            await asyncio.sleep(0.5)

    # What is to hold

    def on_write(self, worker: str, collection: str, event: StoredChange) -> None:
        """An assignment has one clone: a second one would hold quota for nothing."""
        if collection == _WORKLOADS and event.old is None:
            marks = [(each["metadata"].get("annotations") or {}) for each in self._clones(worker)]
            names = Counter(each.get(ASSIGNMENT_ANNOTATION, "") for each in marks)
            for assignment, count in names.items():
                if count > 1:
                    self._play.watcher.violated(f"{worker}: {assignment} has {count} clones")
        if collection == _WORKLOADS and event.entry is not None and worker in self._admits:
            admitted = is_true_in(event.value().get("status"), "Admitted")
            if admitted and ORIGIN_LABEL in (event.value()["metadata"].get("labels") or {}):
                self._admits[worker].set()

    def on_hub_write(self, collection: str, event: StoredChange) -> None:
        """What is reported as stopped cannot be started by the Kueue there: the hub may send it elsewhere."""
        if collection != _ASSIGNMENTS or event.entry is None:
            return
        assignment, before = event.value(), (event.old_value() or {}).get("status") or {}
        worker, reported = assignment["metadata"]["namespace"].removeprefix("mk-"), assignment.get("status") or {}
        seen = (reported.get("phase"), reported.get("epoch"))
        stopped = seen[0] == "Evicted" and seen != (before.get("phase"), before.get("epoch"))
        if not stopped or worker not in self.names or worker in self._restored:
            return
        marks = {ASSIGNMENT_ANNOTATION: assignment["metadata"]["name"], EPOCH_ANNOTATION: str(reported["epoch"])}
        jobs = self._play.servers[worker].api.context.objects(self._play.work.collection, namespace=NAMESPACE)
        waiting = [each["metadata"]["name"] for each in jobs if _has(each, marks) and _is_held(each)]
        clones = [each for each in self._clones(worker) if _has(each, marks) and _is_admissible(each)]
        if waiting and clones:
            self._play.watcher.violated(f"{worker} reports {waiting[0]} as stopped, and its Kueue may start it")

    async def restored(self, worker: str) -> None:
        """The worker was restored from a backup: its Kueue is restarted, and what runs is not what Workloads say."""
        if worker in self.names:
            self._restored.add(worker)
            for what in (Lacks.OPEN_QUEUE, Lacks.LOCAL_QUEUE):
                await self._give(worker, what)  # the backup may be of a moment without
            kueue = self._play.processes[f"kueue of {worker}"]
            if kueue.running:
                await kueue.kill()
                kueue.start()

    def on_pods(self, cluster: str, what: str, copy: Copy) -> None:
        """No more runs than the queue of the worker has quota for, apart from what holds none while it stops."""
        if cluster not in self.names or what != "starts" or cluster in self._restored:
            return
        play = self._play
        self._starts[copy.uid] += 1
        name = copy.key.rpartition("/")[2]
        # Where pods take long to be ready, a Kueue evicts a Job again and again until they are.
        if self._starts[copy.uid] > _MOST_STARTS and not play.work.is_slow:
            play.watcher.violated(f"{cluster}: the pods of {name} are stopped and started again and again")
        running = [play.watcher.pods[cluster], *([self._local[cluster]] if cluster in self._local else [])]
        names, cpu = [], 0
        for pods in running:
            for each in pods.copies.values():
                if each.live and self._counts(cluster, each):
                    names.append(each.key.rpartition("/")[2])
                    # Each pod of a group has one.
                    cpu += self._cpu.get(names[-1], 1) * each.counted // each.count
        if cpu > _CPU:
            found = ", ".join(sorted(names))
            play.watcher.violated(f"{cluster}: {found} run with {cpu} cpu, and the queue there has {_CPU}")

    def _counts(self, cluster: str, copy: Copy) -> bool:
        """As with Kueue, quota is free at once when the Job or its Workload is deleted, or the Workload deactivated."""
        context = self._play.servers[cluster].api.context
        collection = JOBS if copy.key.rpartition("/")[2] in self.seconds() else self._play.work.collection
        job, clone = context.get(collection, copy.key), context.get(_WORKLOADS, f"{NAMESPACE}/{copy.workload}")
        if job is None or job["metadata"]["uid"] != copy.uid or "deletionTimestamp" in job["metadata"]:
            return False
        if copy.key.rpartition("/")[2] in self.seconds():
            return True
        # One that was deleted is made again, and waits in the queue.
        holds = clone is not None and bool((clone.get("status") or {}).get("admission"))
        return holds and clone is not None and clone["spec"].get("active") is not False

    def left(self) -> list[str]:
        """What is still to come about."""
        found = []
        for name in self.names:
            found += [f"{name} clone {each['metadata']['name']}" for each in self._clones(name)]
        for local in self.jobs:
            if local.worker in self._restored:
                continue  # the backup may be older than the Job
            job = self._play.servers[local.worker].api.context.get(JOBS, f"{NAMESPACE}/{local.name}")
            if not is_true_in((job or {}).get("status") or {}, "Complete"):
                found.append(f"{local.worker} job {local.name} is not complete")
        return found


def _has(obj: Object, marks: Mapping[str, str]) -> bool:
    annotations = obj["metadata"].get("annotations") or {}
    return all(annotations.get(name) == value for name, value in marks.items())


def _is_held(job: Object) -> bool:
    """Whether a Job is suspended, or a pod is gated, so that a Kueue could start it."""
    return bool(job["spec"].get("suspend") or job["spec"].get("schedulingGates"))


def _is_admissible(clone: Object) -> bool:
    return clone["spec"].get("active") is not False and not is_true_in(clone.get("status"), "Finished")


def of_user(job: Object) -> bool:
    """Whether a user of a worker has created it."""
    return str(job["metadata"]["name"]).startswith("local-")
