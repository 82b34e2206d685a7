# SPDX-License-Identifier: Apache-2.0
"""Workloads that claim devices, from their arrival to templates that are replaced while they hold quota."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from multikueue.api.constants import QueueingStrategy
from multikueue.core.keys import Key
from multikueue.engine import Decision, Gates, Outcome, Settings, decode, lifecycle
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass, DeviceMapping, DeviceRequest
from multikueue.engine.resources import MAX_INT64
from multikueue.engine.settings import QuotaCheck
from multikueue.engine.values import LocalQueue, Namespace
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import NAMESPACE, STRICT, Bench, group, key, pods, queue, workload

BEST_EFFORT = QueueingStrategy.BEST_EFFORT_FIFO

MAPPINGS: Final = (DeviceMapping("gpus", ("gpu",)), DeviceMapping("nics", ("nic",)))
SETTINGS: Final = Settings(pods_ready=None, device_mappings=MAPPINGS)
QUOTA: Final = {"cpu": "9", "gpus": "8", "nics": "2"}
OTHER: Final = "other"


def request(count: int = 1, device_class: str = "gpu", **changes: Any) -> DeviceRequest:
    return DeviceRequest(name="r", device_class=device_class, count=count, **changes)


def template(name: str, *requests: DeviceRequest, namespace: str = NAMESPACE) -> ClaimTemplate:
    return ClaimTemplate(Key(namespace, name), requests)


def pod_set(
    *templates: str, count: int = 1, name: str = "main", minimum: int | None = None, requests: Any = None
) -> Any:
    claims = [{"name": f"x{number}", "resourceClaimTemplateName": each} for number, each in enumerate(templates)]
    container = {"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}
    made: dict[str, Any] = {"name": name, "count": count}
    if minimum is not None:
        made["minCount"] = minimum
    return made | {"template": {"spec": {"containers": [container], "resourceClaims": claims}}}


def claiming(name: str, *pod_sets: Any, namespace: str = NAMESPACE, created: int = 0, **changes: Any) -> Workload:
    """A Workload as the manager reads it."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
    }
    body = {"metadata": metadata, "spec": {"queueName": "q", "podSets": list(pod_sets)}}
    return replace(decode.workload(body, decode.Shapes()), **changes)


def devices_bench(
    *templates: ClaimTemplate, settings: Settings = SETTINGS, strategy: QueueingStrategy = BEST_EFFORT, **quota: str
) -> Bench:
    bench = Bench(queue("q", group(default=quota or QUOTA), strategy=strategy), settings=settings)
    for each in templates:
        bench.engine.upsert_claim_template(each, bench.now)
    return bench


def reserve(bench: Bench, name: str = "w") -> Decision:
    """What a cycle decides about a workload, and the reservation as it is read from the server then."""
    decision = bench.decide(name)
    assert decision.outcome is Outcome.RESERVED, decision.message
    value = bench.engine.workload(key(name))
    assert value is not None
    bench.add(lifecycle.reserved(value, decision, bench.now))
    return decision


def replaced(bench: Bench, name: str, *requests: DeviceRequest) -> None:
    """A tenant deletes a template and makes another one of its name."""
    bench.engine.delete_claim_template(key(name), bench.now)
    bench.engine.upsert_claim_template(template(name, *requests), bench.now)


def beyond(bench: Bench, name: str = "w") -> str:
    return bench.engine.claims_beyond(key(name))


# Admission.


def test_a_workload_is_admitted_with_its_devices_counted() -> None:
    bench = devices_bench(template("t", request(2)), template("net", request(1, "nic")))
    bench.add(claiming("w", pod_set("t", "net", count=2), pod_set("t", name="more")))
    decision = reserve(bench)
    assert [dict(each.resource_usage) for each in decision.pod_sets] == [
        {"cpu": 2000, "gpus": 4, "nics": 2},
        {"cpu": 1000, "gpus": 2},
    ]
    assert beyond(bench) == ""


def test_a_workload_that_claims_more_than_there_is_waits() -> None:
    bench = devices_bench(template("t", request(5))).add(claiming("w", pod_set("t", count=2)))
    decision = bench.decide("w")
    assert decision.outcome is Outcome.PENDING
    assert "gpus" in decision.message


def test_fewer_pods_are_admitted_where_devices_are_short() -> None:
    bench = devices_bench(template("t", request(3))).add(claiming("w", pod_set("t", count=4, minimum=1)))
    (given,) = reserve(bench).pod_sets
    assert (given.count, given.resource_usage["gpus"]) == (2, 6)
    assert beyond(bench) == ""
    replaced(bench, "t", request(4))
    assert 'claims 4 of DeviceClass "gpu", 3 before' in beyond(bench)


def test_a_huge_claim_waits_and_breaks_nothing() -> None:
    bench = devices_bench(template("t", *[request(MAX_INT64)] * 32))
    bench.add(claiming("w", pod_set("t", count=2**31 - 1)), workload("plain", "q", pods(cpu="1"), created=1))
    bench.settle()
    assert bench.has_quota("plain")
    assert bench.waits("q") == ["[w]"]


# What cannot be counted.


@pytest.mark.parametrize("strategy", [STRICT, BEST_EFFORT])
def test_a_workload_whose_claim_cannot_be_counted_is_not_queued(strategy: QueueingStrategy) -> None:
    bench = devices_bench(strategy=strategy)
    bench.add(claiming("w", pod_set("t")), workload("later", "q", pods(cpu="1"), created=5))
    found = bench.engine.explain(key("w"), bench.now)
    assert (found.state, found.reason) == ("NotQueued", "Misconfigured")
    assert found.message == 'podSet main: resourceClaim "x0": ResourceClaimTemplate "t" not found'
    assert bench.engine.claims_problem(key("w")) == found.message
    assert bench.waits("q") == ["later"]
    bench.settle()
    assert bench.has_quota("later")


@pytest.mark.parametrize("strategy", [STRICT, BEST_EFFORT])
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param((request(3),), id="of three devices"),
        pytest.param((), id="of nothing"),
        pytest.param((request(free=True),), id="of access for administration"),
    ],
)
def test_a_template_that_appears_has_what_waits_for_it_evaluated_again(
    strategy: QueueingStrategy, requests: tuple[DeviceRequest, ...]
) -> None:
    bench = devices_bench(strategy=strategy).add(claiming("w", pod_set("t")))
    bench.settle()
    assert bench.waits("q") == []
    bench.engine.upsert_claim_template(template("t", *requests), bench.now)
    bench.settle_after(2)
    assert bench.has_quota("w")


def test_a_template_of_another_name_or_namespace_has_nothing_evaluated_again() -> None:
    bench = devices_bench().add(claiming("w", pod_set("t")))
    bench.settle()
    bench.engine.upsert_claim_template(template("u", request()), bench.now)
    bench.engine.upsert_claim_template(template("t", request(), namespace=OTHER), bench.now)
    bench.settle()
    assert bench.waits("q") == []
    assert bench.engine.claims_problem(key("w"))


def test_a_template_that_is_deleted_while_its_workload_waits_keeps_it_from_being_admitted() -> None:
    bench = devices_bench(template("t", request())).add(claiming("w", pod_set("t")))
    bench.engine.delete_claim_template(key("t"), bench.now)
    assert bench.waits("q") == []
    assert bench.engine.claims_problem(key("w")).endswith('ResourceClaimTemplate "t" not found')


def test_a_template_that_is_made_anew_with_fewer_devices_lets_a_workload_in() -> None:
    bench = devices_bench(template("t", request(9)), strategy=STRICT).add(claiming("w", pod_set("t")))
    bench.settle()
    assert not bench.has_quota("w")
    replaced(bench, "t", request(8))
    bench.settle_after(2)
    assert bench.has_quota("w")


def test_a_class_that_comes_to_back_a_resource_has_what_waits_evaluated_again() -> None:
    bench = devices_bench().add(claiming("w", pod_set(requests={"example.com/gpu": "1"})))
    bench.settle()
    assert not bench.has_quota("w")
    bench.engine.upsert_device_class(DeviceClass("gpu", None, "example.com/gpu"), bench.now)
    (given,) = reserve(bench).pod_sets
    assert dict(given.resource_usage) == {"gpus": 1}


def test_a_tenant_whose_claims_cannot_be_counted_keeps_no_equal_of_another_namespace_out() -> None:
    """Both have the same shape and the same amounts; only one has a request that is not counted."""
    bench = devices_bench(
        template("t", request(1), request(1, problem="no")), template("t", request(1), namespace=OTHER)
    )
    bench.engine.upsert_namespace(Namespace(OTHER), bench.now)
    bench.engine.upsert_local_queue(LocalQueue(key=Key(OTHER, "q"), cluster_queue="q"), bench.now)
    bench.add(claiming("w", pod_set("t")), claiming("w", pod_set("t"), namespace=OTHER, created=1))
    bench.settle()
    assert Key(OTHER, "w") in bench.engine.reservations.records
    assert key("w") not in bench.engine.reservations.records


def test_claims_are_ignored_with_both_gates_off() -> None:
    settings = replace(SETTINGS, gates=Gates(devices=False, rejects_devices=False))
    bench = devices_bench(template("t", request(99)), settings=settings).add(claiming("w", pod_set("t")))
    (given,) = reserve(bench).pod_sets
    assert dict(given.resource_usage) == {"cpu": 1000}


def test_claims_that_the_gates_ignore_are_never_beyond_what_is_held() -> None:
    settings = replace(SETTINGS, gates=Gates(devices=False, rejects_devices=False))
    bench = devices_bench(template("t", request(99)), settings=settings).add(claiming("w", pod_set("t")))
    reserve(bench)
    assert beyond(bench) == ""


# Templates that change once quota is held.


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        pytest.param((request(2),), "", id="the same"),
        pytest.param((request(1),), "", id="fewer"),
        pytest.param((request(1), request(1)), "", id="the same in two requests"),
        pytest.param((), "", id="none"),
        pytest.param((request(2), request(7, free=True)), "", id="more for administration"),
        pytest.param((request(3),), 'it claims 3 of DeviceClass "gpu", 2 before', id="more"),
        pytest.param((request(2), request(1, "nic")), 'it claims 1 of DeviceClass "nic", 0 before', id="others"),
        pytest.param(
            (request(MAX_INT64),),
            f'it claims {MAX_INT64} of DeviceClass "gpu", 2 before',
            id="as many as there can be",
        ),
        pytest.param((request(2, problem="no"),), "request r: no", id="no number"),
    ],
)
def test_a_template_that_is_replaced_after_the_admission_may_not_claim_more(
    requests: tuple[DeviceRequest, ...], want: str
) -> None:
    bench = devices_bench(template("t", request(2))).add(claiming("w", pod_set("t", count=2)))
    reserve(bench)
    replaced(bench, "t", *requests)
    prefix = 'ResourceClaimTemplate "t" was replaced since the workload was admitted: '
    assert beyond(bench) == (f"{prefix}{want}" if want else "")


def test_a_template_that_is_gone_lets_no_pod_be_made_and_costs_no_quota() -> None:
    bench = devices_bench(template("t", request(2))).add(claiming("w", pod_set("t")))
    reserve(bench)
    bench.engine.delete_claim_template(key("t"), bench.now)
    assert beyond(bench) == ""


def test_each_template_is_held_to_what_it_was() -> None:
    bench = devices_bench(template("a", request(1)), template("b", request(3)))
    bench.add(claiming("w", pod_set("a", name="one"), pod_set("b", name="two")))
    reserve(bench)
    replaced(bench, "a", request(2))
    replaced(bench, "b", request(2))
    assert beyond(bench).startswith('ResourceClaimTemplate "a" was replaced')
    assert 'claims 2 of DeviceClass "gpu", 1 before' in beyond(bench)


def test_pods_that_were_reclaimable_before_the_admission_are_not_counted_against_it() -> None:
    bench = devices_bench(template("t", request(2)))
    bench.add(claiming("w", pod_set("t", count=4), reclaimable={"main": 3}))
    (given,) = reserve(bench).pod_sets
    assert (given.count, given.resource_usage["gpus"]) == (1, 2)
    assert beyond(bench) == ""
    replaced(bench, "t", request(3))
    assert 'claims 3 of DeviceClass "gpu", 2 before' in beyond(bench)


def test_pods_that_end_after_the_admission_evict_nothing() -> None:
    bench = devices_bench(template("t", request(2))).add(claiming("w", pod_set("t", count=4)))
    reserve(bench)
    held = bench.engine.workload(key("w"))
    assert held is not None
    bench.add(replace(held, reclaimable={"main": 3}))
    assert beyond(bench) == ""


def test_a_slice_that_replaces_another_takes_the_devices_of_both_templates_from_the_quota() -> None:
    settings = replace(SETTINGS, gates=Gates(elastic_jobs=True))
    bench = devices_bench(template("t", request(2)), settings=settings).add(claiming("old", pod_set("t", count=2)))
    reserve(bench, "old")
    replaced(bench, "t", request(3))
    bench.add(claiming("new", pod_set("t", count=3), created=5, replaces=str(key("old"))))
    assert bench.decide("new").outcome is Outcome.PENDING, "nine of eight devices"
    replaced(bench, "t", request(2))
    bench.pass_time(2)
    (given,) = bench.decide("new").pod_sets
    assert (given.count, given.resource_usage["gpus"]) == (3, 6)


def test_a_workload_without_quota_or_that_is_unknown_has_nothing_beyond_it() -> None:
    bench = devices_bench(template("t", request(99))).add(claiming("w", pod_set("t")))
    assert beyond(bench) == ""
    assert beyond(bench, "unknown") == ""


def test_devices_of_which_a_queue_has_no_quota_and_ignores_that_evict_nothing() -> None:
    settings = replace(SETTINGS, quota_check=QuotaCheck.IGNORE_UNDECLARED)
    bench = devices_bench(template("t", request(2)), settings=settings, cpu="9").add(claiming("w", pod_set("t")))
    (given,) = reserve(bench).pod_sets
    assert dict(given.resource_usage) == {"cpu": 1000}
    assert beyond(bench) == ""


@pytest.mark.parametrize("requested", ["gpus", "deviceclass.resource.kubernetes.io/gpu"])
def test_what_containers_request_is_not_held_for_claims(requested: str) -> None:
    bench = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t", requests={requested: "3"})))
    (given,) = reserve(bench).pod_sets
    assert given.resource_usage["gpus"] == 4
    replaced(bench, "t", request(4))
    assert 'claims 4 of DeviceClass "gpu", 1 before' in beyond(bench)


def test_a_template_that_is_replaced_by_one_of_a_class_without_a_mapping_evicts() -> None:
    bench = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t")))
    reserve(bench)
    replaced(bench, "t", request(1), request(64, "free-of-quota"))
    assert beyond(bench)


def test_a_part_of_a_huge_claim_in_a_queue_without_a_limit_is_not_evicted_at_once() -> None:
    bench = devices_bench(template("t", request(MAX_INT64)), cpu="2", gpus=str(MAX_INT64))
    bench.add(claiming("w", pod_set("t", count=3, minimum=1)))
    reserve(bench)
    assert beyond(bench) == ""


def test_what_was_admitted_under_another_name_of_the_resource_keeps_its_quota() -> None:
    bench = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t")))
    reserve(bench)
    held = bench.engine.workload(key("w"))
    assert held is not None
    renamed = replace(SETTINGS, device_mappings=(DeviceMapping("accelerators", ("gpu",)),))
    after = devices_bench(template("t", request(1)), settings=renamed).add(held)
    assert beyond(after) == ""


def test_a_template_that_nobody_names_costs_no_cycle() -> None:
    bench = Bench(*(queue(name, group(default=QUOTA), strategy=STRICT) for name in "ab"), settings=SETTINGS)
    bench.add(workload("w", "a", pods(cpu="99")))
    bench.settle()
    assert not bench.engine.has_heads(bench.now, repeat=False)
    for number in range(3):
        bench.engine.upsert_claim_template(template("churn", request(number)), bench.now)
        assert not bench.engine.has_heads(bench.now, repeat=False)


@pytest.mark.parametrize("strategy", [STRICT, BEST_EFFORT])
def test_a_tenant_who_makes_a_template_anew_again_and_again_keeps_no_other_waiting(
    strategy: QueueingStrategy,
) -> None:
    """What cannot be counted is never admitted, whichever contents it gets; ten cycles would do without it."""
    bench = devices_bench(strategy=strategy)
    bench.add(*(claiming(f"w{number}", pod_set("t")) for number in range(5)))
    bench.add(workload("later", "q", pods(cpu="1"), created=5))
    for number in range(100):
        bench.engine.upsert_claim_template(template("t", request(number, problem="no")), bench.now)
        bench.cycle()
    assert bench.has_quota("later")


# Another manager.


@pytest.mark.parametrize(
    ("requests", "created", "evicts"),
    [
        pytest.param((request(1),), 5, False, id="as it was"),
        pytest.param((request(3),), 5, False, id="older than the admission, and more by the mappings of today"),
        pytest.param((request(3),), 10, False, id="as old as the admission, and more by the mappings of today"),
        pytest.param((request(1),), 30, False, id="made anew with the same"),
        pytest.param((request(3),), 30, True, id="made anew with more"),
        pytest.param((request(1), request(1, "free-of-quota")), 30, True, id="made anew with an unmapped class"),
    ],
)
def test_a_template_that_was_replaced_while_no_manager_ran_is_known_by_its_age(
    requests: tuple[DeviceRequest, ...], created: int, evicts: bool
) -> None:
    before = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t")))
    before.pass_time(10)
    reserve(before)
    held = before.engine.workload(key("w"))
    assert held is not None
    found = replace(template("t", *requests), created=before.now + timedelta(seconds=created - 10))
    after = devices_bench(found).add(held)
    assert bool(beyond(after)) is evicts


def test_a_workload_that_was_evicted_is_admitted_with_what_it_claims_now() -> None:
    bench = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t")))
    reserve(bench)
    replaced(bench, "t", request(2))
    assert beyond(bench)
    bench.add(claiming("w", pod_set("t")))
    assert beyond(bench) == ""
    (given,) = reserve(bench).pod_sets
    assert given.resource_usage["gpus"] == 2
    assert beyond(bench) == ""


@pytest.mark.parametrize(("created", "evicts"), [(0, False), (30, True)], ids=["older", "younger"])
def test_a_template_that_appears_later_than_its_workload_is_judged_by_its_age_too(created: int, evicts: bool) -> None:
    """A manager may be forbidden to read templates for a while."""
    before = devices_bench(template("t", request(1))).add(claiming("w", pod_set("t", "gone")))
    before.engine.upsert_claim_template(template("gone", request(1)), before.now)
    before.pass_time(10)
    reserve(before)
    held = before.engine.workload(key("w"))
    assert held is not None
    after = devices_bench().add(held)
    assert beyond(after) == ""
    found = template("t", request(1 + 8 * evicts))
    found = replace(found, created=before.now + timedelta(seconds=created - 10))
    after.engine.upsert_claim_template(found, after.now)
    assert bool(beyond(after)) is evicts
    replaced(after, "t", request(20))
    assert beyond(after)


def test_another_manager_heeds_that_undeclared_devices_are_ignored() -> None:
    settings = replace(SETTINGS, quota_check=QuotaCheck.IGNORE_UNDECLARED)
    found = template("t", request(2))
    before = devices_bench(found, settings=settings, cpu="9").add(claiming("w", pod_set("t")))
    reserve(before)
    held = before.engine.workload(key("w"))
    assert held is not None
    younger = replace(found, created=before.now + timedelta(seconds=5))
    after = devices_bench(younger, settings=settings, cpu="9").add(held)
    assert beyond(after) == ""


# Templates that are made anew all the time.


@pytest.mark.parametrize("strategy", [STRICT, BEST_EFFORT])
def test_a_template_that_claims_another_number_all_the_time_keeps_no_other_waiting(
    strategy: QueueingStrategy,
) -> None:
    bench = devices_bench(template("t", request(9)), strategy=strategy)
    shapes = [pod_set("t", requests={"cpu": f"{number + 1}m"}) for number in range(10)]
    bench.add(*(claiming(f"w{number}", shape) for number, shape in enumerate(shapes)))
    bench.settle()
    bench.add(workload("later", "q", pods(cpu="1"), created=5))
    for number in range(10):
        replaced(bench, "t", request(9 + number))
        bench.cycle()
    assert bench.has_quota("later")


def test_a_template_that_is_made_anew_leaves_nothing_behind_for_what_is_in_back_off() -> None:
    bench = devices_bench(template("t", request(1)))
    bench.add(claiming("w", pod_set("t"), requeue_at=bench.now + timedelta(hours=1)))
    for number in range(100):
        replaced(bench, "t", request(1 + number % 2))
    assert len(bench.engine.waiting._wakes) == 1
    bench.settle_after(2)
    assert bench.waits("q") == ["[w]"]
    bench.settle_after(3601)
    assert bench.has_quota("w")


def test_nothing_is_remembered_of_workloads_that_claim_nothing_or_are_gone() -> None:
    bench = devices_bench(template("t", request(1)))
    bench.add(claiming("w", pod_set("t")), workload("plain", "q", pods(cpu="1"), created=1))
    reserve(bench)
    bench.settle()
    claimants = bench.engine.claimants
    assert claimants.of(key("t")) == (key("w"),)
    assert claimants._admitted.keys() == {key("w")}
    bench.engine.finish_workload(key("w"), bench.now)
    assert not any((claimants._admitted, claimants._named, claimants._of, claimants._found))
