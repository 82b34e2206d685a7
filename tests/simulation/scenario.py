# SPDX-License-Identifier: Apache-2.0
"""What one seed means: clusters, jobs, and everything that goes wrong, drawn before anything runs.

Owns the drawing only, so that a seed can be printed and read. Times are true seconds since the start; faults end at
`HEALED`, after which nothing goes wrong any more and everything has to come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

HEALED: Final = 150.0
_BESIDE_ITSELF: Final = 30.0
_POLICIES: Final = ("keep", "failover", "fenced")


class Trouble(StrEnum):
    """Kinds of faults and of people's doings."""

    PARTITION = "partition"
    SLOW = "slow link"
    LOSSY = "lossy link"
    DUPLICATING = "duplicating link"
    CRASH = "crash"
    SERVER_CRASH = "API server crash"
    SECOND_MANAGER = "second manager"
    WATCH_CUT = "watches cut"
    DELETE_JOB = "user deletes a job"
    STRANGER_DELETES = "somebody deletes the copy on a worker"
    HOLD_QUEUE = "queue held"
    LEAVE_CONFIG = "cluster taken out of the config"


class Theme(StrEnum):
    """What a seed is about; half of them are about nothing in particular."""

    ANYTHING = "anything"
    MORE_OF_IT = "more of it"
    FENCING = "clusters are away for longer than a lease while fenced jobs run"
    RETURN = "a queue is held while clusters are away, and they come back as it is released"


@dataclass(frozen=True, slots=True)
class Work:
    """One job that a user creates."""

    name: str
    at: float
    seconds: float
    cpu: int
    policy: str


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
    """One seed, spelled out."""

    seed: int
    workers: tuple[str, ...]
    jobs: tuple[Work, ...]
    mishaps: tuple[Mishap, ...]
    machines: dict[str, Machine]


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)
    workers = tuple(f"w{number}" for number in range(1, random.choice((3, 3, 3, 4, 5)) + 1))
    processes = ("manager", *workers)
    theme = random.choice(tuple(Theme))
    favourite = "fenced" if theme is Theme.FENCING else random.choice(_POLICIES)
    jobs = tuple(
        Work(
            name=f"job-{number}",
            at=round(random.uniform(1.0, 10.0 if theme is Theme.FENCING else 60.0), 3),
            seconds=round(_length(random, theme), 3),
            cpu=random.randint(1, 3),
            policy=favourite if random.random() < 0.7 else random.choice(_POLICIES),
        )
        for number in range(1, random.randint(2, 5) + 1)
    )
    drawn = [_mishap(random, workers, jobs) for _ in range(random.randint(2, 7))]
    drawn += _thematic(random, theme, workers)
    mishaps = sorted(drawn, key=lambda mishap: mishap.at)
    machines = {
        name: Machine(offset=random.uniform(-90, 90), drift=random.uniform(-0.02, 0.02))
        for name in (*processes, "hub", "manager-2")
    }
    return Scenario(seed=seed, workers=workers, jobs=jobs, mishaps=tuple(mishaps), machines=machines)


def _length(random: Random, theme: Theme) -> float:
    """How long a job runs; a second copy can only show while the first one still runs."""
    if theme is Theme.FENCING:
        return random.uniform(100, 300)
    return random.choice((random.uniform(1, 10), random.uniform(10, 80)))


def _thematic(random: Random, theme: Theme, workers: tuple[str, ...]) -> list[Mishap]:
    """What a theme adds to the ordinary mishaps."""
    match theme:
        case Theme.FENCING:
            at = random.uniform(11.0, 16.0)
            away = random.sample(workers, random.randint(1, len(workers) - 1))
            return [Mishap(at, HEALED - at - random.uniform(0, 5), Trouble.PARTITION, (name, "hub")) for name in away]
        case Theme.RETURN:
            held = random.uniform(20.0, 60.0)
            back = held + random.uniform(35.0, 70.0)
            found = [Mishap(held, back - held, Trouble.HOLD_QUEUE, ())]
            for name in workers:
                at = held - random.uniform(0.0, 6.0)
                until = back + random.uniform(-3.0, 3.0)
                found.append(Mishap(at, until - at, Trouble.PARTITION, (name, "hub")))
            return found
    return []


def _mishap(random: Random, workers: tuple[str, ...], jobs: tuple[Work, ...]) -> Mishap:
    at = round(random.uniform(2.0, HEALED - 20.0), 3)
    seconds = round(min(HEALED - at, random.choice((random.uniform(0.1, 5), random.uniform(5, 140)))), 3)
    worker = random.choice(workers)
    links = (("manager", "hub"), (worker, "hub"), (worker, "hub"), (worker, worker))
    what = random.choice(
        (
            *(Trouble.PARTITION,) * 5,
            *(Trouble.CRASH,) * 3,
            *(Trouble.SERVER_CRASH,) * 2,
            Trouble.SLOW,
            Trouble.LOSSY,
            Trouble.DUPLICATING,
            Trouble.SECOND_MANAGER,
            Trouble.WATCH_CUT,
            Trouble.DELETE_JOB,
            Trouble.STRANGER_DELETES,
            Trouble.HOLD_QUEUE,
            Trouble.LEAVE_CONFIG,
        )
    )
    match what:
        case Trouble.PARTITION | Trouble.SLOW | Trouble.LOSSY | Trouble.DUPLICATING:
            whom = random.choice(links)
        case Trouble.CRASH:
            whom = (random.choice(("manager", worker)),)
        case Trouble.SERVER_CRASH | Trouble.WATCH_CUT:
            whom = (random.choice(("hub", worker)),)
        case Trouble.DELETE_JOB:
            whom = (random.choice(jobs).name,)
        case Trouble.STRANGER_DELETES:
            whom = (worker, random.choice(jobs).name)
        case Trouble.LEAVE_CONFIG:
            whom = (worker,)
        case _:
            whom = ()
    if (what in (Trouble.CRASH, Trouble.SERVER_CRASH) and whom[0] in workers) or whom == (worker, worker):
        # Who is dead, or cut off from his own API server, stops nothing: that takes a deadline on the node
        # (worker_agent/fencing.py). What is promised is promised for less than lease and grace of it.
        seconds = min(seconds, _BESIDE_ITSELF)
    return Mishap(at=at, seconds=seconds, what=what, whom=whom)
