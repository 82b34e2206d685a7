# SPDX-License-Identifier: Apache-2.0
"""Which jobs on a worker a Kueue has sent before this manager took its place on the hub, and what is taken over."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import orjson
import pytest

from multikueue.core.clock import ManualClock, SystemClock
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.protocol.wire import observation_of
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.kube.cache.store import row_of
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from tests.support.remote_jobs import KEY, job, remote_jobs
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.queueing.queues import Queues
from worker_agent.local.restoring import restore_assignments

pytestmark = pytest.mark.anyio

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
Object = dict[str, Any]


def jobs() -> RemoteJobs:
    return remote_jobs(cast(KubeClient, None), ManualClock(), changed=lambda name: None, gone=lambda key: None)


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


def kueues_pod(**labels: str) -> Object:
    metadata = {"name": "p", "namespace": "team", "labels": {ORIGIN: "multikueue", PREBUILT: "wl", **labels}}
    return {"metadata": metadata, "spec": {"containers": []}}


async def test_a_pod_is_known_as_well_and_not_one_of_a_group() -> None:
    """The pods of a group are one remote job here, which Kueue does not know."""
    kind = RemoteJobs(
        cast(KubeClient, None),
        BARE_POD,
        cluster="w",
        origin="multikueue",
        clock=ManualClock(),
        random=Random(1),
        changed=lambda name: None,
    )
    assert kind.workload_of_kueue(kueues_pod()) == "wl"
    assert kind.workload_of_kueue(kueues_pod(**{"kueue.x-k8s.io/pod-group-name": "g"})) == ""


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


def restored(*found: Object) -> list[Observation]:
    """What the hub sees of these jobs once it has connected the cluster."""
    kind = jobs()
    for each in found:
        kind.informer.store.put(row_of(each, orjson.dumps(each)))
    mailbox = InMemoryMailbox(
        "w", manager_uid="m", workload_uid=lambda key: f"uid-{key.name}", changed=lambda obj: None
    )
    quarantine = Quarantine(clock=SystemClock(), random=Random(1))
    restore_assignments(mailbox, (kind,), cast(Queues, None), origin="multikueue", quarantine=quarantine)
    return [observation_of(each) for each in mailbox.objects()]


async def test_the_hub_sees_that_they_run_before_any_dispatch_of_its_own() -> None:
    (seen,) = restored(sent(labels={PREBUILT: "wl"}))
    assert (seen.workload_uid, seen.epoch, seen.may_run) == ("uid-wl", 0, True)


async def test_jobs_of_others_are_not_seen() -> None:
    assert restored(sent(), sent(labels={PREBUILT: "wl", ORIGIN: "other"})) == []
