# SPDX-License-Identifier: Apache-2.0
"""Which Workloads count as replicas of an owner, and which of them chooses the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from manager.cache.caches import Caches
from manager.cache.indexes import REPLICA_INDEX, replicas_by_owner
from manager.cache.views import View
from manager.dispatch.replicas import ReplicaWorkloads
from manager.workload.status import Status
from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.resource import LEADER_WORKER_SETS, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.replicas import Replica
from multikueue.jobs.framework.registry import JobRegistry, known_integrations
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.leader_worker_set import LeaderWorkerSetIntegration
from multikueue.kube.cache.store import Store, read_row

SETS = LeaderWorkerSetIntegration()
REGISTRY = JobRegistry((LEADER_WORKER_SET_FRAMEWORK,), known=known_integrations())
POD = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
Object = dict[str, Any]


def a_set(uid: str = "u1", *, name: str = "llm", namespace: str = "team", replicas: int = 20) -> Object:
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": POD}},
    }


def workload(index: int, cluster: str = "", *, of: Object | None = None, quota: bool = True, **status: Any) -> Object:
    """The Workload of that replica, which holds quota."""
    job = a_set() if of is None else of
    made = workload_for(SETS.replica(job, index), SETS, priority=Priority())
    made["metadata"] |= {"uid": f"{job['metadata']['uid']}-{index}", "resourceVersion": "1"}
    made["status"] = {**({"admission": {"clusterQueue": "q"}} if quota else {}), "clusterName": cluster, **status}
    return made


class Hub:
    """The caches, of these objects."""

    def __init__(self, *workloads: Object, sets: tuple[Object, ...] = (a_set(),)) -> None:
        clock = ManualClock()
        store = Store({REPLICA_INDEX: replicas_by_owner})
        self.views = {WORKLOADS: View(WORKLOADS, clock=clock, store=store)}
        self.views[LEADER_WORKER_SETS] = View(LEADER_WORKER_SETS, clock=clock)
        self.put(*workloads)
        for each in sets:
            self.views[LEADER_WORKER_SETS].store.put(read_row(orjson.dumps(each)))
        self.replicas = self.started()

    def started(self) -> ReplicaWorkloads:
        """What a manager has that has just started."""
        caches = cast(Caches, SimpleNamespace(view=self.view))
        return ReplicaWorkloads(caches, REGISTRY, can_be_sent=_can_be_sent)

    def view(self, resource: Resource) -> View:
        return self.views[resource]

    def put(self, *workloads: Object) -> None:
        for each in workloads:
            self.views[WORKLOADS].store.put(read_row(orjson.dumps(each)))

    def leader(self, own: Object) -> Replica | None:
        found = self.replicas.of(own)
        assert found is not None
        return found.leader

    def leads(self, own: Object) -> tuple[int, str] | None:
        found = self.leader(own)
        return None if found is None else (found.index, found.cluster_name)

    def changed(self, *workloads: Object) -> list[str]:
        """The replicas that are planned again after these changes."""
        self.put(*workloads)
        woken = [key for each in workloads for key in self.replicas.changed(key_of(each), each)]
        return sorted(key.name.split("-")[2] for key in woken)


def _can_be_sent(workload: Object, status: Status) -> bool:
    return not workload["status"].get("waits") and not status.cluster_name


def key_of(workload: Object) -> Key:
    return Key(workload["metadata"]["namespace"], workload["metadata"]["name"])


def test_all_follow_one_that_is_on_a_cluster() -> None:
    hub = Hub(workload(0), workload(1), workload(2, "w2"), workload(10, "w3"))
    assert [hub.leads(workload(index)) for index in (0, 1, 11)] == [(2, "w2")] * 3


def test_while_none_is_on_a_cluster_the_lowest_index_that_could_be_sent_chooses() -> None:
    hub = Hub(workload(0, quota=False), workload(1, waits=True), workload(10), workload(9), workload(2))
    assert hub.leads(workload(2)) is None
    assert [hub.leads(workload(index)) for index in (9, 10)] == [(2, "")] * 2


def test_one_whose_choice_is_being_written_is_waited_for_until_that_is_seen() -> None:
    hub = Hub(workload(1), workload(2))
    hub.replicas.choose(workload(1))
    # The write was lost, or is under way, and a lower index gets its quota.
    hub.put(workload(0))
    assert hub.leads(workload(0)) == (1, "")
    assert hub.leads(workload(1)) is None, "which may try again"
    hub.changed(workload(1, "w1"))
    assert hub.leads(workload(0)) == (1, "w1")


def test_one_that_gave_its_quota_back_while_it_chose_is_not_waited_for() -> None:
    hub = Hub(workload(0), workload(1))
    hub.replicas.choose(workload(1))
    hub.put(workload(1, quota=False))
    assert hub.leads(workload(0)) is None


def test_a_manager_that_has_just_started_finds_the_cluster_in_the_status() -> None:
    hub = Hub(workload(0), workload(1, "w2"))
    hub.replicas = hub.started()
    assert hub.leads(workload(0)) == (1, "w2")


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param({"conditions": [{"type": "Finished", "status": "True"}]}, id="finished"),
        pytest.param({"clusterName": ""}, id="evicted"),
    ],
)
def test_one_that_is_on_no_cluster_any_more_is_not_followed(gone: Object) -> None:
    other = workload(0, "w1", waits=True)
    other["status"] |= gone
    assert Hub(other, workload(1)).leads(workload(1)) is None


def test_one_that_is_being_deleted_is_not_followed() -> None:
    other = workload(0, "w1")
    other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert Hub(other, workload(1)).leads(workload(1)) is None


def test_the_waiting_ones_are_planned_again_when_another_one_leads_and_only_then() -> None:
    hub = Hub()
    assert hub.changed(workload(0)) == ["0"]
    assert hub.changed(workload(1)) == [], "the first one leads"
    assert hub.changed(workload(0, "w1")) == ["1"]
    assert hub.changed(workload(1, "w1")) == []
    assert hub.changed(workload(2)) == []
    assert hub.changed(workload(0, quota=False)) == ["2"], "the second one is followed now"
    hub.views[WORKLOADS].store.remove(key_of(workload(1)))
    woken = hub.replicas.changed(key_of(workload(1)), None)
    assert [key.name.split("-")[2] for key in woken] == ["2"], "nothing is on a cluster"


class TestForeign:
    """Workloads that are not of the owner, whatever they say."""

    OWN = workload(1)

    def leads(self, *others: Object, sets: tuple[Object, ...] = (a_set(),)) -> object:
        return Hub(self.OWN, *others, sets=sets).leads(self.OWN)

    def test_one_of_a_former_owner_of_that_name(self) -> None:
        assert self.leads(workload(0, "w1", of=a_set("former"))) is None

    def test_one_of_an_owner_of_that_name_and_uid_in_another_namespace(self) -> None:
        assert self.leads(workload(0, "w1", of=a_set(namespace="other"))) is None

    def test_one_of_another_owner_that_has_the_annotation_and_labels(self) -> None:
        forged = workload(0, "w1", of=a_set("u2", name="theirs"))
        forged["metadata"]["labels"] = self.OWN["metadata"]["labels"]
        assert self.leads(forged) is None

    def test_one_with_the_owner_reference_of_the_owner_and_a_name_of_its_own(self) -> None:
        forged = workload(0, "w1")
        forged["metadata"]["name"] = "leaderworkerset-llm-0-evil1"
        assert self.leads(forged) is None

    def test_one_with_the_index_of_another_replica(self) -> None:
        forged = workload(0, "w1")
        forged["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] = "5"
        assert self.leads(forged) is None

    def test_one_of_a_replica_that_the_owner_is_not_to_have(self) -> None:
        forged = workload(99, "w1")
        assert self.leads(forged) is None
        assert self.leads(forged, sets=(a_set(replicas=100),)) == (99, "w1")

    def test_one_that_names_the_owner_without_being_controlled_by_it(self) -> None:
        forged = workload(0, "w1")
        forged["metadata"]["ownerReferences"][0]["controller"] = False
        assert self.leads(forged) is None

    def test_a_workload_of_another_kind_is_no_replica(self) -> None:
        job = workload(0)
        job["metadata"]["ownerReferences"][0] |= {"apiVersion": "batch/v1", "kind": "Job"}
        hub = Hub(workload(1, "w1"))
        assert hub.replicas.of(job) is None
        assert hub.changed(job) == []

    @pytest.mark.parametrize("index", ["-1", "many", "9" * 40, ""])
    def test_an_index_that_is_no_number_makes_no_replica(self, index: str) -> None:
        forged = workload(0, "w1")
        forged["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] = index
        expected = (0, "w1") if not index else None  # without an index it is the first, by its name
        assert self.leads(forged) == expected
