# SPDX-License-Identifier: Apache-2.0
"""Every declared kind through every state: on the hub, by an agent, and by a kubeconfig.

The ids are the table of docs/jobs/README.md: the cell of a test is `CELLS`, its kind and place are its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec, Provider
from multikueue.api.constants import WORKER_WORKLOAD_POD_LABEL
from multikueue.api.crds import manifests
from tests.support.kind_courses import Course, play
from tests.support.kind_federations import LOCAL, Seen, kind_federation, queue_of
from tests.support.kind_scenes import LABELS
from tests.support.managers import condition, is_true
from tests.support.operators.operated_kinds import at
from tests.support.operators.played_kinds import PLAYED_KINDS, REMOTE, Cell, PlayedKind
from tests.support.sites import Transport

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PULL: Final = str(Transport.PULL)
PLACES: Final = {"embedded": (LOCAL, PULL, str(Transport.PUSH)), "binaries": (PULL,)}
"""Where the kinds are played: on the hub, or on a worker by a transport."""


@dataclass(frozen=True)
class Played:
    """The courses of all kinds on clusters of one provider."""

    courses: tuple[Course, ...]

    def of(self, kind: PlayedKind, place: str) -> Course:
        return next(each for each in self.courses if each.kind == kind and each.place == place)


@pytest.fixture(scope="module")
def played_before() -> dict[str, Played]:
    """What was played, by provider: the tests of a cell take turns with the providers, and would play all again."""
    return {}


@pytest.fixture(scope="module")
async def played(
    anyio_backend: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    played_before: dict[str, Played],
) -> Played:
    """All courses, played to their ends."""
    if request.param not in played_before:
        played_before[request.param] = await _play(request, tmp_path_factory)
    return played_before[request.param]


async def _play(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp(f"cells-{request.param}")
    provider: Provider
    if request.param == "embedded":
        provider = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    courses = _wanted(request)
    kinds = [each for each in PLAYED_KINDS if any(each == course.kind for course in courses)]
    places = {course.place for course in courses}
    transports = sorted(places - {LOCAL})
    spec = ClusterSpec(controllers=True, scheduler=True)
    hub_spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(provider)
        hub = await stack.enter_async_context(await provider.create("hub", folder=folder / "hub", spec=hub_spec))
        workers = {}
        for each in transports:
            made = await provider.create(each, folder=folder / each, spec=spec)
            workers[each] = await stack.enter_async_context(made)
        local = LOCAL in places
        async with kind_federation(hub, workers, kinds, local=local) as federation:
            await play(federation, courses)
    return Played(tuple(courses))


def _wanted(request: pytest.FixtureRequest) -> list[Course]:
    """The courses of the tests that are run."""
    found: dict[tuple[str, str], Course] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            params: Mapping[str, Any] = item.callspec.params
            if params["played"] == request.param:
                kind, place = params["kind"], params["place"]
                found.setdefault((kind.kind, place), Course(kind, place))
    return list(found.values())


def played_kinds(cell: Cell) -> Callable[[Any], Any]:
    """A test of that cell for each kind that has it, at each place that has it."""
    found = []
    for clusters, places in PLACES.items():
        for place in places:
            # Several processes would each play all of them.
            marks = [pytest.mark.conformance, pytest.mark.alone]
            marks += [pytest.mark.binaries] if clusters == "binaries" else []
            for kind in PLAYED_KINDS:
                if has_cell(kind, cell, place):
                    name = f"{clusters}-{place}-{kind.kind}"
                    found.append(pytest.param(clusters, place, kind, id=name, marks=marks))
    return pytest.mark.parametrize(("played", "place", "kind"), found, indirect=["played"], scope="module")


def has_cell(kind: PlayedKind, cell: Cell, place: str) -> bool:
    if cell in kind.missing or (place != LOCAL and not kind.dispatched):
        return False
    if cell is Cell.FENCED:
        return place == PULL  # the manager that hosts the agent's code has no lease to lose
    return place != LOCAL or cell not in REMOTE


@played_kinds(Cell.QUEUED)
async def test_queued(played: Played, place: str, kind: PlayedKind) -> None:
    course = played.of(kind, place)
    seen = course.seen(Cell.QUEUED)
    assert kind.is_suspended(course.stored)
    assert at(course.stored, *kind.managed_by) == (None if place == LOCAL else "kueue.x-k8s.io/multikueue")
    assert workload_of(seen)["spec"]["queueName"] == queue_of(kind, place)
    found = [(each["name"], each["count"]) for each in workload_of(seen)["spec"]["podSets"]]
    assert found == [(name.format(name=seen.name), count) for name, count in kind.pod_sets.items()]
    assert not is_true(seen.workload, "QuotaReserved")
    assert (seen.remote, *seen.remote_pods, *seen.pods) == (None,)


@played_kinds(Cell.ADMITTED)
async def test_admitted(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.ADMITTED)
    assigned = workload_of(seen)["status"]["admission"]["podSetAssignments"]
    assert [each["count"] for each in assigned] == list(kind.pod_sets.values())
    assert {each["flavors"]["cpu"] for each in assigned} == {"kinds"}
    assert [each["resourceUsage"]["cpu"] for each in assigned] == [f"{n * 100}m" for n in kind.pod_sets.values()]


@played_kinds(Cell.SELECTORS_INJECTED)
async def test_selectors_injected(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.SELECTORS_INJECTED)
    pods = seen.pods if place == LOCAL else seen.remote_pods
    assert [each["spec"].get("nodeSelector") for each in pods] == [LABELS] * kind.pods
    marks = {(each["metadata"].get("labels") or {}).get(WORKER_WORKLOAD_POD_LABEL) for each in pods}
    assert marks == ({None} if place == LOCAL else {"true"})


@played_kinds(Cell.SUSPENDED)
async def test_suspended_on_preemption(played: Played, place: str, kind: PlayedKind) -> None:
    course = played.of(kind, place)
    seen = course.seen(Cell.SUSPENDED)
    assert condition(seen.workload, "Evicted")["reason"] == "Preempted"
    assert (seen.job or {})["spec"] == course.stored["spec"]


@played_kinds(Cell.RESUMED)
async def test_resumed(played: Played, place: str, kind: PlayedKind) -> None:
    course = played.of(kind, place)
    seen = course.seen(Cell.RESUMED)
    assert is_true(seen.workload, "Admitted")
    assert not kind.is_suspended(seen.job or {})
    first = course.seen(Cell.SELECTORS_INJECTED)
    old, new = (one.pods if place == LOCAL else one.remote_pods for one in (first, seen))
    assert {each["metadata"]["uid"] for each in old}.isdisjoint(each["metadata"]["uid"] for each in new)
    assert [each["spec"].get("nodeSelector") for each in new] == [LABELS] * kind.pods
    if seen.remote is not None:
        assert seen.remote["metadata"]["annotations"]["multikueue.io/epoch"] == "2"


@played_kinds(Cell.FINISHED)
async def test_finished(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.FINISHED)
    assert condition(seen.workload, "Finished")["reason"] == "Succeeded"
    assert kind.ended_as(seen.job or {}) in ("Succeeded", "Completed")


@played_kinds(Cell.FAILED)
async def test_failed(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.FAILED)
    assert condition(seen.workload, "Finished")["reason"] == "Failed"
    assert kind.ended_as(seen.job or {}) == "Failed"


@played_kinds(Cell.DISPATCHED)
async def test_dispatched(played: Played, place: str, kind: PlayedKind) -> None:
    course = played.of(kind, place)
    seen = course.seen(Cell.SHOWN)
    assert workload_of(seen)["status"]["clusterName"] == place
    remote = course.seen(Cell.DISPATCHED).remote or {}
    assert at(remote, *kind.managed_by) is None
    assert not kind.is_suspended(remote)
    assert remote["metadata"].keys().isdisjoint({"ownerReferences", "finalizers"})
    assert remote["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue_of(kind, place)
    assert not seen.pods, "the operator of the hub has made pods of a job that runs on a worker"


@played_kinds(Cell.SHOWN)
async def test_status_shown(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.SHOWN)
    assert (seen.job or {})["status"] == (seen.remote or {})["status"]
    assert is_true(seen.workload, "PodsReady")


@played_kinds(Cell.CLEANED_UP)
async def test_cleaned_up(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.CLEANED_UP)
    assert (seen.remote, list(seen.remote_pods), list(seen.pods)) == (None, [], [])


@played_kinds(Cell.FENCED)
async def test_fenced(played: Played, place: str, kind: PlayedKind) -> None:
    seen = played.of(kind, place).seen(Cell.FENCED)
    assert kind.is_suspended(seen.remote or {})
    assert not seen.remote_pods


def workload_of(seen: Seen) -> dict[str, Any]:
    assert seen.workload is not None
    return seen.workload
