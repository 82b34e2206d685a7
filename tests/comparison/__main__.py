# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.comparison --kueue BINARY [COURSE…]`: what this project's manager and Kueue's own write in a course.

After each step it prints the lines that only one of both has (`docs/reference/beside-kueue.md` says which are meant to
differ). Both run on embedded API servers, one after the other. The course `multikueue` has a worker cluster with
Kueue's manager in both cases, and `writes` is what the webhooks of both answer. The binary is that of Kueue 0.17.0 (`go
install sigs.k8s.io/kueue/cmd/kueue@v0.17.0`), which does not start without a certificate in `/etc/kueue/metrics/certs`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from multikueue.api.resource import SERVICE_ACCOUNTS
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_bench_hub
from tests.comparison.answers import answers, compared
from tests.comparison.courses import devices
from tests.comparison.courses.catalog import COURSES, MEASURED
from tests.comparison.courses.course import Course
from tests.comparison.courses.devices import dispatched_devices
from tests.comparison.courses.jobs import dispatched, measured_course
from tests.comparison.courses.kinds import dispatched_kinds, dispatched_serving
from tests.comparison.federation import running_federation
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.kinds_hub import RESOURCES, running_kinds_hub
from tests.comparison.looks import Looks
from tests.comparison.measured import measured, metrics_token
from tests.comparison.placed import placed
from tests.comparison.shown import differences, events, lines
from tests.comparison.takeover import dispatched_taken_over, taken_over, topologies_taken_over
from tests.comparison.visibility import pending, pending_course, visibility_token
from tests.support.managers import ensure, make_namespace

_WRITES: Final = "writes"
_METRICS: Final = "metrics"
_DISPATCHED: Final = {
    "multikueue": dispatched,
    "worker": dispatched,
    "multikueue-kinds": dispatched_kinds,
    "worker-kinds": dispatched_kinds,
    "multikueue-devices": dispatched_devices,
    "worker-devices": dispatched_devices,
    "multikueue-serving": dispatched_serving,
    "worker-serving": dispatched_serving,
}
_ON_WORKER: Final = ("worker", "worker-devices", "worker-kinds", "worker-serving")
"""In these both managers of the hub are Kueue's, and those of the worker are compared."""
_TAKEOVERS: Final = {
    "takeover": taken_over,
    "topology-takeover": topologies_taken_over,
    "multikueue-takeover": dispatched_taken_over,
}
_VISIBILITY: Final = "visibility"
_NAMES: Final = (*COURSES, *_DISPATCHED, _METRICS, *_TAKEOVERS, _VISIBILITY, _WRITES)
_FRAMEWORKS: Final = {"integrations": {"frameworks": ["batch/job"]}}
_EVERY_KIND: Final = (
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/mpijob",
    "kubeflow.org/pytorchjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
)
_OLD_REASONS: Final = {"UnadmittedWorkloadsObservability": False}


async def play(name: str, *, kueue: Path, on_hub: bool) -> list[tuple[str, list[str]]]:
    """What is shown after each step of the course, on a hub with Kueue's manager or with this project's."""
    course = COURSES.get(name)
    given: Mapping[str, Any] = MEASURED if name == _METRICS else course.configuration if course is not None else {}
    of_kueue: Mapping[str, bool] = {} if course is None else course.kueue_gates
    if _DISPATCHED.get(name) is dispatched_devices:
        given, of_kueue = devices.CONFIGURATION, devices.KUEUE_GATES
    configuration: dict[str, Any] = {**_FRAMEWORKS, **given}
    gates: dict[str, Any] = {}
    if not on_hub:
        # Kueue 0.17.0 does not wait for pods by default, and has the reasons from before this gate.
        off = {} if "waitForPodsReady" in configuration else {"DisableWaitForPodsReady": True}
        gates = {"featureGates": _OLD_REASONS | off}
    theirs: dict[str, Any] = {"featureGates": of_kueue} if of_kueue else {}
    hub_is_kueue, worker_is_kueue = on_hub or name in _ON_WORKER, on_hub or name not in _ON_WORKER
    on_worker = {**given, **(theirs if worker_is_kueue else gates)}
    configuration |= theirs if hub_is_kueue else gates
    hub_kueue = kueue if on_hub else None
    with tempfile.TemporaryDirectory(prefix="mk-comparison-") as text:
        folder = Path(text)
        if name == _WRITES:
            return await _answers(folder, configuration, kueue=hub_kueue)
        if name == _METRICS:
            return await _metrics(folder, configuration, kueue=hub_kueue)
        if name == _VISIBILITY:
            return await _visibility(folder, configuration, kueue=hub_kueue)
        if course is not None:
            return await _play_on_hub(course, folder, configuration, kueue=hub_kueue)
        made = running_federation(
            folder,
            hub_kueue=kueue if name in _ON_WORKER else hub_kueue,
            worker_kueue=hub_kueue if name in _ON_WORKER else kueue,
            configuration=configuration,
            on_worker=on_worker,
            every_kind=_DISPATCHED[name] in (dispatched_kinds, dispatched_serving),
        )
        async with made as both:
            looks = Looks(both.lines, partial(events, both.hub.client, NAMESPACE))
            async for look in _DISPATCHED[name](both):
                await looks.take(look)
            return looks.shown


async def _answers(
    folder: Path, configuration: Mapping[str, object], *, kueue: Path | None
) -> list[tuple[str, list[str]]]:
    every = {**configuration, "integrations": {"frameworks": _EVERY_KIND}}
    made = running_bench_hub(folder, binaries=False, configuration=every, kueue=kueue, job_integrations=True)
    async with made as hub, hub.cluster.client() as client:
        return [each async for each in answers(client)]


async def _metrics(
    folder: Path, configuration: Mapping[str, object], *, kueue: Path | None
) -> list[tuple[str, list[str]]]:
    """The metrics after all courses with the same configuration, each in queues of its own."""
    made = running_bench_hub(folder, binaries=False, configuration=configuration, kueue=kueue, job_integrations=True)
    async with made as hub, hub.cluster.client() as client:
        await make_namespace(client, NAMESPACE)
        token = await metrics_token(client)
        looks = Looks(partial(measured, hub.metrics, token), partial(events, client, NAMESPACE))
        async for look in measured_course(ComparedHub(client)):
            await looks.take(look)
        return looks.shown


async def _visibility(
    folder: Path, configuration: Mapping[str, object], *, kueue: Path | None
) -> list[tuple[str, list[str]]]:
    """What is shown of pending workloads."""
    made = running_bench_hub(
        folder, binaries=False, configuration=configuration, kueue=kueue, job_integrations=True, visibility=True
    )
    async with made as hub, hub.cluster.client() as client:
        await make_namespace(client, NAMESPACE)
        token = await visibility_token(client)
        looks = Looks(partial(pending, hub.visibility, token), partial(events, client, NAMESPACE))
        async for look in pending_course(ComparedHub(client)):
            await looks.take(look)
        return looks.shown


async def _play_on_hub(
    course: Course, folder: Path, configuration: Mapping[str, object], *, kueue: Path | None
) -> list[tuple[str, list[str]]]:
    if course.every_kind:
        async with running_kinds_hub(folder, kueue=kueue, configuration=configuration, nodes=course.nodes) as hub:
            if course.nodes:
                return await _looks(course, hub, partial(placed, jobs=RESOURCES))
            return await _looks(course, hub, partial(lines, jobs=RESOURCES, run_by_controllers=True))
    made = running_bench_hub(
        folder,
        binaries=False,
        configuration=configuration,
        kueue=kueue,
        job_integrations=True,
        definitions=course.definitions,
    )
    async with made as running, running.cluster.client() as client:
        await make_namespace(client, NAMESPACE)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAMESPACE},
        }
        await ensure(client, SERVICE_ACCOUNTS, account)
        return await _looks(course, ComparedHub(client), partial(lines, jobs=course.shown))


async def _looks(
    course: Course, hub: ComparedHub, shown: Callable[[KubeClient, str], Awaitable[list[str]]]
) -> list[tuple[str, list[str]]]:
    looks = Looks(partial(shown, hub.client, NAMESPACE), partial(events, hub.client, NAMESPACE))
    async for look in course.steps(hub):
        await looks.take(look)
    return looks.shown


async def compare(names: list[str], kueue: Path) -> None:
    """Print the differences of each course, each after the first step that shows it."""
    for name in names:
        if name in _TAKEOVERS:
            with tempfile.TemporaryDirectory(prefix="mk-comparison-") as text:
                gates = {"featureGates": _OLD_REASONS | {"DisableWaitForPodsReady": True}}
                taken = await _TAKEOVERS[name](Path(text), kueue=kueue, configuration=gates)
            print(f"{name}:", flush=True)
            for each in taken:
                print(f"  {each.after}:", *(f"    {line}" for line in differences(each.theirs, each.ours)), sep="\n")
            continue
        theirs, ours = [await play(name, kueue=kueue, on_hub=on_hub) for on_hub in (True, False)]
        print(f"{name}:", flush=True)
        known: set[str] = set()
        for (after, one), (_, other) in zip(theirs, ours, strict=True):
            found = list(compared(one, other) if name == _WRITES else differences(one, other))
            new = [line for line in found if line not in known]
            known = set(found) if name != _WRITES else set()
            if not new and name == _WRITES:
                continue
            print(f"  {after}: {'no difference' if not found else '' if new else 'no other'}".rstrip())
            print(*(f"    {line}" for line in new), sep="\n", end="\n" if new else "")


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(prog="python -m tests.comparison", description=__doc__.partition("\n")[0])
    flags.add_argument("--kueue", type=Path, required=True, metavar="BINARY", help="Kueue's own manager")
    flags.add_argument("courses", nargs="*", metavar="COURSE", help=f"of {', '.join(_NAMES)}; all by default")
    options = flags.parse_args()
    if unknown := sorted(set(options.courses).difference(_NAMES)):
        flags.error(f"no such course: {', '.join(unknown)}; there are {', '.join(_NAMES)}")
    anyio.run(compare, options.courses or list(_NAMES), options.kueue)
    return 0


if __name__ == "__main__":
    sys.exit(main())
