# SPDX-License-Identifier: Apache-2.0
"""Which jobs on a worker a Kueue has sent before this manager took its place on the hub, and what is taken over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from multikueue.core.clock import ManualClock, SystemClock
from multikueue.dispatch.protocol.wire import observation_of
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.kube.cache.store import row_of
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from tests.support.remote_jobs import KEY, job, remote_jobs
from tests.support.stub_api import listing, stub_api
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.queueing.queues import Queues
from worker_agent.local.restoring import restore_assignments

pytestmark = pytest.mark.anyio

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
Object = dict[str, Any]


def jobs(client: KubeClient | None = None) -> RemoteJobs:
    return remote_jobs(cast(KubeClient, client), ManualClock(), changed=lambda name: None, gone=lambda key: None)


def sent(*, labels: Object | None = None, annotations: Object | None = None) -> Object:
    """As Kueue sends it: with the name of its Workload in a label, or in an annotation."""
    metadata = job("7")["metadata"] | {
        "annotations": annotations or {},
        "labels": {ORIGIN: "multikueue"} | (labels or {}),
    }
    return {"metadata": metadata, "spec": {"suspend": False, "template": {"spec": {"containers": []}}}}


@pytest.mark.parametrize(
    ("found", "workload"),
    [
        pytest.param(sent(labels={PREBUILT: "wl"}), "wl", id="in a label"),
        pytest.param(sent(annotations={PREBUILT: "wl"}), "wl", id="in an annotation"),
        pytest.param(sent(), "", id="a job of a user who has copied the origin"),
        pytest.param(sent(labels={PREBUILT: "wl", ORIGIN: "other"}), "", id="of another hub"),
        pytest.param(
            sent(labels={PREBUILT: "wl"}, annotations={"multikueue.io/manager-uid": "m"}), "", id="of a manager"
        ),
        pytest.param(
            sent(labels={PREBUILT: "wl"}, annotations={"multikueue.io/assignment": "a"}), "", id="of an agent"
        ),
    ],
)
async def test_kueues_jobs_are_known_by_their_origin_and_their_workload(found: Object, workload: str) -> None:
    assert jobs().workload_of_kueue(found) == workload


@pytest.mark.parametrize(
    ("workload", "same", "adoptable"),
    [("wl", True, True), ("wl", False, False), ("other", True, False), ("", True, False)],
)
async def test_only_the_same_work_for_the_same_workload_is_taken_over(
    workload: str, same: bool, adoptable: bool
) -> None:
    facts = jobs().facts(
        sent(labels={PREBUILT: "wl"}),
        assignment="a",
        manager_uid="m",
        workload=workload,
        is_same_work=lambda job: same,
    )
    assert (facts.ours, facts.adoptable) == (False, adoptable)


def pods(client: KubeClient) -> RemoteJobs:
    return RemoteJobs(
        client,
        BARE_POD,
        cluster="w",
        origin="multikueue",
        clock=ManualClock(),
        random=Random(1),
        changed=lambda name: None,
    )


def member(name: str) -> Object:
    """A pod of the group `g`, as Kueue has sent it."""
    made = kueues_pod(**{"kueue.x-k8s.io/pod-group-name": "g", PREBUILT: "g"})
    return {**made, "metadata": {**made["metadata"], "name": name, "uid": f"uid-{name}"}}


def kueues_pod(**labels: str) -> Object:
    metadata = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {ORIGIN: "multikueue", PREBUILT: "wl", **labels},
    }
    return {"metadata": metadata, "spec": {"containers": []}}


async def test_a_pod_is_known_as_well_and_one_of_a_group_by_the_name_of_that() -> None:
    kind = pods(cast(KubeClient, None))
    assert kind.workload_of_kueue(kueues_pod()) == "wl"
    assert kind.workload_of_kueue(member("p")) == "g"


async def test_without_the_right_to_patch_it_is_taken_over_in_memory() -> None:
    """As by a kubeconfig with the rights that Kueue's guide grants; nothing is asked of the API server."""
    told: list[str] = []
    kind = remote_jobs(
        cast(KubeClient, None), ManualClock(), changed=told.append, gone=lambda key: None, may_patch=lambda: False
    )
    found = sent(labels={PREBUILT: "wl"})
    kind.informer.store.put(row_of(found, orjson.dumps(found)))
    marks = {"multikueue.io/assignment": "a", "multikueue.io/cluster": "w", "multikueue.io/epoch": "3"}
    annotations = {**marks, "multikueue.io/manager-uid": "m", PREBUILT: "wl"}
    facts = kind.facts(found, assignment="a", manager_uid="m", workload="wl", is_same_work=lambda job: True)
    assert facts.adoptable
    await kind.adopt(KEY, "u", {"metadata": {"labels": {ORIGIN: "multikueue"}, "annotations": annotations}})
    taken = kind.get(KEY)
    assert taken is not None
    now = kind.facts(taken, assignment="a", manager_uid="m", workload="wl", is_same_work=lambda job: True)
    assert (now.ours, now.adoptable, now.epoch) == (True, False, 3)
    assert (list(kind.of_assignment("a")), told) == ([KEY], ["a"])


@asynccontextmanager
async def listed(*found: Object, of: Callable[[KubeClient], RemoteJobs]) -> AsyncIterator[RemoteJobs]:
    """The remote jobs of a kind, which the API server has listed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return listing(*found, version="7")

    async with stub_api(answer) as api, api.client() as client:
        kind = of(client)
        await kind.informer.relist()
        yield kind


def restored(kind: RemoteJobs) -> list[Object]:
    """The assignments that the hub sees once it has connected the cluster."""
    mailbox = InMemoryMailbox(
        "w", manager_uid="m", workload_uid=lambda key: f"uid-{key.name}", changed=lambda obj: None
    )
    quarantine = Quarantine(clock=SystemClock(), random=Random(1))
    restore_assignments(mailbox, (kind,), cast(Queues, None), origin="multikueue", quarantine=quarantine)
    return list(mailbox.objects())


async def test_the_hub_sees_that_they_run_before_any_dispatch_of_its_own() -> None:
    async with listed(sent(labels={PREBUILT: "wl"}), of=jobs) as kind:
        (seen,) = map(observation_of, restored(kind))
        assert (seen.workload_uid, seen.epoch, seen.may_run) == ("uid-wl", 0, True)


async def test_the_pods_of_a_group_are_one_assignment() -> None:
    async with listed(member("g-1"), member("g-0"), kueues_pod(), of=pods) as kind:
        group, single = sorted(restored(kind), key=lambda each: str(each["spec"]["workload"]["name"]))
        assert [each["metadata"]["name"] for each in group["spec"]["job"]["manifest"]["members"]] == ["g-0", "g-1"]
        assert (group["spec"]["job"]["name"], single["spec"]["job"]["name"]) == ("g", "p")
        assert [observation_of(each).may_run for each in (group, single)] == [True, True]


async def test_jobs_of_others_are_not_seen() -> None:
    others = sent(), sent(labels={PREBUILT: "wl", ORIGIN: "other"})
    async with listed(*others, of=jobs) as kind:
        assert restored(kind) == []
