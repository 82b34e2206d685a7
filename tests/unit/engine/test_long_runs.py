# SPDX-License-Identifier: Apache-2.0
"""Long dense runs against the model: many heads, victims and edits, from a seed.

`test_model` finds short runs and shrinks them; these reach states that need many steps. Run this file as a program with
a first seed and a number of seconds to run more of them.
"""

from __future__ import annotations

import sys
from random import Random
from time import monotonic

import pytest

from tests.unit.engine.test_model import COHORTS, FLAVORS, QUEUES, EngineMachine, FairEngineMachine

MACHINES = {"classical": EngineMachine, "fair sharing": FairEngineMachine}
STEPS = 60


def step(machine: EngineMachine, draw: Random) -> None:
    """One thing that happens; cycles and arrivals most of all."""
    chance = draw.random()
    if chance < 0.30:
        machine.submit(draw)
    elif chance < 0.65:
        machine.cycle(draw.randint(1, 3), draw.random() < 0.5)
    elif chance < 0.75:
        machine.settle(draw.random() < 0.5)
    elif chance < 0.78:
        machine.edit_queue(draw, draw.choice(QUEUES))
    elif chance < 0.80:
        machine.edit_cohort(draw, draw.choice(COHORTS))
    elif chance < 0.81:
        remove(machine, draw)
    elif chance < 0.83:
        machine.edit_flavor(draw.choice(FLAVORS), draw.random() < 0.5)
    elif chance < 0.84:
        machine.stop_or_resume(draw.choice(QUEUES), False)
    elif chance < 0.93 and machine.known:
        change(machine, draw)
    elif chance < 0.96 and machine.decided:
        machine.evict(draw, draw.choice((None, 2, 5)))
    elif chance < 0.98:
        machine.wait(draw.choice((0.0, 0.5, 1.0, 3.0)))
    elif machine.known:
        machine.explain(draw)


def remove(machine: EngineMachine, draw: Random) -> None:
    """Something that others refer to goes away."""
    match draw.randrange(4):
        case 0:
            machine.remove_cohort(draw.choice(COHORTS))
        case 1:
            machine.remove_queue(draw.choice(QUEUES))
        case 2:
            machine.remove_flavor(draw.choice(FLAVORS))
        case _:
            machine.stop_or_resume(draw.choice(QUEUES), True)


def change(machine: EngineMachine, draw: Random) -> None:
    """Something happens to one workload."""
    match draw.randrange(9):
        case 0 | 1:
            machine.change_priority(draw, draw.randint(0, 2))
        case 2 | 3 | 4 | 5:
            machine.finish(draw)
        case 6:
            machine.delete(draw)
        case _ if machine.decided:
            machine.reclaim(draw, draw.choice((0, 1, 2)))


def run_seed(kind: str, seed: int) -> EngineMachine:
    """One run."""
    draw = Random(seed)
    machine = MACHINES[kind]()
    machine.begin(draw)
    for _ in range(STEPS):
        step(machine, draw)
        machine.what_waits_is_the_same()
        machine.usage_is_the_sum_of_what_is_reserved()
        machine.nothing_is_lost_or_in_two_places()
    return machine


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("seed", range(60), ids=lambda seed: f"seed {seed}")
def test_the_engine_decides_as_the_model_in_a_long_run(kind: str, seed: int) -> None:
    run_seed(kind, seed)


def main(first: int, seconds: float) -> None:
    """Run until the time is over."""
    end = monotonic() + seconds
    seed = first
    while monotonic() < end:
        for kind in MACHINES:
            run_seed(kind, seed)
        seed += 1
    sys.stdout.write(f"{2 * (seed - first)} runs, no difference\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
