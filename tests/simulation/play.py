# SPDX-License-Identifier: Apache-2.0
"""One seed, from the first Job to the last trace of it.

Owns the course of a run: processes start, users create jobs, mishaps happen and end, and once everything is healed all
that was wanted has to come about. `play` runs in a process of its own, with servers that nobody else has touched.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from manager import app
from multikueue.api.constants import ORIGIN_LABEL
from multikueue.devcluster.apiserver.server import ApiServer
from tests.simulation import federation
from tests.simulation.federation import NAMESPACE, Process, call, create, job
from tests.simulation.garbage import GarbageCollector
from tests.simulation.invariants import Watcher
from tests.simulation.network import Link, Server
from tests.simulation.pods import JOBS, Pods
from tests.simulation.scenario import HEALED, Mishap, Scenario, Trouble
from tests.simulation.virtual_time import SimClock, VirtualLoop

Object = dict[str, Any]

_PATIENCE: Final = 900.0  # seconds after the healing in which everything has to end
_KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
_USER_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed ended; `problem` is empty when everything held."""

    seed: int
    problem: str
    story: tuple[str, ...]
    seconds: float
    """Virtual time that it took."""


class Play:
    """A running seed."""

    def __init__(self, scenario: Scenario, apis: dict[str, ApiServer], *, loop: VirtualLoop, dispatcher: str) -> None:
        self.scenario = scenario
        self.loop = loop
        self.random = Random(scenario.seed ^ 0x5EED)
        self.policies = {work.name: work.policy for work in scenario.jobs}
        self.watcher = Watcher(now=loop.time, policy=lambda name: self.policies.get(name, ""))
        self.servers = {name: Server(name, apis[name]) for name in ("hub", *scenario.workers)}
        self.deleted: set[str] = set()
        seconds = {work.name: work.seconds for work in scenario.jobs}
        for name, server in self.servers.items():
            world = server.api.world
            world.rng = Random(self.random.getrandbits(64))
            world.clock = self._clock(name)
            if name == "hub":
                federation.create_clusters(server.api, scenario.workers)
                world.store.listen(self.watcher.on_hub_write)
                world.store.listen(GarbageCollector(server, self.random).on_write)
            else:
                world.store.listen(partial(self.watcher.on_worker_write, name))
                self.watcher.pods[name] = Pods(
                    server, self.random, seconds=seconds.__getitem__, tell=partial(self.watcher.on_pods, name)
                )
        self.links: dict[tuple[str, str], Link] = {}
        self.processes = {name: self._process(name, dispatcher) for name in ("manager", "manager-2")}
        self.processes |= {name: self._agent(name) for name in scenario.workers}

    async def run(self) -> None:
        """Play to the end; what went wrong is in the watcher."""
        for name, process in self.processes.items():
            if name != "manager-2":
                process.start()
        doings = [self._create(work.name) for work in self.scenario.jobs]
        doings += [self._suffer(mishap) for mishap in self.scenario.mishaps]
        tasks = [self.loop.create_task(doing) for doing in doings]
        try:
            await self._until_healed()
            await self._until_done()
            for task in tasks:
                if task.done() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
        finally:
            for task in tasks:
                task.cancel()
            for process in self.processes.values():
                await process.kill()

    async def _until_healed(self) -> None:
        while self.loop.time() < HEALED and not self._broken():
            await asyncio.sleep(1.0)
        for link in self.links.values():
            link.heal()
            link.slowest, link.loss, link.duplicates = 0.02, 0.0, 0.0

    async def _until_done(self) -> None:
        while not self._broken():
            left = self._left()
            if not left:
                return
            if self.loop.time() > HEALED + _PATIENCE:
                self.watcher.problem = f"never ends: {'; '.join(left)}"
                return
            await asyncio.sleep(2.0)

    def _broken(self) -> bool:
        for process in self.processes.values():
            if process.failure is not None and not self.watcher.problem:
                self.watcher.problem = f"{process.name} broke: {_root(process.failure)}"
        return bool(self.watcher.problem)

    def _left(self) -> list[str]:
        """What is still to come about."""
        hub = self.servers["hub"].api.world
        left = []
        for found in hub.objects(JOBS, namespace=NAMESPACE):
            conditions = (found.get("status") or {}).get("conditions") or []
            if not any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions):
                left.append(f"hub job {found['metadata']['name']} is not complete")
        left += [f"assignment {found['metadata']['name']}" for found in hub.objects("remoteassignments.multikueue.io")]
        for queue in hub.objects("clusterqueues.kueue.x-k8s.io"):
            status = queue.get("status") or {}
            for flavor in status.get("flavorsReservation") or []:
                used = [entry for entry in flavor["resources"] if str(entry.get("total", "0")) != "0"]
                left += [f"quota is held: {entry}" for entry in used]
        for name in self.scenario.workers:
            for found in self.servers[name].api.world.objects(JOBS, namespace=NAMESPACE):
                if ORIGIN_LABEL in (found["metadata"].get("labels") or {}):
                    left.append(f"{name} job {found['metadata']['name']}")
        wanted = {work.name for work in self.scenario.jobs} - self.deleted
        there = {found["metadata"]["name"] for found in hub.objects(JOBS, namespace=NAMESPACE)}
        left += [f"hub job {name} is not there" for name in sorted(wanted - there)]
        return left

    # Making

    def _clock(self, name: str) -> SimClock:
        machine = self.scenario.machines.get(name)
        return SimClock(self.loop, offset=machine.offset, drift=machine.drift) if machine else SimClock(self.loop)

    def _link(self, process: str, server: str) -> Link:
        link = self.links[process, server] = Link(self.servers[server], Random(self.random.getrandbits(64)))
        return link

    def _process(self, name: str, dispatcher: str) -> Process:
        own = Random(self.random.getrandbits(64))
        return federation.manager(name, self._link(name, "hub"), self._clock(name), own, dispatcher=dispatcher)

    def _agent(self, name: str) -> Process:
        own = Random(self.random.getrandbits(64))
        return federation.agent(name, self._link(name, "hub"), self._link(name, name), self._clock(name), own)

    # Doing

    async def _create(self, name: str) -> None:
        work = next(work for work in self.scenario.jobs if work.name == name)
        await asyncio.sleep(work.at)
        made = job(
            name,
            cpu=work.cpu,
            labels={"kueue.x-k8s.io/queue-name": "queue"},
            annotations={"multikueue.io/partition-policy": work.policy},
        )
        # Without the webhooks of a manager, what they would default.
        made["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
        await self._hub_is_up()
        self.watcher.tell(f"user creates {name}: {work.seconds:.1f} s, {work.cpu} cpu, {work.policy}")
        create(self.servers["hub"].api, _USER_JOBS, made)

    async def _hub_is_up(self) -> None:
        while not self.servers["hub"].up:
            await asyncio.sleep(0.5)

    async def _suffer(self, mishap: Mishap) -> None:
        await asyncio.sleep(mishap.at)
        self.watcher.tell(
            f"MISHAP {mishap.what} {' – '.join(mishap.whom)} for {mishap.seconds:.1f} s".replace("  ", " ")
        )
        what, whom, pause = mishap.what, mishap.whom, partial(asyncio.sleep, mishap.seconds)
        match what:
            case Trouble.PARTITION:
                link = self.links[whom[0], whom[1]]
                link.partition()
                await pause()
                link.heal()
            case Trouble.SLOW | Trouble.LOSSY | Trouble.DUPLICATING:
                link = self.links[whom[0], whom[1]]
                field = {Trouble.SLOW: "slowest", Trouble.LOSSY: "loss", Trouble.DUPLICATING: "duplicates"}[what]
                before = getattr(link, field)
                setattr(link, field, 4.0 if what is Trouble.SLOW else 0.25)
                await pause()
                setattr(link, field, before)
            case Trouble.CRASH:
                await self.processes[whom[0]].kill()
                await pause()
                self.processes[whom[0]].start()
            case Trouble.SERVER_CRASH:
                self.servers[whom[0]].crash()
                await pause()
                self.servers[whom[0]].restart()
            case Trouble.SECOND_MANAGER:
                self.processes["manager-2"].start()
                await pause()
                await self.processes["manager-2"].kill()
            case Trouble.WATCH_CUT:
                self.servers[whom[0]].api.cut_watches()
            case _:
                await self._meddle(mishap)
        self.watcher.tell(f"over: {what} {' – '.join(whom)}".rstrip())

    async def _meddle(self, mishap: Mishap) -> None:
        """What people do."""
        await self._hub_is_up()
        hub = self.servers["hub"].api
        match mishap.what:
            case Trouble.DELETE_JOB:
                self.deleted.add(mishap.whom[0])
                call(hub, "DELETE", f"{_USER_JOBS}/{mishap.whom[0]}", {"propagationPolicy": "Background"})
            case Trouble.STRANGER_DELETES:
                worker, name = mishap.whom
                call(self.servers[worker].api, "DELETE", f"{_USER_JOBS}/{name}", {"propagationPolicy": "Foreground"})
            case Trouble.HOLD_QUEUE:
                call(hub, "PATCH", f"{_KUEUE}/clusterqueues/queue", {"spec": {"stopPolicy": "HoldAndDrain"}})
                await asyncio.sleep(mishap.seconds)
                call(hub, "PATCH", f"{_KUEUE}/clusterqueues/queue", {"spec": {"stopPolicy": "None"}})
            case Trouble.LEAVE_CONFIG:
                stay = [name for name in self.scenario.workers if name != mishap.whom[0]]
                path = f"{_KUEUE}/multikueueconfigs/all"
                call(hub, "PATCH", path, {"spec": {"clusters": stay}})
                await asyncio.sleep(mishap.seconds)
                call(hub, "PATCH", path, {"spec": {"clusters": list(self.scenario.workers)}})


def _root(error: BaseException) -> str:
    """The first failure inside all groups, and where it was."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{error!r} at {where}"


def play(scenario: Scenario, apis: dict[str, ApiServer], *, dispatcher: str) -> Outcome:
    """The outcome of one scenario. The servers are used up by it."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    gc.disable()  # the process ends with the seed
    for name in ("collect", "freeze"):
        setattr(app.gc, name, lambda: 0)
    made = Play(scenario, apis, loop=loop, dispatcher=dispatcher)
    try:
        loop.run_until_complete(made.run())
    except Exception as error:
        made.watcher.problem = made.watcher.problem or f"the simulation broke: {_root(error)}"
    return Outcome(scenario.seed, made.watcher.problem, tuple(made.watcher.story), loop.time())
