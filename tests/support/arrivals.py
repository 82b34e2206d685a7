# SPDX-License-Identifier: Apache-2.0
"""Everything that has to be there for a Job to be dispatched, and when a seed has it made.

Owns the draw: each object comes within a second, in any order; some are deleted and made again under the same name
within a second, and some have names that the server makes up. Also what each object looks like. Who makes them, on
simulated or on real servers, is the test's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from devcluster.federation import enrolment
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    RESOURCE_FLAVORS,
    SECRETS,
    Resource,
)

Object = dict[str, Any]

SYSTEM: Final = str(enrolment.system_namespace()["metadata"]["name"])
HELD: Final = frozenset({"flavor", "check", "queue"})
"""What a finalizer keeps while it is in use: deleted only before anything uses it."""
_SPREAD: Final = 1.0
_GENERATED: Final = frozenset({"flavor", "config", "check", "queue", "local", "job"})
_HUB: Final = "hub"


@dataclass(frozen=True, slots=True)
class Thing:
    """One object: its name in the draw, on which server it is, and the things that it names."""

    name: str
    server: str
    resource: Resource
    names: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The name without the worker that it is for."""
        return self.name.rpartition(" ")[2]

    @property
    def worker(self) -> str:
        """The worker that it is for; empty for one of the hub alone."""
        return self.name.rpartition(" ")[0]


@dataclass(frozen=True, slots=True)
class Course:
    """When a thing is made, and whether it is made again; times are seconds, each since the one before."""

    made: float
    deleted: float | None = None
    again: float = 0.0
    generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a seed draws; `tag` separates its objects from those of other seeds on the same servers."""

    seed: int
    workers: tuple[str, ...]
    tag: str = ""
    courses: Mapping[str, Course] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Where the Job is."""
        return f"arrivals{self.tag}"

    def cluster(self, worker: str) -> str:
        """The MultiKueueCluster of a worker."""
        return f"{worker}{self.tag}"

    def namespace_of(self, thing: Thing) -> str | None:
        """The namespace of a thing; None for one that has none."""
        if not thing.resource.namespaced:
            return None
        return SYSTEM if thing.resource is SECRETS else self.namespace

    def fixed_name(self, thing: Thing) -> str:
        """The name of a thing that the server makes none up for."""
        match thing.kind:
            case "namespace":
                return self.namespace
            case "secret":
                return f"{self.cluster(thing.worker)}-kubeconfig"
            case "cluster":
                return self.cluster(thing.worker)
        return f"{thing.kind}-of-{thing.worker or _HUB}{self.tag}"


def things(workers: Sequence[str]) -> tuple[Thing, ...]:
    """All of them; workers whose name begins with k have queues of their own."""
    found = [
        Thing("namespace", _HUB, NAMESPACES),
        Thing("flavor", _HUB, RESOURCE_FLAVORS),
        Thing("config", _HUB, MULTIKUEUE_CONFIGS),
        Thing("check", _HUB, ADMISSION_CHECKS, ("config",)),
        Thing("queue", _HUB, CLUSTER_QUEUES, ("flavor", "check")),
        Thing("local", _HUB, LOCAL_QUEUES, ("queue",)),
        Thing("job", _HUB, JOBS, ("local",)),
    ]
    for worker in workers:
        found += [
            Thing(f"{worker} secret", _HUB, SECRETS),
            Thing(f"{worker} cluster", _HUB, MULTIKUEUE_CLUSTERS),
            Thing(f"{worker} namespace", worker, NAMESPACES),
        ]
        if worker.startswith("k"):
            found += [
                Thing(f"{worker} flavor", worker, RESOURCE_FLAVORS),
                Thing(f"{worker} queue", worker, CLUSTER_QUEUES, (f"{worker} flavor",)),
                # A worker's LocalQueue goes by the name that the hub's has.
                Thing(f"{worker} local", worker, LOCAL_QUEUES, (f"{worker} queue", "local")),
            ]
    return tuple(found)


def draw(seed: int, *, workers: tuple[str, ...], tag: str = "") -> Arrival:
    """The arrival of a seed at these workers."""
    random = Random(f"arrival {seed}")
    courses: dict[str, Course] = {}
    share_made_again = random.choice((0.0, 0.2, 0.6))
    for thing in things(workers):
        # Whoever deletes a namespace has its contents go with it, which is another story.
        again = thing.kind != "namespace" and random.random() < share_made_again
        own_name = thing.kind in _GENERATED and thing.name != f"{thing.worker} local"
        courses[thing.name] = Course(
            made=random.uniform(0.0, _SPREAD),
            deleted=random.uniform(0.02, 0.6) if again else None,
            again=random.uniform(0.0, 0.4),
            generated=own_name and random.random() < 0.2,
        )
    if random.random() < 0.5:  # the Job comes last, as in most scripts
        courses["job"] = Course(made=_SPREAD + random.uniform(0.0, 1.0), generated=courses["job"].generated)
    return Arrival(seed=seed, workers=workers, tag=tag, courses=courses)


def body(thing: Thing, arrival: Arrival, named: Mapping[str, str]) -> Object:
    """The object without its name; `named` has the names of the things that it names.

    A Secret and a MultiKueueCluster are not made here: they say how the worker is reached.
    """
    spec: Object | None = None
    match thing.kind:
        case "flavor":
            spec = {}
        case "config":
            spec = {"clusters": [arrival.cluster(worker) for worker in arrival.workers]}
        case "check":
            parameters = {
                "apiGroup": MULTIKUEUE_CONFIGS.group,
                "kind": MULTIKUEUE_CONFIGS.kind,
                "name": named["config"],
            }
            spec = {"controllerName": MULTIKUEUE_CONTROLLER, "parameters": parameters}
        case "queue":
            flavor = named[f"{thing.worker} flavor".strip()]
            quota = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]}
            spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
            if "check" in named:
                spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": named["check"]}]}
        case "local":
            spec = {"clusterQueue": named[f"{thing.worker} queue".strip()]}
        case "job":
            container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
            spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    made: Object = {"apiVersion": thing.resource.api_version, "kind": thing.resource.kind, "metadata": {}}
    if thing.kind == "job":
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": named["local"]}
    if spec is not None:
        made["spec"] = spec
    return made
