# SPDX-License-Identifier: Apache-2.0
"""A federation that follows a script, and what it looks like in the end.

Owns a hub, some workers and the processes around them, without chance: a script says what users and administrators do
and waits for what has to come of it. `state` is everything that is stored by then, without what differs from run to
run: uids, versions, times, certificates.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import orjson

from devcluster.apiserver.admission.webhooks import Webhooks
from devcluster.apiserver.server import ApiServer
from manager import app as manager_app
from manager.seals import key_of
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    CLUSTER_LABEL,
    MAILBOX_SEAL_ANNOTATION,
    MAX_EXEC_TIME_LABEL,
    PRIORITY_CLASS_LABEL,
)
from multikueue.dispatch.protocol.seals import SEAL_SECRET, is_sealed_mailbox
from tests.simulation.scripts.failing import Case, Observer, WriteLog
from tests.simulation.world import federation, letting_in
from tests.simulation.world.federation import GROUP, NAMESPACE, USER_JOBS, Process, call, create, job
from tests.simulation.world.garbage import GarbageCollector
from tests.simulation.world.network import Link, Server
from tests.simulation.world.nominator import Nominator
from tests.simulation.world.pods import Copy, Pods
from tests.simulation.world.virtual_time import SimClock, VirtualLoop

Object = dict[str, Any]

PATIENCE: Final = 1500.0
"""Virtual seconds after which what has not come about never will."""
_QUIET: Final = 45.0
_LONG: Final = 1e7
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HASH: Final = re.compile(r"\b(job-[a-z-]+-)[0-9a-f]{5}\b")
"""At the end of a Workload's name, made of the uid of its job."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VOLATILE: Final = frozenset(
    {
        "caBundle",
        "bootstrap",
        "usedBootstrap",
        "uid",
        "resourceVersion",
        "generation",
        "managedFields",
        "observedGeneration",
        "sequence",
        "accumulatedPastExecutionTimeSeconds",
    }
)
_UNSEEN: Final = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "leases.coordination.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "apiservices.apiregistration.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "priorityclasses.scheduling.k8s.io",
        "certificatesigningrequests.certificates.k8s.io",
    }
)


class NeverCame(Exception):
    """Something that a script waits for has not come about."""


class Stage:
    """The federation of one course."""

    def __init__(
        self,
        apis: Mapping[str, ApiServer],
        *,
        loop: VirtualLoop,
        workers: tuple[str, ...],
        pushed: Iterable[str],
        dispatcher: str,
        case: Case | None,
        configuration: Configuration | None = None,
    ) -> None:
        self.loop = loop
        self.random = Random(7)
        self.workers = workers
        self.pushed = frozenset(pushed)
        self.dispatcher = dispatcher
        self.servers = {name: Server(name, apis[name]) for name in ("hub", *workers)}
        self.writes = WriteLog(self.servers, now=loop.time, case=case)
        self.configuration = configuration
        self.pods: dict[str, Pods] = {}
        self.ended: list[str] = []
        self.processes: dict[str, Process] = {}
        self._lines: dict[tuple[str, str, str], tuple[int, str]] = {}
        self.certificates = 0
        """How many agents have come by."""
        self._tasks: list[asyncio.Task[None]] = []
        for name, server in self.servers.items():
            server.api.context.rng = Random(self.random.getrandbits(64))
            server.api.context.clock = self.clock()
            if name != "hub":
                self.pods[name] = Pods(server, self.random, seconds=lambda _: _LONG, tell=self._on_pods)
        self.hub = self.servers["hub"].api
        self.hub.context.store.listen(GarbageCollector(self.servers["hub"], self.random).on_write)

    def clock(self) -> SimClock:
        """True time."""
        return SimClock(self.loop)

    def link(self, process: str, server: str) -> Link:
        """The way between a process and a server; what is written over it is noted."""
        made = Link(self.servers[server], Random(self.random.getrandbits(64)), self.loop)
        made.observer = Observer(process, self.writes)
        return made

    def start(self, *, clusters: bool = True) -> None:
        """The clusters as administrators make them, and the processes."""
        if clusters:
            federation.create_clusters(self.hub, self.workers, pushed=self.pushed)
        self.start_manager()
        for name in self.workers:
            if name not in self.pushed:
                self.start_agent(name)

    def start_manager(self, *, webhook_url: str | None = None) -> None:
        """The one manager; webhooks are installed for that URL, but not served, and the hub does not call them."""
        if webhook_url is not None:
            setattr(manager_app, "serving", _serving_nobody)  # noqa: B010 (the process ends with the course)
            setattr(Webhooks, "_of", lambda *_: [])  # noqa: B010
        pushes = {name: self.link("manager", name) for name in self.workers if name in self.pushed}
        self._start(
            federation.manager(
                "manager",
                self.link("manager", "hub"),
                self.clock(),
                Random(1),
                dispatcher=self.dispatcher,
                pushes=pushes,
                own=self.configuration,
                webhook_url=webhook_url,
            )
        )

    def start_agent(self, name: str) -> None:
        """The agent of one worker."""
        self._start(
            federation.agent(name, self.link("agent", "hub"), self.link("agent", name), self.clock(), Random(2))
        )

    def start_kueue(self, name: str) -> None:
        """The Kueue that a worker has of its own; its writes are not looked at."""
        self._start(federation.local_kueue(Link(self.servers[name], Random(4), self.loop), self.clock(), Random(4)))

    def start_nominator(self) -> None:
        """Somebody else's dispatcher on the hub."""
        nominator = Nominator(self.servers["hub"], Random(5), clusters=self.workers)
        self.hub.context.store.listen(nominator.on_write)

    def start_joining_agent(self, name: str) -> None:
        """An agent that has a token, and is to ask for its certificate; an administrator has let it in."""
        letting_in.prepare(self.random)
        hub = self.servers["hub"]
        self.hub.context.store.listen(letting_in.Signer(hub, self.random, violated=self._violated).on_write)
        registrar = letting_in.Registrar(Link(hub, Random(3), self.loop), self.clock(), Random(3))
        self._tasks.append(self.loop.create_task(registrar.see_to(name)))
        links = self.link("agent", "hub"), self.link("agent", name)
        self._start(letting_in.agent(name, *links, self.clock(), Random(2), certified=self._certified))

    def _certified(self) -> None:
        self.certificates += 1

    def _violated(self, what: str) -> None:
        raise AssertionError(what)

    def _start(self, process: Process) -> None:
        self.processes[process.name] = process
        process.start()

    async def stop(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            await process.kill()

    # What people do.

    def submit(self, name: str, *, cpu: int = 1, pods: int = 1, priority: str = "", seconds: int = 0) -> None:
        """A user creates a job of so many pods, all of which have to succeed, and which may run for so many seconds."""
        labels = {
            "kueue.x-k8s.io/queue-name": "queue",
            **({PRIORITY_CLASS_LABEL: priority} if priority else {}),
            **({MAX_EXEC_TIME_LABEL: str(seconds)} if seconds else {}),
        }
        made = job(name, cpu=cpu, labels=labels)
        made["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
        if pods > 1:
            made["spec"] |= {"parallelism": pods, "completions": pods}
        create(self.hub, USER_JOBS, made)

    def delete_job(self, name: str) -> None:
        """A user deletes a job."""
        call(self.hub, "DELETE", f"{USER_JOBS}/{name}", {"propagationPolicy": "Background"})

    def change(self, path: str, patch: Object) -> None:
        """Somebody changes an object of the hub."""
        call(self.hub, "PATCH", path, patch)

    def finish(self, name: str) -> None:
        """The pods of a job end well, wherever they run."""
        for pods in self.pods.values():
            pods.end(name)

    def succeed(self, name: str, count: int) -> None:
        """So many pods of a job end well, and the others run on."""
        for pods in self.pods.values():
            pods.succeed(name, count)

    def workload_path(self, job: str) -> str:
        """Where the workload of a job is."""
        return f"{GROUP}/namespaces/{NAMESPACE}/workloads/{self.workload(job)['metadata']['name']}"

    # What has to come of it.

    async def until(self, what: str, check: Callable[[], bool]) -> None:
        """Wait for it. Raises `NeverCame`."""
        end = self.loop.time() + PATIENCE
        while not check():
            self._complain()
            if self.loop.time() > end:
                raise NeverCame(what)
            await asyncio.sleep(0.5)

    async def waits(self, name: str) -> None:
        """A job is pending for quota, with a reason."""
        await self.until(f"{name} waits", lambda: self.condition(name, "QuotaReserved") == "False")

    async def runs(self, name: str, *, told: bool = True) -> None:
        """The pods of a job run on some worker, and the hub's job shows it."""
        await self.until(f"the pods of {name} run", lambda: self.live(name))
        if told:
            await self.until(f"the job {name} is active on the hub", lambda: bool(self._status(name).get("active")))
            await self.until(f"{name} is ready", lambda: self.condition(name, "PodsReady") == "True")

    async def completes(self, name: str) -> None:
        """The user sees the job complete, its workload finished, and nothing of it is left on the workers."""
        await self.until(f"{name} completes", lambda: self._completed(name))
        await self.until(f"the workload of {name} finishes", lambda: self.condition(name, "Finished") == "True")
        await self.until(f"{name} is gone from the workers", lambda: not self._copies(name))

    async def is_gone(self, name: str) -> None:
        """Nothing is left of a job."""
        await self.until(f"{name} is gone from the hub", lambda: not self._all_of(name))
        await self.until(f"{name} is gone from the workers", lambda: not self._copies(name))

    async def settled(self, want: tuple[str, ...] | None) -> tuple[str, ...]:
        """The state once nothing fails or changes any more, or as soon as it is what is wanted and stays so."""
        end = self.loop.time() + PATIENCE
        last, since = self.state(), self.loop.time()
        while self.loop.time() < end:
            await asyncio.sleep(5.0)
            self._complain()
            now = self.state()
            if now != last:
                last, since = now, self.loop.time()
            quiet = self.loop.time() - since >= _QUIET
            if self.writes.over and quiet and (want is None or last == want):
                break
        return last

    def _complain(self) -> None:
        for process in self.processes.values():
            if process.failure is not None:
                raise process.failure

    def _on_pods(self, what: str, copy: Copy) -> None:
        if what == "completes":
            self.ended.append(copy.key)

    # What is there.

    def objects(self, collection: str) -> list[Object]:
        """What the hub stores of one kind."""
        return list(self.hub.context.objects(collection))

    def keys(self, collection: str) -> list[str]:
        """The keys of what the hub stores of one kind."""
        return [entry.key for entry in self.hub.context.store.collection(collection).entries()]

    def has_finalizer(self, collection: str, key: str) -> bool:
        """Whether an object of the hub has one."""
        found = self.hub.context.get(collection, key) or {"metadata": {}}
        return bool(found["metadata"].get("finalizers"))

    def clone_priority(self, worker: str) -> int | None:
        """The priority of the Workload on a worker; None when there is none."""
        found = list(self.servers[worker].api.context.objects("workloads.kueue.x-k8s.io"))
        return int(found[0]["spec"].get("priority") or 0) if found else None

    def quota(self) -> str:
        """How much cpu the hub's queue has."""
        queue = self.hub.context.get("clusterqueues.kueue.x-k8s.io", "queue") or {}
        return str(queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])

    def _all_of(self, name: str) -> list[str]:
        jobs = [found["metadata"]["name"] for found in self.objects("jobs.batch") if found["metadata"]["name"] == name]
        return jobs + [
            found["metadata"]["name"]
            for found in self.objects("workloads.kueue.x-k8s.io")
            if any(owner["name"] == name for owner in found["metadata"].get("ownerReferences") or ())
        ]

    def workload(self, job: str) -> Object:
        """The workload of a job; empty when there is none."""
        for found in self.objects("workloads.kueue.x-k8s.io"):
            if any(owner["name"] == job for owner in found["metadata"].get("ownerReferences") or ()):
                return found
        return {}

    def condition(self, job: str, kind: str) -> str:
        """The status of a condition of a job's workload; empty when there is none."""
        conditions = (self.workload(job).get("status") or {}).get("conditions") or ()
        return next((entry["status"] for entry in conditions if entry["type"] == kind), "")

    def reclaimable(self, job: str) -> int:
        """How many pods of a job have released their quota."""
        entries = (self.workload(job).get("status") or {}).get("reclaimablePods") or ()
        return sum(entry["count"] for entry in entries)

    def reason(self, workload: str) -> str:
        """Why a Workload has no quota, as its status says."""
        found = self.hub.context.get("workloads.kueue.x-k8s.io", workload) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((entry["message"] for entry in conditions if entry["type"] == "QuotaReserved"), "")

    def _status(self, name: str) -> Object:
        found = self.hub.context.get("jobs.batch", f"{NAMESPACE}/{name}")
        return (found or {}).get("status") or {}

    def _completed(self, name: str) -> bool:
        conditions = self._status(name).get("conditions") or ()
        return any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions)

    def live(self, name: str) -> bool:
        """Whether pods of a job run somewhere."""
        return any(
            copy.live and copy.key == f"{NAMESPACE}/{name}"
            for pods in self.pods.values()
            for copy in pods.copies.values()
        )

    def evictions(self, job: str) -> int:
        """How often a job was evicted."""
        stats = (self.workload(job).get("status") or {}).get("schedulingStats") or {}
        return sum(entry["count"] for entry in stats.get("evictions") or ())

    def is_active(self, plural: str, key: str) -> bool:
        """Whether a queue says that it is active."""
        found = self.hub.context.get(f"{plural}.kueue.x-k8s.io", key) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(entry["type"] == "Active" and entry["status"] == "True" for entry in conditions)

    def _copies(self, name: str) -> list[str]:
        return [
            server
            for server in self.workers
            if self.servers[server].api.context.exists("jobs.batch", f"{NAMESPACE}/{name}")
        ]

    def _without_seal(self, collection: str, value: Object) -> Object:
        """A namespace with whether its seal holds in the place of the seal, which has the uid and the key in it."""
        annotations = value["metadata"].get("annotations") or {}
        if collection != "namespaces" or MAILBOX_SEAL_ANNOTATION not in annotations:
            return value
        secret = self.hub.context.get("secrets", f"kueue-system/{SEAL_SECRET}")
        holds = secret is not None and is_sealed_mailbox(
            key_of(secret), value, cluster=annotations.get(CLUSTER_LABEL, "")
        )
        shown = {**annotations, MAILBOX_SEAL_ANNOTATION: "holds" if holds else "does not hold"}
        return {**value, "metadata": {**value["metadata"], "annotations": shown}}

    def state(self) -> tuple[str, ...]:
        """Every object that is stored, one a line."""
        lines = []
        for name, server in self.servers.items():
            store = server.api.context.store
            for collection in store.names:
                if collection in _UNSEEN or collection.startswith("events."):
                    continue
                for entry in store.collection(collection).entries():
                    known = self._lines.get((name, collection, entry.key))
                    if known is None or known[0] != entry.version:
                        value = self._without_seal(collection, entry.parse())
                        line = f"{name} {collection} {_anonymous(entry.key)} {_plain(collection, value)}"
                        known = self._lines[name, collection, entry.key] = (entry.version, line)
                    lines.append(known[1])
        return tuple(sorted(lines))


@asynccontextmanager
async def _serving_nobody(*_: object, **__: object) -> AsyncIterator[int]:
    yield 0


def _anonymous(text: str) -> str:
    return _HASH.sub(r"\1<hash>", _UUID.sub("<uid>", text))


def _plain(collection: str, value: Object) -> str:
    if collection == "secrets":
        value = {**value, "data": sorted(value.get("data") or {})}
    text = orjson.dumps(_stripped(value), option=orjson.OPT_SORT_KEYS).decode()
    return _TIME.sub("<time>", _anonymous(text))


def _lasting(value: Object) -> Object:
    """Without the condition that a Job was suspended once: a failure may be all that made it wait."""
    conditions = value.get("conditions")
    if not isinstance(conditions, list):
        return value
    kept = [each for each in conditions if (each.get("reason"), each.get("status")) != ("JobResumed", "False")]
    if len(kept) == len(conditions):
        return value
    others = {name: inner for name, inner in value.items() if name != "conditions"}
    return {**others, "conditions": kept} if kept else others


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            # The order of conditions is that of their writers.
            name: sorted((_stripped(entry) for entry in inner), key=lambda entry: str(entry["type"]))
            if name == "conditions" and isinstance(inner, list)
            else _stripped(inner)
            for name, inner in _lasting(value).items()
            if name not in _VOLATILE
        }
    if isinstance(value, list):
        return [_stripped(inner) for inner in value]
    return value
