# SPDX-License-Identifier: Apache-2.0
"""Places that a Workload gets while it holds quota, or its eviction without them: what is written, and when not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import orjson
import pytest

from manager.cache.views import View
from manager.scheduler import admission_writes
from manager.scheduler.topology_writes import TopologyWriter
from manager.scheduler.write_queue import WriteQueue
from manager.workload import changes
from manager.workload.status import Status
from manager.workload.status_writer import StatusWriter
from multikueue.api.constants import HOSTNAME_LABEL, CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.api.topologyslices import expand
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.engine.decisions import TopologyDecision
from multikueue.engine.workloads import AssignedDomains
from multikueue.kube import errors
from multikueue.kube.runtime.quarantine import Quarantine
from tests.unit.manager.builders import KEY, NOW, admitted, at, check, evicted, pending, reserved, wire, with_checks
from tests.unit.manager.topology.builders import Object
from tests.unit.manager.topology.test_ungater import assigned, placed

pytestmark = pytest.mark.anyio

NO_HOST: Final = "Workload was evicted as there was no replacement for unhealthy node(s): a"
FULL: Final = 'topology "default" allows to fit only 1 out of 2 pod(s)'


def answered(kind: type[errors.ApiError]) -> errors.ApiError:
    return kind(request="PATCH", status=kind.code, reason="", message="", details=errors.Details())


FAILURES: Final = {
    "409": answered(errors.Conflict),
    "429": answered(errors.TooManyRequests),
    "500": answered(errors.InternalError),
    "no answer": errors.Unreachable("hub: no answer", hung=True),
}


class Workloads:
    """What a server has of Workloads; each write may fail for a while."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.failures: dict[str, list[errors.KubeError]] = {}
        self.writes: list[str] = []

    async def get(self, resource: object, name: str, *, namespace: str) -> bytes:
        return orjson.dumps(self._known(name))

    async def apply(self, resource: object, name: str, body: Object, **options: Any) -> bytes:
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        metadata = self._known(name)["metadata"]
        if body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise answered(errors.Conflict)
        version = str(int(metadata["resourceVersion"]) + 1)
        self.stored[name] |= {"metadata": metadata | {"resourceVersion": version}, "status": body["status"]}
        self.writes.append(name)
        return orjson.dumps(self.stored[name])

    def _known(self, name: str) -> Object:
        if name not in self.stored:
            raise answered(errors.NotFound)
        return self.stored[name]


def decision(*hosts: str, pod_set: str = "main", **fields: Any) -> TopologyDecision:
    """One pod on each of these hosts."""
    domains = AssignedDomains((HOSTNAME_LABEL,), tuple(((host,), 1) for host in hosts))
    given: dict[str, Any] = {"workload": KEY, "uid": "uid-w", "cluster_queue": "cq"}
    return TopologyDecision(**(given | {"topologies": ((pod_set, domains),) if hosts else ()} | fields))


EVICTION: Final = decision(problem=FULL, evict=NO_HOST, unhealthy_nodes=("a",))
MOVE: Final = decision("b", "c", unhealthy_nodes=("a",))
PLACES: Final = decision("b", "c")


def on(status: Status, *hosts: str, level: str = HOSTNAME_LABEL, unhealthy: tuple[str, ...] = ()) -> Status:
    """With one pod on each of these hosts."""
    made = placed(status, assigned(dict.fromkeys(hosts, 1), levels=(level,)))
    return replace(made, unhealthy_nodes=unhealthy)


def delayed(status: Status, *names: str) -> Status:
    """Pod sets whose places are found later."""
    sets = [{"name": name, "count": 2, "delayedTopologyRequest": "Pending"} for name in names or ("main",)]
    return placed(status, *sets)


TWO_SETS: Final = placed(
    admitted(),
    *(assigned({host: 1}, name=name, levels=(HOSTNAME_LABEL,)) for name, host in (("main", "a"), ("other", "b"))),
)
FAILED: Final = on(admitted(), "a", "b", unhealthy=("a",))


def assign(status: Status, found: TopologyDecision) -> Status:
    return admission_writes.assign_topologies(status, found, now=at(5))


def hosts(status: Status) -> list[list[str] | None]:
    """Of each pod set."""
    sets = (status.admission or {}).get("podSetAssignments") or ()
    known = (each.get("topologyAssignment") for each in sets)
    return [None if each is None else [domain["values"][-1] for domain in expand(each)["domains"]] for each in known]


def test_a_node_is_replaced_and_its_failure_is_noted_no_longer() -> None:
    after = assign(FAILED, MOVE)
    assert (hosts(after), after.unhealthy_nodes) == ([["b", "c"]], ())
    assert after.conditions == FAILED.conditions, "Kueue changes no condition either"
    before = (FAILED.admission or {})["podSetAssignments"][0]
    (one,) = (after.admission or {})["podSetAssignments"]
    kept = {name: value for name, value in before.items() if name != "topologyAssignment"}
    assert {name: value for name, value in one.items() if name != "topologyAssignment"} == kept


def test_pod_sets_that_the_decision_does_not_name_keep_their_places() -> None:
    sets = (TWO_SETS.admission or {})["podSetAssignments"]
    after = assign(placed(admitted(), {"name": "plain", "count": 1}, *sets), decision("c"))
    assert hosts(after) == [None, ["c"], ["b"]]


@pytest.mark.parametrize("state", CheckState)
def test_places_that_were_found_later_admit_a_workload_whose_checks_are_ready(state: CheckState) -> None:
    after = assign(with_checks(delayed(reserved()), check(state=state)), PLACES)
    (one,) = (after.admission or {})["podSetAssignments"]
    assert (hosts(after), one["delayedTopologyRequest"]) == ([["b", "c"]], "Ready")
    assert after.is_true(WorkloadCondition.ADMITTED) is (state is CheckState.READY)


def test_a_workload_is_not_admitted_while_another_pod_set_waits_for_places() -> None:
    after = assign(delayed(reserved(), "main", "other"), PLACES)
    assert [each["delayedTopologyRequest"] for each in (after.admission or {})["podSetAssignments"]] == [
        "Ready",
        "Pending",
    ]
    shown = after.condition(WorkloadCondition.ADMITTED)
    assert shown is None or (shown.status, shown.reason) == ("False", "PendingDelayedTopologyRequests")


def test_without_another_host_it_is_evicted_and_keeps_its_quota_until_it_has_stopped() -> None:
    after = assign(FAILED, EVICTION)
    shown = after.condition(WorkloadCondition.EVICTED)
    assert shown is not None
    assert (shown.status, shown.reason, shown.message) == ("True", "NodeFailures", NO_HOST)
    assert shown.last_transition_time == at(5)
    assert [(each.reason, each.underlying_cause, each.count) for each in after.evictions] == [("NodeFailures", "", 1)]
    assert (after.unhealthy_nodes, after.admission) == ((), FAILED.admission)


ENDED: Final = {
    "has finished": changes.finish(FAILED, reason="Succeeded", message="", now=NOW),
    "is being evicted": evicted(FAILED, "Preempted"),
    "waits": pending(),
    "holds quota of another queue": replace(FAILED, admission={**(FAILED.admission or {}), "clusterQueue": "new"}),
}


@pytest.mark.parametrize("found", [MOVE, EVICTION], ids=["places", "eviction"])
@pytest.mark.parametrize("status", ENDED.values(), ids=ENDED)
def test_nothing_changes_of_a_workload_that_by_now(status: Status, found: TopologyDecision) -> None:
    assert assign(status, found) is status


class Writing:
    """A server with one Workload, the cache of it, and what the writer has asked for."""

    def __init__(self, status: Status = FAILED, *, now: Status | None = None, uid: str = "uid-w") -> None:
        """`now` is the status on the server, where the cache still shows `status`."""
        clock = ManualClock(NOW)
        self.server = Workloads()
        self.server.stored["w"] = wire(status, uid=uid) if now is None else wire(now, version="2")
        self.view = View(WORKLOADS, clock=clock)
        self.view.on_write(orjson.dumps(wire(status, uid=uid)))
        self.events: list[tuple[str, str, str, str]] = []
        self.refreshed: list[Key] = []
        context = SimpleNamespace(
            statuses=StatusWriter(cast(Any, self.server), self.view, Quarantine(clock=clock)),
            recorder=SimpleNamespace(event=lambda about, *event: self.events.append((about.name, *event))),
        )
        self.queue = WriteQueue(runners=2, clock=clock)
        self.due: list[TopologyDecision] = []
        self.failed: list[Key] = []
        engine = SimpleNamespace(assign_topologies=lambda now: tuple(self.due), topologies_failed=self.failed.append)
        self.reported: list[Exception] = []
        self.feed = SimpleNamespace(
            engine=engine, broken=False, refresh=self.refreshed.append, fail=self.reported.append
        )
        self.writer = TopologyWriter(cast(Any, context), self.queue, cast(Any, self.feed))

    async def write(self, *decisions: TopologyDecision) -> None:
        """Until nothing is left to be written."""
        self.due[:] = decisions
        self.writer.assign(NOW)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.queue.run)
                await self.queue.drained()
                tasks.cancel_scope.cancel()

    @property
    def status(self) -> Status:
        return Status.of(self.server.stored["w"])


async def test_new_places_are_written_without_an_event() -> None:
    at_work = Writing()
    await at_work.write(MOVE)
    assert (hosts(at_work.status), at_work.status.unhealthy_nodes) == ([["b", "c"]], ())
    assert (at_work.events, at_work.refreshed) == ([], [])


async def test_the_newer_of_two_decisions_that_wait_is_written_alone() -> None:
    at_work = Writing()
    await at_work.write(decision("b", "d", unhealthy_nodes=("a",)), MOVE)
    assert (hosts(at_work.status), at_work.server.writes) == ([["b", "c"]], ["w"])


async def test_nothing_is_decided_by_an_engine_that_has_to_be_rebuilt() -> None:
    at_work = Writing()
    at_work.feed.broken = True
    await at_work.write(MOVE)
    assert at_work.server.writes == []


async def test_an_engine_that_fails_is_rebuilt_and_others_go_on() -> None:
    at_work, error = Writing(), ValueError("bad")

    def fail(now: object) -> None:
        raise error

    at_work.feed.engine.assign_topologies = fail
    await at_work.write()
    assert (at_work.reported, at_work.server.writes) == ([error], [])


async def test_what_is_missing_is_an_event_and_no_write() -> None:
    at_work = Writing(delayed(reserved()))
    await at_work.write(decision(problem=FULL))
    assert at_work.events == [("w", "Warning", "SecondPassFailed", FULL)]
    assert (at_work.server.writes, at_work.refreshed) == ([], [])


async def test_an_eviction_is_written_once() -> None:
    at_work = Writing()
    await at_work.write(EVICTION)
    await at_work.write(EVICTION)
    assert at_work.status.is_true(WorkloadCondition.EVICTED)
    assert ([each.count for each in at_work.status.evictions], at_work.server.writes) == ([1], ["w"])


@pytest.mark.parametrize("found", [MOVE, EVICTION], ids=["places", "eviction"])
@pytest.mark.parametrize("now", ENDED.values(), ids=ENDED)
async def test_what_the_cache_does_not_show_yet_is_decisive_if_it(now: Status, found: TopologyDecision) -> None:
    at_work = Writing(now=now)
    await at_work.write(found)
    assert (at_work.status, at_work.server.writes, at_work.refreshed) == (now, [], [KEY])


async def test_a_conflict_with_another_change_is_overcome() -> None:
    at_work = Writing(now=changes.pods_ready(FAILED, ready=True, reason="r", message="", now=NOW))
    await at_work.write(MOVE)
    assert (hosts(at_work.status), at_work.status.is_true(WorkloadCondition.PODS_READY)) == ([["b", "c"]], True)
    assert at_work.refreshed == []


@pytest.mark.parametrize("found", [MOVE, EVICTION], ids=["places", "eviction"])
async def test_an_object_of_that_name_that_is_another_by_now_is_not_written(found: TopologyDecision) -> None:
    at_work = Writing(uid="another")
    await at_work.write(found)
    assert (at_work.server.writes, at_work.refreshed) == ([], [])


@pytest.mark.parametrize("here", [False, True], ids=["on the server", "in the cache"])
async def test_a_workload_that_is_gone_is_not_written_and_not_fed_again(here: bool) -> None:
    at_work = Writing()
    if here:
        at_work.view.on_not_found(KEY)
    else:
        del at_work.server.stored["w"]
    await at_work.write(MOVE)
    assert (at_work.server.writes, at_work.refreshed, at_work.view.object(KEY)) == ([], [], None)


@pytest.mark.parametrize("found", [MOVE, EVICTION], ids=["places", "eviction"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_write_that_fails_has_the_workload_decided_again(
    failure: errors.KubeError, found: TopologyDecision
) -> None:
    at_work = Writing()
    for number in range(1, 4):
        at_work.server.failures["w"] = [failure] * 5  # a conflict is tried so often at once
        await at_work.write(found)
        assert (at_work.status, at_work.refreshed) == (FAILED, [KEY] * number)
        assert at_work.failed == [KEY] * number, "what it was given is given back"
    at_work.server.failures.clear()
    await at_work.write(found)
    assert (at_work.status, at_work.refreshed) == (assign_now(found), [KEY] * 3)


def assign_now(found: TopologyDecision) -> Status:
    return Status.of(wire(admission_writes.assign_topologies(FAILED, found, now=NOW)))


@pytest.mark.parametrize("by_now", ["another", *ENDED])
async def test_no_event_about_what_is_missing_if_the_workload_by_now(by_now: str) -> None:
    at_work = Writing(uid="another") if by_now == "another" else Writing(ENDED[by_now])
    await at_work.write(decision(problem=FULL))
    assert at_work.events == []


async def test_an_eviction_has_no_event_of_a_second_pass() -> None:
    at_work = Writing()
    await at_work.write(EVICTION)
    assert at_work.events == []


def test_a_workload_whose_node_has_recovered_meanwhile_is_not_evicted() -> None:
    recovered = replace(FAILED, unhealthy_nodes=())
    assert assign(recovered, EVICTION) is recovered


def test_a_workload_of_which_another_node_has_failed_meanwhile_is_decided_again() -> None:
    before = on(admitted(), "a", "b", unhealthy=("b",))
    assert assign(before, MOVE) is before
