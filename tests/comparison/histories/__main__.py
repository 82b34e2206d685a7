# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.comparison.histories --kueue BINARY`: random histories on Kueue's own manager and on this project's.

Both run on embedded API servers at the same time, each with several histories in cohorts of their own. After each step
it waits until nothing changes any more on either, and compares; a history ends with its first difference, which is
played again to see whether it depends on timing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from devcluster.operators.definitions import JOB_SETS, shipped_definition
from multikueue.core.errors import MultikueueError
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_bench_hub
from tests.comparison.federation import MULTIKUEUE_TIMES, connect_by_kubeconfig
from tests.comparison.histories.both import QUIET_SECONDS, Both, Difference, play
from tests.comparison.histories.history import DISPATCH_CHECK, WORKERS, History, Mix, history
from tests.comparison.histories.played import HistoryHub
from tests.comparison.histories.pods import PlayedPods
from tests.support.workers import make_check

_FAIR: Final = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}
_PODS_SECONDS: Final = 3
"""As long as what waits to be queued again: shorter than that, Kueue may not have offered its quota to others yet."""
_REQUEUING: Final = {
    "timestamp": "Creation",
    "backoffLimitCount": 1,
    "backoffBaseSeconds": _PODS_SECONDS,
    "backoffMaxSeconds": _PODS_SECONDS,
}
_READY: Final = {
    "waitForPodsReady": {
        "timeout": f"{_PODS_SECONDS}s",
        "recoveryTimeout": f"{_PODS_SECONDS}s",
        "blockAdmission": False,
        "requeuingStrategy": _REQUEUING,
    }
}
_OF_OURS: Final[Mapping[str, Any]] = {
    "featureGates": {"UnadmittedWorkloadsObservability": False, "DisableWaitForPodsReady": True},
    "preemptionDelay": "0s",
}


async def run(seeds: Sequence[int], mix: Mix, *, kueue: Path, at_once: int) -> int:
    """Play the seeds; the number of those that differ, or could not be compared."""
    failed = 0
    frameworks = ["batch/job", *(["jobset.x-k8s.io/jobset"] if mix.sets else []), *(["pod"] if mix.groups else [])]
    configuration: dict[str, Any] = {"integrations": {"frameworks": frameworks}}
    configuration |= (_FAIR if mix.fair else {}) | (_READY if mix.ready else {})
    configuration |= MULTIKUEUE_TIMES if mix.dispatched else {}
    gates = {**_OF_OURS["featureGates"], "DisableWaitForPodsReady": not mix.ready}
    ours = {**configuration, **_OF_OURS, "featureGates": gates}
    async with AsyncExitStack() as stack:
        text = stack.enter_context(tempfile.TemporaryDirectory(prefix="mk-histories-"))
        hubs = []
        definitions = [shipped_definition(JOB_SETS)] if mix.sets else []
        for name, binary, given in (("kueue", kueue, configuration), ("ours", None, ours)):
            folder = Path(text) / name
            folder.mkdir()
            running = await stack.enter_async_context(
                running_bench_hub(
                    folder,
                    binaries=False,
                    configuration=given,
                    kueue=binary,
                    job_integrations=True,
                    definitions=definitions,
                )
            )
            client = await stack.enter_async_context(running.cluster.client())
            workers = await _workers(stack, folder, client, kueue=kueue) if mix.dispatched else {}
            hubs.append(HistoryHub(client, sets=mix.sets, groups=mix.groups, workers=workers))
            await hubs[-1].prepare()
        both = Both(
            *hubs, quiet_seconds=_PODS_SECONDS + QUIET_SECONDS if mix.ready or mix.dispatched else QUIET_SECONDS
        )
        waiting = list(reversed(seeds))

        async def player() -> None:
            nonlocal failed
            while waiting:
                made = history(waiting.pop(), mix)
                try:
                    found = [await play(both, made, attempt=0)]
                    if found[0] is not None:
                        found.append(await play(both, made, attempt=1))
                except MultikueueError as error:
                    failed += 1
                    print(f"seed {made.seed}: not compared: {error}", flush=True)
                    continue
                differences = [each for each in found if each is not None]
                if len(differences) < len(found) or not differences:
                    print(f"seed {made.seed}: the same{' at the second time' if differences else ''}", flush=True)
                    continue
                failed += 1
                print(_described(made, differences[-1]), flush=True)

        async with anyio.create_task_group() as group:
            group.start_soon(both.watch)
            for hub in hubs:
                if mix.ready or mix.groups:
                    group.start_soon(PlayedPods(hub.client, groups=mix.groups).run)
                for worker in hub.workers.values():
                    group.start_soon(PlayedPods(worker).run)
            if mix.dispatched:
                group.start_soon(PlayedPods(both.kueue.client, dispatched=True).run)
            async with anyio.create_task_group() as players:
                for _ in range(at_once):
                    players.start_soon(player)
            group.cancel_scope.cancel()
    return failed


async def _workers(stack: AsyncExitStack, folder: Path, hub: KubeClient, *, kueue: Path) -> dict[str, KubeClient]:
    """Worker clusters with Kueue's manager, which the hub reaches by a kubeconfig."""
    found = {}
    for name in WORKERS:
        (folder / name).mkdir()
        configuration = {"integrations": {"frameworks": ["batch/job"]}}
        running = await stack.enter_async_context(
            running_bench_hub(folder / name, binaries=False, configuration=configuration, kueue=kueue)
        )
        found[name] = await stack.enter_async_context(running.cluster.client())
        await connect_by_kubeconfig(hub, name, await anyio.Path(running.cluster.kubeconfig).read_bytes())
    await make_check(hub, DISPATCH_CHECK, WORKERS)
    return found


def _described(made: History, difference: Difference) -> str:
    lines = [f"seed {made.seed}: DIFFERENT after step {difference.after}"]
    for kind, specs in (("flavor", made.flavors), ("cohort", made.cohorts), ("queue", made.queues)):
        lines += (f"    {kind} {name}: {spec}" for name, spec in specs.items())
    lines += [f"    levels {made.levels}"] if made.levels else []
    lines += (f"    {flavor} {node}" for flavor, nodes in made.nodes.items() for node in nodes)
    lines += (f"    {index} {step}" for index, step in enumerate(made.steps[: difference.after], 1))
    lines += (f"  kueue: {line}" for line in difference.kueue)
    lines += (f"  ours:  {line}" for line in difference.ours)
    return "\n".join(lines)


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(prog="python -m tests.comparison.histories", description=__doc__.partition("\n")[0])
    flags.add_argument("--kueue", type=Path, required=True, metavar="BINARY", help="Kueue's own manager")
    flags.add_argument("--first", type=int, default=1, help="the first seed")
    flags.add_argument("--seeds", type=int, default=32, help="how many")
    flags.add_argument("--seed", type=int, nargs="*", help="these instead")
    flags.add_argument("--steps", type=int, default=14, help="the steps of each history")
    flags.add_argument("--at-once", type=int, default=16, help="how many histories are played side by side")
    flags.add_argument("--fair", action="store_true", help="with fair sharing")
    flags.add_argument("--placed", action="store_true", help="with nodes and a topology")
    flags.add_argument("--checked", action="store_true", help="with admission checks")
    flags.add_argument("--sets", action="store_true", help="with JobSets")
    flags.add_argument("--groups", action="store_true", help="with groups of pods")
    flags.add_argument("--ready", action="store_true", help="with pods that are ready in time or not")
    flags.add_argument("--dispatched", action="store_true", help="with worker clusters, on which Kueue's manager runs")
    options = flags.parse_args()
    seeds = options.seed or range(options.first, options.first + options.seeds)
    mix = Mix(
        steps=options.steps,
        fair=options.fair,
        placed=options.placed,
        checked=options.checked,
        sets=options.sets,
        groups=options.groups,
        ready=options.ready,
        dispatched=options.dispatched,
    )
    play_them = partial(run, list(seeds), mix, kueue=options.kueue, at_once=options.at_once)
    return 1 if anyio.run(play_them) else 0


if __name__ == "__main__":
    sys.exit(main())
