# SPDX-License-Identifier: Apache-2.0
"""The clone of a job that a rebuilt hub has taken over, until the cache shows whose it is now."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.cache.store import row_of
from multikueue.kube.rest.client import KubeClient
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.queueing.queued_work import CloneSpec
from worker_agent.local.rights import Rights

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
M = "multikueue.io/"
FORMER = Key("team", "former")


class Server:
    """The worker's API server, which shows nothing of what is written."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, Object]] = []
        self.created: list[str] = []

    async def patch(self, resource: object, name: str, body: Object, *, namespace: str) -> bytes:
        self.patched.append((name, body))
        return b"{}"

    async def create(self, resource: object, body: Object, *, namespace: str) -> bytes:
        self.created.append(body["metadata"]["name"])
        return b"{}"


def clone(*, assignment: str, manager: str) -> Object:
    marks = {M + "assignment": assignment, M + "cluster": "w", M + "manager-uid": manager, M + "epoch": "1"}
    metadata = {"name": FORMER.name, "namespace": FORMER.namespace, "uid": "u", "annotations": marks}
    admitted = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {**metadata, "resourceVersion": "1", "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}},
        "spec": {},
        "status": {"conditions": admitted},
    }


def wanted() -> CloneSpec:
    return CloneSpec(
        assignment="new",
        epoch=1,
        manager_uid="hub-now",
        workload=Key("team", "wl"),
        queue="batch",
        spec={},
        labels={},
        annotations={},
    )


def clones(server: Server, *, may_patch: bool = True) -> Clones:
    return Clones(
        cast(KubeClient, server),
        origin="multikueue",
        cluster="w",
        rights=cast(Rights, SimpleNamespace(has=lambda *_: may_patch)),
        clock=ManualClock(),
        random=Random(1),
        changed=lambda name: None,
    )


async def test_a_tenant_who_copies_the_annotations_does_not_keep_the_clone_active() -> None:
    server = Server()
    made = clones(server)
    own = clone(assignment="a", manager="hub-now")
    copied = {**own, "metadata": {**own["metadata"], "name": "copied", "namespace": "tenant", "uid": "t"}}
    for each in (copied, own):
        made.informer.store.put(row_of(each, orjson.dumps(each)))
        made._by_assignment.setdefault("a", set()).add(Key(each["metadata"]["namespace"], each["metadata"]["name"]))
    assert await made.deactivate_of("a")
    assert sorted(name for name, body in server.patched if body["spec"] == {"active": False}) == ["copied", "former"]
    assert await made.deactivate_of("of-no-clone") is False


async def test_an_adopted_clone_is_that_of_the_job_before_the_cache_shows_it() -> None:
    server = Server()
    made = clones(server)
    former = clone(assignment="old", manager="hub-before")
    made.informer.store.put(row_of(former, orjson.dumps(former)))
    await made.adopt(wanted(), FORMER, manager_uid="hub-before")
    ((name, body),) = server.patched
    assert (name, body["metadata"]["annotations"][M + "assignment"]) == ("former", "new")
    admission = await made.ensure(wanted())
    assert not admission.shortage, "it was admitted before"
    assert server.created == [], "a second clone would hold quota beside it"
    await made.remove("new", manager_uid="hub-now")
    await made.ensure(wanted())
    assert server.created == ["wl"]


def kueues(*, pods: list[Object], marks: Object | None = None) -> Object:
    """The Workload that a Kueue has sent for the one that is wanted."""
    made = clone(assignment="", manager="")
    return {
        **made,
        "metadata": {**made["metadata"], "name": "wl", "annotations": marks or {}},
        "spec": {"podSets": pods},
        "status": {},
    }


PODS: list[Object] = [{"name": "main", "count": 2}]


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        pytest.param(kueues(pods=PODS), True, id="the same"),
        pytest.param(kueues(pods=[{"name": "main", "count": 3}]), False, id="other pods"),
        pytest.param(kueues(pods=PODS, marks={M + "manager-uid": "other"}), False, id="of another hub"),
        pytest.param(kueues(pods=PODS, marks={M + "cluster": "other"}), False, id="of another agent"),
    ],
)
async def test_the_workload_that_kueue_has_sent_is_taken_over_and_keeps_its_place(found: Object, taken: bool) -> None:
    server = Server()
    made = clones(server)
    made.informer.store.put(row_of(found, orjson.dumps(found)))
    admission = await made.ensure(replace(wanted(), spec={"podSets": PODS}))
    assert (admission.obstacle is None, bool(server.patched)) == (taken, taken)
    assert server.created == []
    if taken:
        ((_, body),) = server.patched
        assert body["metadata"]["annotations"] == {
            M + "assignment": "new",
            M + "cluster": "w",
            M + "epoch": "1",
            M + "manager-uid": "hub-now",
        }


async def test_without_the_right_to_patch_it_is_taken_over_in_memory() -> None:
    server = Server()
    made = clones(server, may_patch=False)
    found = kueues(pods=PODS)
    found["status"] = clone(assignment="", manager="")["status"]
    made.informer.store.put(row_of(found, orjson.dumps(found)))
    desired = replace(wanted(), spec={"podSets": PODS})
    assert (await made.ensure(desired)).shortage, "its state is looked at next time"
    admission = await made.ensure(desired)
    assert (admission.obstacle, admission.shortage) == (None, "")
    assert (server.patched, server.created) == ([], [])
    assert made.has("new")
    assert made.is_clone(found)
