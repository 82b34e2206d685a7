# SPDX-License-Identifier: Apache-2.0
"""Figures and states of queues (`docs/spec/engine.md §2.9` and §8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER, StopPolicy
from multikueue.engine import lifecycle
from multikueue.engine.values import AdmissionCheck, CheckRule, ClusterQueue, Flavor, LocalQueue, TopologyLevels
from tests.support.engine_builders import HOLD, START, Bench, checks, group, holding, key, pods, queue, workload

BASE = queue("q", group(default="9"))


def known(bench: Bench, **controllers: str) -> Bench:
    for name, controller in controllers.items():
        bench.engine.upsert_admission_check(AdmissionCheck(name=name, controller=controller, active=True), bench.now)
    return bench


@pytest.mark.parametrize(
    ("value", "controllers", "reason", "message"),
    [
        pytest.param(BASE, {}, "Ready", "Can admit new workloads", id="ready"),
        pytest.param(
            replace(BASE, terminating=True),
            {},
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
            id="terminating",
        ),
        pytest.param(
            replace(BASE, stop_policy=HOLD), {}, "Stopped", "Can't admit new workloads: is stopped.", id="stopped"
        ),
        pytest.param(
            replace(BASE, stop_policy=StopPolicy.HOLD_AND_DRAIN),
            {},
            "Stopped",
            "Can't admit new workloads: is stopped.",
            id="drained",
        ),
        pytest.param(
            replace(BASE, checks=checks("b", "a")),
            {},
            "AdmissionCheckNotFound",
            "Can't admit new workloads: references missing AdmissionCheck(s): a,b.",
            id="missing checks",
        ),
        pytest.param(
            replace(BASE, stop_policy=HOLD, checks=checks("a")),
            {},
            "Stopped",
            "Can't admit new workloads: is stopped, references missing AdmissionCheck(s): a.",
            id="all reasons are listed, the first is the reason",
        ),
        pytest.param(
            replace(BASE, checks=checks("a", "b")),
            {"a": MULTIKUEUE_CONTROLLER, "b": MULTIKUEUE_CONTROLLER},
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks",
            id="two MultiKueue checks",
        ),
        pytest.param(
            replace(BASE, checks=(CheckRule("a", frozenset({"default"})),)),
            {"a": MULTIKUEUE_CONTROLLER},
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "per flavor",
            id="a MultiKueue check for some flavors",
        ),
        pytest.param(
            replace(BASE, checks=checks("a", "b")),
            {"a": MULTIKUEUE_CONTROLLER, "b": PROVISIONING_CONTROLLER},
            "MultiKueueWithProvisioningRequest",
            "ProvisioningRequest",
            id="MultiKueue and ProvisioningRequest",
        ),
    ],
)
def test_why_a_queue_is_not_active(value: ClusterQueue, controllers: dict[str, str], reason: str, message: str) -> None:
    state = known(Bench(value), **controllers).engine.cluster_queue_state("q")
    assert (state.active, state.reason) == (reason == "Ready", reason)
    assert message in state.message


def test_an_inactive_check_is_named() -> None:
    bench = Bench(replace(BASE, checks=checks("a")))
    bench.engine.upsert_admission_check(AdmissionCheck(name="a", controller="x", active=False), bench.now)
    state = bench.engine.cluster_queue_state("q")
    assert (state.reason, state.message) == (
        "AdmissionCheckInactive",
        "Can't admit new workloads: references inactive AdmissionCheck(s): a.",
    )


@pytest.mark.parametrize(
    ("able", "why", "reason"),
    [
        pytest.param(True, "", "Ready", id="its clusters can provision"),
        pytest.param(False, "w2: not installed", "MultiKueueWithProvisioningRequest", id="one cannot"),
    ],
)
def test_provisioning_together_with_multikueue_needs_clusters_that_can(able: bool, why: str, reason: str) -> None:
    bench = Bench(replace(BASE, checks=checks("a", "b")))
    for check in (
        AdmissionCheck(
            name="a", controller=MULTIKUEUE_CONTROLLER, active=True, can_provision=able, cannot_provision=why
        ),
        AdmissionCheck(name="b", controller=PROVISIONING_CONTROLLER, active=True),
    ):
        bench.engine.upsert_admission_check(check, bench.now)
    state = bench.engine.cluster_queue_state("q")
    assert state.reason == reason
    assert why in state.message


def test_missing_flavors_are_named_in_order() -> None:
    bench = Bench(queue("q", group(b="1", a="1")))
    for name in ("a", "b"):
        bench.engine.delete_flavor(name, bench.now)
    state = bench.engine.cluster_queue_state("q")
    assert (state.reason, state.message) == (
        "FlavorNotFound",
        "Can't admit new workloads: references missing ResourceFlavor(s): a,b.",
    )


def test_a_topology_flavor_needs_its_topology() -> None:
    bench = Bench(queue("q", group(trees="1")), flavors=[Flavor(name="trees", topology="racks")])
    state = bench.engine.cluster_queue_state("q")
    assert (state.reason, state.message) == (
        "TopologyNotFound",
        'Can\'t admit new workloads: there is no Topology "racks" for TAS flavor "trees".',
    )
    bench.engine.upsert_topology(TopologyLevels("racks", ("rack",)), bench.now)
    assert bench.engine.cluster_queue_state("q").active


def test_an_unknown_queue_is_not_active() -> None:
    assert Bench().engine.cluster_queue_state("nowhere").active is False


def test_the_figures_of_a_queue() -> None:
    bench = Bench(
        queue("q", group(a="2", b="2"), cohort="co", checks=checks("c")), queue("lender", group(a="5"), cohort="co")
    )
    known(bench, c="x")
    bench.add(holding(workload("held", "q", pods(cpu="3")), "q", flavor="a"))
    bench.add(workload("w1", "q", pods(cpu="9")), workload("w2", "q", pods(cpu="1"), created=1))
    bench.cycle()
    state = bench.engine.cluster_queue_state("q")
    assert {str(k): v for k, v in state.reservation.items()} == {"a/cpu": 3000, "b/cpu": 0}
    assert {str(k): v for k, v in state.borrowed_reservation.items()} == {"a/cpu": 1000, "b/cpu": 0}
    assert {str(k): v for k, v in state.usage.items()} == {"a/cpu": 3000, "b/cpu": 0}
    assert (state.pending, state.inadmissible, state.reserving, state.admitted) == (2, 1, 1, 1)
    local = bench.engine.local_queue_state(key("q"))
    assert (local.active, local.pending, local.reserving, local.admitted) == (True, 2, 1, 1)
    cohort = bench.engine.cohort_state("co")
    assert {str(k): v for k, v in cohort.subtree_quota.items()} == {"a/cpu": 7000, "b/cpu": 2000}


def test_the_states_of_a_local_queue() -> None:
    bench = Bench(queue("q", group(default="1"), stop_policy=HOLD))
    assert bench.engine.local_queue_state(key("q")).reason == "ClusterQueueIsInactive"
    bench.engine.upsert_local_queue(LocalQueue(key=key("lost"), cluster_queue="nowhere"), bench.now)
    assert bench.engine.local_queue_state(key("lost")).reason == "ClusterQueueDoesNotExist"
    bench.engine.upsert_local_queue(LocalQueue(key=key("lost"), cluster_queue="q", stop_policy=HOLD), bench.now)
    assert bench.engine.local_queue_state(key("lost")).message == "LocalQueue is stopped"


def test_positions_are_counted_in_both_queues() -> None:
    bench = Bench(queue("q", group(default="1")))
    bench.engine.upsert_local_queue(LocalQueue(key=key("second"), cluster_queue="q"), bench.now)
    bench.add(*(workload(f"w{i}", ("q", "second")[i % 2], pods(cpu="1"), created=i) for i in range(4)))
    found = [
        (p.workload.name, p.position_in_cluster_queue, p.position_in_local_queue) for p in bench.engine.pending("q")
    ]
    assert found == [("w0", 0, 0), ("w1", 1, 0), ("w2", 2, 1), ("w3", 3, 1)]


def test_a_removed_queue_is_forgotten_once_nothing_holds_it() -> None:
    bench = Bench(queue("q", group(default="4")))
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q"))
    bench.engine.delete_cluster_queue("q", bench.now)
    assert "q" in bench.engine.cluster_queues
    bench.engine.delete_workload(key("held"), bench.now)
    assert "q" not in bench.engine.cluster_queues
    assert "q" not in bench.engine.forest.queues


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        pytest.param({"active": False}, "Deactivated", "The workload is deactivated", id="deactivated"),
        pytest.param({"deleting": True}, "PendingEvaluation", "The workload is being deleted", id="being deleted"),
        pytest.param({"queue_name": "no"}, "Misconfigured", "LocalQueue no doesn't exist", id="no local queue"),
        pytest.param({"queue_name": "held"}, "Suspended", "LocalQueue held is inactive", id="a stopped local queue"),
        pytest.param(
            {"gated_by": ("example.com/a", "example.com/b")},
            "AdmissionGated",
            "Admission is gated by: example.com/a,example.com/b",
            id="gated",
        ),
    ],
)
def test_why_a_workload_is_in_no_queue(change: dict[str, object], reason: str, message: str) -> None:
    bench = Bench(BASE)
    bench.engine.upsert_local_queue(LocalQueue(key=key("held"), cluster_queue="q", stop_policy=HOLD), bench.now)
    bench.add(replace(workload("w", "q", pods(cpu="1")), **change))  # type: ignore[arg-type]
    found = bench.engine.explain(key("w"), bench.now)
    assert (found.state, found.reason, found.message) == ("NotQueued", reason, message)


def test_other_levels_of_a_topology_bring_inadmissible_workloads_of_its_flavors_back() -> None:
    racked = Flavor(name="racked", topology="racks")
    bench = Bench(
        queue("q", group(racked="1")), queue("other", group(plain="1")), flavors=[racked, Flavor(name="plain")]
    )
    bench.engine.upsert_topology(TopologyLevels("racks", ("rack",)), bench.now)
    bench.engine.flush(bench.now)
    for name, cluster_queue in (("w", "q"), ("v", "other")):
        bench.add(workload(name, cluster_queue, pods(cpu="2"))).decide(name)

    def states() -> tuple[str, str]:
        return bench.engine.explain(key("w"), bench.now).state, bench.engine.explain(key("v"), bench.now).state

    assert states() == ("Inadmissible", "Inadmissible")
    bench.engine.upsert_topology(TopologyLevels("racks", ("rack",)), bench.now)
    bench.engine.flush(bench.now)
    assert states() == ("Inadmissible", "Inadmissible"), "nothing changed"
    bench.engine.upsert_topology(TopologyLevels("racks", ("block", "rack")), bench.now)
    bench.engine.flush(bench.now)
    assert states() == ("Pending", "Inadmissible")


def test_the_mean_run_of_a_queue_is_that_of_workloads_that_ended_lately() -> None:
    bench = Bench(BASE)
    assert bench.mean_run("q") is None
    for name in ("first", "second"):
        value = holding(workload(name, "q", pods(cpu="1")), "q", since=(bench.now - START).total_seconds())
        bench.add(value)
        bench.pass_time(4.0 if name == "first" else 14.0)
        bench.add(lifecycle.finished(value, "Succeeded", "", bench.now))
    assert bench.mean_run("q") == pytest.approx(4.0 + 0.1 * 10.0)
    assert bench.mean_run("another") is None


def test_neither_an_evicted_workload_nor_one_that_is_deleted_counts_as_a_run() -> None:
    bench = Bench(BASE)
    evicted = holding(workload("evicted", "q", pods(cpu="1")), "q")
    bench.add(evicted, holding(workload("deleted", "q", pods(cpu="1")), "q"))
    bench.pass_time(1.0)
    evicted = lifecycle.evicted(evicted, "Preempted", "", bench.now)
    bench.add(evicted, lifecycle.finished(evicted, "Failed", "", bench.now))
    bench.engine.delete_workload(key("deleted"), bench.now)
    assert bench.mean_run("q") is None
