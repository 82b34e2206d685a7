# SPDX-License-Identifier: Apache-2.0
"""Which changes reach a running job, and which are kept from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.keys import Key
from multikueue.core.merge_patch import apply_merge_patch
from multikueue.dispatch.protocol.job_problems import StartProblem
from multikueue.dispatch.worker.assignment_state import (
    FORBIDDEN_BY_POLICY,
    AssignmentFacts,
    AssignmentStep,
    JobAction,
    Obstacle,
    ReportedStatus,
)
from multikueue.kube.errors import Details, InternalError, KubeError, TooManyRequests
from tests.unit.jobs.declared.builders import widget, widget_kind
from worker_agent.forwarding import FieldForwarding
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles

RUNNING = AssignmentStep(ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, job_uid="u"))
FACTS = AssignmentFacts(name="a", epoch=1, intent=Intent.RUN, may_run=True)
REFUSED = StartProblem(FORBIDDEN_BY_POLICY, "no")
REMOTE = widget(config="one", suspend=False)


class Cluster:
    """A job on a worker; `errors` are answered first, and `normalize` is what the API server makes of a job."""

    def __init__(self, **kind: Any) -> None:
        self.integration = widget_kind(**{"remote": {"forwarded": ["$.spec.config"]}, **kind})
        self.job = REMOTE
        self.errors: list[KubeError] = []
        self.forbids = ""
        self.normalize: Callable[[Any], Any] = lambda job: job
        self.patches: list[Any] = []
        self.forwarding = FieldForwarding(obstacles=cast(Obstacles, self))

    def of_change(self, desired: AssignmentSpec, job: Any, patch: Any) -> Obstacle | None:
        config = apply_merge_patch(job, patch)["spec"].get("config")
        return Obstacle(FORBIDDEN_BY_POLICY, "no") if self.forbids and config == self.forbids else None

    async def change(self, key: Key, uid: str, patch: Any) -> Any:
        assert (str(key), uid) == ("ns/w", "u")
        if self.errors:
            raise self.errors.pop(0)
        self.patches.append(patch)
        self.job = self.normalize(apply_merge_patch(self.job, patch))
        return self.job

    async def follow(
        self,
        manifest: Any,
        *,
        taken: AssignmentStep = RUNNING,
        facts: AssignmentFacts = FACTS,
        reported: StartProblem | None = None,
    ) -> str:
        """Make the change; gives why it is refused. `reported` is what was reported before."""
        named = SimpleNamespace(facts=facts, jobs=self, job=Key("ns", "w"), named="widgets ns/w", manifest=manifest)
        desired = cast(AssignmentSpec, named)
        before = replace(taken.status, refused_change=reported)
        status = self.forwarding.complete(desired, self.job, taken, before)
        await self.forwarding.follow(desired, self.job, taken, status)
        refused = status.refused_change
        return "" if refused is None else f"{refused.reason}: {refused.message}"


async def test_a_changed_field_reaches_the_running_job_once() -> None:
    cluster = Cluster()
    for _ in range(3):
        await cluster.follow(widget(config="two", size=50))
    assert cluster.patches == [{"spec": {"config": "two"}}]


async def test_a_field_that_was_changed_on_the_worker_gets_the_value_of_the_hub_again() -> None:
    cluster = Cluster()
    await cluster.follow(widget(config="two"))
    cluster.job = widget(config="edited there")
    await cluster.follow(widget(config="two"))
    assert cluster.job["spec"]["config"] == "two"


async def test_a_change_that_the_policy_of_the_cluster_forbids_is_not_made_and_a_later_one_is() -> None:
    cluster = Cluster()
    cluster.forbids = "privileged"
    for _ in range(2):
        assert await cluster.follow(widget(config="privileged")) == "ForbiddenByPolicy: no"
    assert cluster.patches == []
    assert await cluster.follow(widget(config="plain"), reported=REFUSED) == ""
    assert cluster.patches == [{"spec": {"config": "plain"}}]


async def test_a_change_that_was_refused_is_made_when_the_policy_of_the_cluster_allows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.forbids = "privileged"
    for _ in range(3):
        await cluster.follow(widget(config="privileged"))
    assert len([each for each in caplog.records if "is not forwarded" in each.message]) == 1
    cluster.forbids = ""
    assert await cluster.follow(widget(config="privileged"), reported=REFUSED) == ""
    assert cluster.patches == [{"spec": {"config": "privileged"}}]


async def test_a_refusal_is_no_longer_reported_once_the_hub_takes_the_change_back_or_the_job_has_ended() -> None:
    cluster = Cluster()
    cluster.forbids = "privileged"
    assert await cluster.follow(widget(config="privileged"))
    assert await cluster.follow(widget(config="one"), reported=REFUSED) == ""
    ended = AssignmentStep(ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED))
    assert await cluster.follow(widget(config="privileged"), taken=ended, reported=REFUSED) == ""
    assert cluster.patches == []


@pytest.mark.parametrize("kind", [TooManyRequests, InternalError])
async def test_a_change_that_fails_is_made_the_next_time(
    kind: type[TooManyRequests | InternalError],
) -> None:
    cluster = Cluster()
    cluster.errors = [kind(request="PATCH", status=kind.code, reason="", message="", details=Details())]
    with pytest.raises(kind):
        await cluster.follow(widget(config="two"))
    await cluster.follow(widget(config="two"))
    assert cluster.job["spec"]["config"] == "two"


async def test_a_value_that_the_server_stores_in_another_form_is_not_written_again_and_again() -> None:
    cluster = Cluster()
    cluster.normalize = lambda job: {**job, "spec": {**job["spec"], "config": job["spec"]["config"].strip()}}
    for _ in range(3):
        await cluster.follow(widget(config=" two "))
    assert cluster.patches == [{"spec": {"config": " two "}}]
    cluster.forwarding.forget("a")
    await cluster.follow(widget(config=" two "))
    assert len(cluster.patches) == 2


@pytest.mark.parametrize(
    ("taken", "facts"),
    [
        pytest.param(AssignmentStep(ReportedStatus(epoch=1, phase=AssignmentPhase.FINISHED)), FACTS, id="that ended"),
        pytest.param(replace(RUNNING, action=JobAction.SUSPEND), FACTS, id="that is being stopped"),
        pytest.param(RUNNING, replace(FACTS, intent=Intent.EVICT), id="that is evicted"),
        pytest.param(RUNNING, replace(FACTS, may_run=False), id="whose lease has expired"),
    ],
)
async def test_a_job_is_left_alone(taken: AssignmentStep, facts: AssignmentFacts) -> None:
    cluster = Cluster()
    await cluster.follow(widget(config="two"), taken=taken, facts=facts)
    assert cluster.patches == []


async def test_a_kind_without_such_fields_and_a_job_that_is_being_deleted_are_left_alone() -> None:
    plain = Cluster(remote={})
    await plain.follow(widget(config="two"))
    deleted = Cluster()
    deleted.job = {**REMOTE, "metadata": {**REMOTE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    await deleted.follow(widget(config="two"))
    assert (plain.patches, deleted.patches) == ([], [])
