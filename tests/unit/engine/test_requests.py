# SPDX-License-Identifier: Apache-2.0
"""The requests of workloads (`docs/spec/engine.md §2.2` and §2.4) and when two are the same (§1.13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from multikueue.core.quantity import Quantity
from multikueue.engine import Settings
from multikueue.engine.queue.pending import equivalence_hash
from multikueue.engine.requests import PodSetRequests, RequestCounter, reserved_usage, scaled
from multikueue.engine.resources import MAX_INT64, FlavorResource
from multikueue.engine.settings import Transformation
from multikueue.engine.values import LimitRange, LimitRangeItem, RuntimeClass
from multikueue.engine.workloads import Admission, ContainerRequests, PodSet, PodSetAdmission, PodShape
from tests.support.engine_builders import key, pods, workload


def amounts(**values: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in values.items()}


def main(**values: str) -> ContainerRequests:
    return ContainerRequests(requests=amounts(**values))


def init(**values: str) -> ContainerRequests:
    return ContainerRequests(requests=amounts(**values), init=True)


def sidecar(**values: str) -> ContainerRequests:
    return ContainerRequests(requests=amounts(**values), init=True, sidecar=True)


def counted(shape: PodShape, *, count: int = 1, settings: Settings | None = None, **changes: Any) -> dict[str, int]:
    value = workload("w", "q", PodSet(count=count, shape=replace(shape, fingerprint="f")), **changes)
    return dict(RequestCounter(settings or Settings()).pending(value)[0].total)


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        pytest.param(PodShape(containers=(main(cpu="1"), main(cpu="500m"))), {"cpu": 1500}, id="containers add up"),
        pytest.param(
            PodShape(containers=(init(cpu="3"), init(cpu="2"), main(cpu="1"))),
            {"cpu": 3000},
            id="the greatest init container counts",
        ),
        pytest.param(
            PodShape(containers=(init(cpu="1"), main(cpu="2"))), {"cpu": 2000}, id="unless the containers are more"
        ),
        pytest.param(PodShape(containers=(sidecar(cpu="1"), main(cpu="2"))), {"cpu": 3000}, id="sidecars stay"),
        pytest.param(
            PodShape(containers=(sidecar(cpu="2"), init(cpu="4"), main(cpu="1"))),
            {"cpu": 6000},
            id="init containers run beside earlier sidecars",
        ),
        pytest.param(
            PodShape(containers=(init(cpu="4"), sidecar(cpu="2"), main(cpu="1"))),
            {"cpu": 4000},
            id="but not beside later ones",
        ),
        pytest.param(
            PodShape(containers=(main(cpu="1"),), overhead=amounts(cpu="250m", memory="1Mi"), has_overhead=True),
            {"cpu": 1250, "memory": 2**20},
            id="overhead is added",
        ),
        pytest.param(
            PodShape(containers=(main(cpu="1", memory="1Ki"),), pod_requests=amounts(cpu="3")),
            {"cpu": 3000, "memory": 1024},
            id="pod-level requests replace what they name",
        ),
        pytest.param(
            PodShape(containers=(main(cpu="64", memory="1Ki"),), pod_requests=amounts(cpu="1m")),
            {"cpu": 64000, "memory": 1024},
            id="but not with less than the containers request",
        ),
        pytest.param(
            PodShape(containers=(main(cpu="1"),), pod_limits=amounts(memory="1Ki")),
            {"cpu": 1000, "memory": 1024},
            id="pod-level limits are requests where there are none",
        ),
        pytest.param(
            PodShape(containers=(ContainerRequests(limits=amounts(cpu="2"), requests=amounts(memory="1Ki")),)),
            {"cpu": 2000, "memory": 1024},
            id="limits are requests where there are none",
        ),
    ],
)
def test_a_pod(shape: PodShape, want: dict[str, int]) -> None:
    assert counted(shape) == want


ONE_CPU = PodShape(containers=(main(cpu="1"),))


@pytest.mark.parametrize(
    ("count", "reclaimable", "want"),
    [
        pytest.param(3, 0, 3000, id="all pods count"),
        pytest.param(3, 2, 1000, id="those that ended do not"),
        pytest.param(3, 9, 0, id="no more than there are"),
    ],
)
def test_counts(count: int, reclaimable: int, want: int) -> None:
    assert counted(ONE_CPU, count=count, reclaimable={"main": reclaimable}) == {"cpu": want}


def test_each_pod_is_rounded_up_before_it_is_multiplied() -> None:
    assert counted(PodShape(containers=(main(cpu="500u"),)), count=10) == {"cpu": 10}


def test_totals_saturate() -> None:
    assert counted(PodShape(containers=(main(memory="8E"),)), count=100) == {"memory": MAX_INT64}


def test_excluded_prefixes_are_left_out() -> None:
    settings = Settings(exclude_resource_prefixes=("example.com/",))
    shape = PodShape(containers=(ContainerRequests(requests={**amounts(cpu="1"), "example.com/x": Quantity.of(3)}),))
    assert counted(shape, settings=settings) == {"cpu": 1000}


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param(
            [Transformation(input="gpu", outputs=amounts(credits="10"))],
            {"gpu": 2, "credits": 20, "cpu": 4000},
            id="an input may stay",
        ),
        pytest.param(
            [Transformation(input="gpu", outputs=amounts(credits="10"), retain=False)],
            {"credits": 20, "cpu": 4000},
            id="or be replaced",
        ),
        pytest.param(
            [Transformation(input="gpu", outputs=amounts(credits="10"), multiply_by="cpu")],
            {"gpu": 2, "cpu": 4000, "credits": 80},
            id="it may be multiplied by another",
        ),
        pytest.param(
            [
                Transformation(input="gpu", outputs=amounts(credits="1"), retain=False),
                Transformation(input="cpu", outputs=amounts(credits="1500m"), retain=False),
            ],
            {"credits": 8},
            id="outputs of several inputs add up",
        ),
        pytest.param(
            [Transformation(input="gpu", outputs=amounts(credits="-5"))],
            {"gpu": 2, "cpu": 4000, "credits": 0},
            id="none is negative",
        ),
        pytest.param(
            [Transformation(input="tpu", outputs=amounts(x="1"))], {"gpu": 2, "cpu": 4000}, id="others change nothing"
        ),
        pytest.param(
            [Transformation(input="gpu", outputs=amounts(cpu="1"), retain=False)],
            {"cpu": 6000},
            id="an output may be requested too",
        ),
    ],
)
def test_transformations(rules: list[Transformation], want: dict[str, int]) -> None:
    shape = PodShape(containers=(main(gpu="2", cpu="4"),))
    assert counted(shape, settings=Settings(transformations=tuple(rules))) == want


def test_a_runtime_class_brings_overhead_unless_the_pod_has_its_own() -> None:
    counter = RequestCounter(Settings())
    counter.set_runtime_class("kata", RuntimeClass("kata", amounts(cpu="250m")))
    plain = workload("w", "q", PodSet(shape=replace(ONE_CPU, runtime_class="kata", fingerprint="a")))
    own = workload("w", "q", PodSet(shape=replace(ONE_CPU, runtime_class="kata", has_overhead=True, fingerprint="b")))
    assert counter.pending(plain)[0].total == {"cpu": 1250}
    assert counter.pending(own)[0].total == {"cpu": 1000}
    counter.set_runtime_class("kata", None)
    assert counter.pending(plain)[0].total == {"cpu": 1000}


def test_pods_are_created_with_what_admission_adds_and_unchanged_where_it_adds_nothing() -> None:
    counter = RequestCounter(Settings())
    shape = replace(ONE_CPU, runtime_class="kata")
    value = workload("w", "q", PodSet(shape=shape))
    assert counter.as_created(value) is value
    counter.set_runtime_class("other", RuntimeClass("other", amounts(cpu="250m")))
    assert counter.as_created(value) is value
    counter.set_runtime_class("kata", RuntimeClass("kata", amounts(cpu="250m")))
    (created,) = counter.as_created(value).pod_sets
    assert created.shape == replace(shape, overhead=amounts(cpu="250m"))
    own = workload("w", "q", PodSet(shape=replace(shape, has_overhead=True)))
    assert counter.as_created(own) is own
    item = LimitRangeItem(type="Container", default=amounts(memory="4Ki"))
    counter.set_limit_range("default", "a", LimitRange(key("a"), (item,)))
    (created,) = counter.as_created(own).pod_sets
    (container,) = created.shape.containers
    assert (container.requests, container.limits) == (amounts(memory="4Ki", cpu="1"), amounts(memory="4Ki"))


def test_limit_ranges_fill_in_what_is_missing() -> None:
    counter = RequestCounter(Settings())
    first = LimitRangeItem(type="Container", default_request=amounts(cpu="2"), default=amounts(memory="4Ki"))
    second = LimitRangeItem(type="Container", default_request=amounts(cpu="9"), default=amounts(memory="9Ki"))
    counter.set_limit_range("default", "a", LimitRange(key("a"), (first,)))
    counter.set_limit_range("default", "b", LimitRange(key("b"), (second,)))
    bare = workload("w", "q", PodSet(shape=PodShape(containers=(ContainerRequests(),), fingerprint="bare")))
    assert counter.pending(bare)[0].total == {"cpu": 2000, "memory": 4096}
    counter.set_limit_range("default", "a", None)
    counter.set_limit_range("default", "b", None)
    assert counter.pending(bare)[0].total == {}


def test_pod_defaults_fill_only_pods_with_pod_level_resources() -> None:
    counter = RequestCounter(Settings())
    item = LimitRangeItem(type="Pod", default_request=amounts(memory="4Ki"))
    counter.set_limit_range("default", "a", LimitRange(key("a"), (item,)))
    without_resources = workload("w", "q", PodSet(shape=replace(ONE_CPU, fingerprint="a")))
    whole = workload("w", "q", PodSet(shape=replace(ONE_CPU, pod_requests=amounts(cpu="2"), fingerprint="b")))
    assert counter.pending(without_resources)[0].total == {"cpu": 1000}
    assert counter.pending(whole)[0].total == {"cpu": 2000, "memory": 4096}


def admitted(**changes: object) -> dict[FlavorResource, int]:
    assignment = PodSetAdmission(name="main", flavors={"cpu": "f"}, usage={"cpu": 8000, "memory": 5}, count=4)
    value = workload("w", "q", pods(6, cpu="2"), admission=Admission("q", (replace(assignment, **changes),)))  # type: ignore[arg-type]
    return reserved_usage(replace(value, reclaimable={"main": 3}))


def test_a_reservation_uses_what_it_was_given_less_what_its_pods_gave_back() -> None:
    assert admitted() == {FlavorResource("f", "cpu"): 6000}
    assert admitted(count=2, usage={"cpu": 4000}) == {FlavorResource("f", "cpu"): 4000}
    assert admitted(count=None, usage={"cpu": 12000}) == {FlavorResource("f", "cpu"): 6000}


def test_fewer_pods_are_divided_before_they_are_multiplied() -> None:
    assert scaled(PodSetRequests("main", 3, {"x": 10}), 2).total == {"x": 6}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        pytest.param({"created": 7, "uid": "other"}, True, id="time and uid do not matter"),
        pytest.param({"priority": 1}, False, id="priority does"),
        pytest.param({"pod_sets": (pods(2, cpu="1"),)}, False, id="so does the count"),
        pytest.param({"pod_sets": (pods(1, cpu="2"),)}, False, id="and requests"),
        pytest.param({"pod_sets": (pods(1, "other", cpu="1"),)}, False, id="and the name of the pod set"),
        pytest.param({"pod_sets": (pods(1, "main", 1, cpu="1"),)}, False, id="and the least count"),
        pytest.param({"reclaimable": {"main": 1}}, False, id="and pods that ended"),
        pytest.param({"replaces": "default/old"}, False, id="and the slice that it replaces"),
    ],
)
def test_which_workloads_are_the_same(changes: dict[str, object], same: bool) -> None:
    counter = RequestCounter(Settings())

    def hashed(**more: object) -> str:
        created = more.pop("created", 0)
        value = replace(workload("w", "q", pods(1, cpu="1"), created=float(str(created))), **more)  # type: ignore[arg-type]
        return equivalence_hash(value, counter.pending(value), priority=value.priority)

    assert (hashed(**changes) == hashed()) is same
    assert len(hashed()) == 16
