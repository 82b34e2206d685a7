# SPDX-License-Identifier: Apache-2.0
"""Which slice of an elastic job has the job's assignment, and how the transports see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from manager.cache.caches import Caches
from manager.cache.indexes import SLICE_INDEX, slices_by_job
from manager.cache.views import View
from manager.dispatch.transport.job_slices import JobSlices, SliceTransport
from manager.dispatch.transport.mailbox_transport import Transport
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Observation
from multikueue.jobs.framework.slices import slice_annotations
from multikueue.kube.cache.store import Store, read_row

Object = dict[str, Any]
ADMITTED = ("QuotaReserved", "Admitted")
CHAIN = Key("team", "first")


def workload(
    name: str,
    *conditions: str,
    older: Object | None = None,
    cluster: str = "",
    evictions: int = 0,
    job: str = "job-uid",
    elastic: bool = True,
) -> Object:
    shown = [{"type": each, "status": "True"} for each in conditions]
    if "Finished" in conditions:
        shown[-1]["reason"] = "WorkloadSliceReplaced"
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-01-01T00:00:0{['first', 'second', 'third'].index(name)}Z",
            "annotations": slice_annotations(name, older) if elastic else {},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job, "controller": True}],
        },
        "spec": {"podSets": [{"name": "main", "count": 1}]},
        "status": {
            "conditions": shown,
            "clusterName": cluster,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "count": evictions}]},
        },
    }


class Assigned:
    """The assignments under it, which go by their own keys; calls are recorded."""

    def __init__(self, *found: tuple[Key, Observation]) -> None:
        self.found = found
        self.calls: list[tuple[str, str, Key]] = []

    def observations(self, key: Key) -> Mapping[str, Observation]:
        return {each.cluster: each for assigned, each in self.found if assigned == key}

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        return {assigned for assigned, each in self.found if cluster in (None, each.cluster)}

    async def set_intent(self, cluster: str, key: Key, intent: Intent) -> None:
        self.calls.append(("set_intent", cluster, key))

    async def remove(self, cluster: str, key: Key) -> None:
        self.calls.append(("remove", cluster, key))


class Hub:
    """Workloads in the cache, and assignments."""

    def __init__(self, *workloads: Object, assigned: Iterable[tuple[Key, Observation]] = ()) -> None:
        self.view = View(WORKLOADS, clock=ManualClock(), store=Store({SLICE_INDEX: slices_by_job}))
        for each in workloads:
            self.view.store.put(read_row(orjson.dumps(each)))
        self.slices = JobSlices(cast(Caches, SimpleNamespace(view=lambda resource: self.view)))
        self.under = Assigned(*assigned)
        self.transport = SliceTransport(cast(Transport, self.under), self.slices)

    def seen(self, name: str) -> dict[str, str]:
        """The clusters with an assignment of that Workload, with the uid that it has there."""
        found = self.transport.observations(Key("team", name))
        return {cluster: each.workload_uid for cluster, each in found.items()}

    def owners(self, name: str) -> set[str]:
        return {each.name for each in self.transport.owners(Key("team", name))}


def granted(cluster: str = "w1", *, uid: str = "job-uid", epoch: int = 1, intent: Intent = Intent.RUN) -> Observation:
    return Observation(cluster=cluster, workload_uid=uid, epoch=epoch, intent=intent)


FIRST = workload("first", *ADMITTED, cluster="w1")
REPLACED = workload("first", *ADMITTED, "Finished", cluster="w1")
WAITING = workload("second", older=FIRST)
TAKING_OVER = workload("second", "QuotaReserved", older=FIRST)
SECOND = workload("second", *ADMITTED, older=FIRST, cluster="w1")


def test_while_a_larger_slice_waits_the_assignment_is_that_of_the_one_that_runs() -> None:
    hub = Hub(FIRST, WAITING, assigned=[(CHAIN, granted())])
    assert (hub.seen("first"), hub.seen("second")) == ({"w1": "uid-of-first"}, {})
    assert hub.owners("first") == {"first"}
    assert not hub.slices.is_superseded(FIRST)


@pytest.mark.parametrize("former", [FIRST, REPLACED], ids=["not finished yet", "replaced"])
@pytest.mark.parametrize("newer", [TAKING_OVER, SECOND], ids=["not admitted yet", "admitted"])
def test_a_slice_that_has_taken_the_quota_over_has_the_assignment(former: Object, newer: Object) -> None:
    hub = Hub(former, newer, assigned=[(CHAIN, granted())])
    assert (hub.seen("first"), hub.seen("second")) == ({}, {"w1": "uid-of-second"})
    assert hub.owners("first") == {"second"}
    assert set(hub.transport.workloads()) == {Key("team", "second")}
    assert (hub.slices.is_superseded(former), hub.slices.is_superseded(newer)) == (True, False)


def test_the_name_of_the_first_slice_stays_in_use_when_that_one_is_deleted() -> None:
    hub = Hub(SECOND, assigned=[(CHAIN, granted())])
    assert (hub.seen("first"), hub.seen("second")) == ({}, {"w1": "uid-of-second"})
    assert hub.slices.uid_of(CHAIN) == "job-uid"


def test_an_assignment_without_any_slice_is_left_to_its_name() -> None:
    other = workload("third", *ADMITTED, job="of-another-job")
    hub = Hub(other, assigned=[(CHAIN, granted())])
    assert hub.seen("first") == {"w1": "job-uid"}
    assert hub.owners("first") == {"first"}


def test_what_is_left_of_slices_that_were_all_replaced_belongs_to_the_newest() -> None:
    replaced = workload("second", *ADMITTED, "Finished", older=FIRST, cluster="w1")
    another = workload("third", *ADMITTED)
    hub = Hub(REPLACED, replaced, another, assigned=[(CHAIN, granted())])
    assert hub.owners("first") == {"second"}
    assert (hub.seen("first"), hub.seen("second"), hub.seen("third")) == ({}, {"w1": "uid-of-second"}, {})
    assert [hub.slices.is_superseded(each) for each in (REPLACED, replaced, another)] == [True, False, False]


def test_a_slice_does_not_see_an_assignment_of_another_job_under_the_same_name() -> None:
    hub = Hub(SECOND, assigned=[(CHAIN, granted(uid="of-a-former-job"))])
    assert hub.seen("second") == {}
    assert hub.seen("first") == {"w1": "of-a-former-job"}


def test_a_workload_of_one_size_is_as_before() -> None:
    plain = workload("first", *ADMITTED, elastic=False)
    for others in ((), (workload("third", *ADMITTED),)):
        hub = Hub(plain, *others, assigned=[(CHAIN, granted(uid="uid-of-first"))])
        assert hub.seen("first") == {"w1": "uid-of-first"}
        assert hub.slices.uid_of(CHAIN) == "uid-of-first"
        assert set(hub.transport.workloads("w1")) == {CHAIN}


def test_a_workload_cannot_take_the_assignment_of_another_one_by_its_annotations() -> None:
    victim = workload("first", *ADMITTED, elastic=False)
    thief = workload("second", *ADMITTED, older=victim, job="of-the-thief")
    hub = Hub(victim, thief, assigned=[(CHAIN, granted(uid="uid-of-first"))])
    assert (hub.seen("first"), hub.seen("second")) == ({"w1": "uid-of-first"}, {})
    assert not hub.slices.is_superseded(victim)
    assert hub.slices.runs_on(thief, ()) == ""


async def test_what_is_written_for_a_slice_goes_to_the_assignment_of_its_job() -> None:
    hub = Hub(REPLACED, SECOND, assigned=[(CHAIN, granted())])
    await hub.transport.set_intent("w1", Key("team", "second"), Intent.EVICT)
    await hub.transport.remove("w1", Key("team", "second"))
    assert hub.under.calls == [("set_intent", "w1", CHAIN), ("remove", "w1", CHAIN)]


def test_a_slice_runs_where_the_one_runs_that_it_replaces() -> None:
    assert Hub(REPLACED, TAKING_OVER).slices.runs_on(TAKING_OVER, ()) == "w1"


@pytest.mark.parametrize("intent", [Intent.RUN, Intent.EVICT])
def test_it_runs_where_it_was_granted_also_when_the_former_slice_is_gone(intent: Intent) -> None:
    assert Hub(TAKING_OVER).slices.runs_on(TAKING_OVER, [granted("w2", intent=intent)]) == "w2"


@pytest.mark.parametrize(
    ("slice_", "seen"),
    [
        pytest.param(FIRST, [granted()], id="which replaces none"),
        pytest.param(workload("second", "QuotaReserved", older=FIRST, evictions=1), [granted()], id="that was evicted"),
        pytest.param(workload("second", "QuotaReserved", older=FIRST), [], id="of a job that was sent nowhere"),
    ],
)
def test_a_slice_may_go_anywhere(slice_: Object, seen: list[Observation]) -> None:
    former = workload("first", *ADMITTED, "Finished", cluster="w1" if seen else "")
    assert Hub(former, slice_).slices.runs_on(slice_, seen) == ""


def test_a_slice_keeps_the_epoch_of_the_one_that_it_replaces() -> None:
    former = workload("first", *ADMITTED, "Finished", cluster="w1", evictions=3)
    newer = workload("second", "QuotaReserved", older=former)
    assert newer["metadata"]["annotations"]["multikueue.io/first-epoch"] == "4"
    assert Hub(former, newer).slices.runs_on(newer, ()) == "w1"
