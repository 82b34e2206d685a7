# SPDX-License-Identifier: Apache-2.0
"""What workloads want of a cluster is read once for each admission, and kept once for all that want the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from manager.cache.views import View
from manager.dispatch.workload_requests import WorkloadRequests
from multikueue.api.resource import RESOURCE_FLAVORS
from multikueue.core.clock import ManualClock

Object = dict[str, Any]


def workload(uid: str, *, cpu: str = "2", count: int = 3, generation: int = 1) -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    pod_set = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}
    assigned = {"name": "main", "count": count, "flavors": {}, "resourceUsage": {"cpu": cpu}}
    return {
        "metadata": {"name": uid, "namespace": "team", "uid": uid, "generation": generation},
        "spec": {"podSets": [pod_set]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [assigned]}},
    }


def wanted() -> WorkloadRequests:
    return WorkloadRequests(View(RESOURCE_FLAVORS, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC))))


def test_equal_workloads_share_one_demand() -> None:
    known = wanted()
    one, other = known.by(workload("a")), known.by(workload("b"))
    assert one is other
    assert [(demand.count, dict(demand.requests)["cpu"]) for demand in one] == [(3, 2000)]


def test_a_workload_that_is_admitted_again_requests_its_new_admission() -> None:
    known = wanted()
    known.by(workload("a", count=3))
    (demand,) = known.by(workload("a", count=1))
    assert demand.count == 1


def test_what_quota_is_reserved_for_and_pods_do_not_request_is_wanted_of_queues() -> None:
    made = workload("a")
    (assigned,) = made["status"]["admission"]["podSetAssignments"]
    assigned["resourceUsage"] |= {"example.com/gpus": "6", "credits": "1500", "pods": "3"}
    (demand,) = wanted().by(made)
    assert (demand.requests, demand.quota) == ({"cpu": 2000}, {"example.com/gpus": 2, "credits": 500})


def test_what_a_flavor_adds_is_wanted_of_nodes_and_not_of_the_queues_of_workers() -> None:
    flavors = View(RESOURCE_FLAVORS, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    spec = {"nodeLabels": {"pool": "hub"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
    kind = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.kind}
    metadata = {"name": "f", "resourceVersion": "1", "uid": "f"}
    flavors.on_write(orjson.dumps({**kind, "metadata": metadata, "spec": spec}))
    made = workload("a")
    made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"zone": "z"}
    made["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
    (demand,) = WorkloadRequests(flavors).by(made)
    assert (demand.node_selector, len(demand.tolerations)) == ({"zone": "z", "pool": "hub"}, 1)
    assert (demand.of_queues.node_selector, demand.of_queues.tolerations) == ({"zone": "z"}, ())
    (plain,) = wanted().by(workload("b"))
    assert plain.asked is None


def test_a_request_for_a_topology_is_kept() -> None:
    made = workload("a")
    made["spec"]["podSets"][0]["topologyRequest"] = {"unconstrained": True}
    assert [demand.topology for demand in wanted().by(made)] == [True]
    assert [demand.topology for demand in wanted().by(workload("b"))] == [False]


def test_what_is_not_wanted_any_more_is_forgotten_and_what_is_stays_shared() -> None:
    known = wanted()
    kept = known.by(workload("a"))
    known.by(workload("b", cpu="7"))
    known.keep({"a"})
    assert known.by(workload("c")) is kept


def test_without_quota_nothing_is_wanted() -> None:
    assert wanted().by({**workload("a"), "status": {}}) == ()


def test_of_workloads_that_come_and_go_nothing_is_kept() -> None:
    known = wanted()
    for number in range(1000):
        known.by(workload(f"w{number}", cpu=str(number + 1)))
        known.forget(f"w{number}")
    assert len(known) == 0
    stays = known.by(workload("a"))
    for number in range(1000):
        known.by(workload(f"w{number}", cpu=str(number + 5)))
        known.forget(f"w{number}")
    assert known.by(workload("b")) is stays
