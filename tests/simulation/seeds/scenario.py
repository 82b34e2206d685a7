# SPDX-License-Identifier: Apache-2.0
"""What one seed means: clusters, jobs, and everything that goes wrong, drawn before anything runs.

Owns the drawing only, so that a seed can be printed and read. Times are true seconds since the start; every fault ends
by `Scenario.healed`, after which nothing goes wrong any more and everything has to come to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

_HORIZON: Final = 80.0
_LONG_HORIZON: Final = 150.0  # for what needs a cluster to be lost for longer than a lease and its grace
_LEASE: Final = 40.0
_BESIDE_ITSELF: Final = 60.0
"""How long, in total, an agent may be down or cannot reach its own API server while its Lease is renewed or says so."""
_BESIDE_ITSELF_AND_ALONE: Final = 30.0
"""The same while the hub receives nothing from that cluster, for longer than a lease.

The agent has the grace of 60 s to stop its work, of which a pause between two attempts (13 s), a request that waits in
vain (10 s), pods that take their time (3 s) and clocks that run 4 % apart need half.
"""
_FENCED_BY_THEN: Final = 100.0
"""How long a hub with fenced work is kept unreachable before it is restored: a lease and the grace to stop in."""
_RESTORED_WORKERS: Final = 0.1
_POLICIES: Final = ("keep", "failover", "fenced")


class Trouble(StrEnum):
    """Kinds of faults, and of what people do."""

    PARTITION = "partition"
    SLOW = "slow link"
    LOSSY = "lossy link"
    DUPLICATING = "duplicating link"
    REPEATING = "link that repeats what was sent long ago"
    CRASH = "crash"
    SERVER_CRASH = "API server crash"
    SECOND_MANAGER = "second manager"
    WATCH_CUT = "watches cut"
    DELETE_JOB = "user deletes a job"
    RECREATE_JOB = "user makes a job anew"
    EDIT_PRIORITY = "user edits a priority"
    DEACTIVATE = "user deactivates a workload"
    DELETE_WORKLOAD = "user deletes a workload"
    STRANGER_DELETES = "another client deletes the remote job on a worker"
    HOLD_QUEUE = "queue held"
    LEAVE_CONFIG = "cluster taken out of the config"
    REMOVE_CLUSTER = "cluster removed"
    DRAIN = "cluster drained"
    JOIN = "cluster registered"
    LOSE_IDENTITY = "agent loses who it is"
    REBUILD_HUB = "hub lost with all it knew, and rebuilt"
    BACK_UP_HUB = "hub backed up"
    RESTORE_HUB = "hub lost, and restored from the backup"
    BACK_UP_WORKER = "worker backed up"
    RESTORE_WORKER = "worker lost, and restored from the backup"


class Theme(StrEnum):
    """What a seed is about; many are about nothing in particular."""

    ANYTHING = "anything"
    MORE_OF_IT = "more of it"
    PEOPLE = "people change their minds"
    LEADERS = "two managers, and whichever leads is struck"
    FENCING = "clusters are away for longer than a lease while fenced jobs run"
    RETURN = "a queue is held while clusters are away, and they come back as it is released"
    REBUILT = "the hub is lost while jobs run, and filled again from what the workers run"
    RESTORED = "the hub is restored from a backup of some seconds or a minute before"
    JOINING = "clusters join by token while jobs come, one of them twice, and renew their certificates all the time"
    LATE_REPORTS = "what agents say arrives twice, and late, while work is stopped and sent to the same cluster again"


_LONG: Final = frozenset({Theme.FENCING, Theme.RETURN, Theme.RESTORED})


@dataclass(frozen=True, slots=True)
class Work:
    """One job that a user creates."""

    name: str
    at: float
    seconds: float
    cpu: int
    policy: str
    priority: str


@dataclass(frozen=True, slots=True)
class Mishap:
    """One fault, from `at` for `seconds`; `whom` names a process, a server, or a process and a server."""

    at: float
    seconds: float
    what: Trouble
    whom: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """The clock of one process's machine."""

    offset: float
    drift: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One seed, spelled out. The manager itself serves the `pushed` workers, an agent of theirs each of the others."""

    seed: int
    theme: Theme
    workers: tuple[str, ...]
    pushed: frozenset[str]
    jobs: tuple[Work, ...]
    mishaps: tuple[Mishap, ...]
    machines: dict[str, Machine]

    @property
    def joining(self) -> frozenset[str]:
        """Whose agent has no identity at first."""
        return frozenset(mishap.whom[0] for mishap in self.mishaps if mishap.what is Trouble.JOIN)

    @property
    def healed(self) -> float:
        """When all is well again and all that is wanted was asked for."""
        return 1.0 + max(*(work.at for work in self.jobs), *(mishap.at + mishap.seconds for mishap in self.mishaps))


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)
    workers = tuple(f"w{number}" for number in range(1, random.choice((3, 3, 3, 4, 5)) + 1))
    theme = random.choice(tuple(Theme))
    pushed = frozenset(name for name in workers if random.random() < random.choice((0.0, 0.0, 0.5, 1.0)))
    if theme is Theme.JOINING:
        pushed -= set(workers[:2])
    favourite = "fenced" if theme is Theme.FENCING else random.choice(_POLICIES)
    if theme is Theme.RESTORED and random.random() < 0.4:
        favourite, pushed = "fenced", frozenset()
    jobs = tuple(
        Work(
            name=f"job-{number}",
            at=round(random.uniform(1.0, 10.0 if theme is Theme.FENCING else 40.0), 3),
            seconds=round(_length(random, theme), 3),
            cpu=random.randint(1, 3),
            policy=_policy(random, theme, favourite, pushed),
            priority=random.choice(("", "", "low", "high")),
        )
        for number in range(1, random.randint(2, 5) + 1)
    )
    drawn = [_mishap(random, theme, workers, pushed, jobs) for _ in range(random.randint(2, 7))]
    drawn += _thematic(random, theme, workers, pushed, jobs)
    if theme is Theme.JOINING:  # registering a cluster makes it, too
        drawn = [mishap for mishap in drawn if mishap.what is not Trouble.REMOVE_CLUSTER]
    if random.random() < 0.2:
        late, until = random.choice(workers), random.uniform(5.0, 40.0)
        drawn.append(Mishap(0.0, until, Trouble.LEAVE_CONFIG, (late,)))
        if late not in pushed:
            drawn.append(Mishap(0.0, until, Trouble.CRASH, (late,)))
    if theme is not Theme.JOINING:  # without its identity an agent does nothing
        restored = _restored_worker(Random(f"{seed} restored worker"), workers)
        drawn += restored
        if restored:
            jobs = tuple(replace(work, policy="keep" if work.policy == "fenced" else work.policy) for work in jobs)
    machines = {
        name: Machine(offset=random.uniform(-90, 90), drift=random.uniform(-0.02, 0.02))
        for name in ("manager", "manager-2", "hub", *workers)
    }
    return Scenario(
        seed=seed,
        theme=theme,
        workers=workers,
        pushed=pushed,
        jobs=jobs,
        mishaps=tuple(_as_promised(sorted(drawn, key=lambda mishap: mishap.at), workers, pushed)),
        machines=machines,
    )


def with_groups(scenario: Scenario) -> Scenario:
    """The same for pod groups, which are not taken over by a rebuilt hub (docs/jobs/pod.md)."""
    kept = tuple(mishap for mishap in scenario.mishaps if mishap.what is not Trouble.REBUILD_HUB)
    return replace(scenario, mishaps=kept)


def _policy(random: Random, theme: Theme, favourite: str, pushed: frozenset[str]) -> str:
    """Nothing fenced if an agent may be without identity for too long, or if no agent stops forgotten work."""
    policy = favourite if random.random() < 0.7 else random.choice(_POLICIES)
    unfenced = theme is Theme.JOINING or (theme is Theme.RESTORED and pushed)
    return "keep" if unfenced and policy == "fenced" else policy


def _length(random: Random, theme: Theme) -> float:
    """How long a job runs; that it runs twice can only show while the first still runs."""
    if theme is Theme.FENCING:
        return random.uniform(100, 300)
    if theme is Theme.REBUILT:
        return random.uniform(20, 120)
    if theme is Theme.RESTORED:  # some end between the backup and the loss
        return random.choice((random.uniform(3, 30), random.uniform(30, 200)))
    return random.choice((random.uniform(1, 10), random.uniform(10, 80)))


def _thematic(
    random: Random, theme: Theme, workers: tuple[str, ...], pushed: frozenset[str], jobs: tuple[Work, ...]
) -> list[Mishap]:
    """What a theme adds to the ordinary mishaps."""
    match theme:
        case Theme.LEADERS:
            found = [Mishap(random.uniform(0.0, 10.0), _HORIZON, Trouble.SECOND_MANAGER, ())]
            for start in (15.0, 50.0):
                what = random.choice((Trouble.PARTITION, Trouble.CRASH, Trouble.SLOW))
                name = random.choice(("manager", "manager-2"))
                whom = (name,) if what is Trouble.CRASH else (name, "hub")
                found.append(Mishap(start + random.uniform(0, 10), random.uniform(1, 35), what, whom))
            return found
        case Theme.FENCING:
            at = random.uniform(11.0, 16.0)
            away = random.sample(workers, random.randint(1, len(workers) - 1))
            until = _LONG_HORIZON - random.uniform(0, 5)
            return [Mishap(at, until - at, Trouble.PARTITION, _away(name, pushed)) for name in away]
        case Theme.RETURN:
            held = random.uniform(20.0, 60.0)
            back = held + random.uniform(35.0, 70.0)
            found = [Mishap(held, back - held, Trouble.HOLD_QUEUE, ())]
            for name in workers:
                at = held - random.uniform(0.0, 6.0)
                until = back + random.uniform(-3.0, 3.0)
                found.append(Mishap(at, until - at, Trouble.PARTITION, _away(name, pushed)))
            return found
        case Theme.REBUILT:
            return [Mishap(random.uniform(20.0, 60.0), random.uniform(5.0, 60.0), Trouble.REBUILD_HUB, ("hub",))]
        case Theme.RESTORED:
            return _restored(random, workers, pushed, fenced=any(work.policy == "fenced" for work in jobs))
        case Theme.JOINING:
            agents = [name for name in workers if name not in pushed]
            found = [Mishap(random.uniform(0.0, 15.0), 0.0, Trouble.JOIN, (name,)) for name in agents]
            lost = Mishap(random.uniform(25.0, 60.0), random.uniform(0.0, 15.0), Trouble.LOSE_IDENTITY, (agents[0],))
            return [*found, lost]
        case Theme.LATE_REPORTS:
            found = [Mishap(1.0, _HORIZON, Trouble.REPEATING, _away(name, pushed)) for name in workers]
            for start in (12.0, 24.0, 36.0, 48.0, 60.0):
                at = start + random.uniform(0.0, 8.0)
                found.append(Mishap(at, random.uniform(0.2, 4.0), Trouble.HOLD_QUEUE, ()))
            return found
    return []


def _restored(random: Random, workers: tuple[str, ...], pushed: frozenset[str], *, fenced: bool) -> list[Mishap]:
    """A backup, the loss some time later, and links that fail as the hub comes back."""
    backup = random.uniform(5.0, 40.0)
    lost = backup + random.choice((random.uniform(2, 10), random.uniform(10, 60)))
    away = _FENCED_BY_THEN + random.uniform(0, 10) if fenced else random.uniform(2, 45)
    found = [
        Mishap(backup, 0.0, Trouble.BACK_UP_HUB, ("hub",)),
        Mishap(lost, away, Trouble.RESTORE_HUB, ("hub",)),
    ]
    if random.random() < 0.4:  # later status of agents is in the backup or lost, and no manager has acted on it
        down = backup - random.uniform(0, 15)
        found.append(Mishap(max(1.0, down), lost - down, Trouble.CRASH, ("manager",)))
    for name in random.sample(workers, random.randint(0, 2)):
        what = random.choice((Trouble.PARTITION, Trouble.PARTITION, Trouble.SLOW, Trouble.LOSSY))
        at = random.choice((lost + random.uniform(-10, 0), lost + away + random.uniform(-10, 5)))
        seconds = random.choice((random.uniform(1, 30), random.uniform(30, 70)))
        found.append(Mishap(at, seconds, what, _away(name, pushed)))
    return found


def _restored_worker(random: Random, workers: tuple[str, ...]) -> list[Mishap]:
    """In one of ten seeds the backup of a worker, and its loss some time later. Its agent runs on."""
    if random.random() >= _RESTORED_WORKERS:
        return []
    worker = (random.choice(workers),)
    backup = random.uniform(3.0, 40.0)
    lost = backup + random.choice((random.uniform(1, 10), random.uniform(10, 40)))
    return [
        Mishap(backup, 0.0, Trouble.BACK_UP_WORKER, worker),
        Mishap(lost, random.uniform(0.5, 30), Trouble.RESTORE_WORKER, worker),
    ]


def _away(worker: str, pushed: frozenset[str]) -> tuple[str, str]:
    """The way between a worker and the hub: the manager's, or that of its agent."""
    return ("manager", worker) if worker in pushed else (worker, "hub")


_FAULTS: Final = (
    *(Trouble.PARTITION,) * 5,
    *(Trouble.CRASH,) * 3,
    *(Trouble.SERVER_CRASH,) * 2,
    Trouble.SLOW,
    Trouble.LOSSY,
    Trouble.DUPLICATING,
    Trouble.SECOND_MANAGER,
    Trouble.WATCH_CUT,
)
_NEVER_UNDONE: Final = (
    Trouble.DELETE_JOB,
    Trouble.RECREATE_JOB,
    Trouble.EDIT_PRIORITY,
    Trouble.DELETE_WORKLOAD,
    Trouble.STRANGER_DELETES,
)
_ACTIONS: Final = (
    *_NEVER_UNDONE,
    Trouble.DEACTIVATE,
    Trouble.HOLD_QUEUE,
    Trouble.LEAVE_CONFIG,
    Trouble.REMOVE_CLUSTER,
    Trouble.DRAIN,
)


def _mishap(
    random: Random, theme: Theme, workers: tuple[str, ...], pushed: frozenset[str], jobs: tuple[Work, ...]
) -> Mishap:
    horizon = _LONG_HORIZON if theme in _LONG else _HORIZON
    at = round(random.uniform(2.0, horizon - 10.0), 3)
    seconds = round(min(horizon - at, random.choice((random.uniform(0.1, 5), random.uniform(5, horizon)))), 3)
    worker = random.choice(workers)
    away = _away(worker, pushed)
    links: tuple[tuple[str, ...], ...] = (
        ("manager", "hub"),
        away,
        away,
        away if worker in pushed else (worker, worker),
    )
    acts = random.random() < {Theme.PEOPLE: 0.75, Theme.REBUILT: 0.0}.get(theme, 0.3)
    # What is undone later would exist again on a restored hub, and would not be undone again.
    actions = _NEVER_UNDONE if theme is Theme.RESTORED else _ACTIONS
    what = random.choice(actions if acts else _FAULTS)
    match what:
        case Trouble.PARTITION | Trouble.SLOW | Trouble.LOSSY | Trouble.DUPLICATING:
            whom = random.choice(links)
        case Trouble.CRASH:
            whom = (random.choice(("manager", "manager" if worker in pushed else worker)),)
        case Trouble.SERVER_CRASH | Trouble.WATCH_CUT:
            whom = (random.choice(("hub", worker)),)
        case (
            Trouble.DELETE_JOB
            | Trouble.RECREATE_JOB
            | Trouble.EDIT_PRIORITY
            | Trouble.DEACTIVATE
            | Trouble.DELETE_WORKLOAD
        ):
            whom = (random.choice(jobs).name,)
        case Trouble.STRANGER_DELETES:
            whom = (worker, random.choice(jobs).name)
        case Trouble.LEAVE_CONFIG | Trouble.REMOVE_CLUSTER | Trouble.DRAIN:
            whom = (worker,)
        case _:
            whom = ()
    return Mishap(at=at, seconds=seconds, what=what, whom=whom)


def _as_promised(mishaps: list[Mishap], workers: tuple[str, ...], pushed: frozenset[str]) -> Iterator[Mishap]:
    """The same, with no cluster out of order for longer than `fenced` allows (docs/adr/0011).

    Who is dead, or cut off from his own API server, stops nothing, and only the node could.
    """
    spent = dict.fromkeys(workers, 0.0)
    for mishap in mishaps:
        worker = mishap.whom[0] if mishap.whom and mishap.whom[0] in workers else ""
        is_blind = mishap.what is Trouble.PARTITION and mishap.whom == (worker, worker)
        if worker and (mishap.what in (Trouble.CRASH, Trouble.SERVER_CRASH) or is_blind):
            away = (
                (Trouble.PARTITION, _away(worker, pushed)),
                (Trouble.SERVER_CRASH, ("hub",)),
                (Trouble.REBUILD_HUB, ("hub",)),
                (Trouble.RESTORE_HUB, ("hub",)),
            )
            cuts = [each for each in mishaps if (each.what, each.whom) in away and each.seconds > _LEASE]
            is_cut = any(each.at < mishap.at + mishap.seconds and mishap.at < each.at + each.seconds for each in cuts)
            bound = _BESIDE_ITSELF_AND_ALONE if is_cut else _BESIDE_ITSELF
            mishap = replace(mishap, seconds=min(mishap.seconds, max(0.1, bound - spent[worker])))
            spent[worker] += mishap.seconds
        yield mishap
