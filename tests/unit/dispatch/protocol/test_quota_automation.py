# SPDX-License-Identifier: Apache-2.0
"""What the quota of a hub's queue becomes of what its workers have."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.reasons import QuotaAutomationReason
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.dispatch.protocol.quota_automation import (
    CheckQuotas,
    ManagedQueueFacts,
    QuotaDecision,
    WorkerQueue,
    WorkerQuotas,
    changed,
    decide,
    nominal_quotas,
    worker_queues,
)

Object = dict[str, Any]
BATCH = Key("team", "batch")
NIGHT = Key("team", "night")


def group(*flavors: str, **quotas: str) -> Object:
    """A resource group in which each flavor has those quotas."""
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quotas.items()]
    made = [{"name": flavor, "resources": resources} for flavor in flavors]
    return {"coveredResources": list(quotas), "flavors": made}


def having(name: str = "cq", *, at: tuple[Key, ...] = (BATCH,), active: bool = True, **nominal: str) -> WorkerQueue:
    """A ClusterQueue of a worker, behind those LocalQueues."""
    amounts = {resource: Quantity.parse(amount) for resource, amount in nominal.items()}
    return WorkerQueue(name=name, local_queues=frozenset(at), nominal=amounts, active=active)


def worker(cluster: str, *queues: WorkerQueue, lost: str = "", unknown: str = "") -> WorkerQuotas:
    """What that cluster has."""
    return WorkerQuotas(cluster=cluster, queues=queues, lost=lost, unknown=unknown)


def following(
    *workers: WorkerQuotas, groups: tuple[Object, ...] = (), at: tuple[Key, ...] = (BATCH,)
) -> ManagedQueueFacts:
    """A queue whose check asks for automation over those workers; it has 10 cpu unless something else is said."""
    check = CheckQuotas(name="mk", automated=True, workers=workers)
    return ManagedQueueFacts(
        resource_groups=groups or (group("f", cpu="10"),), local_queues=frozenset(at), checks=(check,)
    )


def amounts(decision: QuotaDecision) -> dict[str, str]:
    """What changes, as text."""
    return {resource: str(amount) for resource, amount in decision.changes.items()}


def said(decision: QuotaDecision) -> str:
    """The message of the condition."""
    assert decision.verdict is not None
    return decision.verdict.message


def test_quota_is_the_sum_over_the_workers_of_each_resource() -> None:
    facts = following(
        worker("w1", having(cpu="4", memory="1Gi")),
        worker("w2", having(cpu="500m", memory="512Mi")),
        groups=(group("f", cpu="10", memory="0"),),
    )
    decision = decide(facts)
    assert amounts(decision) == {"cpu": "4500m", "memory": "1536Mi"}
    assert decision.verdict is not None
    assert decision.verdict.automated
    assert said(decision) == "The quota is the sum over the worker clusters: [w1 w2]"


def test_nothing_changes_when_the_sum_is_there_in_another_form() -> None:
    facts = following(worker("w1", having(cpu="1500m")), groups=(group("f", cpu="1.5"),))
    assert amounts(decide(facts)) == {}


def test_only_resources_of_the_hubs_queue_count_and_what_no_worker_has_is_nothing() -> None:
    facts = following(worker("w1", having(cpu="4", gpu="2")), groups=(group("f", cpu="10", memory="1Gi"),))
    assert amounts(decide(facts)) == {"cpu": "4", "memory": "0"}


def test_queues_behind_other_local_queues_and_inactive_ones_are_left_out() -> None:
    facts = following(
        worker("w1", having(cpu="4"), having("other", at=(Key("else", "batch"), NIGHT), cpu="100")),
        worker("w2", having(cpu="8", active=False)),
    )
    decision = decide(facts)
    assert amounts(decision) == {"cpu": "4"}
    assert said(decision).endswith("[w1]; without: w2 (no active ClusterQueue behind LocalQueues of the same names)")


def test_a_queue_behind_several_local_queues_counts_once_in_each_worker() -> None:
    both = (BATCH, NIGHT)
    facts = following(worker("w1", having(at=both, cpu="4")), worker("w2", having(at=both, cpu="3")), at=both)
    assert amounts(decide(facts)) == {"cpu": "7"}


def test_several_queues_of_one_worker_add_up() -> None:
    facts = following(worker("w1", having(cpu="4"), having("b", at=(NIGHT,), cpu="1")), at=(BATCH, NIGHT))
    assert amounts(decide(facts)) == {"cpu": "5"}


def test_a_queue_without_local_queues_has_nothing() -> None:
    assert amounts(decide(following(worker("w1", having(cpu="4")), at=()))) == {"cpu": "0"}


def test_a_lost_worker_counts_for_nothing_and_is_named() -> None:
    decision = decide(following(worker("w1", having(cpu="4")), worker("w2", lost="not connected")))
    assert amounts(decision) == {"cpu": "4"}
    assert said(decision).endswith("[w1]; without: w2 (not connected)")


def test_a_worker_that_is_not_known_yet_takes_nothing_away() -> None:
    decision = decide(following(worker("w1", having(cpu="4")), worker("w2", unknown="has not reported")))
    assert amounts(decision) == {}
    assert said(decision).endswith("not reduced until these report their quota: w2 (has not reported)")


def test_what_is_known_already_may_give_more() -> None:
    decision = decide(following(worker("w1", having(cpu="40")), worker("w2", unknown="has not reported")))
    assert amounts(decision) == {"cpu": "40"}


@pytest.mark.parametrize(
    "groups",
    [(group("a", "b", cpu="1"),), (group("a", cpu="1"), group("b", gpu="1")), ({"coveredResources": ["cpu"]},)],
    ids=["two flavors", "two groups", "no flavor"],
)
def test_only_one_group_of_one_flavor_can_follow(groups: tuple[Object, ...]) -> None:
    decision = decide(following(worker("w1", having(cpu="4")), groups=groups))
    assert amounts(decision) == {}
    assert decision.verdict is not None
    assert decision.verdict.reason is QuotaAutomationReason.UNSUPPORTED_CONFIGURATION
    assert f"{len(groups)} resource groups" in said(decision)


def test_a_queue_without_resources_is_not_supported() -> None:
    check = CheckQuotas(name="mk", automated=True, workers=(worker("w1", having(cpu="4")),))
    decision = decide(ManagedQueueFacts(resource_groups=(), checks=(check,)))
    assert "0 resource groups with 0 flavors" in said(decision)


def test_two_checks_cannot_both_be_followed() -> None:
    automated = CheckQuotas(name="a", automated=True, workers=(worker("w1", having(cpu="4")),))
    facts = ManagedQueueFacts(resource_groups=(group("f", cpu="1"),), checks=(automated, CheckQuotas(name="b")))
    decision = decide(facts)
    assert amounts(decision) == {}
    assert said(decision).endswith("more than one MultiKueue check: a, b")


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        ((), "has no MultiKueue check"),
        ((CheckQuotas(name="mk"),), "does not ask for it"),
        ((CheckQuotas(name="mk", problem='MultiKueueConfig "c" not found'),), '"c" not found'),
    ],
    ids=["no check", "manual", "no config"],
)
def test_where_nothing_is_asked_for_it_is_reported_only_if_something_was_reported_before(
    checks: tuple[CheckQuotas, ...], why: str
) -> None:
    groups = (group("f", cpu="1"),)
    assert decide(ManagedQueueFacts(resource_groups=groups, checks=checks)) == QuotaDecision()
    decision = decide(ManagedQueueFacts(resource_groups=groups, checks=checks, reported=True))
    assert amounts(decision) == {}
    assert decision.verdict is not None
    assert decision.verdict.reason is QuotaAutomationReason.NOT_REQUESTED
    assert why in said(decision)


def test_limits_and_everything_else_of_the_queue_stay() -> None:
    before = group("f", cpu="1", memory="1Gi")
    before["flavors"][0]["resources"][0]["lendingLimit"] = "1"
    after = changed([before], {"cpu": Quantity.of(7)})
    cpu, memory = after[0]["flavors"][0]["resources"]
    assert cpu == {"name": "cpu", "nominalQuota": "7", "lendingLimit": "1"}
    assert memory == {"name": "memory", "nominalQuota": "1Gi"}
    assert after[0]["coveredResources"] == ["cpu", "memory"]
    assert before["flavors"][0]["resources"][0]["nominalQuota"] == "1", "the object in the cache is as it was"


def test_all_flavors_of_a_worker_count() -> None:
    found = nominal_quotas([group("spot", "reserved", cpu="3"), group("gpus", gpu="2")])
    assert {resource: str(amount) for resource, amount in found.items()} == {"cpu": "6", "gpu": "2"}


def test_what_a_report_has_is_read() -> None:
    local = [{"namespace": "team", "name": "batch"}]
    queue = {"name": "cq", "active": True, "localQueues": local, "resources": [{"name": "cpu", "nominal": "2"}]}
    assert worker_queues({"clusterQueues": [queue, {"name": "other"}]}) == (
        having(cpu="2"),
        having("other", at=(), active=False),
    )
