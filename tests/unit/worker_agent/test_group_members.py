# SPDX-License-Identifier: Apache-2.0
"""Which pods of a group are deleted before it runs, and which are taken over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from multikueue.api.remoteassignment import Intent
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import AssignmentFacts, ReportedStatus
from multikueue.jobs.kinds.pod import BARE_POD
from worker_agent.creation import Creation
from worker_agent.group_members import GroupMembers
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.remote_group import RemoteGroup

pytestmark = pytest.mark.anyio
FORMER = (Key("ns", "g-0"), "former")
ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin-uid"
Object = dict[str, Any]


async def deleted(intent: Intent, *, may_run: bool = True) -> tuple[list[str], bool]:
    """The uids of the deleted pods of a group in whose place a former pod is, and whether the agent waits for it."""
    uids: list[str] = []

    async def delete(key: Key, uid: str, *, ended: bool) -> None:
        uids.append(uid)

    desired: Any = SimpleNamespace(
        facts=AssignmentFacts(name="a", epoch=1, intent=intent, may_run=may_run),
        jobs=SimpleNamespace(delete=delete),
        named="pods ns/g",
    )
    obstacles: Any = SimpleNamespace(refusal=lambda named: None)
    members = GroupMembers(
        obstacles=cast(Obstacles, obstacles), creation=cast(Creation, None), clones=cast(Clones, None)
    )
    group = RemoteGroup(job=None, replaced=(FORMER,))
    waits = await members.take_back(cast(AssignmentSpec, desired), group, ReportedStatus())
    return uids, waits


async def test_a_pod_in_the_place_of_a_group_that_is_to_run_is_deleted_first() -> None:
    assert await deleted(Intent.RUN) == (["former"], True)


async def test_it_is_left_before_the_grant_and_while_fenced_work_may_not_run() -> None:
    assert await deleted(Intent.RESERVE) == ([], False)
    assert await deleted(Intent.RUN, may_run=False) == ([], False)


class TestTakeOver:
    """Pods that a Kueue has sent for the Workload before."""

    async def taken(self, *pods: Object) -> tuple[list[tuple[str, str]], bool]:
        """Name and uid on the hub of each pod that is taken over, and whether there were any."""
        marked: list[tuple[str, str]] = []
        workloads: list[str] = []

        async def adopt(key: Key, uid: str, manifest: Object, *, found: Object) -> None:
            assert (key.name, uid) == (found["metadata"]["name"], found["metadata"]["uid"])
            marked.append((key.name, manifest["metadata"].get("annotations", {}).get(ORIGIN_UID, "")))

        async def take_over(clone: object) -> None:
            workloads.append("taken")

        by_key = {Key("ns", each["metadata"]["name"]): each for each in pods}
        jobs = SimpleNamespace(integration=BARE_POD, sent_by_kueue=lambda workload: by_key, get=by_key.get, adopt=adopt)
        desired: Any = SimpleNamespace(
            facts=AssignmentFacts(name="a", epoch=1, intent=Intent.RUN),
            jobs=jobs,
            job=Key("ns", "group/g"),
            members=(sent("g-0"), sent("g-1")),
            clone=SimpleNamespace(workload=Key("ns", "g")),
        )
        members = GroupMembers(
            obstacles=cast(Obstacles, None),
            creation=cast(Creation, SimpleNamespace(manifest=lambda desired, manifest: manifest)),
            clones=cast(Clones, SimpleNamespace(take_over=take_over)),
        )
        found = await members.take_over(cast(AssignmentSpec, desired))
        assert bool(workloads) is found
        return marked, found

    async def test_they_are_marked_with_the_uids_of_the_hubs_pods(self) -> None:
        assert await self.taken(there("g-0"), there("g-1")) == ([("g-0", "hub-g-0"), ("g-1", "hub-g-1")], True)

    async def test_a_pod_that_the_hub_has_no_longer_is_one_of_the_group_too(self) -> None:
        assert await self.taken(there("g-0"), there("old")) == ([("g-0", "hub-g-0"), ("old", "")], True)

    async def test_none_is_taken_over_if_one_does_other_work(self) -> None:
        assert await self.taken(there("g-0"), there("g-1", image="other")) == ([], False)

    async def test_without_any_there_is_nothing_to_do(self) -> None:
        assert await self.taken() == ([], False)


def sent(name: str) -> Object:
    """A pod as the hub sends it."""
    made = there(name)
    metadata = {"name": name, "namespace": "ns", "annotations": {ORIGIN_UID: f"hub-{name}"}}
    return {**made, "metadata": metadata}


def there(name: str, *, image: str = "i") -> Object:
    """A pod that Kueue has sent."""
    metadata = {"name": name, "namespace": "ns", "uid": f"worker-{name}"}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": image}]}}
