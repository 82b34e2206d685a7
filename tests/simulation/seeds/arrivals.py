# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation.seeds.arrivals`: all objects of a federation within a second, in any order, then a Job.

    python -m tests.simulation.seeds.arrivals --seeds 500
    python -m tests.simulation.seeds.arrivals --replay 17 --log

Each seed draws when each object is made, which of them are deleted and made again under the same name within a second,
and which have a generated name. It holds when the Job is started on a worker soon after the last object is there.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from devcluster.apiserver.http.requests import LOOPBACK, Answer, Request
from devcluster.apiserver.server import ApiServer
from multikueue.api.constants import EPOCH_ANNOTATION, MULTIKUEUE_MANAGED_BY, PREBUILT_WORKLOAD_ANNOTATION
from tests.simulation.seeds.play import Outcome, begin, make_repeatable
from tests.simulation.seeds.processes import outcomes, together
from tests.simulation.world import federation, letting_in, shortcuts
from tests.simulation.world.federation import Object, Process
from tests.simulation.world.garbage import GarbageCollector
from tests.simulation.world.network import Link, Server
from tests.simulation.world.pods import Copy, Pods
from tests.simulation.world.virtual_time import SimClock, VirtualLoop
from tests.support.arrivals import HELD, Arrival, Thing, body, draw, things

SOON: Final = 3.0
"""Seconds after the last object is there within which the Job has to be started on a worker."""
STOPPING: Final = 3.0
"""What is added where pods of a former Job of that name, or of an admission before, may still be ending."""
SHOWN: Final = 2.0
"""Seconds after the Job was started within which the status of every queue has to say so."""
PATIENCE: Final = 120.0
JOBS: Final = "jobs.batch"
DISPATCHERS: Final = (
    "multikueue.io/dispatcher-capacity",
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    "kueue.x-k8s.io/multikueue-dispatcher-incremental",
)
_WARM: Final = 15.0
"""Seconds for which the processes have run before the first object comes."""
_AGAIN: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a seed draws beside the objects."""

    arrival: Arrival
    dispatcher: str
    pushed: frozenset[str]


def scene(seed: int) -> Scene:
    """The scene of a seed."""
    random = Random(f"scene {seed}")
    workers = random.choice((("w1",), ("w1", "w2"), ("k1",), ("k1", "k2"), ("w1", "k1")))
    pushed = frozenset(workers) if random.random() < 0.5 else frozenset[str]()
    return Scene(arrival=draw(seed, workers=workers), dispatcher=random.choice(DISPATCHERS), pushed=pushed)


class Play:
    """A running seed."""

    def __init__(self, scene: Scene, apis: Mapping[str, ApiServer], *, loop: VirtualLoop) -> None:
        self.scene = scene
        self.arrival = arrival = scene.arrival
        self.things = {thing.name: thing for thing in things(arrival.workers)}
        self.loop = loop
        self.random = Random(arrival.seed ^ 0xA221)
        self.timeline: list[str] = []
        self.servers = {name: Server(name, apis[name]) for name in ("hub", *arrival.workers)}
        self.pods: dict[str, Pods] = {}
        self.names: dict[str, asyncio.Future[str]] = {}
        self.going: set[str] = set()
        self.stopped_any = False
        self.last = 0.0
        self.processes: list[Process] = []
        letting_in.draw_seals(self.random)
        for name, server in self.servers.items():
            server.api.context.rng = Random(self.random.getrandbits(64))
            server.api.context.clock = SimClock(loop)
            if name != "hub":
                self.pods[name] = Pods(server, self.random, seconds=lambda _: 1e6, tell=self._on_pods)
        hub = self.servers["hub"]
        hub.api.context.store.listen(GarbageCollector(hub, self.random).on_write)

    def tell(self, line: str) -> None:
        """A line of the timeline."""
        self.timeline.append(f"{self.loop.time() - _WARM:8.3f} {line}")

    async def run(self) -> str:
        """Play to the end; the problem, or nothing."""
        self._start()
        await asyncio.sleep(_WARM)
        self.names = {thing.name: self.loop.create_future() for thing in self.things.values()}
        tasks = [self.loop.create_task(self._come(thing)) for thing in self.things.values()]
        for task in tasks:
            await task
        self.tell("everything is there")
        limit = self.last + SOON + (STOPPING if self.stopped_any else 0.0)
        while not self._started():
            for process in self.processes:
                if process.failure is not None:
                    raise process.failure
            if self.loop.time() > self.last + PATIENCE:
                return f"never started: {self._why()}"
            if limit is not None and self.loop.time() > limit:
                self.tell(f"late: {self._why()}")
                limit = float("inf")
            await asyncio.sleep(0.05)
        late = self.loop.time() - self.last
        self.tell("started")
        if limit == float("inf"):
            return f"late: started {late:.1f} s after the last object"
        await asyncio.sleep(SHOWN)
        wrong = [line for server in self.servers for line in self._shown_wrong(server)]
        return f"not shown after {SHOWN:.0f} s: {'; '.join(wrong)}" if wrong else ""

    def _shown_wrong(self, server: str) -> list[str]:
        """What the status of a queue says beside what there is, once nothing happens any more."""
        context = self.servers[server].api.context
        wrong: list[str] = []
        if "clusterqueues.kueue.x-k8s.io" not in context.store.names:
            return []
        for kind in ("clusterqueues", "localqueues"):
            for found in context.objects(f"{kind}.kueue.x-k8s.io"):
                name = found["metadata"]["name"]
                if name == "queue":
                    continue  # of every simulation, and used by none of these
                status = found.get("status") or {}
                active = any(each["type"] == "Active" and each["status"] == "True" for each in status["conditions"])
                counts = [status.get(f"{which}Workloads") for which in ("pending", "reserving", "admitted")]
                used = self._used(server, name if kind == "clusterqueues" else found["spec"]["clusterQueue"])
                if not active or counts != [0, used, used]:
                    wrong.append(f"{server} {kind} {name}: {status}")
        return wrong

    def _used(self, server: str, queue: str) -> int:
        """How many Workloads hold quota of a ClusterQueue."""
        workloads = self.servers[server].api.context.objects("workloads.kueue.x-k8s.io")
        statuses = [found.get("status") or {} for found in workloads]
        return sum(1 for status in statuses if (status.get("admission") or {}).get("clusterQueue") == queue)

    def _start(self) -> None:
        loop, arrival = self.loop, self.arrival

        def link(server: str) -> Link:
            return Link(self.servers[server], Random(self.random.getrandbits(64)), loop)

        pushes = {name: link(name) for name in sorted(self.scene.pushed)}
        self.processes = [
            federation.manager(
                "manager", link("hub"), SimClock(loop), Random(1), dispatcher=self.scene.dispatcher, pushes=pushes
            ),
            *(
                federation.agent(name, link("hub"), link(name), SimClock(loop), Random(2))
                for name in arrival.workers
                if name not in self.scene.pushed
            ),
            *(
                federation.local_kueue(link(name), SimClock(loop), Random(3))
                for name in arrival.workers
                if name.startswith("k")
            ),
        ]
        for process in self.processes:
            process.start()

    # What administrators and a user do.

    async def _come(self, thing: Thing) -> None:
        course = self.arrival.courses[thing.name]
        await asyncio.sleep(course.made)
        name = await self._make(thing, "" if course.generated else self.arrival.fixed_name(thing))
        self.names[thing.name].set_result(name)
        if course.deleted is None:
            return
        await asyncio.sleep(course.deleted)
        if self._is_held(thing):
            return
        await self._delete(thing, name)
        await asyncio.sleep(course.again)
        await self._make(thing, name)

    async def _name_of(self, thing: str) -> str:
        """The name by which others call it: known at once, unless the server makes it up."""
        if self.arrival.courses[thing].generated:
            return await self.names[thing]
        return self.arrival.fixed_name(self.things[thing])

    async def _make(self, thing: Thing, name: str) -> str:
        """Create it, as soon as the server takes it."""
        path, made = thing.resource.path(self.arrival.namespace_of(thing)), await self._body(thing)
        if thing.name.endswith(" local"):
            name = await self._name_of("local")
        if name:
            made["metadata"]["name"] = name
        else:
            made["metadata"]["generateName"] = f"{thing.name.replace(' ', '-')}-"
        while True:
            if self.going.intersection(thing.names):
                await asyncio.sleep(_AGAIN)  # what a queue names cannot go any more
                continue
            status, stored = self._ask(thing.server, "POST", path, made)
            if status < 300:
                break
            # Its namespace is still to come, or one of that name is still to go.
            assert status in (403, 404, 409), stored
            await asyncio.sleep(_AGAIN)
        name = str(stored["metadata"]["name"])
        self.last = self.loop.time()
        self.tell(f"{thing.server}: {thing.name} is made: {name}")
        return name

    def _is_held(self, thing: Thing) -> bool:
        """Whether it is, or may be, in use, so that it would go only with what uses it."""
        if thing.kind not in HELD:
            return False
        user = "job" if thing.kind == "queue" else f"{thing.worker} queue".strip()
        return self.names[user].done()

    async def _delete(self, thing: Thing, name: str) -> None:
        path = thing.resource.path(self.arrival.namespace_of(thing), name)
        status, answer = self._ask(thing.server, "DELETE", path, {"propagationPolicy": "Background"})
        assert status in (200, 202, 404), answer
        self.last = self.loop.time()
        self.tell(f"{thing.server}: {thing.name} is deleted")
        self.going.add(thing.name)
        while self._ask(thing.server, "GET", path, {})[0] != 404:
            await asyncio.sleep(_AGAIN)
        self.going.discard(thing.name)

    async def _body(self, thing: Thing) -> Object:
        if thing.kind in ("secret", "cluster"):
            secret, cluster = federation.cluster_manifests(thing.worker, pushed=thing.worker in self.scene.pushed)
            chosen: Object = orjson.loads(orjson.dumps(secret if thing.kind == "secret" else cluster))
            return chosen
        made = body(thing, self.arrival, {name: await self._name_of(name) for name in thing.names})
        if thing.kind == "job":
            # No webhook is asked here. A job that comes before its queue has to name its manager itself: an API server
            # never lets that field change.
            made["spec"]["suspend"] = True
            made["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
        return made

    def _ask(self, server: str, method: str, path: str, content: Object) -> tuple[int, Object]:
        request = Request(
            method=method,
            path=path,
            query_text="",
            headers={"content-type": "application/json"},
            body=orjson.dumps(content),
            certificate=LOOPBACK,
        )
        answer = self.servers[server].api.handle(request)
        assert isinstance(answer, Answer), answer
        found: Object = orjson.loads(answer.body)
        return answer.status, found

    def _on_pods(self, what: str, copy: Copy) -> None:
        self.tell(f"pods of {copy.key}, epoch {copy.epoch}: {what}")
        if what == "starts" and not self._is_current(copy):
            self.stopped_any = True

    # What comes of it.

    def _is_current(self, copy: Copy) -> bool:
        return bool(self._workload().get("metadata", {}).get("name") == copy.workload)

    def _workload(self) -> Object:
        hub = self.servers["hub"].api.context
        if not self.names["job"].done():
            return {}
        job = hub.get(JOBS, f"{self.arrival.namespace}/{self.names['job'].result()}")
        uid = ((job or {}).get("metadata") or {}).get("uid")
        for found in hub.objects("workloads.kueue.x-k8s.io", namespace=self.arrival.namespace):
            if any(owner["uid"] == uid for owner in found["metadata"].get("ownerReferences") or ()):
                return found
        return {}

    def _started(self) -> bool:
        """Whether the Job of now is unsuspended on the cluster that its Workload names."""
        workload = self._workload()
        status = workload.get("status") or {}
        cluster = status.get("clusterName")
        if not cluster:
            return False
        for job in self.servers[cluster].api.context.objects(JOBS, namespace=self.arrival.namespace):
            marks = job["metadata"].get("annotations") or {}
            if (
                marks.get(PREBUILT_WORKLOAD_ANNOTATION) == workload["metadata"]["name"]
                and marks.get(EPOCH_ANNOTATION)
                and not job["spec"].get("suspend")
                and "deletionTimestamp" not in job["metadata"]
            ):
                return True
        return False

    def _why(self) -> str:
        """What there is instead."""
        hub = self.servers["hub"].api.context
        workload = self._workload()
        said: list[Any] = [
            {"workload": workload.get("metadata", {}).get("name"), "status": workload.get("status")},
        ]
        for kind in ("multikueueclusters", "admissionchecks", "clusterqueues", "localqueues"):
            said += [
                {kind: found["metadata"]["name"], "conditions": (found.get("status") or {}).get("conditions")}
                for found in hub.objects(f"{kind}.kueue.x-k8s.io")
            ]
        said += [
            {"assignment": found["metadata"]["name"], "status": found.get("status"), "intent": found["spec"]["intent"]}
            for found in hub.objects("remoteassignments.multikueue.io")
        ]
        for name in self.arrival.workers:
            context = self.servers[name].api.context
            for collection in (JOBS, "workloads.kueue.x-k8s.io"):
                if name.startswith("k") or collection == JOBS:
                    said += [
                        {name: collection, "name": found["metadata"]["name"], "status": found.get("status")}
                        for found in context.objects(collection, namespace=self.arrival.namespace)
                    ]
        return "\n".join(orjson.dumps(each).decode() for each in said)


_LEFT: Final[list[VirtualLoop]] = []
"""All loops of this process, so that what waits in one is not ended in the middle of the next seed."""


def play(scene: Scene, apis: Mapping[str, ApiServer]) -> Outcome:
    """The outcome of one seed, which uses the servers up; its processes are left as they are."""
    begin(scene.arrival.seed)
    loop = VirtualLoop()
    _LEFT.append(loop)
    asyncio.set_event_loop(loop)
    shortcuts.take()
    played: Play | None = None
    problem = ""

    async def course() -> str:
        nonlocal played
        played = Play(scene, apis, loop=loop)
        return await played.run()

    try:
        problem = loop.run_until_complete(course())
    except BaseException:
        problem = traceback.format_exc()
    return Outcome(scene.arrival.seed, problem, tuple(played.timeline) if played else (), loop.time())


def servers() -> dict[str, ApiServer]:
    """A hub, workers without queues and workers with some, for one seed."""
    made = federation.build_servers()
    for name in ("k1", "k2"):
        made[name] = federation.build_queued_worker(name)
        for pushed in (False, True):
            federation.cluster_manifests(name, pushed=pushed)  # kept for the seeds
    return made


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(
        prog="python -m tests.simulation.seeds.arrivals", description=__doc__.partition("\n")[0]
    )
    flags.add_argument("--seeds", type=int, default=500, help="how many (500)")
    flags.add_argument("--first", type=int, default=1, help="the first of them (1)")
    flags.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    flags.add_argument("--replay", type=int, metavar="SEED", help="play one seed and print its timeline")
    flags.add_argument("--log", action="store_true", help="with --replay: what the processes log, too")
    options = flags.parse_args()
    logging.disable(logging.CRITICAL)
    make_repeatable()
    times = 1 if options.replay is not None else together(options.seeds, jobs=options.jobs)
    made = [servers() for _ in range(times)]
    if options.log:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")
    chosen = [options.replay] if options.replay is not None else range(options.first, options.first + options.seeds)
    failed = 0
    played = outcomes(lambda seed: play(scene(seed), made.pop()), chosen, jobs=options.jobs, together=times)
    for outcome in played:
        if options.replay is not None:
            print(scene(outcome.seed), *outcome.timeline, sep="\n")
        if outcome.problem:
            failed += 1
            print(f"seed {outcome.seed}: {outcome.problem.splitlines()[0]}", flush=True)
            if options.replay is not None:
                print(outcome.problem)
    print(f"{len(chosen)} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets, of texts and of objects by their address, would differ from run to run.
        ctypes.CDLL(None).personality(0x0040000)
        command = [sys.executable, "-m", "tests.simulation.seeds.arrivals", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
