# SPDX-License-Identifier: Apache-2.0
"""The search for flavors (`docs/spec/engine.md §3.3` to §3.6, §9) and the worked examples 3, 4, 6 and 7 of §13."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.engine import Gates, Outcome, Settings
from multikueue.engine.flavorassigner.eligibility import mismatch
from multikueue.engine.settings import QuotaCheck
from multikueue.engine.values import Flavor, TopologyLevels
from multikueue.engine.workloads import PodShape, TopologyRequest
from tests.support.engine_builders import (
    START,
    Bench,
    at,
    fungibility,
    group,
    holding,
    key,
    pods,
    preemption,
    queue,
    shape,
    tainted,
    workload,
)

SPOT = Flavor(name="spot", taints=(Taint("spot", "true", "NoSchedule"),))
ZONED = Flavor(name="zoned", node_labels={"zone": "a", "size": "9"})


def term(*requirements: Requirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(requirements)


@pytest.mark.parametrize(
    ("flavor", "pod", "want"),
    [
        pytest.param(
            SPOT,
            PodShape(),
            "untolerated taint {spot true NoSchedule <nil>} in flavor spot",
            id="a taint keeps pods away",
        ),
        pytest.param(SPOT, PodShape(tolerations=(Toleration("spot", "Exists"),)), "", id="a toleration lets them in"),
        pytest.param(SPOT, PodShape(tolerations=(Toleration(operator="Exists"),)), "", id="so does one for everything"),
        pytest.param(
            SPOT,
            PodShape(tolerations=(Toleration("spot", "Equal", "false"),)),
            "untolerated taint {spot true NoSchedule <nil>} in flavor spot",
            id="another value does not",
        ),
        pytest.param(
            replace(SPOT, tolerations=(Toleration("spot", "Exists"),)), PodShape(), "", id="the flavor's own does"
        ),
        pytest.param(
            Flavor(name="f", taints=(Taint("k", "v", "PreferNoSchedule"),)),
            PodShape(),
            "",
            id="a preference is no taint",
        ),
        pytest.param(
            Flavor(name="f", taints=(Taint("k", "v", "NoExecute"),)),
            PodShape(),
            "untolerated taint {k v NoExecute <nil>} in flavor f",
            id="NoExecute is",
        ),
        pytest.param(
            Flavor(name="f", taints=(Taint("n", "5", "NoSchedule"),)),
            PodShape(tolerations=(Toleration("n", "Gt", "4", "NoSchedule"),)),
            "",
            id="numbers are compared",
        ),
        pytest.param(ZONED, PodShape(node_selector={"zone": "a"}), "", id="a selector that matches"),
        pytest.param(
            ZONED,
            PodShape(node_selector={"zone": "b"}),
            "flavor zoned doesn't match node affinity",
            id="a selector that does not",
        ),
        pytest.param(
            ZONED, PodShape(node_selector={"other": "b"}), "", id="a selector by a key that the flavor does not have"
        ),
        pytest.param(
            ZONED,
            PodShape(affinity=(term(Requirement("zone", "In", ("b",))),)),
            "flavor zoned doesn't match node affinity",
            id="an affinity that does not match",
        ),
        pytest.param(
            ZONED,
            PodShape(affinity=(term(Requirement("zone", "In", ("b",))), term(Requirement("zone", "Exists")))),
            "",
            id="terms are alternatives",
        ),
        pytest.param(
            ZONED,
            PodShape(affinity=(term(Requirement("zone", "In", ("b",))), term(Requirement("other", "Exists")))),
            "",
            id="a term of foreign keys lets everything in",
        ),
        pytest.param(
            ZONED,
            PodShape(
                affinity=(
                    NodeSelectorTerm(
                        (Requirement("zone", "In", ("b",)),), (Requirement("metadata.name", "In", ("n",)),)
                    ),
                )
            ),
            "flavor zoned doesn't match node affinity",
            id="fields are left out, expressions count",
        ),
        pytest.param(
            ZONED,
            PodShape(affinity=(NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n",)),)),)),
            "",
            id="a term of fields alone lets everything in",
        ),
        pytest.param(
            ZONED,
            PodShape(affinity=(term(Requirement("size", "Gt", ("8",)), Requirement("zone", "NotIn", ("b",))),)),
            "",
            id="numbers and exclusions",
        ),
    ],
)
def test_which_pods_run_on_a_flavor(flavor: Flavor, pod: PodShape, want: str) -> None:
    assert mismatch(flavor, pod) == want


def test_example_7_a_selector_by_a_foreign_key_is_ignored() -> None:
    flavors = [Flavor(name="a", node_labels={"type": "one"}), Flavor(name="b")]
    bench = Bench(queue("q", group(a="4", b="4")), flavors=flavors)
    bench.add(workload("w", "q", replace(pods(), shape=shape((), {"type": "two"}, cpu="1"))))
    assert bench.decide("w").pod_sets[0].flavors == {"cpu": "b"}


def test_example_3_potential_and_unused_quota_differ() -> None:
    bench = Bench(queue("q", group(default="10/5"), cohort="co"), queue("rest", group(default="20"), cohort="co"))
    bench.add(workload("held", "q", pods(cpu="12")))
    bench.cycle()
    bench.add(workload("much", "q", pods(cpu="16")))
    much = bench.decide("much")
    assert (much.reason, much.message) == (
        "ExceedsMaxQuota",
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered"
        " podsets requests (0) + current podset request (16) > maximum capacity (15)",
    )
    bench.add(workload("some", "q", pods(cpu="4")))
    some = bench.decide("some")
    assert (some.reason, some.message) == (
        "WaitingForQuota",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed",
    )


def test_example_4_preemption_is_tried_although_own_usage_is_above_nominal() -> None:
    bench = Bench(
        queue("q", group(default="10"), cohort="co", preemption=preemption("LowerPriority")),
        queue("rest", group(default="4"), cohort="co"),
    )
    bench.add(workload("held", "q", pods(cpu="14")))
    bench.cycle()
    bench.add(workload("w", "q", pods(cpu="8"), priority=1))
    decision = bench.decide("w")
    assert decision.outcome is Outcome.PREEMPTING
    assert [victim.workload.name for victim in decision.victims] == ["held"]


@pytest.mark.parametrize(
    ("policies", "outcome", "flavor", "tried"),
    [
        pytest.param(
            fungibility(), Outcome.RESERVED, "b", -1, id="a flavor that fits is better than one that must preempt"
        ),
        pytest.param(
            fungibility(preempt="MayStopSearch"), Outcome.PREEMPTING, "a", 0, id="unless preempting may stop the search"
        ),
    ],
)
def test_example_6_when_the_search_stops(policies: object, outcome: Outcome, flavor: str, tried: int) -> None:
    bench = Bench(queue("q", group(a="2", b="4"), preemption=preemption("LowerPriority"), fungibility=policies))
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q", flavor="a"))
    bench.add(workload("w", "q", pods(cpu="2"), priority=1))
    decision = bench.decide("w")
    assert decision.outcome is outcome
    assert decision.pod_sets[0].flavors == {"cpu": flavor}
    assert decision.last_tried_flavor_index == ({"cpu": tried},)


def test_example_6_without_candidates_the_search_continues() -> None:
    policies = fungibility(preempt="MayStopSearch")
    bench = Bench(queue("q", group(a="2", b="4"), preemption=preemption("LowerPriority"), fungibility=policies))
    bench.add(holding(workload("held", "q", pods(cpu="2"), priority=9), "q", flavor="a"))
    bench.add(workload("w", "q", pods(cpu="2"), priority=1))
    assert bench.decide("w").pod_sets[0].flavors == {"cpu": "b"}


@pytest.mark.parametrize(
    ("policies", "flavor", "level"),
    [
        pytest.param(fungibility(), "a", 1, id="borrowing stops the search"),
        pytest.param(fungibility(borrow="TryNextFlavor"), "b", 0, id="or tries the next flavor, which need not borrow"),
    ],
)
def test_when_borrowing_stops_the_search(policies: object, flavor: str, level: int) -> None:
    bench = Bench(
        queue("q", group(a="0", b="4"), cohort="co", fungibility=policies),
        queue("lender", group(a="4", b="4"), cohort="co"),
    )
    bench.add(workload("w", "q", pods(cpu="2")))
    decision = bench.decide("w")
    assert (decision.pod_sets[0].flavors, decision.borrowing_level) == ({"cpu": flavor}, level)
    assert decision.borrows is (level > 0)


@pytest.mark.parametrize(
    ("preference", "flavor", "outcome"),
    [
        pytest.param("BorrowingOverPreemption", "b", Outcome.RESERVED, id="rather borrow than preempt"),
        pytest.param("PreemptionOverBorrowing", "a", Outcome.PREEMPTING, id="rather preempt than borrow"),
    ],
)
def test_preference(preference: str, flavor: str, outcome: Outcome) -> None:
    policies = fungibility("TryNextFlavor", "TryNextFlavor", preference)
    bench = Bench(
        queue("q", group(a="2", b="0"), cohort="co", fungibility=policies, preemption=preemption("LowerPriority")),
        queue("lender", group(a="0", b="4"), cohort="co"),
    )
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q", flavor="a"))
    bench.add(workload("w", "q", pods(cpu="2"), priority=1))
    decision = bench.decide("w")
    assert (decision.outcome, decision.pod_sets[0].flavors) == (outcome, {"cpu": flavor})


def test_resources_of_one_group_share_a_flavor_and_groups_do_not() -> None:
    groups = (
        group(a={"cpu": "1", "memory": "9Gi"}, b={"cpu": "9", "memory": "9Gi"}),
        group(g={"example.com/gpu": "4"}),
    )
    bench = Bench(queue("q", *groups))
    bench.add(workload("w", "q", pods(cpu="2", memory="1Gi", example_com_gpu="1"), created=1))
    refused = bench.decide("w")
    assert refused.message.endswith("resource example/com/gpu unavailable in ClusterQueue")
    bench.add(
        workload("x", "q", replace(pods(), shape=shape((), None, cpu="2", memory="1Gi", **{"example.com_gpu": "1"})))
    )
    assert bench.decide("x").pod_sets[0].flavors == {"cpu": "b", "memory": "b", "example.com/gpu": "g"}


def test_the_pods_resource_is_counted_where_the_queue_covers_it() -> None:
    bench = Bench(queue("q", group(default={"cpu": "9", "pods": "3"})))
    bench.add(workload("w", "q", pods(3, cpu="1")))
    assert bench.decide("w").pod_sets[0].resource_usage == {"cpu": 3000, "pods": 3}
    bench.add(workload("x", "q", pods(1, cpu="1")))
    assert "insufficient unused quota for pods in flavor default, 1 more needed" in bench.decide("x").message


def test_an_uncovered_resource_blocks_unless_configured_otherwise() -> None:
    value = workload("w", "q", pods(cpu="1", memory="1Gi"))
    bench = Bench(queue("q", group(default="4")))
    decision = bench.add(value).decide("w")
    assert (decision.reason, decision.message) == (
        "NoMatchingFlavor",
        "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue",
    )
    relaxed = Bench(queue("q", group(default="4")), settings=Settings(quota_check=QuotaCheck.IGNORE_UNDECLARED))
    assert relaxed.add(value).decide("w").pod_sets[0].resource_usage == {"cpu": 1000}


def test_nothing_of_an_uncovered_resource_is_no_obstacle() -> None:
    bench = Bench(queue("q", group(default="4")))
    assert bench.add(workload("w", "q", pods(cpu="1", memory="0"))).decide("w").outcome is Outcome.RESERVED


def test_pod_sets_add_up_and_later_ones_see_earlier_ones() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", pods(2, "driver", cpu="1"), pods(4, "worker", cpu="1")))
    decision = bench.decide("w")
    assert decision.message == (
        "couldn't assign flavors to pod set worker: insufficient quota for cpu in flavor default, previously considered"
        " podsets requests (2) + current podset request (4) > maximum capacity (5)"
    )
    assert [pod_set.name for pod_set in decision.pod_sets] == ["driver", "worker"]


def test_pod_sets_after_one_without_flavors_are_not_evaluated() -> None:
    bench = Bench(queue("q", group(default="5")))
    bench.add(workload("w", "q", pods(9, "a", cpu="1"), pods(9, "b", cpu="1")))
    decision = bench.decide("w")
    assert [pod_set.name for pod_set in decision.pod_sets] == ["a"]
    assert "pod set b" not in decision.message


def test_pod_sets_of_one_topology_group_get_the_same_flavor() -> None:
    def grouped(name: str, cpu: str) -> object:
        return replace(pods(1, name, cpu=cpu), topology=TopologyRequest(group="g"))

    bench = Bench(queue("q", group(a="3", b="9")))
    bench.add(workload("w", "q", grouped("leader", "1"), grouped("workers", "3")))  # type: ignore[arg-type]
    assert [pod_set.flavors for pod_set in bench.decide("w").pod_sets] == [{"cpu": "b"}, {"cpu": "b"}]


def test_reasons_of_all_flavors_are_sorted_and_joined() -> None:
    bench = Bench(queue("q", group(spot="9", small="1")), flavors=[tainted("spot"), Flavor(name="small")])
    decision = bench.add(workload("w", "q", pods(cpu="3"))).decide("w")
    assert decision.message == (
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor small, previously considered"
        " podsets requests (0) + current podset request (3) > maximum capacity (1), untolerated taint {spot true"
        " NoSchedule <nil>} in flavor spot"
    )
    assert decision.reason == "ExceedsMaxQuota"


def test_a_flavor_that_went_missing_is_named() -> None:
    bench = Bench(queue("q", group(a="1", b="4")))
    bench.engine.delete_flavor("a", bench.now)
    state = bench.engine.cluster_queue_state("q")
    assert (state.active, state.message) == (
        False,
        "Can't admit new workloads: references missing ResourceFlavor(s): a.",
    )


def test_an_unfinished_scan_continues_where_it_stopped() -> None:
    policies = fungibility(preempt="MayStopSearch")
    bench = Bench(
        queue("x", group(a="0", b="0"), cohort="co", fungibility=policies),
        queue("y", group(a="0", b="0"), cohort="co"),
        queue("lender", group(a="4", b="4"), cohort="co"),
    )
    bench.add(workload("first", "y", pods(cpu="4"), priority=9), workload("w", "x", pods(cpu="4")))
    skipped = bench.cycle().decisions[1]
    assert (skipped.workload.name, skipped.outcome) == ("w", Outcome.SKIPPED)
    assert skipped.last_tried_flavor_index == ({"cpu": 0},)
    assert bench.decide("w").pod_sets[0].flavors == {"cpu": "b"}


def test_without_fungibility_the_first_fit_is_taken() -> None:
    settings = Settings(gates=Gates(flavor_fungibility=False), pods_ready=None)
    bench = Bench(
        queue("q", group(a="0", b="4"), cohort="co", fungibility=fungibility(borrow="TryNextFlavor")),
        queue("lender", group(a="4", b="4"), cohort="co"),
        settings=settings,
    )
    assert bench.add(workload("w", "q", pods(cpu="2"))).decide("w").pod_sets[0].flavors == {"cpu": "a"}


TREES = Flavor(name="trees", node_labels={"pool": "t"}, topology="racks")
PLAIN = Flavor(name="plain")


@pytest.mark.parametrize(
    ("flavor", "topology_request", "known", "want"),
    [
        pytest.param(
            PLAIN,
            TopologyRequest(required="rack"),
            True,
            'Flavor "plain" does not support TopologyAwareScheduling',
            id="requested of a plain flavor",
        ),
        pytest.param(
            TREES,
            TopologyRequest(required="rack"),
            False,
            'Flavor "trees" information missing in TAS cache',
            id="of a topology not known",
        ),
        pytest.param(
            TREES,
            TopologyRequest(required="moon"),
            True,
            'Flavor "trees" does not contain the requested level',
            id="of a level not there",
        ),
        pytest.param(
            TREES,
            None,
            True,
            'Flavor "trees" supports only TopologyAwareScheduling',
            id="not requested of a flavor without other resources",
        ),
        pytest.param(
            TREES,
            TopologyRequest(required="rack"),
            True,
            "no topology domains at level: rack",
            id="requested without a node",
        ),
    ],
)
def test_topology_is_required_of_the_right_flavors(
    flavor: Flavor, topology_request: TopologyRequest | None, known: bool, want: str
) -> None:
    bench = Bench(
        queue("q", group(**{flavor.name: "4"}), group(other={"memory": "4"})), flavors=[flavor, Flavor(name="other")]
    )
    bench.engine.upsert_topology(TopologyLevels("racks", ("block", "rack")), START)
    if not known:
        bench.engine.referenced.topologies.clear()
    bench.add(workload("w", "q", replace(pods(cpu="1"), topology=topology_request)))
    message = bench.decide("w").message
    assert message.endswith(want), message


def test_explain_shows_what_was_compared_and_changes_nothing() -> None:
    bench = Bench(
        queue("q", group(a="2", b="4/1"), cohort="co", preemption=preemption("LowerPriority")),
        queue("l", group(b="3"), cohort="co"),
    )
    bench.add(
        holding(workload("held", "q", pods(cpu="2")), "q", flavor="a"), workload("w", "q", pods(cpu="5"), priority=1)
    )
    before = bench.engine.cluster_queue_state("q")
    found = bench.engine.explain(key("w"), at(0))
    assert (found.state, found.cluster_queue, found.position, found.mode) == ("Pending", "q", 0, "Fit")
    checked = found.pod_sets[0].flavors
    assert [(flavor.flavor, flavor.mode, flavor.chosen) for flavor in checked] == [
        ("a", "NoFit", False),
        ("b", "Fit", True),
    ]
    cpu = checked[1].resources[0]
    assert (
        cpu.requested,
        cpu.used,
        cpu.nominal,
        cpu.borrowing_limit,
        cpu.free,
        cpu.borrowable,
        cpu.capacity,
        cpu.short,
    ) == (
        "5",
        "0",
        "4",
        "1",
        "5",
        "1",
        "5",
        "0",
    )
    assert bench.engine.cluster_queue_state("q") == before
    assert bench.engine.explain(key("held"), at(0)).state == "Admitted"
    assert bench.engine.explain(key("unknown"), at(0)).state == "Unknown"


def test_a_finished_workload_is_known_until_it_is_deleted_and_counts_nowhere() -> None:
    bench = Bench(queue("q", group(default="2")))
    bench.add(holding(workload("w", "q", pods(cpu="2")), "q"))
    bench.finish("w")
    assert bench.engine.workload(key("w")) is None
    assert bench.engine.explain(key("w"), at(0)).state == "Finished"
    bench.add(workload("next", "q", pods(cpu="2")))
    assert bench.decide("next").outcome is Outcome.RESERVED
    bench.engine.delete_workload(key("w"), at(0))
    assert bench.engine.explain(key("w"), at(0)).state == "Unknown"


def test_explaining_a_preemptor_names_its_victims_and_the_rule() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q"), workload("w", "q", pods(cpu="2"), priority=1))
    found = bench.engine.explain(key("w"), at(0))
    assert [(victim.workload.name, str(victim.reason)) for victim in found.victims] == [("held", "InClusterQueue")]
    assert "policy of the queue" in found.victims[0].rule
    assert bench.engine.explain(key("w"), at(0)) == found
