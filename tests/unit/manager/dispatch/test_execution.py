# SPDX-License-Identifier: Apache-2.0
"""What a plan does without its job in the cache, and what is counted of one that was carried out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered
from manager.dispatch.transport.mailbox_transport import Transport
from manager.metrics import STANDALONE, ManagerMetrics
from multikueue.api import configuration_file
from multikueue.api.constants import IS_GROUP_WORKLOAD_ANNOTATION
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import JOBS, PODS, WORKLOADS, Resource
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import (
    Assign,
    ChangeUpdate,
    DispatchPlan,
    Finish,
    RemoveAssignment,
    Rule,
    StartUpdate,
    SyncStatus,
)
from multikueue.dispatch.hub.facts import Observation
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.errors import ApiError
from multikueue.kube.runtime.events import Reference
from tests.support.stub_api import json_answer, status_answer, stub_api
from tests.unit.dispatch.builders import ended, facts, granted, running, seen, workload
from tests.unit.manager.builders import reserved, wire


def counted(*observations: Observation) -> float:
    """How many dispatches to `w1` are counted when a plan sends epoch 2 there and its assignment exists."""
    metrics = ManagerMetrics()
    executor = Executor(cast(ManagerContext, SimpleNamespace(metrics=metrics)), cast(Transport, None))
    gathered = Gathered(facts=facts(workload(epoch=2), *observations), workload=wire(reserved()))
    executor.report(DispatchPlan(rule=Rule.NOMINATE, actions=(Assign("w1"),)), gathered)
    found = metrics.registry.get_sample_value(
        "multikueue_workloads_dispatched_total", {"cluster_queue": "cq", "cluster": "w1", "replica_role": STANDALONE}
    )
    return found or 0.0


def test_an_assignment_is_counted_when_it_is_created_and_not_when_its_priority_changes() -> None:
    assert counted() == 1
    assert counted(seen("w1", epoch=2, fingerprint="before")) == 0
    assert counted(seen("w1", epoch=1)) == 1, "each dispatch counts"


def test_a_change_that_is_not_made_is_an_event_and_that_it_was_made_is_none() -> None:
    events: list[tuple[str, str, str, str]] = []

    def event(about: Reference, type: str, reason: str, message: str) -> None:
        events.append((about.kind, type, reason, message))

    context = SimpleNamespace(metrics=ManagerMetrics(), recorder=SimpleNamespace(event=event))
    executor = Executor(cast(ManagerContext, context), cast(Transport, None))
    gathered = Gathered(facts=facts(running()), workload=wire(reserved()))
    for update in (ChangeUpdate("ForbiddenByPolicy", "m"), ChangeUpdate()):
        executor.report(DispatchPlan(rule=Rule.GRANTED, change_forwarded=update), gathered)
    assert events == [("Workload", "Warning", "MultiKueue", "m")]


def test_pods_that_do_not_start_are_reported_once_and_that_they_have_started_is_not() -> None:
    events: list[tuple[str, str, str, str]] = []

    def event(about: Reference, type: str, reason: str, message: str) -> None:
        events.append((about.kind, type, reason, message))

    context = SimpleNamespace(metrics=ManagerMetrics(), recorder=SimpleNamespace(event=event))
    executor = Executor(cast(ManagerContext, context), cast(Transport, None))
    gathered = Gathered(facts=facts(running()), workload=wire(reserved()))
    executor.report(DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate("FailedCreate", "m")), gathered)
    executor.report(DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate()), gathered)
    assert events == [("Workload", "Warning", "PodsNotStarted", "FailedCreate: m")]


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "job-uid", "controller": True}
JOB = {"metadata": {"name": "nightly", "namespace": "team", "uid": "job-uid", "resourceVersion": "7"}, "spec": {}}
FRAMEWORKS = "integrations: {frameworks: [batch/job, pod]}"
MEMBERS = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"} for name in ("a", "b")]
KEY = Key("team", "nightly")
NAMED = "limit=500&fieldSelector=metadata.name%3D"


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "7"}, "spec": {}}


async def ends_recorded(*found: dict[str, Any], view: View, asked: str, **metadata: Any) -> list[Key]:
    """The Workloads whose end is written if the server lists these objects of the name that is not in the cache."""
    recorded: list[Key] = []

    async def server(request: web.Request) -> web.StreamResponse:
        return json_answer({"metadata": {"resourceVersion": "9"}, "items": found})

    async def write(key: Key, change: object, **_: object) -> None:
        recorded.append(key)

    workload, registry = wire(reserved(), **metadata), JobRegistry.configured(configuration_file.load(FRAMEWORKS))
    owner = workload["metadata"]["ownerReferences"][0]
    gathered = Gathered(
        facts=facts(running(), ended(job_status=None)),
        workload=workload,
        status=reserved(),
        integration=registry.sent_kind(owner["apiVersion"], owner["kind"]),
        job=KEY,
    )
    plan = DispatchPlan(rule=Rule.REMOTE_FINISHED, actions=(SyncStatus("w1"),), finish=Finish("Succeeded", "done"))
    async with stub_api(server) as api, api.client() as client:
        context: Any = SimpleNamespace(
            client=client,
            clock=SystemClock(),
            caches=SimpleNamespace(view=lambda _: view),
            statuses=SimpleNamespace(write=write),
        )
        outcome = await Executor(context, cast(Transport, None)).execute(KEY, plan, gathered)
        assert api.seen == [f"GET {asked}"]
    assert outcome.outdated, "the plan is made again"
    return recorded


@pytest.mark.anyio
async def test_an_end_is_not_recorded_while_the_cache_lags_behind_and_lacks_the_job() -> None:
    """Its job would never get its status: seed 8778 of the simulation, with a leader that was cut off."""
    view, asked = View(JOBS, clock=SystemClock()), f"/apis/batch/v1/namespaces/team/jobs?{NAMED}nightly"
    assert await ends_recorded(JOB, view=view, asked=asked, ownerReferences=[OWNER]) == []
    assert view.get(KEY) is not None, "the next plan finds it"


@pytest.mark.anyio
async def test_an_end_is_recorded_without_a_job_that_is_gone_or_replaced() -> None:
    view, asked = View(JOBS, clock=SystemClock()), f"/apis/batch/v1/namespaces/team/jobs?{NAMED}nightly"
    assert await ends_recorded(view=view, asked=asked, ownerReferences=[OWNER]) == [KEY]
    another = {**JOB, "metadata": {**JOB["metadata"], "uid": "another"}}
    assert await ends_recorded(another, view=view, asked=asked, ownerReferences=[OWNER]) == [KEY]


@pytest.mark.anyio
async def test_nor_while_the_cache_lacks_a_member_of_a_group() -> None:
    view, asked = View(PODS, clock=SystemClock()), f"/api/v1/namespaces/team/pods?{NAMED}b"
    view.on_write(orjson.dumps(pod("a")))
    group = {"ownerReferences": MEMBERS, "annotations": {IS_GROUP_WORKLOAD_ANNOTATION: "true"}}
    assert await ends_recorded(view=view, asked=asked, **group) == [KEY]
    assert await ends_recorded(pod("b"), view=view, asked=asked, **group) == []


async def removed(*found: dict[str, Any], planned_for: dict[str, Any] | None, observed: Observation) -> tuple[int, int]:
    """How often the assignment is removed, and Workloads are listed, if the server lists these of that name."""
    calls: list[str] = []

    async def server(request: web.Request) -> web.StreamResponse:
        return json_answer({"metadata": {"resourceVersion": "9"}, "items": found})

    async def remove(cluster: str, key: Key) -> None:
        calls.append(cluster)

    view = View(WORKLOADS, clock=SystemClock())
    gathered = Gathered(facts=facts(None, observed), workload=planned_for)
    plan = DispatchPlan(rule=Rule.GONE, actions=(RemoveAssignment("w1"),))
    async with stub_api(server) as api, api.client() as client:
        context: Any = SimpleNamespace(
            client=client,
            clock=SystemClock(),
            metrics=ManagerMetrics(),
            caches=SimpleNamespace(view=lambda _: view),
        )
        transport: Any = SimpleNamespace(remove=remove)
        outcome = await Executor(context, transport).execute(Key("team", "w"), plan, gathered)
        assert outcome.outdated is (not calls)
        return len(calls), len(api.seen)


@pytest.mark.anyio
async def test_running_work_is_not_stopped_for_a_version_of_its_workload_that_was_replaced() -> None:
    """The cache of Workloads may lag behind that of assignments, which another leader has made."""
    newer, older = wire(reserved(), version="8"), wire(reserved(), version="7")
    assert await removed(newer, planned_for=None, observed=granted()) == (0, 1)
    assert await removed(newer, planned_for=older, observed=granted()) == (0, 1)
    assert await removed(newer, planned_for=newer, observed=granted()) == (1, 1)
    assert await removed(planned_for=None, observed=granted()) == (1, 1)


@pytest.mark.anyio
async def test_what_runs_nowhere_or_has_ended_is_removed_without_a_look() -> None:
    newer = wire(reserved(), version="8")
    for observed in (seen("w1", AssignmentPhase.RESERVED), ended()):
        assert await removed(newer, planned_for=None, observed=observed) == (1, 0)


@pytest.mark.anyio
@pytest.mark.parametrize("status", [429, 500])
async def test_nothing_is_stopped_or_finished_while_the_server_does_not_say_what_there_is(status: int) -> None:
    async def server(request: web.Request) -> web.StreamResponse:
        return status_answer(status, "", Retry_After="60")

    gone = Gathered(facts=facts(None, granted()))
    lacking = Gathered(
        facts=facts(running(), ended()),
        workload=wire(reserved(), ownerReferences=[OWNER]),
        status=reserved(),
        integration=JobRegistry.configured(configuration_file.load(FRAMEWORKS)).sent_kind("batch/v1", "Job"),
        job=KEY,
    )
    stops = DispatchPlan(rule=Rule.GONE, actions=(RemoveAssignment("w1"),))
    ends = DispatchPlan(rule=Rule.REMOTE_FINISHED, actions=(SyncStatus("w1"),), finish=Finish("Succeeded", "done"))
    async with stub_api(server) as api, api.client() as client:
        views: dict[Resource, View] = {}
        # There is no transport and nothing that writes a status: to use one would be another error.
        context: Any = SimpleNamespace(
            client=client,
            caches=SimpleNamespace(view=lambda each: views.setdefault(each, View(each, clock=SystemClock()))),
        )
        for plan, gathered in ((stops, gone), (ends, lacking)):
            with pytest.raises(ApiError):
                await Executor(context, cast(Transport, None)).execute(KEY, plan, gathered)
    assert {seen.partition(" ")[0] for seen in api.seen} == {"GET"}
