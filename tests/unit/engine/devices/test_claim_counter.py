# SPDX-License-Identifier: Apache-2.0
"""Devices that pods claim as amounts of the quota's resources (`docs/spec/engine.md §2.3`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pytest

from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.engine import Gates, Settings, messages
from multikueue.engine.devices.claim_counter import ClaimCounter
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass, DeviceMapping, DeviceRequest, PodClaim
from multikueue.engine.requests import RequestCounter
from multikueue.engine.resources import MAX_INT64
from multikueue.engine.settings import Transformation
from multikueue.engine.workloads import PodSet, PodShape, Workload
from tests.support.engine_builders import NAMESPACE, at, key, shape, workload

MAPPINGS: Final = (
    DeviceMapping("gpus", ("gpu.example.com", "large.example.com")),
    DeviceMapping("nics", ("nic.example.com", "gpu.example.com")),
    DeviceMapping("memory", ("memory.example.com",), sources=True),
)
SETTINGS: Final = Settings(device_mappings=MAPPINGS)


def request(count: int = 1, device_class: str = "gpu.example.com", **changes: Any) -> DeviceRequest:
    return DeviceRequest(name="r", device_class=device_class, count=count, **changes)


def template(name: str, *requests: DeviceRequest, namespace: str = NAMESPACE) -> ClaimTemplate:
    return ClaimTemplate(Key(namespace, name), requests)


def counter(*templates: ClaimTemplate, settings: Settings = SETTINGS) -> ClaimCounter:
    made = ClaimCounter(settings)
    for each in templates:
        assert made.set_template(each.key, each)
    return made


def claims(*names: str) -> tuple[PodClaim, ...]:
    return tuple(PodClaim(f"x{number}", template=name) for number, name in enumerate(names))


def amounts(**values: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in values.items()}


def counted(made: ClaimCounter, *names: str, namespace: str = NAMESPACE, **requests: str) -> dict[str, str]:
    """The requests of a pod with claims from these templates."""
    found = made.with_devices(amounts(**requests), claims(*names), namespace=namespace)
    return {name: str(value) for name, value in found.items()}


def claiming(*names: str, count: int = 1, name: str = "main", **requests: str) -> PodSet:
    """A pod set whose pods have claims from these templates."""
    plain = shape((), None, **(requests or {"cpu": "1"}))
    return PodSet(
        name=name, count=count, shape=replace(plain, claims=claims(*names), fingerprint=f"{plain.fingerprint}{names}")
    )


def test_a_claim_adds_the_devices_of_its_template_to_each_pod() -> None:
    made = counter(template("t", request(3), request(2, "nic.example.com")))
    assert counted(made, "t", cpu="1") == {"cpu": "1", "gpus": "3", "nics": "2"}


def test_each_claim_of_a_pod_counts_even_of_one_template() -> None:
    made = counter(template("one", request()), template("three", request(3)))
    assert counted(made, "one", "one", "three") == {"gpus": "5"}


def test_classes_of_one_mapping_add_up_and_a_class_counts_as_the_first_mapping_that_names_it() -> None:
    made = counter(template("t", request(1), request(2, "large.example.com")))
    assert counted(made, "t") == {"gpus": "3"}


def test_devices_add_to_what_containers_request_of_the_same_resource() -> None:
    made = counter(template("t", request(3)))
    assert counted(made, "t", gpus="2") == {"gpus": "5"}


def test_a_template_of_another_namespace_is_not_the_pod_s_own() -> None:
    made = counter(template("t", request(1)), template("t", request(9), namespace="other"))
    assert counted(made, "t") == {"gpus": "1"}
    assert counted(made, "t", namespace="other") == {"gpus": "9"}
    assert counted(made, "t", namespace="third") == {}


def test_access_for_administration_is_free_even_of_all_devices_of_a_class_without_a_mapping() -> None:
    made = counter(template("t", request(5, free=True), request(1, "unknown.example.com", free=True)))
    assert counted(made, "t") == {}
    assert made.problem("main", claims("t"), namespace=NAMESPACE) == ""


def test_a_template_without_requests_is_counted_as_nothing() -> None:
    made = counter(template("t"))
    assert counted(made, "t", cpu="1") == {"cpu": "1"}
    assert made.problem("main", claims("t"), namespace=NAMESPACE) == ""


def test_what_cannot_be_counted_is_left_out_and_what_can_is_not() -> None:
    made = counter(
        template("t", request(2), request(4, problem="no"), request(8, "other"), request(16, "memory.example.com"))
    )
    assert counted(made, "t", "missing", cpu="1") == {"cpu": "1", "gpus": "2"}


@pytest.mark.parametrize(
    ("claim", "want"),
    [
        pytest.param(PodClaim("x", template="missing"), 'ResourceClaimTemplate "missing" not found', id="no template"),
        pytest.param(
            PodClaim("x", claim="own"),
            'ResourceClaim "own" is named directly; only claims that are made from templates are counted',
            id="a claim that exists",
        ),
        pytest.param(PodClaim("x", of_pod=False), messages.CLAIM_OF_CONTAINER_ONLY, id="a claim of a container alone"),
        pytest.param(PodClaim("x"), messages.CLAIM_OF_NOTHING, id="a claim of nothing"),
        pytest.param(
            PodClaim("x", template="other"),
            'ResourceClaimTemplate "other": request "r": DeviceClass "other" is not in resources.deviceClassMappings of'
            " the manager's Configuration",
            id="a class without a mapping",
        ),
        pytest.param(
            PodClaim("x", template="sources"),
            'ResourceClaimTemplate "sources": request "r": the mapping of resource "memory" has sources, which are not'
            " supported",
            id="a mapping with sources",
        ),
        pytest.param(
            PodClaim("x", template="all"),
            'ResourceClaimTemplate "all": request "r": not so',
            id="a request that is none of a number",
        ),
        pytest.param(
            PodClaim("x\n", template="t\x1b[31m"),
            'ResourceClaimTemplate "t\\x1b[31m" not found',
            id="a name that would change the terminal",
        ),
    ],
)
def test_a_claim_that_cannot_be_counted_says_where_and_why(claim: PodClaim, want: str) -> None:
    made = counter(
        template("good", request()),
        template("other", request(), request(1, "other")),
        template("sources", request(1, "memory.example.com")),
        template("all", request(1, problem="not so")),
    )
    found = made.problem("workers", (*claims("good"), claim), namespace=NAMESPACE)
    assert found.startswith('podSet workers: resourceClaim "x')
    assert found.endswith(f": {want}")
    assert found.isprintable()


def test_a_pod_set_without_claims_has_no_problem_whatever_is_configured() -> None:
    for settings in (SETTINGS, Settings(), Settings(gates=Gates(devices=False))):
        assert counter(settings=settings).problem("main", (), namespace=NAMESPACE) == ""


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param(Settings(), messages.devices_unmapped("main"), id="without mappings"),
        pytest.param(
            replace(SETTINGS, gates=Gates(devices=False)), messages.devices_off("main"), id="with the feature off"
        ),
        pytest.param(
            Settings(gates=Gates(devices=False)), messages.devices_off("main"), id="with the feature and mappings off"
        ),
        pytest.param(
            replace(SETTINGS, gates=Gates(devices=False, rejects_devices=False)), "", id="with both gates off"
        ),
    ],
)
def test_what_nothing_counts_is_not_admitted_unless_both_gates_are_off(settings: Settings, want: str) -> None:
    made = counter(template("t", request(3)), settings=settings)
    assert made.problem("main", claims("t"), namespace=NAMESPACE) == want
    assert counted(made, "t", cpu="1") == {"cpu": "1"}


# Extended resources.


def device_class(name: str, resource: str = "example.com/gpu", created: datetime | None = None) -> DeviceClass:
    return DeviceClass(name, created, resource)


def extended(made: ClaimCounter, **requests: str) -> dict[str, str]:
    """The requests of a pod without claims; `_` stands for the prefix of the resource."""
    named = {name.replace("_", "example.com/"): text for name, text in requests.items()}
    return {name: str(value) for name, value in made.with_devices(amounts(**named), (), namespace=NAMESPACE).items()}


def test_an_extended_resource_counts_as_the_mapping_of_the_class_that_backs_it() -> None:
    made = counter()
    assert extended(made, _gpu="2", cpu="1") == {"example.com/gpu": "2", "cpu": "1"}
    assert made.set_class("large.example.com", device_class("large.example.com"))
    assert extended(made, _gpu="2", cpu="1") == {"gpus": "2", "cpu": "1"}


def test_the_newest_class_backs_a_resource_and_of_equally_new_ones_the_first_by_name() -> None:
    made = counter()
    for name, seconds in (("old.example.com", 1), ("nic.example.com", 5), ("large.example.com", 5)):
        made.set_class(name, device_class(name, created=at(seconds)))
    assert extended(made, _gpu="1") == {"gpus": "1"}
    assert made.set_class("large.example.com", None)
    assert extended(made, _gpu="1") == {"nics": "1"}
    assert made.set_class("newest.example.com", device_class("newest.example.com", created=at(9)))
    assert extended(made, _gpu="1") == {"example.com/gpu": "1"}, "the class that backs it has no mapping"


def test_a_class_without_a_time_is_older_than_all_others() -> None:
    made = counter()
    made.set_class("large.example.com", device_class("large.example.com"))
    made.set_class("nic.example.com", device_class("nic.example.com", created=at(0)))
    assert extended(made, _gpu="1") == {"nics": "1"}


def test_a_class_that_backs_nothing_changes_nothing() -> None:
    made = counter()
    assert not made.set_class("gpu.example.com", DeviceClass("gpu.example.com"))
    assert not made.set_class("unknown", None)
    assert made.set_class("gpu.example.com", device_class("gpu.example.com"))
    assert not made.set_class("gpu.example.com", device_class("gpu.example.com", created=at(3)))


def test_a_class_may_be_requested_by_its_name_without_being_there() -> None:
    made = counter()
    name = "deviceclass.resource.kubernetes.io/"
    found = made.with_devices(
        amounts(**{f"{name}gpu.example.com": "2", f"{name}other": "1", name: "1", "gpus": "1"}),
        (),
        namespace=NAMESPACE,
    )
    assert {each: str(value) for each, value in found.items()} == {"gpus": "3", f"{name}other": "1", name: "1"}


def test_a_resource_whose_mapping_has_sources_counts_under_its_own_name() -> None:
    made = counter()
    made.set_class("memory.example.com", device_class("memory.example.com", "example.com/memory"))
    assert extended(made, _memory="1") == {"example.com/memory": "1"}


def test_extended_resources_are_as_requested_while_their_gate_is_off() -> None:
    made = counter(template("t", request(3)), settings=replace(SETTINGS, gates=Gates(extended_devices=False)))
    made.set_class("gpu.example.com", device_class("gpu.example.com"))
    found = made.with_devices(amounts(**{"example.com/gpu": "1"}), claims("t"), namespace=NAMESPACE)
    assert {name: str(value) for name, value in found.items()} == {"example.com/gpu": "1", "gpus": "3"}


# Requests of workloads.


def totals(made: RequestCounter, value: Workload) -> list[dict[str, int]]:
    return [dict(each.total) for each in made.pending(value)]


def requests(*templates: ClaimTemplate, settings: Settings = SETTINGS) -> RequestCounter:
    made = RequestCounter(settings)
    for each in templates:
        made.set_claim_template(each.key, each)
    return made


def test_devices_are_multiplied_by_the_pods_of_each_pod_set() -> None:
    made = requests(template("t", request(3)))
    value = workload("w", "q", claiming("t", count=4), claiming("t", "t", name="more", count=2), claiming(name="none"))
    assert totals(made, value) == [{"cpu": 4000, "gpus": 12}, {"cpu": 2000, "gpus": 12}, {"cpu": 1000}]


def test_pods_that_are_reclaimable_need_no_devices() -> None:
    value = workload("w", "q", claiming("t", count=4), reclaimable={"main": 3})
    assert totals(requests(template("t", request(2))), value) == [{"cpu": 1000, "gpus": 2}]


def test_equal_shapes_in_two_namespaces_count_the_templates_of_their_own() -> None:
    made = requests(template("t", request(1)), template("t", request(7), namespace="other"))
    first = workload("w", "q", claiming("t"))
    second = replace(first, key=Key("other", "w"))
    for _ in range(2):
        assert totals(made, first) == [{"cpu": 1000, "gpus": 1}]
        assert totals(made, second) == [{"cpu": 1000, "gpus": 7}]
        assert totals(made, replace(first, key=Key("third", "w"))) == [{"cpu": 1000}]


def test_a_template_that_is_made_anew_is_counted_as_it_is_now() -> None:
    made = requests()
    value = workload("w", "q", claiming("t"))
    assert totals(made, value) == [{"cpu": 1000}]
    assert made.set_claim_template(key("t"), template("t", request(2)))
    assert totals(made, value) == [{"cpu": 1000, "gpus": 2}]
    assert not made.set_claim_template(key("t"), template("t", request(2))), "nothing differs"
    assert made.set_claim_template(key("t"), None)
    assert totals(made, value) == [{"cpu": 1000}]
    assert not made.set_claim_template(key("t"), None), "it was gone already"


def test_a_class_that_comes_to_back_a_resource_is_heeded_by_shapes_that_were_counted_before() -> None:
    made = requests()
    value = workload("w", "q", PodSet(shape=shape((), None, **{"example.com/gpu": "2"})))
    assert totals(made, value) == [{"example.com/gpu": 2}]
    assert made.set_device_class("gpu.example.com", device_class("gpu.example.com"))
    assert totals(made, value) == [{"gpus": 2}]
    assert made.set_device_class("gpu.example.com", None)
    assert totals(made, value) == [{"example.com/gpu": 2}]


def test_transformations_come_before_devices_and_do_not_change_them() -> None:
    rules = (
        Transformation(input="cpu", outputs=amounts(**{"example.com/gpu": "1"}), retain=False),
        Transformation(input="gpus", outputs=amounts(other="1"), retain=False),
    )
    made = requests(template("t", request(3)), settings=replace(SETTINGS, transformations=rules))
    made.set_device_class("gpu.example.com", device_class("gpu.example.com"))
    assert totals(made, workload("w", "q", claiming("t", cpu="2"))) == [{"gpus": 5}]


def test_a_prefix_that_is_excluded_excludes_no_devices() -> None:
    made = requests(template("t", request(3)), settings=replace(SETTINGS, exclude_resource_prefixes=("gpu",)))
    assert totals(made, workload("w", "q", claiming("t", gpus="5"))) == [{"gpus": 3}]


def test_huge_numbers_of_devices_end_at_the_greatest_amount() -> None:
    huge = template("t", *[request(MAX_INT64)] * 3)
    made = requests(huge, settings=replace(SETTINGS, device_mappings=(DeviceMapping("cpu", ("gpu.example.com",)),)))
    assert totals(made, workload("w", "q", claiming("t", "t", count=5))) == [{"cpu": MAX_INT64}]
    assert totals(requests(huge), workload("w", "q", claiming("t", count=2**31 - 1)))[0]["gpus"] == MAX_INT64


def test_a_negative_count_takes_nothing_from_other_claims() -> None:
    made = counter(template("t", request(10)), template("n", request(-9)))
    assert made.problem("main", claims("t", "n"), namespace=NAMESPACE) or counted(made, "t", "n") == {"gpus": "10"}


def test_a_workload_with_several_pod_sets_names_the_one_that_cannot_be_counted() -> None:
    made = requests(template("t", request()))
    value = workload("w", "q", claiming("t", name="a"), claiming(name="b"), claiming("t", "u", name="c"))
    assert made.claims_problem(value) == 'podSet c: resourceClaim "x1": ResourceClaimTemplate "u" not found'
    made.set_claim_template(key("u"), template("u"))
    assert made.claims_problem(value) == ""


def test_a_shape_without_a_fingerprint_is_counted_too() -> None:
    value = workload("w", "q", PodSet(count=2, shape=PodShape(claims=claims("t"))))
    assert totals(requests(template("t", request(2))), value) == [{"gpus": 4}]
