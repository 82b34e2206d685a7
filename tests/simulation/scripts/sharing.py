# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation.scripts.sharing`: Jobs that share clusters whose own queues admit, by every dispatcher.

Owns the scripts: beside an ordinary queue, evicted on the worker, preempted there or by the hub, and of another
priority. Each is played with every dispatcher, and with either transport by some of them. One line for each is printed:
its name, a tab, and what was wrong, which is empty when nothing was.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from typing import Final

from tests.simulation.scripts.courses import ALL_AT_ONCE, CAPACITY, INCREMENTAL, Course, Script
from tests.simulation.scripts.stage import Stage
from tests.simulation.scripts.write_failures import play_course
from tests.simulation.seeds.play import Outcome, make_repeatable
from tests.simulation.seeds.processes import outcomes
from tests.simulation.world import federation, shortcuts
from tests.simulation.world.federation import GROUP, USER_JOBS, call, create, job, kueue

_QUEUE: Final = f"{GROUP}/clusterqueues/queue"
_BOTH: Final = ("k1", "k2")


def _begin(stage: Stage, *, cpu: str = "6", preempting: bool = False) -> None:
    """The processes, with so much quota on the hub; workers may let work of higher priority take the place of other."""
    for name in stage.workers:
        if preempting:
            there = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
            call(stage.servers[name].api, "PATCH", _QUEUE, there)
        stage.start_kueue(name)
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    stage.change(_QUEUE, {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}})
    stage.start()


def _where(stage: Stage, name: str) -> str:
    """The cluster that its pods run on; empty when there is none."""
    key = f"{federation.NAMESPACE}/{name}"
    found = [
        worker
        for worker, pods in stage.pods.items()
        if any(copy.live and copy.key == key for copy in pods.copies.values())
    ]
    return found[0] if found else ""


async def _ends(stage: Stage, *names: str) -> None:
    for name in names:
        stage.finish(name)
        await stage.completes(name)


async def _beside(stage: Stage) -> None:
    """One of a queue that dispatches and one of an ordinary queue run at the same time, each where it belongs."""
    _begin(stage)
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    create(stage.hub, f"{GROUP}/clusterqueues", kueue("ClusterQueue", "plain", spec=spec))
    local = f"{GROUP}/namespaces/{federation.NAMESPACE}/localqueues"
    create(stage.hub, local, kueue("LocalQueue", "plain", spec={"clusterQueue": "plain"}))
    made = job("here", cpu=1, labels={"kueue.x-k8s.io/queue-name": "plain"})
    made["spec"]["suspend"] = True
    create(stage.hub, USER_JOBS, made)
    stage.submit("there")
    await stage.runs("there")

    def started() -> bool:
        found = stage.hub.context.get("jobs.batch", f"{federation.NAMESPACE}/here") or {"spec": {"suspend": True}}
        return not found["spec"].get("suspend")

    await stage.until("the other one is started on the hub", started)
    assert not _where(stage, "here"), "what is of an ordinary queue was sent to a worker"
    await _ends(stage, "there")


async def _evicted_there(stage: Stage) -> None:
    """The queue of the worker is drained, and the job runs on the other worker then."""
    _begin(stage)
    stage.submit("a")
    await stage.runs("a")
    first = _where(stage, "a")
    call(stage.servers[first].api, "PATCH", _QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.until("a runs elsewhere", lambda: _where(stage, "a") not in ("", first))
    assert stage.evictions("a") == 1, f"evicted {stage.evictions('a')} times"
    await _ends(stage, "a")


async def _preempted_there(stage: Stage) -> None:
    """Work of higher priority takes the place on the worker; the other waits, and comes again at the same one."""
    _begin(stage, preempting=True)
    stage.submit("low", cpu=3, priority="low")
    await stage.runs("low")
    stage.submit("high", cpu=3, priority="high")
    await stage.runs("high")
    await stage.until("low has stopped", lambda: not stage.live("low"))
    await _ends(stage, "high")
    await stage.runs("low")
    await _ends(stage, "low")


async def _preempted_and_elsewhere(stage: Stage) -> None:
    """What is evicted on one worker runs on another one as soon as that has free quota."""
    _begin(stage, cpu="20", preempting=True)
    stage.submit("low", cpu=3, priority="low")
    await stage.runs("low")
    first = _where(stage, "low")
    stage.submit("other", cpu=3, priority="high")
    await stage.runs("other")
    second = _where(stage, "other")
    assert second != first, "there was free quota on the other worker"
    stage.submit("high", cpu=3, priority="high")
    await stage.runs("high")
    assert _where(stage, "high") == first, "only there is work of lower priority"
    await _ends(stage, "other")
    await stage.runs("low")
    assert _where(stage, "low") == second, "there is free quota again"
    await _ends(stage, "low", "high")


async def _preempted_by_the_hub(stage: Stage) -> None:
    """The hub's queue has no quota for both: it stops the lower one on its worker, and starts it again afterwards."""
    _begin(stage, cpu="4")
    stage.submit("low", cpu=3, priority="low")
    await stage.runs("low")
    stage.submit("high", cpu=3, priority="high")
    await stage.runs("high")
    await stage.waits("low")
    await _ends(stage, "high")
    await stage.runs("low")
    await _ends(stage, "low")


async def _another_priority(stage: Stage) -> None:
    """Another priority class of the Job reaches the Workload on its worker, which continues to run."""
    _begin(stage)
    stage.submit("a", priority="low")
    await stage.runs("a")
    where = _where(stage, "a")
    assert stage.clone_priority(where) == federation.PRIORITIES["low"]
    stage.change(f"{USER_JOBS}/a", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
    high = federation.PRIORITIES["high"]
    await stage.until("the worker's Workload has the priority", lambda: stage.clone_priority(where) == high)
    assert (_where(stage, "a"), stage.evictions("a")) == (where, 0), "it was stopped"
    await _ends(stage, "a")


SCRIPTS: Final[dict[str, tuple[Script, tuple[str, ...]]]] = {
    "beside an ordinary queue": (_beside, ("k1",)),
    "evicted on the worker and sent anew": (_evicted_there, _BOTH),
    "preempted on a worker and again there": (_preempted_there, ("k1",)),
    "preempted on a worker and then on another": (_preempted_and_elsewhere, _BOTH),
    "preempted by the hub": (_preempted_by_the_hub, ("k1",)),
    "of another priority class": (_another_priority, ("k1",)),
}
DISPATCHERS: Final = {"capacity": CAPACITY, "all at once": ALL_AT_ONCE, "incremental": INCREMENTAL}


def courses() -> Iterator[Course]:
    """Each script with each dispatcher; the transports take turns."""
    for row, (name, (script, workers)) in enumerate(SCRIPTS.items()):
        for column, (label, dispatcher) in enumerate(DISPATCHERS.items()):
            push = (row + column) % 2 == 1
            yield Course(
                f"{name}, {label}, {'push' if push else 'pull'}",
                str(script.__doc__),
                script,
                workers,
                pushed=workers if push else (),
                dispatcher=dispatcher,
            )


def main() -> int:
    """Play all of them."""
    logging.disable(logging.CRITICAL)
    make_repeatable()
    servers = {**federation.build_servers(), **{name: federation.build_queued_worker(name) for name in _BOTH}}
    shortcuts.forget()
    chosen = list(courses())
    failed = 0
    runs = outcomes(
        lambda number: Outcome(number, play_course(chosen[number], servers).problem, (), 0.0),
        range(len(chosen)),
        jobs=os.cpu_count() or 1,
    )
    for outcome in runs:
        failed += bool(outcome.problem)
        print(f"{chosen[outcome.seed].name}\t{(outcome.problem.strip().splitlines() or [''])[-1]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets, of texts and of objects by their address, would differ from run to run.
        ctypes.CDLL(None).personality(0x0040000)
        command = [sys.executable, "-m", "tests.simulation.scripts.sharing"]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
