# SPDX-License-Identifier: Apache-2.0
"""How long a decision counts that is written together with the reservation of quota."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from manager.context import ManagerContext
from manager.dispatch.dispatch_on_reserve import DispatchOnReserve
from manager.dispatch.gather import Gathered, Gatherer
from manager.dispatch.transport.mailbox_transport import Transport
from manager.metrics import STANDALONE, ManagerMetrics
from manager.workload.status import Status
from multikueue.api.constants import DISPATCHER_CAPACITY
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, report_of
from multikueue.dispatch.hub.actions import DispatchPlan, Rule
from multikueue.dispatch.hub.facts import DispatchSettings
from multikueue.dispatch.worker.ledger import Demand
from tests.unit.dispatch.builders import NOW, cluster, facts, workload
from tests.unit.manager.builders import pending, reserved, wire

OF = wire(pending())
KEY = Key(OF["metadata"]["namespace"], OF["metadata"]["name"])
CPU = {"name": "cpu", "allocatable": "10", "free": "8", "largestFree": "8", "largest": "10"}
FREE = report_of(
    {"groups": [{"nodes": 1, "capacity": [CPU, CPU | {"name": "pods"}]}], "nodes": {"ready": 1, "total": 1}}
)


class Dispatching:
    """A hook whose Workload of one CPU has one cluster with free capacity."""

    def __init__(self) -> None:
        self.metrics = ManagerMetrics()
        self.decisions: list[DispatchPlan] = []
        context = SimpleNamespace(
            metrics=self.metrics,
            clock=ManualClock(NOW),
            recorder=SimpleNamespace(event=lambda *_: None),
            configuration=SimpleNamespace(wait_for_pods_ready=None),
        )
        self.hook = DispatchOnReserve(
            cast(ManagerContext, context),
            gatherer=cast(Gatherer, SimpleNamespace(gather=self._gather)),
            transport=cast(Transport, SimpleNamespace(observations=lambda key: {})),
            decided=lambda key, gathered, decision: self.decisions.append(decision),
        )

    def _gather(self, key: Key, of: dict[str, Any], *_: object, status: Status, **__: object) -> Gathered:
        demands = (Demand(count=1, requests={"cpu": 1000}),)
        known = facts(
            workload(demands=demands, waits_since=NOW),
            clusters=(cluster("w1", capacity=ClusterCapacity(report=FREE), reported_at=NOW),),
            settings=DispatchSettings(dispatcher=DISPATCHER_CAPACITY),
        )
        return Gathered(facts=known, workload=of, status=status)

    @property
    def grants(self) -> float:
        labels = {"cluster_queue": "cq", "cluster": "w1", "replica_role": STANDALONE}
        return self.metrics.registry.get_sample_value("multikueue_workloads_admitted_total", labels) or 0.0


def test_a_decision_is_open_until_its_write_has_ended() -> None:
    dispatching = Dispatching()
    after = dispatching.hook.complete(OF, reserved())
    assert after.cluster_name == "w1"
    assert [each.rule for each in dispatching.decisions] == [Rule.GRANT_AT_ONCE]
    assert dispatching.hook.is_writing(KEY)
    assert not dispatching.hook.ended(KEY, wire(after)), "it was written"
    assert not dispatching.hook.is_writing(KEY)
    assert dispatching.grants == 1


def test_a_decision_whose_write_fails_is_given_up() -> None:
    dispatching = Dispatching()
    dispatching.hook.complete(OF, reserved())
    assert dispatching.hook.ended(KEY, None)
    assert not dispatching.hook.is_writing(KEY)
    assert dispatching.grants == 0


def test_a_write_without_a_decision_gives_nothing_up() -> None:
    dispatching = Dispatching()
    dispatching.hook.complete(OF, reserved())
    assert dispatching.hook.complete(OF, pending()) == pending(), "a conflict: it has lost its reservation"
    assert not dispatching.hook.is_writing(KEY)
    assert not dispatching.hook.ended(KEY, None)
