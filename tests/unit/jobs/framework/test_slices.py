# SPDX-License-Identifier: Apache-2.0
"""Which slices an elastic job has, and which of its pods may start."""

from __future__ import annotations

import itertools

import pytest

from multikueue.api.objects import JsonObject
from multikueue.jobs.framework.slices import (
    SlicePlan,
    chain_of,
    current_slice,
    oldest_first,
    plan_slices,
    pods_to_start,
    slice_annotations,
    took_over,
)

RESERVED = ("QuotaReserved",)
ADMITTED = ("QuotaReserved", "Admitted")
EVICTED = ("QuotaReserved", "Admitted", "Evicted")
GATE = {"name": "kueue.x-k8s.io/elastic-job"}


def slice_of(
    name: str, size: int, *conditions: str, older: JsonObject | None = None, finished: str = "", deleting: bool = False
) -> JsonObject:
    shown = [{"type": each, "status": "True"} for each in conditions]
    if finished:
        shown.append({"type": "Finished", "status": "True", "reason": finished})
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": slice_annotations(name, older),
            **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleting else {}),
        },
        "spec": {"podSets": [{"name": "main", "count": size}]},
        "status": {"conditions": shown},
    }


def names(found: tuple[JsonObject, ...]) -> list[str]:
    return [each["metadata"]["name"] for each in found]


def planned(size: int | None, *slices: JsonObject) -> SlicePlan:
    return plan_slices(None if size is None else {"main": size}, slices)


def test_the_name_of_the_first_slice_is_that_of_the_chain() -> None:
    first = slice_of("first", 1, *ADMITTED)
    second = slice_of("second", 2, older=first)
    third = slice_of("third", 3, older=second)
    assert [chain_of(each) for each in (first, second, third)] == ["first"] * 3


def test_a_job_of_the_size_of_its_slice_changes_nothing() -> None:
    own = slice_of("own", 3, *ADMITTED)
    assert planned(3, own) == SlicePlan(current=own)


def test_a_job_that_shrinks_does_so_in_place() -> None:
    plan = planned(1, slice_of("own", 3, *ADMITTED))
    assert (plan.shrinks, plan.grows) == (True, False)


def test_a_job_that_grows_gets_another_slice() -> None:
    plan = planned(5, slice_of("own", 3, *ADMITTED))
    assert (plan.shrinks, plan.grows) == (False, True)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(slice_of("own", 3), id="that waits for quota"),
        pytest.param(slice_of("own", 3, *RESERVED), id="that waits for its checks"),
        pytest.param(slice_of("own", 3, *EVICTED), id="that is evicted"),
        pytest.param(slice_of("own", 3, *ADMITTED, deleting=True), id="that is being deleted"),
    ],
)
def test_a_slice_is_not_replaced(own: JsonObject) -> None:
    plan = planned(5, own)
    assert (plan.shrinks, plan.grows, plan.pending) == (False, False, None)


def test_a_group_that_grows_while_another_shrinks_needs_another_slice() -> None:
    own = slice_of("own", 3, *ADMITTED)
    own["spec"]["podSets"].append({"name": "other", "count": 3})
    plan = plan_slices({"main": 1, "other": 4}, (own,))
    assert (plan.shrinks, plan.grows) == (False, True)


def test_pod_sets_with_other_names_are_no_new_size() -> None:
    plan = plan_slices({"other": 9}, (slice_of("own", 3, *ADMITTED),))
    assert (plan.shrinks, plan.grows) == (False, False)


def test_a_pending_slice_gets_each_further_size_and_goes_when_it_is_not_needed() -> None:
    own = slice_of("own", 3, *ADMITTED)
    more = slice_of("more", 5, older=own)
    assert planned(5, own, more) == SlicePlan(current=own, pending=more)
    assert planned(7, own, more) == SlicePlan(current=own, pending=more, resized=True)
    for size in (3, None):
        plan = planned(size, own, more)
        assert (names(plan.obsolete), plan.shrinks, plan.pending) == (["more"], False, None)
    smaller = planned(2, own, more)
    assert (names(smaller.obsolete), smaller.shrinks) == (["more"], True)


def test_no_second_slice_is_made_while_a_former_one_is_being_deleted() -> None:
    own = slice_of("own", 3, *ADMITTED)
    plan = planned(6, own, slice_of("more", 5, older=own, deleting=True))
    assert (plan.grows, names(plan.obsolete)) == (False, ["more"])


def test_the_eviction_of_the_slice_of_a_job_ends_the_one_that_was_to_replace_it() -> None:
    own = slice_of("own", 3, *EVICTED)
    plan = planned(5, own, slice_of("more", 5, older=own))
    assert plan.current is own
    assert names(plan.obsolete) == ["more"]


def test_a_slice_with_quota_is_the_current_one_before_the_former_is_finished() -> None:
    own = slice_of("own", 3, *ADMITTED)
    more = slice_of("more", 5, *RESERVED, older=own)
    plan = planned(5, own, more)
    assert plan == SlicePlan(current=more)
    assert took_over(more)
    assert not took_over(own)
    assert not took_over(slice_of("more", 5, *EVICTED, older=own))


def test_one_replaced_slice_is_kept() -> None:
    first = slice_of("first", 1, *ADMITTED, finished="WorkloadSliceReplaced")
    second = slice_of("second", 2, *ADMITTED, older=first, finished="WorkloadSliceReplaced")
    third = slice_of("third", 3, *ADMITTED, older=second)
    plan = planned(3, first, second, third)
    assert plan == SlicePlan(current=third, obsolete=(first,), replaced=(second,))
    assert current_slice((first, second)) is None


def test_a_slice_that_ended_with_its_job_stays_the_current_one() -> None:
    own = slice_of("own", 3, *ADMITTED, finished="Succeeded")
    plan = planned(None, own, slice_of("more", 5, older=own))
    assert plan.current is own
    assert names(plan.obsolete) == ["more"]


def test_of_slices_made_in_one_second_the_one_that_replaces_is_the_newer() -> None:
    own = slice_of("z", 3, *ADMITTED)
    more = slice_of("a", 5, older=own)
    assert oldest_first([more, own]) == [own, more]


@pytest.mark.parametrize("first_is_there", [True, False], ids=["all are there", "the first is gone"])
def test_slices_made_in_one_second_have_one_order_whatever_the_cache_gives_first(first_is_there: bool) -> None:
    first = slice_of("m", 1, *ADMITTED, finished="WorkloadSliceReplaced")
    second = slice_of("z", 2, *ADMITTED, older=first, finished="WorkloadSliceReplaced")
    third = slice_of("a", 3, *ADMITTED, older=second)
    found = [*([first] if first_is_there else []), second, third]
    assert all(oldest_first(each) == found for each in itertools.permutations(found))
    # The one that is kept for reference is the last that was replaced, also while an older one is being deleted.
    assert names(plan_slices({"main": 3}, oldest_first(reversed(found))).obsolete) == names(tuple(found[:-2]))


def test_slices_that_claim_to_replace_each_other_have_an_order() -> None:
    one, other = slice_of("one", 1), slice_of("other", 1)
    for each, former in ((one, other), (other, one)):
        each["metadata"]["annotations"] |= slice_annotations(each["metadata"]["name"], former)
    assert len(oldest_first([one, other])) == 2


def pod(name: str, *, gated: bool, phase: str = "Pending", pod_set: str = "main", index: str = "") -> JsonObject:
    return {
        "metadata": {
            "name": name,
            "labels": {"kueue.x-k8s.io/podset": pod_set},
            "annotations": {"batch.kubernetes.io/job-completion-index": index} if index else {},
        },
        "spec": {"schedulingGates": [GATE] if gated else []},
        "status": {"phase": phase},
    }


def started(admitted: dict[str, int], *pods: JsonObject) -> list[str]:
    return [each["metadata"]["name"] for each in pods_to_start(pods, admitted)]


def test_as_many_pods_start_as_were_admitted() -> None:
    pods = (pod("a", gated=False), pod("b", gated=True), pod("c", gated=True), pod("d", gated=True))
    assert started({"main": 3}, *pods) == ["b", "c"]
    assert started({"main": 1}, *pods) == []


def test_pods_that_have_ended_leave_their_place_to_others() -> None:
    pods = (pod("a", gated=False, phase="Succeeded"), pod("b", gated=False, phase="Failed"), pod("c", gated=True))
    assert started({"main": 1}, *pods) == ["c"]


def test_a_pod_that_is_being_deleted_keeps_its_place_and_is_not_started() -> None:
    running, waiting = pod("a", gated=False, phase="Running"), pod("b", gated=True)
    for each in (running, waiting):
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert started({"main": 1}, running, pod("c", gated=True)) == []
    assert started({"main": 1}, waiting, pod("c", gated=True)) == ["c"]


def test_each_pod_set_is_counted_apart_and_an_unknown_one_has_no_place() -> None:
    pods = (pod("h", gated=True, pod_set="head"), pod("w", gated=True, pod_set="small"), pod("x", gated=True))
    assert started({"head": 1, "small": 0}, *pods) == ["h"]


def test_the_first_indexes_start_first() -> None:
    pods = (pod("a", gated=True, index="10"), pod("b", gated=True, index="2"), pod("c", gated=True, index="1"))
    assert started({"main": 2}, *pods) == ["c", "b"]


def test_a_slice_that_got_quota_as_the_job_ended_by_the_former_one_is_deleted() -> None:
    former = slice_of("former", 1, *ADMITTED, finished="Succeeded")
    larger = slice_of("larger", 2, *RESERVED, older=former)
    assert names(planned(None, former, larger).obsolete) == ["larger"], "it would hold the quota for ever"
    running = slice_of("former", 1, *ADMITTED)
    assert planned(2, running, larger).obsolete == (), "the former one is being finished as replaced"
