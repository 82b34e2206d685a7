# SPDX-License-Identifier: Apache-2.0
"""Workloads whose nodes fail: which failures they show, and when two are too many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
import orjson
import pytest

from manager.cache.indexes import TOPOLOGY_HOST_INDEX, topology_hosts
from manager.cache.views import View
from manager.topology.node_failures import NodeFailures
from manager.workload import changes
from manager.workload.status import Status
from manager.workload.status_writer import StatusWriter
from multikueue.api.constants import HOSTNAME_LABEL, IS_GROUP_WORKLOAD_ANNOTATION
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import RESOURCE_FLAVORS, WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube import errors
from multikueue.kube.cache.store import Store
from tests.support.stub_api import status_answer
from tests.unit.manager.builders import NOW, admitted, evicted, pending, reserved, wire
from tests.unit.manager.scheduler.test_topology_writes import FAILURES, TWO_SETS, Workloads, answered, on
from tests.unit.manager.topology.builders import RACK, Object, Site, flavor, node, pod, site

pytestmark = pytest.mark.anyio

TAINT: Final = {"key": "spot", "value": "x", "effect": "NoSchedule"}
TOLERATION: Final = {"key": "spot", "operator": "Exists"}
A, B = Key("", "a"), Key("", "b")
LABELLED: Final = {"name": "node-1", "uid": "uid-1", "labels": {HOSTNAME_LABEL: "a"}}
BOTH: Final = "Workload eviction triggered due to multiple TAS assigned node failures, including: a, b"


class Failing:
    """Nodes, pods and Workloads, and what the Workloads show of the nodes."""

    def __init__(self, at: Site) -> None:
        self.site = at
        at.views[WORKLOADS] = View(WORKLOADS, clock=at.clock, store=Store({TOPOLOGY_HOST_INDEX: topology_hosts}))
        self.workloads = Workloads()
        writer = StatusWriter(cast(Any, self.workloads), at.view(WORKLOADS), at.quarantine)
        cast(Any, at.context).statuses = writer
        self.failures = NodeFailures(at.context, at.objects)

    async def has_nodes(self, *nodes: Object, version: str = "1") -> None:
        """These are all that the server has, and were seen there."""
        for each in nodes:
            each["metadata"]["resourceVersion"] = version
        self.site.server.nodes = {each["metadata"]["name"]: each for each in nodes}
        await self.site.objects.nodes.relist()

    async def review(self, *hosts: Key) -> None:
        """One pass for each of the hosts."""
        for host in hosts:
            await self.failures.controller.process(host)

    @property
    def status(self) -> Status:
        return Status.of(self.workloads.stored["w"])

    @property
    def unhealthy(self) -> tuple[str, ...]:
        return self.status.unhealthy_nodes

    async def begin(self) -> None:
        """The manager starts, and runs until nothing is left to be reviewed."""
        self.failures.attach()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.failures.run)
            with anyio.fail_after(10):
                while not self.unhealthy:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    async def asked_about(self) -> list[str]:
        """The hosts that are to be reviewed by now; none is left."""
        queue, found = self.failures.controller.queue, []
        while len(queue):
            key = await queue.get()
            queue.done(key)
            found.append(key.name)
        return sorted(found)


@asynccontextmanager
async def failing(
    *workloads: Object, nodes: tuple[Object, ...] = (), pods: tuple[Object, ...] = ()
) -> AsyncIterator[Failing]:
    async with site() as at:
        found = Failing(at)
        for each in workloads:
            found.workloads.stored[each["metadata"]["name"]] = each
            at.has_workload(each)
        await at.has_pods(*pods)
        await found.has_nodes(*nodes)
        yield found


def workload(status: Status | None = None, *, name: str = "w", tolerates: bool = False, **metadata: Any) -> Object:
    """A Workload that runs on the hosts a and b, unless another status is given."""
    made = wire(on(admitted(), "a", "b") if status is None else status, name=name, **metadata)
    if tolerates:
        made["spec"]["podSets"][0]["template"] = {"spec": {"containers": [], "tolerations": [TOLERATION]}}
    return made


def noted(*names: str, **metadata: Any) -> Object:
    """One that runs on a and b and shows that these have failed."""
    return workload(on(admitted(), "a", "b", unhealthy=names), **metadata)


def runs(host: str = "a", **metadata: Any) -> Object:
    """A pod of the Workload on that host."""
    return pod(f"on-{host}", started_in={HOSTNAME_LABEL: host}, **metadata)


async def test_a_node_that_is_gone_has_failed_at_once_though_pods_are_still_shown_there() -> None:
    async with failing(workload(), nodes=(node("b"),), pods=(runs(),)) as found:
        await found.review(A)
        assert found.unhealthy == ("a",)
        before = on(admitted(), "a", "b")
        assert (found.status.conditions, found.status.admission) == (before.conditions, before.admission)


BAD: Final = {
    "is not Ready": lambda: node("a", ready=False),
    "has a taint NoSchedule": lambda: node("a", taints=[TAINT]),
    "has a taint NoExecute": lambda: node("a", taints=[TAINT | {"effect": "NoExecute"}]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_node_fails_once_the_pods_there_have_ended_if_it(bad: Callable[[], Object]) -> None:
    async with failing(workload(), nodes=(bad(), node("b")), pods=(runs("a"), runs("b"))) as found:
        await found.review(A)
        assert found.workloads.writes == [], "it runs there"
        await found.site.has_pods(runs("b"))
        await found.review(A)
        assert found.unhealthy == ("a",)


NO_PODS: Final = {
    "that are being deleted": runs(deletionTimestamp="2026-01-01T12:00:00Z"),
    "of another workload": runs(of="other"),
    "on another host": runs("b"),
    "that wait for a host": pod("p"),
}


@pytest.mark.parametrize("other", NO_PODS.values(), ids=NO_PODS)
async def test_a_node_is_kept_by_no_pods(other: Object) -> None:
    async with failing(workload(), nodes=(node("a", ready=False),), pods=(other,)) as found:
        await found.review(A)
        assert found.unhealthy == ("a",)


async def test_a_node_that_recovers_before_its_pods_have_ended_has_never_failed() -> None:
    async with failing(workload(), nodes=(node("a", ready=False),), pods=(runs(),)) as found:
        await found.review(A)
        await found.has_nodes(node("a"), version="2")
        await found.site.has_pods()
        await found.review(A)
        assert found.workloads.writes == []


async def test_a_node_that_recovers_before_it_was_replaced_is_noted_no_longer() -> None:
    async with failing(noted("a"), nodes=(node("a"),)) as found:
        await found.review(A, A)
        assert (found.unhealthy, found.workloads.writes) == ((), ["w"])


GOOD: Final = {
    "is Ready": (lambda: node("a"), False),
    "is cordoned": (lambda: node("a", unschedulable=True), False),
    "has a taint that pods tolerate": (lambda: node("a", taints=[TAINT]), True),
    "has the host as its label": (lambda: node("node-1") | {"metadata": {**LABELLED}}, False),
    "has a taint that repels no pod": (lambda: node("a", taints=[TAINT | {"effect": "PreferNoSchedule"}]), False),
}


@pytest.mark.parametrize(("good", "tolerates"), GOOD.values(), ids=GOOD)
async def test_no_node_has_failed_that(good: Callable[[], Object], tolerates: bool) -> None:
    async with failing(workload(tolerates=tolerates), nodes=(good(), node("b"))) as found:
        await found.review(A)
        assert found.workloads.writes == []


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        pytest.param(on(reserved(), "a"), ("a",), id="that holds quota and is not admitted"),
        pytest.param(pending(), (), id="that waits"),
        pytest.param(evicted(on(admitted(), "a"), "Preempted"), (), id="that is being evicted"),
        pytest.param(changes.finish(on(admitted(), "a"), reason="r", message="", now=NOW), (), id="that has finished"),
        pytest.param(admitted(), (), id="without a topology"),
        pytest.param(on(admitted(), "b"), (), id="on other hosts"),
        pytest.param(on(admitted(), "a", level=RACK), (), id="that was given racks"),
        pytest.param(TWO_SETS, ("a",), id="of which one pod set is there"),
    ],
)
async def test_a_node_that_is_gone_matters_to_a_workload(status: Status, failed: tuple[str, ...]) -> None:
    async with failing(workload(status), nodes=(node("b"),)) as found:
        await found.review(A)
        assert found.unhealthy == failed


@pytest.mark.parametrize(("group", "failed"), [(False, ()), (True, ("a",))], ids=["a single pod", "a group"])
async def test_a_pod_without_a_group_keeps_its_place(group: bool, failed: tuple[str, ...]) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    annotations = {IS_GROUP_WORKLOAD_ANNOTATION: "true"} if group else {}
    async with failing(workload(ownerReferences=[owner], annotations=annotations)) as found:
        await found.review(A)
        assert found.unhealthy == failed


async def test_each_workload_on_the_node_shows_its_failure() -> None:
    async with failing(workload(), workload(name="v"), workload(on(admitted(), "b"), name="u")) as found:
        await found.review(A)
        assert sorted(found.workloads.writes) == ["v", "w"]


async def test_a_workload_of_which_two_nodes_fail_is_evicted() -> None:
    async with failing(workload()) as found:
        await found.review(B, A, A)
        shown = found.status.condition(WorkloadCondition.EVICTED)
        assert shown is not None
        assert (shown.status, shown.reason, shown.message) == ("True", "NodeFailures", BOTH)
        assert shown.last_transition_time == found.site.clock.now()
        assert [(each.reason, each.count) for each in found.status.evictions] == [("NodeFailures", 1)]
        assert found.unhealthy == (), "the next nodes it gets are others"


async def test_while_nodes_were_not_read_none_is_gone() -> None:
    async with failing(workload()) as found:
        found.site.objects.nodes.synced = anyio.Event()
        await found.review(A)
        assert found.workloads.writes == []


@pytest.mark.parametrize("times", [1, 8], ids=["once", "for long"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_write_that_fails_is_tried_until_it_succeeds(failure: errors.KubeError, times: int) -> None:
    async with failing(workload()) as found:
        found.workloads.failures["w"] = [failure] * times
        for _ in range(times):
            await found.review(A)
        assert found.workloads.failures["w"] == []
        await found.review(A, A)
        assert (found.unhealthy, found.workloads.writes) == (("a",), ["w"])
        assert found.failures.controller.queue.failures(A) == 0


async def test_a_workload_that_is_gone_from_the_server_stops_nothing() -> None:
    async with failing(workload(), workload(name="v")) as found:
        del found.workloads.stored["w"]
        await found.review(A)
        assert found.workloads.writes == ["v"]


async def test_hosts_are_reviewed_when_their_node_changes_or_a_pod_leaves_them() -> None:
    async with failing(nodes=(node("a"), node("b")), pods=(runs("a"), runs("b"), pod("p"))) as found:
        found.failures.attach()
        assert await found.asked_about() == ["a", "b"], "what is there may have failed before"
        await found.has_nodes(node("a", ready=False), version="2")
        assert await found.asked_about() == ["a", "b"], "one has changed, and one is gone"
        await found.site.has_pods(runs("b", version="2", deletionTimestamp="2026-01-01T12:00:00Z"))
        assert await found.asked_about() == ["a", "b"], "one has ended, and one is being deleted"


async def test_what_the_cache_does_not_show_yet_is_kept() -> None:
    async with failing(workload(on(reserved(), "a", "b"))) as found:
        found.workloads.stored["w"] = workload(version="2")
        await found.review(A)
        assert (found.unhealthy, found.status.is_true(WorkloadCondition.ADMITTED)) == (("a",), True)


ENDED: Final = {
    "has finished": changes.finish(on(admitted(), "a", "b"), reason="r", message="", now=NOW),
    "is being evicted": evicted(on(admitted(), "a", "b"), "Preempted"),
    "waits": pending(),
    "is on other hosts": on(admitted(), "c"),
}


@pytest.mark.parametrize("known", [(), ("b",)], ids=["one node", "two nodes"])
@pytest.mark.parametrize("now", ENDED.values(), ids=ENDED)
async def test_a_failure_changes_nothing_of_a_workload_that_by_now(now: Status, known: tuple[str, ...]) -> None:
    async with failing(noted(*known)) as found:
        found.workloads.stored["w"] = workload(now, version="2")
        await found.review(A)
        assert found.status == now


async def test_a_failure_that_the_cache_does_not_show_yet_counts() -> None:
    async with failing(workload()) as found:
        found.workloads.stored["w"] = noted("b", version="2")
        await found.review(A)
        assert found.status.is_true(WorkloadCondition.EVICTED) or set(found.unhealthy) == {"a", "b"}


async def test_a_node_without_the_condition_has_failed_at_once() -> None:
    bare = node("a") | {"status": {"allocatable": {"cpu": "4"}}}
    async with failing(workload(), nodes=(bare,), pods=(runs(),)) as found:
        await found.review(A)
        assert found.unhealthy == ("a",)


async def test_a_taint_that_the_flavor_tolerates_is_no_failure() -> None:
    async with failing(workload(), nodes=(node("a", taints=[TAINT]),)) as found:
        made = flavor()
        made["spec"]["tolerations"] = [TOLERATION]
        found.site.view(RESOURCE_FLAVORS).on_write(orjson.dumps(made))
        await found.review(A)
        assert found.workloads.writes == []


async def test_a_taint_concerns_the_pod_sets_on_the_node_alone() -> None:
    made = workload(TWO_SETS, tolerates=True)
    made["spec"]["podSets"].append({"name": "other", "count": 1, "template": {}})
    async with failing(made, nodes=(node("a", taints=[TAINT]), node("b"))) as found:
        await found.review(A)
        assert found.workloads.writes == []


async def test_a_failed_node_stays_noted_until_it_is_ready() -> None:
    async with failing(noted("a"), nodes=(node("a", ready=False),), pods=(runs(),)) as found:
        await found.review(A)
        assert found.unhealthy == ("a",)


@pytest.mark.parametrize("unreadable", [False, True], ids=["cannot be written", "cannot be read"])
async def test_a_workload_keeps_no_other_from_its_node_if_it(unreadable: bool) -> None:
    broken = workload(name="a")
    broken["spec"]["podSets"][0]["count"] = "many" if unreadable else 1
    async with failing(broken, workload()) as found:
        found.workloads.failures["a"] = [answered(errors.InternalError)] * 100
        await found.review(A, A, A)
        assert found.workloads.writes == ["w"]


@pytest.mark.parametrize("left", [(), (node("a", ready=False),)], ids=["is gone", "is not Ready"])
async def test_a_node_that_failed_while_no_manager_ran_is_reviewed(left: tuple[Object, ...]) -> None:
    async with failing(workload(), nodes=(node("b"), *left)) as found:
        await found.begin()
        assert found.unhealthy == ("a",)


OWNER: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}


def unbound(name: str = "p", host: str = "a", *, owned: bool = True, **metadata: Any) -> Object:
    """A pod that was let go to a host, and is not bound to its node yet."""
    if owned:
        metadata["ownerReferences"] = [OWNER]
    return pod(name, started_in={HOSTNAME_LABEL: host}, **metadata)


def bound(name: str) -> Object:
    made = unbound(name)
    made["spec"]["nodeName"] = "a"
    return made


@pytest.mark.parametrize("left", [(), (node("a", ready=False),)], ids=["is gone", "is not Ready"])
async def test_pods_that_no_scheduler_binds_any_more_are_made_anew_if_their_node(left: tuple[Object, ...]) -> None:
    pinned = pod("pinned") | {"spec": {**pod("pinned")["spec"], "nodeSelector": {HOSTNAME_LABEL: "a"}}}
    others = (bound("runs"), unbound("there", "b"), unbound("alone", owned=False), pinned)
    async with failing(workload(), nodes=(node("b"), *left), pods=(unbound(), *others)) as found:
        await found.review(A)
        assert sorted(found.site.server.pods) == ["alone", "pinned", "runs", "there"]


async def test_pods_on_their_way_to_a_good_node_are_left_alone() -> None:
    async with failing(workload(), nodes=(node("a"), node("b")), pods=(unbound(),)) as found:
        await found.review(A, B)
        assert list(found.site.server.pods) == ["p"]


async def test_a_node_has_failed_once_the_pods_are_gone_that_were_on_their_way() -> None:
    async with failing(workload(), nodes=(node("a", ready=False), node("b")), pods=(unbound(),)) as found:
        await found.review(A)
        assert found.workloads.writes == []
        await found.site.has_pods()
        await found.review(A)
        assert found.unhealthy == ("a",)


async def test_a_pod_that_was_bound_in_the_meantime_is_not_deleted() -> None:
    async with failing(workload(), nodes=(node("a", ready=False), node("b")), pods=(unbound(),)) as found:
        found.site.server.pods["p"] = bound("p") | {"metadata": {**bound("p")["metadata"], "resourceVersion": "2"}}
        await found.review(A)
        assert list(found.site.server.pods) == ["p"]
        assert found.failures.controller.queue.failures(A) == 1


@pytest.mark.parametrize("code", [429, 500])
async def test_a_deletion_that_fails_is_tried_again(code: int) -> None:
    async with failing(workload(), nodes=(node("a", ready=False), node("b")), pods=(unbound(),)) as found:
        found.site.server.refused["p"] = status_answer(code, "Test")
        await found.review(A)
        await found.review(A)
        assert found.site.server.pods == {}
