# SPDX-License-Identifier: Apache-2.0
"""How seeds share processes: what is asked of a seed's outcome holds whatever was played before it."""

from __future__ import annotations

import os

from tests.simulation.seeds.play import Outcome
from tests.simulation.seeds.processes import outcomes, together


def held(seed: int, problem: str = "") -> Outcome:
    return Outcome(seed, problem, (f"process {os.getpid()}",), 1.0)


def test_each_seed_has_an_outcome_and_a_few_share_a_process() -> None:
    found = list(outcomes(held, range(1, 11), jobs=2, together=4))
    assert sorted(outcome.seed for outcome in found) == list(range(1, 11))
    processes = {outcome.seed: outcome.timeline for outcome in found}
    assert len({processes[seed] for seed in (1, 2, 3, 4)}) == 1
    assert len(set(processes.values())) == 3


def test_a_seed_that_fails_after_others_is_played_again_by_itself() -> None:
    found = {
        outcome.seed: outcome
        for outcome in outcomes(lambda seed: held(seed, "x" * (seed == 3)), range(1, 6), jobs=1, together=5)
    }
    assert {seed: outcome.problem for seed, outcome in found.items()} == {1: "", 2: "", 3: "x", 4: "", 5: ""}
    assert found[3].timeline not in [found[seed].timeline for seed in (1, 2, 4, 5)]
    assert found[4].timeline != found[2].timeline


def test_a_seed_that_fails_only_after_others_is_a_failure_that_names_them() -> None:
    played: list[int] = []

    def run(seed: int) -> Outcome:
        played.append(seed)
        return held(seed, "left behind" if seed == 3 and 1 in played else "")

    found = {outcome.seed: outcome.problem for outcome in outcomes(run, range(1, 5), jobs=1, together=4)}
    assert found == {1: "", 2: "", 3: "only after the seeds 1, 2 in one process: left behind", 4: ""}


def test_a_process_that_dies_is_an_outcome_of_its_seed_and_the_others_are_played() -> None:
    def run(seed: int) -> Outcome:
        if seed == 2:
            os._exit(7)
        return held(seed)

    found = list(outcomes(run, range(1, 6), jobs=2, together=3))
    assert sorted(outcome.seed for outcome in found) == [1, 2, 3, 4, 5]
    (died,) = [outcome for outcome in found if outcome.problem]
    assert died.seed == 2
    assert "the process of the seed died" in died.problem


def test_an_error_of_the_simulation_is_the_problem_of_its_seed() -> None:
    def run(seed: int) -> Outcome:
        raise ValueError("nothing is there")

    assert ["nothing is there" in outcome.problem for outcome in outcomes(run, [1, 2], jobs=2, together=2)] == [
        True
    ] * 2


def test_few_seeds_have_a_process_each() -> None:
    assert [together(seeds, jobs=2) for seeds in (1, 20, 167, 2000)] == [1, 1, 8, 8]
