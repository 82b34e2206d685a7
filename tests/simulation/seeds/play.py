# SPDX-License-Identifier: Apache-2.0
"""One seed, from the first Job to the last trace of it.

Owns the course of a run: processes start, users create jobs, mishaps happen and end, and once everything is healed all
that was wanted has to come about. `play` runs in a process of its own, with servers that nobody else has touched.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from devcluster.apiserver.server import ApiServer
from multikueue.api.constants import ORIGIN_LABEL, PRIORITY_CLASS_LABEL
from tests.simulation.seeds import losing
from tests.simulation.seeds.autoscaling import AskedClusters, Autoscaler
from tests.simulation.seeds.invariants import Watcher
from tests.simulation.seeds.queued_workers import QueuedWorkers
from tests.simulation.seeds.scenario import Mishap, Scenario, Trouble, Work
from tests.simulation.seeds.set_work import SetUsers, SetWork
from tests.simulation.seeds.user_work import JobWork, Replacing, UserWork, one_starts, remote, settings_of
from tests.simulation.seeds.users import Users
from tests.simulation.world import federation, letting_in, shortcuts
from tests.simulation.world.federation import GROUP, NAMESPACE, Process, call, create
from tests.simulation.world.garbage import GarbageCollector
from tests.simulation.world.group_pods import PODS
from tests.simulation.world.network import Link, Server
from tests.simulation.world.nominator import DISPATCHER, Nominator
from tests.simulation.world.pods import Copy
from tests.simulation.world.virtual_time import SimClock, VirtualLoop

Object = dict[str, Any]

_PATIENCE: Final = 900.0  # seconds after the healing in which everything has to end
_LOOK_AT: Final = 20  # the seeds of which one is looked at for who writes to what all read
_CALM: Final = 60.0  # seconds after the healing from which on no pods may be late
_HURRY: Final = 3.0  # how long a job may run when nothing goes wrong any more
_ORDINARY: Final = {"slowest": 0.02, "loss": 0.0, "duplicates": 0.0, "latest": 2.0}
_BAD: Final[dict[Trouble, dict[str, float]]] = {
    Trouble.SLOW: {"slowest": 4.0},
    Trouble.LOSSY: {"loss": 0.25},
    Trouble.DUPLICATING: {"duplicates": 0.25},
    Trouble.REPEATING: {"duplicates": 0.5, "latest": 15.0},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed ended; `problem` is empty when everything held."""

    seed: int
    problem: str
    timeline: tuple[str, ...]
    seconds: float
    """Virtual time that it took."""


class Play:
    """A running seed."""

    def __init__(
        self,
        scenario: Scenario,
        apis: dict[str, ApiServer],
        watcher: Watcher,
        *,
        loop: VirtualLoop,
        dispatcher: str,
        provisioning: bool = False,
        queues: bool = False,
    ) -> None:
        self.scenario = scenario
        self.work = watcher.work
        self.loop = loop
        self.random = Random(scenario.seed ^ 0x5EED)
        self.watcher = watcher
        self.servers = {name: Server(name, apis[name]) for name in ("hub", *scenario.workers)}
        self.deleted: set[str] = set()
        self._out_of_config: list[str] = []
        self._removed: dict[str, float] = {}
        seconds = {work.name: work.seconds for work in scenario.jobs}
        self._dispatcher = dispatcher
        self._settings = settings_of(scenario.seed, dispatcher, self.work)
        watcher.one_starts = self.work.is_slow and one_starts(scenario.seed)
        self.queued = QueuedWorkers(self, settings=self._settings) if queues else None
        if self.queued is not None:
            seconds |= self.queued.seconds()
        self._let_in: set[str] = set()
        self._losing = losing.Losing(self, spare=apis[federation.SPARE])
        self._users = Users(self)
        self._look_again: list[Callable[[], None]] = []
        self._asked: AskedClusters | None = None
        self._autoscalers: list[Autoscaler] = []
        if provisioning:
            most = self._settings.multikueue.provisioning_clusters
            self._asked = AskedClusters(dispatcher=dispatcher, most=most, tell=watcher.tell, violated=watcher.violated)
        for name, server in self.servers.items():
            self.settle(server)
            context = server.api.context
            if name == "hub":
                self.follow_hub(server)
            else:
                context.store.listen(partial(self.watcher.on_worker_write, name))
                if self._asked is not None:
                    self._autoscale(server, self._asked)
                tell = partial(self.on_pods, name)
                self.watcher.pods[name] = remote(self.work, server, self.random, seconds=seconds.__getitem__, tell=tell)
                if self.queued is not None:
                    self.queued.follow(name)
        self.links: dict[tuple[str, str], Link] = {}
        self.processes = {name: self._process(name, dispatcher) for name in ("manager", "manager-2")}
        self.processes |= {name: self._agent(name) for name in scenario.workers if name not in scenario.pushed}
        serving = SetUsers(self, self.work) if isinstance(self.work, SetWork) else None
        self._others = [each for each in (self.queued, serving) if each is not None]
        for each in self._others:
            self.processes |= each.processes(self._link)
        self._registrar = letting_in.Registrar(
            Link(self.servers["hub"], Random(self.random.getrandbits(64)), loop), self.clock("hub"), self.random
        )
        letting_in.draw_seals(self.random)
        if scenario.joining:
            letting_in.prepare(self.random)

    def settle(self, server: Server) -> None:
        """Have it live on this machine, in this seed."""
        server.api.context.rng = Random(self.random.getrandbits(64))
        server.api.context.clock = self.clock(server.name)

    def follow_hub(self, hub: Server) -> None:
        """Make the clusters of this seed there, and have it followed by all who follow a hub."""
        federation.create_clusters(hub.api, self.scenario.workers, pushed=self.scenario.pushed)
        listen = hub.api.context.store.listen
        listen(self.watcher.on_hub_write)
        if self._asked is not None:
            listen(self._asked.on_hub_write)
        if self.queued is not None:
            listen(self.queued.on_hub_write)
        garbage = GarbageCollector(hub, self.random)
        listen(garbage.on_write)
        self._look_again = [garbage.look_again]
        if self.work.collection == PODS and not self.work.serves:
            replacing = Replacing(hub, Random(f"{self.scenario.seed} replacing"), tell=self.watcher.tell)
            listen(replacing.on_write)
            self._look_again.append(replacing.look_again)
        if self.scenario.joining:
            listen(letting_in.Signer(hub, self.random, violated=self.watcher.violated).on_write)
        if self._dispatcher == DISPATCHER:
            nominator = Nominator(hub, self.random, clusters=self.scenario.workers)
            listen(nominator.on_write)
            self._look_again.append(nominator.look_again)

    def _autoscale(self, server: Server, asked: AskedClusters) -> None:
        autoscaler = Autoscaler(server, Random(f"{self.scenario.seed} {server.name}"), tell=self.watcher.tell)
        listen = server.api.context.store.listen
        listen(partial(asked.on_worker_write, server.name))
        listen(autoscaler.on_write)
        self._autoscalers.append(autoscaler)

    def on_pods(self, cluster: str, what: str, copy: Copy) -> None:
        """Pods of a worker start or end."""
        self.watcher.on_pods(cluster, what, copy)
        if self.queued is not None:
            self.queued.on_pods(cluster, what, copy)

    def look_again(self) -> None:
        """The hub no longer has the state that its watchers were sent last."""
        for look in self._look_again:
            look()

    async def run(self) -> None:
        """Play to the end; what went wrong is in the watcher."""
        for name, process in self.processes.items():
            if name != "manager-2":
                process.start()
        courses = [self._create(work.name) for work in self.scenario.jobs]
        if self.work.is_elastic:
            courses += [self._users.resize(work) for work in self.scenario.jobs]
        courses += [self._happen(mishap) for mishap in self.scenario.mishaps]
        for each in self._others:
            courses += each.courses()
        tasks = [self.loop.create_task(course) for course in courses]
        try:
            await self._until_healed()
            await self._until_done()
            for task in tasks:
                if task.done() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
        finally:
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """End the processes before the next seed: some take their time."""
        for process in self.processes.values():
            await process.kill()

    async def _until_healed(self) -> None:
        while self.loop.time() < self.healed and not self._broken():
            await asyncio.sleep(1.0)
        self.watcher.tell("no more faults")
        self.watcher.calm_after = self.loop.time() + _CALM
        for link in self.links.values():
            link.heal()
            _make(link, _ORDINARY)
        for pods in self.watcher.pods.values():
            pods.hurry(_HURRY)
        for autoscaler in self._autoscalers:
            autoscaler.hurry()
        for each in self._others:
            each.hurry(_HURRY)

    async def _until_done(self) -> None:
        while not self._broken():
            left = self._left()
            if not left:
                return
            if self.loop.time() > self.healed + _PATIENCE:
                self.watcher.problem = f"never ends: {'; '.join(left)}"
                return
            await asyncio.sleep(2.0)

    @property
    def healed(self) -> float:
        """When nothing goes wrong any more."""
        return max(self.scenario.healed, 0.0 if self.queued is None else self.queued.healed)

    def _broken(self) -> bool:
        for process in self.processes.values():
            if process.failure is not None and not self.watcher.problem:
                self.watcher.problem = f"{process.name} broke: {_root(process.failure)}"
        return bool(self.watcher.problem)

    def _left(self) -> list[str]:
        """What is still to come about."""
        hub = self.servers["hub"].api.context
        users = list(hub.objects(self.work.submitted, namespace=NAMESPACE))
        left = [f"hub job {name} is not complete" for name in self.work.incomplete(users)]
        left += [f"assignment {found['metadata']['name']}" for found in hub.objects("remoteassignments.multikueue.io")]
        for queue in hub.objects("clusterqueues.kueue.x-k8s.io"):
            status = queue.get("status") or {}
            for flavor in status.get("flavorsReservation") or []:
                used = [entry for entry in flavor["resources"] if str(entry.get("total", "0")) != "0"]
                left += [f"quota is held: {entry}" for entry in used]
        for name in self.scenario.workers:
            for found in self.servers[name].api.context.objects(self.work.collection, namespace=NAMESPACE):
                if ORIGIN_LABEL in (found["metadata"].get("labels") or {}):
                    left.append(f"{name} job {found['metadata']['name']}")
        wanted = {work.name for work in self.scenario.jobs} - self.deleted
        there = {self.work.name_of(found["metadata"]["name"]) for found in users}
        for autoscaler in self._autoscalers:
            left += [f"request {each['metadata']['name']}" for each in autoscaler.requests()]
        left += self.queued.left() if self.queued is not None else []
        left += [f"{name} is not let in" for name in sorted(self.scenario.joining - self._let_in)]
        left += [f"hub job {name} is not there" for name in sorted(wanted - there)]
        return left

    # Making

    def clock(self, name: str) -> SimClock:
        """That of the machine of a process or a server."""
        machine = self.scenario.machines.get(name)
        return SimClock(self.loop, offset=machine.offset, drift=machine.drift) if machine else SimClock(self.loop)

    def _link(self, process: str, server: str) -> Link:
        link = self.links[process, server] = Link(self.servers[server], Random(self.random.getrandbits(64)), self.loop)
        return link

    def _process(self, name: str, dispatcher: str) -> Process:
        own = Random(self.random.getrandbits(64))
        pushes = {
            worker: self._link(name, worker) for worker in self.scenario.workers if worker in self.scenario.pushed
        }
        hub = self._link(name, "hub")
        clock, settings = self.clock(name), self._settings
        return federation.manager(name, hub, clock, own, dispatcher=dispatcher, pushes=pushes, own=settings)

    def _agent(self, name: str) -> Process:
        own = Random(self.random.getrandbits(64))
        hub, worker = self._link(name, "hub"), self._link(name, name)
        if name not in self.scenario.joining:
            return federation.agent(name, hub, worker, self.clock(name), own, frameworks=self.work.frameworks)

        def certified() -> None:
            self._let_in.add(name)
            self.watcher.tell(f"{name}: has a certificate")

        clock, frameworks = self.clock(name), self.work.frameworks
        return letting_in.agent(name, hub, worker, clock, own, certified=certified, frameworks=frameworks)

    # Doing

    async def _create(self, name: str) -> None:
        work = next(work for work in self.scenario.jobs if work.name == name)
        await asyncio.sleep(work.at)
        await self.submit(work)

    async def submit(self, work: Work) -> None:
        """As its user does, who waits for a hub that is away."""
        labels = {"kueue.x-k8s.io/queue-name": "queue"}
        if work.priority:
            labels[PRIORITY_CLASS_LABEL] = work.priority
        policy = {"multikueue.io/partition-policy": work.policy}
        await self.hub_is_up()
        what = f"{work.seconds:.1f} s, {work.cpu} cpu, {work.policy}, priority {work.priority or 'none'}"
        self.watcher.tell(f"user creates {work.name}: {what}")
        self.work.submit(self.servers["hub"].api, work, labels=labels, annotations=policy)

    async def hub_is_up(self) -> None:
        """Wait for it."""
        while not self.servers["hub"].up:
            await asyncio.sleep(0.5)

    async def _happen(self, mishap: Mishap) -> None:
        await asyncio.sleep(mishap.at)
        self.watcher.tell(
            f"MISHAP {mishap.what} {' – '.join(mishap.whom)} for {mishap.seconds:.1f} s".replace("  ", " ")
        )
        what, whom, pause = mishap.what, mishap.whom, partial(asyncio.sleep, mishap.seconds)
        match what:
            case Trouble.PARTITION:
                for link in self._between(whom):
                    link.partition()
                await pause()
                for link in self._between(whom):
                    link.heal()
            case Trouble.SLOW | Trouble.LOSSY | Trouble.DUPLICATING | Trouble.REPEATING:
                for link in self._between(whom):
                    _make(link, _BAD[what])
                await pause()
                for link in self._between(whom):
                    _make(link, {field: _ORDINARY[field] for field in _BAD[what]})
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
            case Trouble.JOIN:
                await self._registrar.see_to(whom[0])
            case Trouble.LOSE_IDENTITY:
                await self.processes[whom[0]].kill()
                await pause()
                while not self.servers[whom[0]].up:
                    await asyncio.sleep(0.5)
                call(self.servers[whom[0]].api, "DELETE", letting_in.HOME_PATH)
                letting_in.forget(whom[0])
                self._let_in.discard(whom[0])
                self.processes[whom[0]].start()
            case Trouble.REBUILD_HUB:
                await self._losing.rebuild(mishap.seconds)
            case Trouble.BACK_UP_HUB | Trouble.BACK_UP_WORKER:
                self._losing.back_up(whom[0])
            case Trouble.RESTORE_HUB:
                await self._losing.restore(mishap.seconds)
            case Trouble.RESTORE_WORKER:
                await self._losing.restore_worker(whom[0], mishap.seconds)
            case Trouble.WATCH_CUT:
                self.servers[whom[0]].api.cut_watches()
            case Trouble.HOLD_QUEUE | Trouble.LEAVE_CONFIG | Trouble.REMOVE_CLUSTER | Trouble.DRAIN:
                await self._administrate(mishap)
            case _:
                await self._users.act(mishap)
        self.watcher.tell(f"over: {what} {' – '.join(whom)}".rstrip())

    def _between(self, whom: tuple[str, ...]) -> list[Link]:
        """The link; to a worker that managers reach themselves, those of both."""
        process, server = whom
        names = (process,) if server == "hub" or process != "manager" else ("manager", "manager-2")
        return [self.links[name, server] for name in names]

    async def _administrate(self, mishap: Mishap) -> None:
        """What the administrators of the hub do, and undo later."""
        await self.hub_is_up()
        hub, whom, pause = self.servers["hub"].api, mishap.whom, partial(asyncio.sleep, mishap.seconds)
        match mishap.what:
            case Trouble.HOLD_QUEUE:
                path = f"{GROUP}/clusterqueues/queue"
                call(hub, "PATCH", path, {"spec": {"stopPolicy": "HoldAndDrain"}})
                await pause()
                call(hub, "PATCH", path, {"spec": {"stopPolicy": "None"}})
            case Trouble.LEAVE_CONFIG:
                path = f"{GROUP}/multikueueconfigs/all"
                self._out_of_config.append(whom[0])
                call(hub, "PATCH", path, {"spec": {"clusters": self.configured()}})
                await pause()
                self._out_of_config.remove(whom[0])
                call(hub, "PATCH", path, {"spec": {"clusters": self.configured()}})
            case Trouble.REMOVE_CLUSTER:
                if self._removed.setdefault(whom[0], self.loop.time()) != self.loop.time():
                    return
                federation.delete_cluster(hub, whom[0])
                await pause()
                federation.create_cluster(hub, whom[0], pushed=whom[0] in self.scenario.pushed)
                del self._removed[whom[0]]
            case _:
                path = "/apis/multikueue.io/v1alpha1/clusterregistrations"
                if call(hub, "GET", f"{path}/{whom[0]}")["kind"] == "Status":
                    create(hub, path, federation.registration(whom[0]))
                call(hub, "PATCH", f"{path}/{whom[0]}", {"spec": {"cordoned": True, "drain": True}})
                await pause()
                call(hub, "PATCH", f"{path}/{whom[0]}", {"spec": {"cordoned": False, "drain": False}})

    def configured(self) -> list[str]:
        """The clusters that are to be in the config: never none at all, which the API does not take."""
        stay = [name for name in self.scenario.workers if name not in self._out_of_config]
        return stay or list(self.scenario.workers)


def _make(link: Link, how: dict[str, float]) -> None:
    for field, value in how.items():
        setattr(link, field, value)


def _root(error: BaseException) -> str:
    """The first failure inside all groups, and where it was."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{error!r} at {where}"


_SOURCE: Final = Random()
_LEFT: Final[list[VirtualLoop]] = []
"""All loops of this process, so that what waits in one is not ended in the middle of the next seed."""


class _Repeatable(Random):
    """What those draw from who are given nothing to draw from: back-offs, above all."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(_SOURCE.getrandbits(64) if seed is None else seed)


def begin(seed: int) -> None:
    """Have what is given nothing to draw from draw the same each time that the seed is played."""
    _SOURCE.seed(seed)


def make_repeatable() -> None:
    """Have all that is loaded draw from the seed, also what would seed itself; once for all seeds of a process."""
    setattr(uuid, "uuid4", lambda: uuid.UUID(int=_SOURCE.getrandbits(128), version=4))  # noqa: B010
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("manager", "multikueue", "worker_agent", "devcluster")
        if ours and vars(module).get("Random") is Random:
            module.Random = _Repeatable  # type: ignore[attr-defined]


def play(
    scenario: Scenario,
    apis: dict[str, ApiServer],
    *,
    dispatcher: str,
    goes_on: bool = False,
    provisioning: bool = False,
    queues: bool = False,
    work: UserWork | None = None,
) -> Outcome:
    """The outcome of one scenario, which uses the servers up. Without `goes_on` its processes are left as they are."""
    begin(scenario.seed)
    loop = VirtualLoop()
    _LEFT.append(loop)
    asyncio.set_event_loop(loop)
    shortcuts.take()
    policies = {each.name: each.policy for each in scenario.jobs}
    watcher = Watcher(now=loop.time, policy=lambda name: policies.get(name, ""), work=work or JobWork())

    def broke(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:  # a callback of the simulation's own; tasks are looked at where they end
            watcher.problem = watcher.problem or f"the simulation broke: {_root(context['exception'])}"

    loop.set_exception_handler(broke)

    async def course() -> None:
        made = partial(Play, scenario, apis, watcher, loop=loop, dispatcher=dispatcher)
        played = made(provisioning=provisioning, queues=queues)
        await played.run()
        if goes_on:
            await played.stop()

    try:
        loop.run_until_complete(course())
    except Exception as error:
        watcher.problem = watcher.problem or f"the simulation broke: {_root(error)}"
    if scenario.seed % _LOOK_AT == 0 and not watcher.problem and (changed := shortcuts.changed()):
        watcher.problem = f"a shared object was changed: {changed}"
    return Outcome(scenario.seed, watcher.problem, tuple(watcher.timeline), loop.time())
