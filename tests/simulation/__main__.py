# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation`: run many seeds, or replay one and print its timeline.

    python -m tests.simulation --seeds 2000
    python -m tests.simulation --replay 417
    python -m tests.simulation --parallel --seeds 500
    python -m tests.simulation --jobsets --seeds 500
    python -m tests.simulation --pods --seeds 500
    python -m tests.simulation --groups --seeds 500
    python -m tests.simulation --elastic --seeds 500
    python -m tests.simulation --queues --seeds 500
    python -m tests.simulation --sets --seeds 500
    python -m tests.simulation --deployments --seeds 500
    python -m tests.simulation --leaderworkersets --seeds 500
    python -m tests.simulation --ready --seeds 500
    python -m tests.simulation --mutant lease-ignored --seeds 500

Seeds that have found a fault are played too. The digest at the end is that of all timelines: a change that only makes
the simulation faster leaves it as it was.

Exit code 0 if every seed passed; 1 and the timeline of the first that failed; with `--mutant` the reverse: 0 if a seed
catches it.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from devcluster.apiserver.server import ApiServer
from tests.simulation.seeds import autoscaling, processes, queued_workers
from tests.simulation.seeds.mutants import MUTANTS
from tests.simulation.seeds.play import Outcome, make_repeatable, play
from tests.simulation.seeds.processes import Run, outcomes
from tests.simulation.seeds.scenario import draw, with_groups
from tests.simulation.seeds.set_work import DeploymentWork, LeaderWorkerSetWork, SetWork
from tests.simulation.seeds.user_work import (
    ElasticWork,
    GroupWork,
    JobSetWork,
    JobWork,
    ParallelWork,
    PodWork,
    SlowWork,
    UserWork,
    settings_of,
)
from tests.simulation.world import federation, shortcuts
from tests.simulation.world.nominator import DISPATCHER

_ADDR_NO_RANDOMIZE: Final = 0x0040000
_WARM_UP: Final = (1, 2)
_WARM_UP_SETTINGS: Final = (0, 4)
"""A seed for each of the settings of one dispatcher."""
_FOUND: Final = {
    "": (5923, 8778, 9789, 12906, 46871, 50016),
    "parallel": (72, 89, 93),
    "jobsets": (72, 89, 273),
    "pods": (17, 21),
    "groups": (4, 63, 120, 163, 581, 664),
    "elastic": (19, 69, 113, 625, 928),
    "queues": (15, 21, 27, 51, 75, 80, 119, 231, 338, 386, 1104),
    "groups queues": (466, 501, 528),
    "sets": (15, 21, 27, 30),
    "deployments": (4, 13, 39, 50),
    "ready": (10, 17, 66, 80),
    "leaderworkersets provisioning": (21,),
}
"""Each of these seeds has found a fault once, with that work; they are played in every run of several seeds."""
_WORK: Final[dict[str, Callable[[], UserWork]]] = {
    "parallel": ParallelWork,
    "jobsets": JobSetWork,
    "pods": PodWork,
    "groups": GroupWork,
    "sets": SetWork,
    "deployments": DeploymentWork,
    "leaderworkersets": LeaderWorkerSetWork,
    "elastic": ElasticWork,
    "ready": SlowWork,
}
DISPATCHERS: Final = {
    "all-at-once": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    "incremental": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
    "capacity": "multikueue.io/dispatcher-capacity",
    "external": DISPATCHER,
}


def runner(
    *,
    dispatcher: str = "",
    mutant: str = "",
    provisioning: bool = False,
    queues: bool = False,
    work: UserWork | None = None,
    times: int = 1,
) -> Run:
    """What plays a seed, so many times in one process; without a dispatcher the seeds take turns with all of them.

    Each process that is forked from here has servers for so many seeds. With `provisioning` a job starts on a cluster
    that has provisioned its capacity; with `queues` some workers have a Kueue of their own. `work` is what users
    submit, Jobs unless it is given.
    """
    work = work or JobWork()
    groups = work.is_group or work.serves
    wanted = ((autoscaling.prepare, provisioning), (queued_workers.prepare, queues))
    prepares = [each for each, is_wanted in wanted if is_wanted]

    def prepare_for_work(_: str, server: ApiServer) -> None:
        work.prepare(server)

    def prepare(name: str, server: ApiServer) -> None:
        for each in prepares:
            each(name, server)
        work.prepare(server)

    make_repeatable()
    for seed in _WARM_UP:
        # What is imported, compiled and cached on its first use is there for all seeds then.
        scenario = with_groups(draw(seed)) if groups else draw(seed)
        servers = federation.build_servers(prepare=prepare_for_work)
        play(scenario, servers, dispatcher=DISPATCHERS["capacity"], goes_on=True, work=work)
    make_repeatable()  # what the first seeds have loaded, too
    shortcuts.forget()
    prepared = [federation.build_servers(prepare=prepare) for _ in range(times)]
    names = [DISPATCHERS[dispatcher]] if dispatcher else list(DISPATCHERS.values())
    for name in names:
        for seed in _WARM_UP_SETTINGS:
            settings_of(seed, name, work)  # kept for the seeds

    def run(seed: int) -> Outcome:
        if mutant and len(prepared) == times:
            MUTANTS[mutant].apply()
        scenario = with_groups(draw(seed)) if groups else draw(seed)
        dispatched_by = names[seed % len(names)]
        made = partial(play, scenario, prepared.pop(), dispatcher=dispatched_by)
        return made(provisioning=provisioning, queues=queues, work=work)

    return run


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    flags.add_argument("--seeds", type=int, default=2000, help="how many (2000)")
    flags.add_argument("--first", type=int, default=1, help="the first of them (1)")
    flags.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    flags.add_argument("--dispatcher", choices=sorted(DISPATCHERS), default="", help="only this one")
    flags.add_argument("--mutant", choices=sorted(MUTANTS), default="", help="a deliberate fault")
    flags.add_argument("--provisioning", action="store_true", help="capacity is provisioned across clusters first")
    flags.add_argument("--parallel", action="store_true", help="users submit Jobs of several pods")
    flags.add_argument("--jobsets", action="store_true", help="users submit JobSets instead of Jobs")
    flags.add_argument("--pods", action="store_true", help="users submit pods instead of Jobs")
    flags.add_argument("--groups", action="store_true", help="users submit pod groups instead of Jobs")
    flags.add_argument("--elastic", action="store_true", help="users submit elastic Jobs, and change their sizes")
    flags.add_argument("--sets", action="store_true", help="users submit StatefulSets instead of Jobs")
    flags.add_argument("--deployments", action="store_true", help="users submit Deployments instead of Jobs")
    flags.add_argument("--leaderworkersets", action="store_true", help="users submit LeaderWorkerSets instead of Jobs")
    flags.add_argument("--ready", action="store_true", help="pods take long to be ready, and the hub waits for them")
    flags.add_argument("--queues", action="store_true", help="some workers have a Kueue of their own, and users")
    flags.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its timeline")
    flags.add_argument("--log", action="store_true", help="with --replay: also print the logs")
    options = flags.parse_args()
    if options.provisioning and options.queues:
        flags.error("a cluster with queues of its own is not asked for capacity: use --provisioning or --queues")
    if (options.sets or options.leaderworkersets) and options.queues:
        flags.error("a cluster with queues of its own gets no StatefulSet and no LeaderWorkerSet: leave --queues out")
    kinds = [f"--{chosen}" for chosen in _WORK if vars(options)[chosen]]
    if len(kinds) > 1:
        flags.error(f"users submit one kind of work: choose one of {', '.join(kinds)}")
    logging.disable(logging.CRITICAL)
    times = 1 if options.replay is not None else processes.together(options.seeds, jobs=options.jobs)
    run = runner(
        dispatcher=options.dispatcher,
        mutant=options.mutant,
        provisioning=options.provisioning,
        queues=options.queues,
        work=next((made() for chosen, made in _WORK.items() if vars(options)[chosen]), None),
        times=times,
    )
    if options.log:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    if options.replay is not None:
        return _report(next(outcomes(run, [options.replay], jobs=1)))
    began = monotonic()
    failed = []
    timelines: dict[int, str] = {}
    chosen = list(range(options.first, options.first + options.seeds))
    if not options.mutant:
        work = " ".join(each for each in (*_WORK, "queues", "provisioning") if vars(options)[each])
        chosen += sorted(set(_FOUND.get(work, ())).difference(chosen))
    for played, outcome in enumerate(outcomes(run, chosen, jobs=options.jobs, together=times), 1):
        timelines[outcome.seed] = hashlib.sha256("\n".join(outcome.timeline).encode()).hexdigest()
        if outcome.problem:
            failed.append(outcome)
            print(f"seed {outcome.seed}: {outcome.problem}", flush=True)
            if options.mutant:
                print(f"{options.mutant} is caught by seed {outcome.seed}, after {played} seeds")
                return 0
    digest = hashlib.sha256("".join(timelines[seed] for seed in sorted(timelines)).encode()).hexdigest()[:16]
    print(
        f"{len(chosen)} seeds in {monotonic() - began:.0f} s, {len(failed)} failed; "
        f"the digest of the timelines is {digest}",
        flush=True,
    )
    if options.mutant:
        return 1
    return _report(min(failed, key=lambda outcome: len(outcome.timeline))) if failed else 0


def _report(outcome: Outcome) -> int:
    print(*outcome.timeline, sep="\n")
    print(f"seed {outcome.seed}, {outcome.seconds:.0f} s of virtual time: {outcome.problem or 'everything held'}")
    return 1 if outcome.problem else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets, of texts and of objects by their address, would differ from run to run, and a seed could
        # not be replayed.
        ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
