# SPDX-License-Identifier: Apache-2.0
"""F and X of docs/spec/multikueue.md §2: one job of each kind on a worker, by an agent and by a kubeconfig.

All kinds are played beside each other in one federation, and ended before a test reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec, Provider
from multikueue.api.crds import manifests
from multikueue.api.resource import Resource
from tests.support.crds import kinds
from tests.support.kind_courses import Course, play_on_worker
from tests.support.kind_federations import kind_federation
from tests.support.managers import condition
from tests.support.operators.operated_kinds import at
from tests.support.operators.played_kinds import PLAYED_KINDS, Cell
from tests.support.sites import Transport

# Each process would play all of them.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600), pytest.mark.conformance, pytest.mark.alone]

PLAYED: Final = tuple(each for each in PLAYED_KINDS if each.dispatched and each.resource != kinds.JAX_JOBS)
"""The kinds that have a scenario; there is none of JAXJob."""


@dataclass(frozen=True)
class Played:
    """What came of the jobs of all kinds."""

    courses: tuple[Course, ...]

    def of(self, resource: Resource, transport: Transport) -> Course:
        return next(each for each in self.courses if (each.kind.resource, each.place) == (resource, str(transport)))


@pytest.fixture(scope="module")
def played_before() -> dict[str, Played]:
    """What was played, by provider: the tests of a scenario take turns with the providers, and would play all again."""
    return {}


@pytest.fixture(scope="module")
async def played(
    anyio_backend: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    played_before: dict[str, Played],
) -> Played:
    """All courses, played to their ends on clusters of one provider."""
    if request.param not in played_before:
        played_before[request.param] = await _play(request, tmp_path_factory)
    return played_before[request.param]


async def _play(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp(f"scenarios-{request.param}")
    provider: Provider
    if request.param == "embedded":
        provider = EmbeddedProvider(folder=folder)
    else:
        provider = BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
    places = [str(each) for each in Transport]
    courses = tuple(Course(kind, place) for kind in PLAYED for place in places)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(provider)
        made = []
        for name in ("hub", *places):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            cluster = await provider.create(name, folder=folder / name, spec=spec)
            made.append(await stack.enter_async_context(cluster))
        hub, *workers = made
        async with kind_federation(hub, dict(zip(places, workers, strict=True)), PLAYED, local=False) as federation:
            await play_on_worker(federation, courses)
    return Played(courses)


def _places() -> Iterator[object]:
    for transport in Transport:
        yield pytest.param("embedded", transport, id=f"{transport}-embedded")
        yield pytest.param("binaries", transport, id=f"{transport}-binaries", marks=[pytest.mark.binaries])


on_workers = pytest.mark.parametrize(("played", "transport"), list(_places()), indirect=["played"], scope="module")


def runs_on_a_worker(course: Course) -> None:
    """It was dispatched without its owner and its `managedBy`, ran there only, was shown, and left nothing."""
    kind = course.kind
    assert at(course.stored, *kind.managed_by) == "kueue.x-k8s.io/multikueue"
    remote = course.seen(Cell.DISPATCHED).remote or {}
    assert at(remote, *kind.managed_by) is None
    assert not kind.is_suspended(remote)
    assert remote["metadata"].keys().isdisjoint({"ownerReferences", "finalizers"})
    shown = course.seen(Cell.SHOWN)
    assert (shown.workload or {})["status"]["clusterName"] == course.place
    assert (shown.job or {})["status"] == (shown.remote or {})["status"]
    assert len(shown.remote_pods) == kind.pods
    assert not shown.pods
    gone = course.seen(Cell.CLEANED_UP)
    assert (gone.job, gone.remote, list(gone.remote_pods)) == (None, None, [])


def ends_on_a_worker(course: Course) -> None:
    """It has ended on the hub as on the worker."""
    runs_on_a_worker(course)
    ended = course.seen(Cell.FINISHED)
    assert condition(ended.workload, "Finished")["reason"] == "Succeeded"
    assert course.kind.ended_as(ended.job or {}) in ("Succeeded", "Completed")
    assert not ended.pods


def is_not_run(course: Course) -> None:
    """A job of another controller is rejected, and nothing of it is anywhere."""
    seen = course.seen(Cell.QUEUED)
    assert at(seen.job, *course.kind.managed_by) == "example.com/other"
    assert 'not "example.com/other"' in str((seen.workload or {})["status"])
    assert (seen.remote, list(seen.remote_pods), list(seen.pods)) == (None, [], [])


@on_workers
async def test_f1_x13_an_app_wrapper_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.APP_WRAPPERS, transport))


@on_workers
async def test_f2_x12_a_job_set_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.JOB_SETS, transport))


@on_workers
async def test_f3_x15_an_mpi_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.MPI_JOBS, transport))


@on_workers
async def test_f4_an_mpi_job_of_another_controller_is_not_run(played: Played, transport: Transport) -> None:
    is_not_run(played.of(kinds.MPI_JOBS, transport))


@on_workers
async def test_f5_a_tf_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.TF_JOBS, transport))


@on_workers
async def test_f6_a_paddle_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.PADDLE_JOBS, transport))


@on_workers
async def test_f7_x14_a_pytorch_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.PYTORCH_JOBS, transport))


@on_workers
async def test_f8_a_pytorch_job_of_another_controller_is_not_run(played: Played, transport: Transport) -> None:
    is_not_run(played.of(kinds.PYTORCH_JOBS, transport))


@on_workers
async def test_f9_an_xgboost_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.XGBOOST_JOBS, transport))


@on_workers
async def test_f10_x16_a_train_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.TRAIN_JOBS, transport))


@on_workers
async def test_f11_x17_a_ray_job_runs_to_its_end(played: Played, transport: Transport) -> None:
    ends_on_a_worker(played.of(kinds.RAY_JOBS, transport))


@on_workers
async def test_f12_x18_a_ray_cluster_runs_until_it_is_deleted(played: Played, transport: Transport) -> None:
    runs_on_a_worker(played.of(kinds.RAY_CLUSTERS, transport))


@on_workers
async def test_a_ray_service_runs_until_it_is_deleted(played: Played, transport: Transport) -> None:
    runs_on_a_worker(played.of(kinds.RAY_SERVICES, transport))


@on_workers
@pytest.mark.parametrize("kind", PLAYED, ids=lambda kind: kind.kind)
async def test_no_kind_is_run_for_another_controller(played: Played, transport: Transport, kind: object) -> None:
    is_not_run(next(each for each in played.courses if each.kind == kind and each.place == str(transport)))
