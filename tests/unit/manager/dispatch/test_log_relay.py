# SPDX-License-Identifier: Apache-2.0
"""Which requests for logs are answered, what the hub shows of the answers, and when a request is removed."""

from __future__ import annotations

import pytest

from manager.dispatch.log_relay import (
    AHEAD,
    IDLE_SECONDS,
    MAX_SECONDS,
    NO_CLUSTER,
    NOT_SEALED,
    AssignedLogRequests,
    LogRelay,
)
from multikueue.api.constants import LOG_REQUEST_SEAL_ANNOTATION
from multikueue.api.resource import JOB_LOG_REQUESTS, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_logs import INTERRUPTED, MAX_REQUESTS
from multikueue.kube import errors
from multikueue.kube.errors import KubeError
from tests.support.relay_hubs import REQUEST, WORKLOAD, Hub, chunk, merged, pod_named, refused
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox

pytestmark = pytest.mark.anyio

FAILURES: dict[str, KubeError] = {
    "409": refused(errors.Conflict, 409),
    "429": refused(errors.TooManyRequests, 429),
    "500": refused(errors.InternalError, 500),
    "no answer": errors.Unreachable("PATCH: no answer", sent=True, hung=True),
}


async def test_a_request_goes_to_the_agent_and_its_chunks_come_back_one_after_the_other() -> None:
    hub = Hub()
    hub.request(tailLines=3, follow=True)
    await hub.turn()
    assert hub.relayed == [{"request": "r", "cursor": 0, "follow": True, "tailLines": 3}]
    hub.answer(chunk(1, "one\n"))
    await hub.turn()
    assert {name: hub.status()[name] for name in ("cursor", "cluster", "pod", "container", "chunk", "ended")} == {
        "cursor": 1,
        "cluster": "east",
        "pod": "p",
        "container": "c",
        "chunk": "one\n",
        "ended": False,
    }
    hub.answer(chunk(2, "two\n", ended=True))
    await hub.turn()
    assert hub.status()["cursor"] == 1, "the user has not read the first one"
    hub.change(JOB_LOG_REQUESTS, REQUEST, {"spec": {"cursor": 1}})
    await hub.turn()
    assert hub.status()["chunk"] == "two\n"
    hub.change(JOB_LOG_REQUESTS, REQUEST, {"spec": {"cursor": 2}})
    await hub.turn()
    assert (JOB_LOG_REQUESTS, REQUEST) not in hub.objects
    assert hub.relayed == []


@pytest.mark.parametrize("failure", list(FAILURES.values()), ids=list(FAILURES))
@pytest.mark.parametrize("times", [1, 8], ids=["once", "for a while"])
async def test_a_server_that_fails_changes_nothing_in_the_end(failure: KubeError, times: int) -> None:
    hub = Hub()
    hub.request()
    hub.failures = [failure] * times
    await hub.turn()
    assert [entry["request"] for entry in hub.relayed] == ["r"]
    hub.answer(chunk(1, "one\n", ended=True))
    hub.failures = [failure] * times
    await hub.turn()
    assert hub.status()["chunk"] == "one\n"
    hub.change(JOB_LOG_REQUESTS, REQUEST, {"spec": {"cursor": 1}})
    hub.failures = [failure] * times
    await hub.turn()
    assert (JOB_LOG_REQUESTS, REQUEST) not in hub.objects
    assert hub.relayed == []


async def test_a_request_for_a_pod_of_a_group_goes_to_the_agent_that_has_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub()
    hub.group("g-0", "g-1")
    one = hub.request("one", job=pod_named("g-1"), follow=True)
    every = hub.request("every", job=pod_named("g-0"), allPods=True)
    for key in (one, every):
        await hub.turn(key)
    assert hub.relayed == [
        {"request": "every", "cursor": 0, "allPods": True},
        {"request": "one", "cursor": 0, "pod": "g-1", "follow": True},
    ]
    hub.answer(chunk(1, "one\n", request="one", pod="g-1"), chunk(1, "all\n", request="every", pod="g-0"))
    for key in (one, every):
        await hub.turn(key)
    assert [(hub.status(key)["pod"], hub.status(key)["chunk"]) for key in (one, every)] == [
        ("g-1", "one\n"),
        ("g-0", "all\n"),
    ]
    enqueued: list[Key] = []
    monkeypatch.setattr(hub.relay.loops[0], "enqueue", enqueued.append)
    hub.relay.observed(WORKLOAD)
    assert sorted(enqueued) == [every, one], "each is looked at when the group changes"


async def test_a_pod_that_is_in_no_group_has_the_logs_of_its_own_workload_only() -> None:
    """A user of the namespace creates a Workload that names the pod, or a Job, as an owner that does not control it."""
    hub = Hub()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    hub.put(WORKLOADS, WORKLOAD, {"spec": {}, "status": {"clusterName": "east"}}, ownerReferences=[owner], uid="w")
    hub.group("p", "other", name="forged", creationTimestamp="2099-01-01T00:00:00Z", uid="forged")
    hub.request(job=pod_named("p"))
    await hub.turn()
    assert hub.relayed == [{"request": "r", "cursor": 0, "pod": "p"}]
    extra = [owner, {"apiVersion": "v1", "kind": "Pod", "name": "extra", "uid": "extra"}]
    hub.put(WORKLOADS, WORKLOAD, {"spec": {}, "status": {"clusterName": "east"}}, ownerReferences=extra, uid="w")
    key = hub.request("s", job=pod_named("extra"))
    await hub.turn(key)
    assert (hub.status(key)["message"], hub.status(key)["ended"]) == (NO_CLUSTER, True)


async def test_a_pod_of_another_namespace_is_not_found_in_a_group() -> None:
    hub = Hub()
    hub.group("g-0", "g-1")
    spec = {"job": pod_named("g-0"), "cursor": 0}
    seal = hub.seals.log_request_seal(namespace="elsewhere", name="r", spec=spec)
    key = Key("elsewhere", "r")
    hub.put(JOB_LOG_REQUESTS, key, {"spec": spec}, annotations={LOG_REQUEST_SEAL_ANNOTATION: seal})
    await hub.turn(key)
    assert (hub.relayed, hub.status(key)["message"]) == ([], NO_CLUSTER)


async def test_a_request_without_the_seal_of_the_webhook_is_not_passed_on() -> None:
    hub = Hub()
    hub.request(sealed=False)
    await hub.turn()
    assert (hub.relayed, hub.status()["message"], hub.status()["ended"]) == ([], NOT_SEALED, True)


async def test_the_seal_of_a_request_is_valid_for_what_it_asked_only() -> None:
    hub = Hub()
    hub.request()
    assert hub.seals.honours_log_request(hub.objects[JOB_LOG_REQUESTS, REQUEST])
    for change in ({"job": {"name": "other"}}, {"container": "side"}, {"allPods": True}, {"sinceTime": "x"}):
        changed = merged(hub.objects[JOB_LOG_REQUESTS, REQUEST], {"spec": change})
        assert not hub.seals.honours_log_request(changed)
    for metadata in ({"name": "other"}, {"namespace": "other"}):
        changed = merged(hub.objects[JOB_LOG_REQUESTS, REQUEST], {"metadata": metadata})
        assert not hub.seals.honours_log_request(changed)


async def test_a_job_that_is_on_no_cluster_ends_the_request() -> None:
    hub = Hub()
    hub.put(WORKLOADS, WORKLOAD, {"spec": {}, "status": {}}, uid="w")
    hub.request()
    await hub.turn()
    assert (hub.status()["message"], hub.status()["ended"]) == (NO_CLUSTER, True)


async def test_a_job_that_moved_is_requested_again() -> None:
    hub = Hub()
    hub.request()
    await hub.turn()
    hub.answer(chunk(1, "one\n"))
    await hub.turn()
    hub.change(WORKLOADS, WORKLOAD, {"status": {"clusterName": "west"}})
    hub.put(
        REMOTE_ASSIGNMENTS,
        Key("mk-west", hub.assignment.name),
        {"spec": hub.objects[REMOTE_ASSIGNMENTS, hub.assignment]["spec"]},
    )
    hub.change(JOB_LOG_REQUESTS, REQUEST, {"spec": {"cursor": 1}})
    await hub.turn()
    assert (hub.status()["ended"], hub.status()["message"]) == (True, INTERRUPTED)


async def test_a_new_manager_does_not_continue_what_another_one_has_begun() -> None:
    hub = Hub()
    hub.request()
    await hub.turn()
    hub.answer(chunk(1, "one\n"))
    await hub.turn()
    hub.relay = LogRelay(hub.context, AssignedLogRequests(hub.context, hub.push))
    await hub.turn()
    assert (hub.status()["cursor"], hub.status()["ended"], hub.status()["message"]) == (2, True, INTERRUPTED)


async def test_a_cursor_ahead_of_the_chunks_ends_the_request() -> None:
    hub = Hub()
    hub.request(cursor=2**63 - 1)
    await hub.turn()
    assert (hub.status()["message"], hub.status()["cursor"]) == (AHEAD, 1)


@pytest.mark.parametrize("cursor", [0, 3, 10**9], ids=["no chunk", "too far ahead", "far ahead"])
async def test_a_chunk_that_was_not_asked_for_is_not_shown(cursor: int) -> None:
    hub = Hub()
    hub.request()
    await hub.turn()
    hub.answer(chunk(cursor, "no\n"), chunk(1, "of another\n") | {"request": "other"})
    await hub.turn()
    assert hub.status() == {}


async def test_a_request_that_is_not_used_is_removed_after_two_minutes() -> None:
    hub = Hub()
    hub.request()
    await hub.turn()
    hub.clock.advance(IDLE_SECONDS - 1)
    hub.answer(chunk(1, "one\n"))
    await hub.turn()
    await hub.turn()
    hub.clock.advance(IDLE_SECONDS - 1)
    await hub.turn()
    assert (JOB_LOG_REQUESTS, REQUEST) in hub.objects, "a chunk came"
    hub.clock.advance(1)
    await hub.turn()
    assert (JOB_LOG_REQUESTS, REQUEST) not in hub.objects


async def test_a_request_that_is_used_for_long_ends_so_that_the_right_is_checked_again() -> None:
    hub = Hub()
    hub.request(follow=True)
    cursor = 0
    while not hub.status().get("ended"):
        assert cursor * 60 <= MAX_SECONDS
        hub.change(JOB_LOG_REQUESTS, REQUEST, {"spec": {"cursor": cursor}})
        await hub.turn()
        cursor += 1
        hub.answer(chunk(cursor, "line\n"))
        hub.clock.advance(60)
        await hub.turn()
    assert hub.status()["message"] == INTERRUPTED


async def test_of_a_namespace_only_the_oldest_requests_count() -> None:
    hub = Hub()
    keys = [hub.request(f"r{number}") for number in range(MAX_REQUESTS + 2)]
    for key in keys:
        await hub.turn(key)
    assert [key.name for key in keys if (JOB_LOG_REQUESTS, key) in hub.objects] == [
        f"r{n}" for n in range(MAX_REQUESTS)
    ]
    assert [entry["request"] for entry in hub.relayed] == [f"r{n}" for n in range(MAX_REQUESTS)]


async def test_a_cluster_that_the_manager_pushes_to_gets_requests_in_memory() -> None:
    hub = Hub()
    mailbox: InMemoryMailbox = hub.push.mailbox("east")
    mailbox.put(hub.objects.pop((REMOTE_ASSIGNMENTS, hub.assignment)))
    hub.request()
    await hub.turn()
    found = mailbox.get(hub.assignment.name)
    assert found is not None
    assert found["spec"]["logs"] == [{"request": "r", "cursor": 0}]
    mailbox.put(
        {**found, "spec": {name: value for name, value in found["spec"].items() if name != "logs"} | {"epoch": 2}}
    )
    updated = mailbox.get(hub.assignment.name)
    assert updated is not None
    assert (updated["spec"]["epoch"], updated["spec"]["logs"]) == (2, [{"request": "r", "cursor": 0}])
