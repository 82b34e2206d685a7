# SPDX-License-Identifier: Apache-2.0
"""The mailbox in memory keeps what a mailbox namespace keeps."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import CLUSTER_REPORTS, JOBS, LEASES, REMOTE_ASSIGNMENTS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import PatchKind
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox, patched

Object = dict[str, Any]
pytestmark = pytest.mark.anyio


class Heard:
    def __init__(self) -> None:
        self.told: list[Object] = []
        self.woken: list[str] = []
        self.reports = 0

    def report(self) -> None:
        self.reports += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def mailbox(heard: Heard) -> InMemoryMailbox:
    made = InMemoryMailbox(
        "w", manager_uid="m", workload_uid=lambda key: "u", changed=heard.told.append, reported=heard.report
    )
    made.attach(heard.woken.append, on_open=lambda: None)
    return made


def body(uid: str = "u1", *, epoch: int = 1) -> Object:
    workload = {"namespace": "ns", "name": "wl", "uid": uid}
    return {"metadata": {"name": "a"}, "spec": {"workload": workload, "epoch": epoch, "intent": "Reserve"}}


def uid_of(mailbox: InMemoryMailbox) -> str:
    found = mailbox.get("a")
    assert found is not None
    return str(found["metadata"]["uid"])


async def say(mailbox: InMemoryMailbox, uid: str, phase: str) -> None:
    patch: list[Object] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status", "value": {"phase": phase}},
    ]
    await mailbox.patch(REMOTE_ASSIGNMENTS, "a", patch, kind=PatchKind.JSON, subresource="status")


async def test_a_status_is_seen_at_once_and_survives_a_new_spec(mailbox: InMemoryMailbox, heard: Heard) -> None:
    mailbox.put(body())
    await say(mailbox, uid_of(mailbox), "Reserved")
    mailbox.put(body(epoch=2))
    found = mailbox.get("a")
    assert found is not None
    assert (found["status"], found["spec"]["epoch"]) == ({"phase": "Reserved"}, 2)
    assert len(heard.told) == 1
    assert heard.woken == ["a", "a"]


async def test_an_unchanged_spec_causes_no_notification(mailbox: InMemoryMailbox, heard: Heard) -> None:
    mailbox.put(body())
    mailbox.put(body())
    mailbox.set_intent("a", Intent.RESERVE)
    assert heard.woken == ["a"]


async def test_a_status_never_lands_on_another_assignment_of_that_name(mailbox: InMemoryMailbox) -> None:
    mailbox.put(body())
    former = uid_of(mailbox)
    mailbox.put(body("u2"))
    assert uid_of(mailbox) != former
    with pytest.raises(NotFound):
        await say(mailbox, former, "Finished")


async def test_a_removed_assignment_is_notified_to_both_sides(mailbox: InMemoryMailbox, heard: Heard) -> None:
    mailbox.put(body())
    mailbox.remove("a")
    mailbox.remove("a")
    assert mailbox.names() == []
    assert (len(heard.told), heard.woken) == (1, ["a", "a"])
    with pytest.raises(NotFound):
        await say(mailbox, "x", "Running")


async def test_a_restored_assignment_does_not_replace_a_newer_one(mailbox: InMemoryMailbox) -> None:
    mailbox.put(body(epoch=2))
    mailbox.restore(body(epoch=1))
    found = mailbox.get("a")
    assert found is not None
    assert found["spec"]["epoch"] == 2
    assert mailbox.workload_uid(Key("ns", "wl")) == "u"


async def test_lease_and_report_are_kept(mailbox: InMemoryMailbox, heard: Heard) -> None:
    await mailbox.patch(LEASES, "agent", {"spec": {"renewTime": "1", "holderIdentity": "w"}})
    await mailbox.patch(LEASES, "agent", {"spec": {"renewTime": "2"}})
    assert mailbox.lease == {"spec": {"renewTime": "2", "holderIdentity": "w"}}
    report: list[Object] = [{"op": "add", "path": "/status", "value": {"sequence": 1}}]
    await mailbox.patch(CLUSTER_REPORTS, "agent", report, kind=PatchKind.JSON, subresource="status")
    assert (mailbox.report, heard.reports) == ({"status": {"sequence": 1}}, 1)


async def test_an_agent_writes_nothing_else(mailbox: InMemoryMailbox) -> None:
    mailbox.put(body())
    with pytest.raises(BadInput):
        await mailbox.patch(REMOTE_ASSIGNMENTS, "a", {"spec": {"intent": "Run"}})
    with pytest.raises(BadInput):
        await mailbox.patch(JOBS, "a", {})


async def test_patches_leave_what_they_were_made_for_alone() -> None:
    before = {"a": {"b": 1, "c": 2}}
    assert patched(before, {"a": {"b": None, "d": 3}}, PatchKind.MERGE) == {"a": {"c": 2, "d": 3}}
    added: list[Object] = [{"op": "add", "path": "/a/x~1y", "value": 1}]
    assert patched(before, added, PatchKind.JSON) == {"a": {"b": 1, "c": 2, "x/y": 1}}
    assert before == {"a": {"b": 1, "c": 2}}
    with pytest.raises(BadInput):
        patched(before, [{"op": "remove", "path": "/a"}], PatchKind.JSON)
    with pytest.raises(BadInput):
        patched(before, b"{}", PatchKind.APPLY)
