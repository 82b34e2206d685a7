# SPDX-License-Identifier: Apache-2.0
"""Sets of pods that serve as the work of a seed: what users submit, change, and delete once they have served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from devcluster.apiserver.server import ApiServer
from devcluster.operators.definitions import shipped_definition
from multikueue.api.constants import (
    BATCH_JOB_FRAMEWORK,
    DEPLOYMENT_FRAMEWORK,
    LEADER_WORKER_SET_FRAMEWORK,
    ORIGIN_UID_ANNOTATION,
    POD_FRAMEWORK,
    STATEFUL_SET_FRAMEWORK,
)
from multikueue.api.defaulting import JobSurroundings, default_gated, default_held
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, LEADER_WORKER_SETS, Resource
from multikueue.core.conditions import is_true_in
from multikueue.jobs.framework import admission
from multikueue.jobs.kinds.deployment import DEPLOYMENT
from multikueue.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from multikueue.jobs.kinds.stateful_set import STATEFUL_SET
from tests.simulation.seeds.scenario import Work
from tests.simulation.seeds.user_work import USER_PODS, prepare_for_pods
from tests.simulation.world.app_controllers import CONTROLLERS, controllers
from tests.simulation.world.federation import NAMESPACE, Process, call, create
from tests.simulation.world.group_pods import PODS, ServingPods
from tests.simulation.world.pods import Pods

if TYPE_CHECKING:
    from tests.simulation.seeds.play import Play
    from tests.simulation.world.network import Link

Object = dict[str, Any]

_MOST_CHANGES: Final = 3
_ROLLS_OUT: Final = 0.25
_DELETES: Final = 0.45
"""How often a change is one of these; otherwise the set is scaled."""
_SURE: Final = 30.0
"""So long after the last fault the hub knows what runs."""
_LATE: Final = 5.0
"""How long it may show pods as ready that have just been stopped, as one that was preempted."""


class SetWork:
    """A StatefulSet with as many pods of one cpu as the work has cpu."""

    submitted = "statefulsets.apps"
    collection = PODS
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK, POD_FRAMEWORK, STATEFUL_SET_FRAMEWORK)
    remote_pods: type[Pods] = ServingPods
    is_group = True
    is_elastic = False
    serves = True
    is_slow = False
    together = True
    """Whether all pods are on one cluster."""
    as_one = True
    """Whether all pods are admitted at once."""
    rolls_out = True
    """Whether users change the template of its pods."""
    operated: Resource | None = None
    """The kind, if an operator makes the pods."""

    @property
    def path(self) -> str:
        """Where they are on the hub."""
        return f"/apis/apps/v1/namespaces/{NAMESPACE}/{self.submitted.partition('.')[0]}"

    def prepare(self, server: ApiServer) -> None:
        """The service account of its pods."""
        prepare_for_pods(server)

    def name_of(self, name: str) -> str:
        """The StatefulSet: its pods are named `job-1-0`."""
        return "-".join(name.split("-")[:2])

    def replicas(self, work: Work) -> int:
        """How many it has when it serves."""
        return work.cpu

    def size(self, obj: Object) -> int:
        """How many pods it is to have."""
        return int(obj["spec"]["replicas"])

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create it, as the webhooks of the manager leave it and its pods."""
        metadata = {"name": work.name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
        create(hub, self.path, self._defaulted({"metadata": metadata, "spec": self._spec(work)}))

    def _spec(self, work: Work) -> Object:
        labels = {"app": work.name}
        return {"replicas": self.replicas(work), "selector": {"matchLabels": labels}, "template": _template(labels)}

    def _defaulted(self, made: Object) -> Object:
        one_by_one = int(made["metadata"]["name"].rpartition("-")[2]) % 2
        policy = "OrderedReady" if one_by_one else "Parallel"
        own = {"serviceName": made["metadata"]["name"], "podManagementPolicy": policy}
        kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        queued = admission.defaulted({**made, **kind, "spec": {**made["spec"], **own}}, STATEFUL_SET, JobSurroundings())
        return {**queued, "spec": {**queued["spec"], "template": default_held(queued["spec"]["template"])}}

    def of(self, server: ApiServer, name: str) -> list[Object]:
        """The object of that name on the hub, its pods on a worker."""
        found = server.context.get(self.submitted, f"{NAMESPACE}/{name}")
        if found is not None:
            return [found]
        pods = server.context.objects(PODS, namespace=NAMESPACE)
        return [each for each in pods if self.name_of(each["metadata"]["name"]) == name and _is_sent(each)]

    def delete(self, server: ApiServer, obj: Object, *, propagation: str) -> None:
        """Delete it, or one of its pods on a worker."""
        path = USER_PODS if obj.get("kind") == "Pod" else self.path
        call(server, "DELETE", f"{path}/{obj['metadata']['name']}", {"propagationPolicy": propagation})

    def label(self, hub: ApiServer, name: str, labels: dict[str, str]) -> None:
        """Change its labels, and as the webhook those of its pods."""
        template = {"metadata": {"labels": labels}}
        call(hub, "PATCH", f"{self.path}/{name}", {"metadata": {"labels": labels}, "spec": {"template": template}})

    def has_succeeded(self, obj: Object) -> bool:
        """Never: it serves until it is deleted."""
        return False

    def incomplete(self, objects: Iterable[Object]) -> list[str]:
        """All that are there: users delete those that have served."""
        return [found["metadata"]["name"] for found in objects]


class DeploymentWork(SetWork):
    """A Deployment whose pods are queued and sent one by one."""

    submitted = "deployments.apps"
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK, POD_FRAMEWORK, DEPLOYMENT_FRAMEWORK)
    is_group = False
    together = False
    as_one = False

    def _defaulted(self, made: Object) -> Object:
        kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
        queued = admission.defaulted({**made, **kind}, DEPLOYMENT, JobSurroundings())
        template = default_gated(queued["spec"]["template"], JobSurroundings())
        return {**queued, "spec": {**queued["spec"], "template": template}}


class LeaderWorkerSetWork(SetWork):
    """A LeaderWorkerSet of leaders with one worker each, or of leaders alone if the work has one cpu."""

    submitted = LEADER_WORKER_SETS.qualified
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK, POD_FRAMEWORK, LEADER_WORKER_SET_FRAMEWORK)
    as_one = False
    rolls_out = False
    operated: Resource | None = LEADER_WORKER_SETS

    @property
    def path(self) -> str:
        """Where they are on the hub."""
        return LEADER_WORKER_SETS.path(NAMESPACE)

    def prepare(self, server: ApiServer) -> None:
        """The definition of LeaderWorkerSets, and the service account of their pods."""
        super().prepare(server)
        create(server, CUSTOM_RESOURCE_DEFINITIONS.path(), shipped_definition(LEADER_WORKER_SETS))

    def replicas(self, work: Work) -> int:
        """As many as are of two pods, and another one for a pod that is left."""
        return (work.cpu + 1) // 2

    def size(self, obj: Object) -> int:
        """The pods of all its replicas."""
        return int(obj["spec"]["replicas"]) * int(obj["spec"]["leaderWorkerTemplate"]["size"])

    def label(self, hub: ApiServer, name: str, labels: dict[str, str]) -> None:
        """Change its labels, and as the webhook those of its pods."""
        template = {"metadata": {"labels": labels}}
        templates = {"leaderTemplate": template, "workerTemplate": template}
        spec = {"leaderWorkerTemplate": templates}
        call(hub, "PATCH", f"{self.path}/{name}", {"metadata": {"labels": labels}, "spec": spec})

    def _spec(self, work: Work) -> Object:
        template = _template({"app": work.name})
        group = {"size": min(work.cpu, 2), "leaderTemplate": template, "workerTemplate": template}
        return {"replicas": self.replicas(work), "leaderWorkerTemplate": group}

    def _defaulted(self, made: Object) -> Object:
        kind = {"apiVersion": LEADER_WORKER_SETS.api_version, "kind": LEADER_WORKER_SETS.kind}
        queued = admission.defaulted({**made, **kind}, LEADER_WORKER_SET, JobSurroundings())
        group = dict(queued["spec"]["leaderWorkerTemplate"])
        group |= {name: default_held(group[name]) for name in ("leaderTemplate", "workerTemplate")}
        return {**queued, "spec": {**queued["spec"], "leaderWorkerTemplate": group}}


def _template(labels: dict[str, str]) -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def _is_sent(pod: Object) -> bool:
    return ORIGIN_UID_ANNOTATION in (pod["metadata"].get("annotations") or {})


class SetUsers:
    """The users of the sets of one seed."""

    def __init__(self, play: Play, work: SetWork) -> None:
        self._play = play
        self._kind = work
        self._longest = float("inf")
        """For how long one is to serve at most."""
        self._scaled: set[str] = set()
        """Those that a user has scaled to zero, and scales up again."""

    def processes(self, link: Callable[[str, str], Link]) -> dict[str, Process]:
        """The controllers on the hub; `link` makes the way of a process to a server."""
        play = self._play
        own = Random(f"{play.scenario.seed} {CONTROLLERS}")
        hub = link(CONTROLLERS, "hub")
        return {CONTROLLERS: controllers(hub, play.clock("hub"), own, operated=self._kind.operated)}

    def hurry(self, longest: float) -> None:
        """From now on none is to serve for longer than this."""
        self._longest = longest

    def courses(self) -> list[Coroutine[Any, Any, None]]:
        """What they do, work by work."""
        return [course(work) for course in (self.serve, self.change) for work in self._play.scenario.jobs]

    async def serve(self, work: Work) -> None:
        """Delete it once its pods were ready for a time, also if a restored hub has it again."""
        play, since = self._play, None
        late: float | None = None
        while True:
            await asyncio.sleep(1.0)
            if play.servers["hub"].up and work.name not in self._scaled:
                self._grow(work)  # the hub was restored from a moment in which it was at zero
            pods = self._pods(work.name) if play.servers["hub"].up else []
            ready = [
                pod
                for pod in pods
                if is_true_in(pod.get("status") or {}, "Ready") and "deletionTimestamp" not in pod["metadata"]
            ]
            now = play.loop.time()
            # Pods that are admitted one by one may never be all ready: others hold what is left of the quota.
            if not ready or (self._kind.as_one and len(ready) < self._size(work.name)):
                since, late = None, None
            elif since is None:
                since = now
            elif now - since >= min(work.seconds, self._longest):
                if play.loop.time() >= play.healed + _SURE and (stopped := self._stopped(work, ready)):
                    late = now if late is None else late
                    if now - late > _LATE:
                        play.watcher.violated(f"pod {stopped} is shown as ready, and runs nowhere")
                    continue
                late = None
                play.watcher.tell(f"user deletes {work.name}, which has served")
                play.deleted.add(work.name)
                for found in play.work.of(play.servers["hub"].api, work.name):
                    play.work.delete(play.servers["hub"].api, found, propagation="Background")
                since = None

    async def change(self, work: Work) -> None:
        """Delete pods on the hub, roll another template out, and scale to zero and back, while it waits or serves."""
        play, own = self._play, Random(f"{self._play.scenario.seed} changes of {work.name}")
        await asyncio.sleep(work.at)
        for number in range(own.randint(0, _MOST_CHANGES)):
            await asyncio.sleep(own.choice((own.uniform(0.0, 5.0), own.uniform(0.0, 40.0))))
            await play.hub_is_up()
            hub, drawn = play.servers["hub"].api, own.random()
            if self._kind.rolls_out and _DELETES <= drawn < _DELETES + _ROLLS_OUT:
                self._roll_out(work, number)
            elif drawn < _DELETES + _ROLLS_OUT:
                if pods := self._pods(work.name):
                    name = own.choice(pods)["metadata"]["name"]
                    play.watcher.tell(f"user deletes the pod {name}")
                    call(hub, "DELETE", f"{USER_PODS}/{name}")
            elif self._size(work.name):
                await self._rescale(work, own)

    def _roll_out(self, work: Work, number: int) -> None:
        play = self._play
        if play.work.of(play.servers["hub"].api, work.name):
            play.watcher.tell(f"user rolls template {number} of {work.name} out")
            template = {"metadata": {"annotations": {"template": str(number)}}}
            call(play.servers["hub"].api, "PATCH", f"{self._kind.path}/{work.name}", {"spec": {"template": template}})

    async def _rescale(self, work: Work, own: Random) -> None:
        play, path = self._play, f"{self._kind.path}/{work.name}"
        play.watcher.tell(f"user scales {work.name} to 0")
        play.watcher.anew.add(work.name)
        call(play.servers["hub"].api, "PATCH", path, {"spec": {"replicas": 0}})
        self._scaled.add(work.name)
        while True:
            await asyncio.sleep(own.uniform(0.5, 5.0))
            await play.hub_is_up()
            if not self._size(work.name):
                self._grow(work)
            if self._size(work.name) or not play.work.of(play.servers["hub"].api, work.name):
                break
        self._scaled.discard(work.name)

    def _grow(self, work: Work) -> None:
        """Scale it from zero up, once it has no pods."""
        found = self._play.servers["hub"].api.context.get(self._kind.submitted, f"{NAMESPACE}/{work.name}")
        if found is None or found["spec"]["replicas"] or (found.get("status") or {}).get("replicas"):
            return
        if self._kind.operated is None or not self._pods(work.name):
            self._play.watcher.tell(f"user scales {work.name} to {self._kind.replicas(work)}")
            size = {"spec": {"replicas": self._kind.replicas(work)}}
            call(self._play.servers["hub"].api, "PATCH", f"{self._kind.path}/{work.name}", size)

    def _stopped(self, work: Work, ready: list[Object]) -> str:
        """One of the pods that are shown as ready and run nowhere; the others run on one cluster."""
        play, stopped = self._play, ""
        places = set()
        for pod in ready:
            uid = pod["metadata"]["uid"]
            running = {
                cluster
                for cluster, found in play.watcher.pods.items()
                if any(copy.live and copy.origin == uid for copy in found.copies.values())
            }
            places |= running
            stopped = stopped if running else pod["metadata"]["name"]
        if len(places) > 1 and self._kind.together:
            play.watcher.violated(f"{work.name} serves on {' and '.join(sorted(places))} at once")
        return stopped

    def _size(self, name: str) -> int:
        found = self._play.servers["hub"].api.context.get(self._kind.submitted, f"{NAMESPACE}/{name}")
        return 0 if found is None else self._kind.size(found)

    def _pods(self, name: str) -> list[Object]:
        work = self._play.work
        pods = self._play.servers["hub"].api.context.objects(PODS, namespace=NAMESPACE)
        return [each for each in pods if work.name_of(each["metadata"]["name"]) == name]
