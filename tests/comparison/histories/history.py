# SPDX-License-Identifier: Apache-2.0
"""Random histories of queues and Jobs: what administrators and users do, as values, each from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from multikueue.api.constants import POD_SET_SLICE_SIZE_ANNOTATION
from tests.comparison.histories.places import GPU, NodeOfHistory, random_levels, random_nodes, random_request

Object = dict[str, Any]

PRIORITIES: Final = {"low": 1, "mid": 50, "high": 100}
_FLAVORS: Final = ("f0", "f1", "f2")
_COHORTS: Final = ("c0", "c1", "c2")
_POLICIES: Final = ("Never", "LowerPriority")
_WITHIN: Final = (*_POLICIES, "LowerOrNewerEqualPriority")
_RECLAIM: Final = (*_POLICIES, "Any")
WORKERS: Final = ("w0", "w1")
"""The worker clusters of histories with dispatch."""
DISPATCH_CHECK: Final = "mk"
"""The check that sends Jobs there."""
CHECKS: Final = ("a0", "a1")
"""The admission checks; their controller says what steps say."""
_STATES: Final = ("Ready", "Ready", "Ready", "Ready", "Retry", "Rejected", "Pending")
_PODS: Final = ("ready", "ready", "unready")
_SEARCH: Final = ("MayStopSearch", "TryNextFlavor")


_VERBS: Final = {
    "submit": 50,
    "finish": 12,
    "delete": 3,
    "run": 5,
    "deactivate": 2,
    "activate": 2,
    "quota": 8,
    "policy": 2,
    "strategy": 3,
    "hold": 6,
    "move": 3,
    "cohort": 4,
    "priority": 4,
    "node": 6,
    "check": 30,
    "pods": 20,
    "fail": 8,
    "replace": 12,
    "remote queue": 20,
    "remote end": 12,
    "vanish": 4,
}
"""What happens, and how often; nodes, checks, pods, groups and worker clusters only where there are some."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What the histories of a run have in common."""

    steps: int = 14
    fair: bool = False
    """Queues and cohorts have weights, for fair sharing."""
    placed: bool = False
    """Flavors have nodes and a topology."""
    checked: bool = False
    """Queues have admission checks."""
    sets: bool = False
    """Some jobs are JobSets of two or three Jobs."""
    groups: bool = False
    """Some jobs are groups of one to four pods."""
    ready: bool = False
    """Jobs have pods, which are ready in time or not."""
    dispatched: bool = False
    """Jobs are sent to worker clusters by MultiKueue, each queue to one of them, and run there."""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A Job of a history."""

    name: str
    queue: str
    cpu: int
    parallelism: int = 1
    gpu: int = 0
    minimum: int = 0
    """Its minimum parallelism; none if 0."""
    priority: str = ""
    flavor: str = ""
    """The flavor that its node selector wants; any if empty."""
    tolerates: bool = True
    parts: tuple[int, ...] = ()
    """The pods of each of its Jobs, if it is a JobSet; each pod requests a cpu more than those of the Job before."""
    is_group: bool = False
    """Whether it is a group of as many pods as its parallelism."""
    topology: Mapping[str, str] = field(default_factory=dict)
    """Annotations of its pods."""
    pods: str = ""
    """How its pods are while it runs; it has none if empty."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: `verb` on the object `name`."""

    verb: str
    name: str
    job: SubmittedJob | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.verb} {self.name} {self.job or dict(self.spec) or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class History:
    """What is there at first, and what happens then. Names are those within the history."""

    seed: int
    mix: Mix
    flavors: Mapping[str, Object]
    cohorts: Mapping[str, Object]
    queues: Mapping[str, Object]
    steps: tuple[Step, ...]
    levels: tuple[str, ...] = ()
    """Those of the topology of all flavors; none without one."""
    nodes: Mapping[str, tuple[NodeOfHistory, ...]] = field(default_factory=dict)
    """By flavor."""
    workers: Mapping[str, Mapping[str, Object]] = field(default_factory=dict)
    """The queues of each worker cluster, with those names; none without dispatch."""


@dataclass(frozen=True, slots=True)
class _Resources:
    """What jobs request."""

    names: tuple[str, ...]
    together: bool = False
    """In one resource group always: Kueue 0.17.0 places no pods that have two flavors with a topology."""


def history(seed: int, mix: Mix) -> History:
    """The history of a seed; the same each time."""
    random = Random(seed)
    has_gpus = random.random() < 0.25 and not mix.dispatched
    resources = _Resources(("cpu", GPU) if has_gpus else ("cpu",), together=mix.placed)
    apart = has_gpus
    flavors = {name: _flavor(random, name, apart=apart) for name in _FLAVORS[: random.choice((1, 1, 2, 2, 3))]}
    cohorts = _cohorts(random, list(flavors), resources, fair=mix.fair)
    names = [f"q{number}" for number in range(random.choice((1, 2, 2, 3, 3, 4)))]
    queues = {name: _queue(random, list(flavors), list(cohorts), resources, fair=mix.fair) for name in names}
    made = History(seed, mix, flavors, {name: spec for name, spec in cohorts.items() if spec is not None}, queues, ())
    if mix.placed:
        nodes = {name: tuple(random_nodes(random, f"{name}-n")) for name in flavors}
        made = replace(made, levels=random_levels(random), nodes=nodes, queues=_larger(queues))
    if mix.checked:
        made = replace(made, queues={name: spec | _checks(random, spec) for name, spec in made.queues.items()})
    if mix.dispatched:
        made = _dispatched(random, made)
    return replace(made, steps=tuple(_steps(random, made, resources, number=mix.steps, fair=mix.fair)))


def _dispatched(random: Random, made: History) -> History:
    """The history with a worker cluster for each queue, where its quota is another."""
    rule = {"admissionChecksStrategy": {"admissionChecks": [{"name": DISPATCH_CHECK}]}}
    workers: dict[str, dict[str, Object]] = {name: {} for name in WORKERS}
    for name, spec in made.queues.items():
        flavors = [each["name"] for group in spec["resourceGroups"] for each in group["flavors"]]
        groups = _groups(random, sorted(set(flavors)), _Resources(("cpu",)), most=8, limits=False)
        on_worker: Object = {"namespaceSelector": {}, "resourceGroups": groups}
        workers[random.choice(WORKERS)][name] = on_worker | {"preemption": _remote_preemption(random)}
    return replace(made, queues={name: spec | rule for name, spec in made.queues.items()}, workers=workers)


def _remote_preemption(random: Random) -> Object:
    return {"withinClusterQueue": random.choice(_WITHIN)}


def _checks(random: Random, queue: Object) -> Object:
    """None, or one or two admission checks, for some flavors or all."""
    names = random.choice(((), CHECKS[:1], CHECKS[:1], CHECKS))
    if not names:
        return {}
    rules: list[Object] = [{"name": name} for name in names]
    if random.random() < 0.3:
        rules[0]["onFlavors"] = [queue["resourceGroups"][0]["flavors"][0]["name"]]
    return {"admissionChecksStrategy": {"admissionChecks": rules}}


def _larger(queues: Mapping[str, Object]) -> dict[str, Object]:
    """Queues with three times the quota, so that places are short at times, and quota at others."""
    found = deepcopy(dict(queues))
    for spec in found.values():
        for group in spec["resourceGroups"]:
            for flavor in group["flavors"]:
                for quota in flavor["resources"]:
                    quota["nominalQuota"] = str(3 * int(quota["nominalQuota"]))
    return found


def _flavor(random: Random, name: str, *, apart: bool) -> Object:
    """With its own label if `apart`: of two flavors of one pod with one label, Kueue takes either value."""
    spec: Object = {"nodeLabels": {f"flavor-{name}" if apart else "flavor": name}}
    if random.random() < 0.2:
        spec["nodeTaints"] = [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
    return spec


def _cohorts(random: Random, flavors: list[str], resources: _Resources, *, fair: bool) -> dict[str, Object | None]:
    """Cohorts by name; those without an object are None."""
    found: dict[str, Object | None] = {}
    # With fair sharing Kueue 0.17.0 ends with a nil pointer when a queue without a cohort looks for victims.
    for name in _COHORTS[: random.choice((1 if fair else 0, 1, 1, 1, 2, 3))]:
        spec: Object = {}
        if found and random.random() < 0.8:
            spec["parentName"] = random.choice(list(found))
        if random.random() < 0.4:
            spec["resourceGroups"] = _groups(random, flavors, resources, most=4, limits=bool(spec))
        if fair and random.random() < 0.4:
            spec["fairSharing"] = {"weight": random.choice(("0", "1", "2", "500m"))}
        found[name] = spec or None
    return found


def _queue(random: Random, flavors: list[str], cohorts: list[str], resources: _Resources, *, fair: bool) -> Object:
    spec: Object = {"namespaceSelector": {}}
    in_cohort = bool(cohorts) and (random.random() < 0.9 or fair)
    if in_cohort:
        spec["cohortName"] = random.choice(cohorts)
    if random.random() < 0.3:
        spec["queueingStrategy"] = "StrictFIFO"
    chosen = [each for each in flavors if random.random() < 0.85] or flavors[:1]
    spec["resourceGroups"] = _groups(random, chosen, resources, most=6, limits=in_cohort)
    spec["preemption"] = _preemption(random, fair=fair)
    if random.random() < 0.6:
        fungibility = {"whenCanBorrow": random.choice(_SEARCH), "whenCanPreempt": random.choice(_SEARCH)}
        if random.random() < 0.3:
            fungibility["preference"] = random.choice(("BorrowingOverPreemption", "PreemptionOverBorrowing"))
        spec["flavorFungibility"] = fungibility
    if fair and random.random() < 0.5:
        spec["fairSharing"] = {"weight": random.choice(("0", "1", "2", "3", "500m"))}
    return spec


def _preemption(random: Random, *, fair: bool) -> Object:
    found: Object = {"withinClusterQueue": random.choice(_WITHIN), "reclaimWithinCohort": random.choice(_RECLAIM)}
    if not fair and found["reclaimWithinCohort"] != "Never" and random.random() < 0.4:
        found["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if random.random() < 0.5:
            found["borrowWithinCohort"]["maxPriorityThreshold"] = random.choice((1, 50))
    return found


def _groups(random: Random, flavors: list[str], resources: _Resources, *, most: int, limits: bool) -> list[Object]:
    """One group of all resources, or one for each."""
    several = len(resources.names) > 1 and len(flavors) > 1
    apart = several and random.random() < 0.5 and not resources.together
    parts = [(["cpu"], flavors[:1]), ([GPU], flavors[1:])] if apart else [(list(resources.names), flavors)]
    return [
        {
            "coveredResources": covered,
            "flavors": [
                {"name": flavor, "resources": [_quota(random, each, most, limits=limits) for each in covered]}
                for flavor in named
            ],
        }
        for covered, named in parts
    ]


def _quota(random: Random, resource: str, most: int, *, limits: bool) -> Object:
    nominal = random.randint(0, most)
    found: Object = {"name": resource, "nominalQuota": str(nominal)}
    if limits and random.random() < 0.3:
        found["borrowingLimit"] = str(random.randint(0, 4))
    if limits and random.random() < 0.3:
        found["lendingLimit"] = str(random.randint(0, nominal))
    return found


def _steps(random: Random, made: History, resources: _Resources, *, number: int, fair: bool) -> Iterator[Step]:
    jobs: list[str] = []
    running: set[str] = set()
    held: set[str] = set()
    nodes = {node.name: node for each in made.nodes.values() for node in each}
    checked = any("admissionChecksStrategy" in spec for spec in made.queues.values())
    cohorts = sorted({spec["cohortName"] for spec in made.queues.values() if "cohortName" in spec} | set(made.cohorts))
    absent = {"node": not nodes, "check": not checked, "pods": not made.mix.ready, "run": made.mix.ready}
    absent |= dict.fromkeys(("fail", "replace"), not made.mix.groups)
    absent |= dict.fromkeys(("remote queue", "remote end", "vanish"), not made.mix.dispatched)
    if made.mix.dispatched:
        absent |= {"run": True, "finish": True, "check": True}
    weights = [0 if absent.get(verb) else weight for verb, weight in _VERBS.items()]
    for index in range(number):
        queue = random.choice(list(made.queues))
        verb = random.choices(list(_VERBS), weights)[0] if len(jobs) > 2 else "submit"
        match verb:
            case "submit":
                job = _job(random, f"j{index:02}", queue, made, resources)
                jobs.append(job.name)
                yield Step("submit", job.name, job=job)
            case "finish" | "delete":
                name = jobs.pop(random.randrange(len(jobs)))
                yield Step(verb, name)
            case "run" | "stop":
                name = random.choice(jobs)
                yield Step("stop" if name in running else "run", name)
                running ^= {name}
            case "deactivate" | "activate":
                yield Step(verb, random.choice(jobs))
            case "quota":
                spec = made.queues[queue]
                flavors = [each["name"] for group in spec["resourceGroups"] for each in group["flavors"]]
                groups = _groups(random, sorted(set(flavors)), resources, most=6, limits="cohortName" in spec)
                yield Step("queue", queue, spec={"resourceGroups": groups})
            case "policy":
                yield Step(
                    "queue", queue, spec={"preemption": {"borrowWithinCohort": None} | _preemption(random, fair=fair)}
                )
            case "strategy":
                yield Step("queue", queue, spec={"queueingStrategy": random.choice(("StrictFIFO", "BestEffortFIFO"))})
            case "hold":
                policy = "None" if queue in held else random.choice(("Hold", "HoldAndDrain"))
                held ^= {queue}
                yield Step("queue", queue, spec={"stopPolicy": policy})
            case "move" if cohorts:
                yield Step("queue", queue, spec={"cohortName": random.choice(cohorts)})
            case "cohort" if made.cohorts:
                name = random.choice(list(made.cohorts))
                groups = _groups(random, list(made.flavors), resources, most=4, limits=False)
                yield Step("cohort", name, spec={"resourceGroups": groups})
            case "node":
                yield _node_step(random, nodes)
            case "pods":
                yield Step("pods", random.choice(jobs), spec={"are": random.choice(_PODS)})
            case "fail" | "replace":
                yield Step(verb, random.choice(jobs))
            case "remote queue":
                yield Step("remote queue", queue, spec=_remote_change(random, made.queues[queue]))
            case "remote end":
                name = jobs.pop(random.randrange(len(jobs)))
                yield Step("remote end", name, spec={"condition": random.choice(("Complete", "Complete", "Failed"))})
            case "vanish":
                yield Step("vanish", random.choice(jobs))
            case "check":
                yield Step("check", random.choice(jobs[-6:]), spec={random.choice(CHECKS): random.choice(_STATES)})
            case "priority":
                yield Step("priority", random.choice(jobs), spec={"class": random.choice(list(PRIORITIES))})


def _remote_change(random: Random, queue: Object) -> Object:
    """Other quota, another policy, or a queue that is held, drained or open."""
    match random.choice(("quota", "policy", "stop", "stop")):
        case "quota":
            flavors = sorted({each["name"] for group in queue["resourceGroups"] for each in group["flavors"]})
            return {"resourceGroups": _groups(random, flavors, _Resources(("cpu",)), most=8, limits=False)}
        case "policy":
            return {"preemption": _remote_preemption(random)}
        case _:
            return {"stopPolicy": random.choice(("None", "None", "Hold", "HoldAndDrain"))}


def _wanted(random: Random, flavors: list[str], *, apart: bool) -> str:
    """A flavor for the node selector of a Job; none where each flavor has its own label.

    Kueue 0.17.0 asks all flavors of a group for a label that one of them has, and its later patches only that one.
    """
    wanted = random.choice(flavors) if random.random() < 0.1 else ""
    return "" if apart else wanted


def _node_step(random: Random, nodes: dict[str, NodeOfHistory]) -> Step:
    """A node has other capacity, or fails, or is ready again. Kueue 0.17.0 leaves pods on nodes that get a taint."""
    node = random.choice(list(nodes.values()))
    changed: dict[str, Any] = {"cpu": random.randint(1, 8)} if random.random() < 0.4 else {"ready": not node.ready}
    nodes[node.name] = node = replace(node, **changed)
    return Step("node", node.name, spec={"node": node})


def _job(random: Random, name: str, queue: str, made: History, resources: _Resources) -> SubmittedJob:
    flavors = list(made.flavors)
    parallelism = random.choice((1, 2, 3, 4, 4, 6, 8) if made.levels else (1, 1, 1, 2, 3, 4))
    topology = random_request(random, made.levels, parallelism=parallelism) if made.levels else {}
    parts: tuple[int, ...] = ()
    if made.mix.sets and random.random() < 0.5:
        parts = tuple(random.randint(1, 3) for _ in range(random.choice((2, 2, 3))))
        topology = {}
    is_group = made.mix.groups and not parts and not topology and random.random() < 0.6
    # Kueue 0.17.0 admits numbers of pods that are no multiples of their slices.
    partly = (
        parallelism > 1
        and not parts
        and not is_group
        and not made.mix.dispatched
        and POD_SET_SLICE_SIZE_ANNOTATION not in topology
        and random.random() < 0.3
    )
    return SubmittedJob(
        name=name,
        queue=queue,
        cpu=random.choice((1, 1, 2, 3)),
        parallelism=parallelism,
        gpu=random.choice((0, 1, 2)) if len(resources.names) > 1 else 0,
        minimum=random.randint(1, parallelism - 1) if partly else 0,
        priority=random.choice(("", *PRIORITIES)),
        flavor=_wanted(random, flavors, apart=len(resources.names) > 1),
        tolerates=random.random() < 0.5,
        parts=parts,
        is_group=is_group,
        topology=topology,
        pods=random.choice(_PODS) if made.mix.ready else "ready" if made.mix.dispatched else "",
    )
