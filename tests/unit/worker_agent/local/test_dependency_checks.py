# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from random import Random
from typing import cast

import pytest

from multikueue.api.resource import SECRETS, SERVICE_ACCOUNTS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_objects import SentReference
from multikueue.dispatch.worker.dependencies import Dependency
from multikueue.kube.errors import ApiError, Details, Forbidden, KubeError, NotFound, TooManyRequests, Unreachable
from multikueue.kube.rest.client import KubeClient
from worker_agent.local.dependencies.job_objects import FOUND_SECONDS, DependencyChecks
from worker_agent.local.jobs import RemoteJobKey

pytestmark = pytest.mark.anyio

JOB = RemoteJobKey("Job.batch", Key("team", "j"))
DB = Dependency("Secret", "db")
ROBOT = Dependency("ServiceAccount", "robot")


def answer(error: type[ApiError], status: int) -> ApiError:
    return error(request="get secret", status=status, reason="", message="", details=Details())


class Server:
    """An API server with a few objects; `failure` is raised instead of an answer."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.failure: KubeError | None = None
        self.asked: Counter[str] = Counter()

    async def get(self, resource: Resource, name: str, *, namespace: str, metadata_only: bool) -> bytes:
        assert metadata_only, "the content of an object is never requested"
        assert namespace == "team"
        self.asked[f"{resource.kind}/{name}"] += 1
        if self.failure is not None:
            raise self.failure
        if name not in self.names:
            raise answer(NotFound, 404)
        return b"{}"


class Site:
    def __init__(self, *names: str, granted: tuple[Resource, ...] = (SECRETS, SERVICE_ACCOUNTS)) -> None:
        self.server = Server(*names)
        self.clock = ManualClock()
        self.granted = {resource.qualified for resource in granted}
        self.checks = DependencyChecks(
            cast(KubeClient, self.server),
            may_get=lambda resource: resource.qualified in self.granted,
            clock=self.clock,
            random=Random(1),
        )

    async def lacks(self, *needed: Dependency) -> str:
        await self.checks.look(JOB, needed)
        found = self.checks.obstacle(JOB)
        return "" if found is None else f"{found.reason}: {found.message}"


async def test_what_is_missing_is_named_and_what_is_there_is_not() -> None:
    site = Site("db")
    assert await site.lacks(DB) == ""
    assert await site.lacks(DB, ROBOT) == 'DependencyNotFound: not found in namespace "team": ServiceAccount "robot"'


async def test_an_object_of_others_is_in_the_way_of_what_is_sent_unless_the_reference_is_optional() -> None:
    site = Site("db")
    needed = (SentReference(DB, "v1"),)
    await site.checks.look(JOB, [DB], sent=needed)
    found = site.checks.obstacle(JOB)
    assert found is not None
    assert found.reason == "DependencyConflict"
    optional = (SentReference(DB, "v1", optional=True),)
    await site.checks.look(JOB, [], sent=optional)
    assert site.checks.obstacle(JOB) is None
    assert site.checks.retry_after(JOB) is None


async def test_it_is_found_soon_after_it_is_created_and_not_asked_for_all_the_time() -> None:
    site = Site()
    assert await site.lacks(DB)
    for _ in range(100):
        await site.lacks(DB)
    assert site.server.asked["Secret/db"] == 1
    site.server.names.add("db")
    after = site.checks.retry_after(JOB)
    assert after is not None
    site.clock.advance(after)
    assert await site.lacks(DB) == ""
    assert site.checks.retry_after(JOB) is None


async def test_the_pauses_grow_and_stay_below_a_minute() -> None:
    site = Site()
    pauses = []
    for _ in range(12):
        await site.lacks(DB)
        pauses.append(site.checks.retry_after(JOB) or 0.0)
        site.clock.advance(pauses[-1])
    assert pauses[0] < 2
    assert pauses[-1] > 20
    assert max(pauses) < 60


async def test_what_was_found_is_asked_for_again_before_a_late_grant() -> None:
    site = Site("db")
    assert await site.lacks(DB) == ""
    site.server.names.clear()
    assert await site.lacks(DB) == ""
    site.clock.advance(FOUND_SECONDS)
    assert 'Secret "db"' in await site.lacks(DB)


async def test_a_kind_that_may_not_be_read_is_not_looked_for() -> None:
    site = Site(granted=(SECRETS,))
    assert await site.lacks(DB, ROBOT) == 'DependencyNotFound: not found in namespace "team": Secret "db"'
    assert not site.server.asked["ServiceAccount/robot"]
    assert site.checks.kinds() == ["Secret"]
    site.granted.clear()
    assert await site.lacks(DB, ROBOT) == ""
    assert site.checks.kinds() == []


async def test_a_refused_request_keeps_no_job_from_the_cluster() -> None:
    site = Site()
    site.server.failure = answer(Forbidden, 403)
    assert await site.lacks(DB) == ""


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(answer(TooManyRequests, 429), id="too many requests"),
        pytest.param(answer(ApiError, 500), id="an internal error"),
        pytest.param(Unreachable("no answer"), id="no answer"),
    ],
)
async def test_a_server_that_fails_says_nothing_about_the_object(failure: KubeError) -> None:
    site = Site()
    assert await site.lacks(DB)
    site.clock.advance(60)
    site.server.failure = failure
    with pytest.raises(type(failure)):
        await site.checks.look(JOB, [DB])
    assert site.checks.obstacle(JOB) is not None, "what was found before counts"
    site.server.failure = None
    site.server.names.add("db")
    assert await site.lacks(DB) == ""


@pytest.mark.parametrize("name", ["../../kube-system/secrets/token", "a/b", "?watch=1", "A_b", "x" * 10_000])
async def test_a_name_that_no_object_has_is_never_sent_to_the_server(name: str) -> None:
    site = Site(name)
    assert "DependencyNotFound" in await site.lacks(Dependency("Secret", name))
    assert not site.server.asked


async def test_a_job_that_is_gone_is_forgotten() -> None:
    site = Site()
    assert await site.lacks(DB)
    site.checks.forget(JOB)
    assert site.checks.obstacle(JOB) is None
