# SPDX-License-Identifier: Apache-2.0
"""Jobs in the name of a queued owner together request no more than the quota of that owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.owners.owned_jobs import OwnedJobs, known_as, named_as
from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.jobs.kinds.batch_job import BATCH_JOB

JsonObject = dict[str, Any]
SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


def template(cpu: str, **more: str) -> JsonObject:
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, **more}}}]}}


def set_named(name: str) -> str:
    """The term of a JobSet, whose uid is as its name."""
    return known_as(SETS, Key("team", name), name)


def reference(owner: str, /, **more: Any) -> JsonObject:
    found = {"apiVersion": SETS.api_version, "kind": SETS.kind, "name": owner, "uid": owner, "controller": True}
    return found | more


def job(
    name: str, cpu: str = "1", *, age: int = 0, parallelism: int = 1, owner: str = "top", **more: Any
) -> JsonObject:
    """The smaller `age`, the older it is."""
    times = {"creationTimestamp": f"2026-01-01T00:00:{age:02}Z", "generation": 1}
    metadata = {"name": name, "uid": name, "namespace": "team", "ownerReferences": [reference(owner)], **times}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template(cpu), "suspend": False}
    return {"metadata": metadata | more.pop("metadata", {}), "spec": spec | more.pop("spec", {}), **more}


def workload(cpu: str, *, count: int = 1, usage: dict[str, str] | None = None) -> JsonObject:
    pod_set = {"name": "main", "count": count, "template": template(cpu)}
    assignment = {"name": "main", "count": count, "resourceUsage": usage or {}}
    return {"spec": {"podSets": [pod_set]}, "status": {"admission": {"podSetAssignments": [assignment]}}}


def owned(*jobs: JsonObject, between: dict[str, str] | None = None) -> OwnedJobs:
    """Jobs, and JobSets between them and others, each by name with the name of its owner."""
    found = OwnedJobs(BATCH_JOB)
    for name, above in (between or {}).items():
        found.set_between(set_named(name), set_named(above))
    for each in jobs:
        found.set(each)
    return found


def beyond(one: JsonObject, *others: JsonObject, held: list[JsonObject], between: dict[str, str] | None = None) -> str:
    answer, _ = owned(*others, between=between).excess(one, top=set_named("top"), workloads=held)
    return answer


COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("one", "others", "held", "found"),
    [
        pytest.param(job("a"), (), [workload("1")], "", id="one within the quota"),
        pytest.param(job("a", "2"), (), [workload("1")], "cpu 2 instead of 1", id="one beyond it"),
        pytest.param(job("a", parallelism=3), (), [workload("1", count=3)], "", id="all pods of a pod set"),
        pytest.param(job("a", parallelism=4), (), [workload("1", count=3)], "cpu 4 instead of 3", id="more pods"),
        pytest.param(job("b", age=1), (job("a"),), [workload("1", count=2)], "", id="two that share it"),
        pytest.param(job("b", age=1), (job("a"),), [workload("1")], "cpu 2 instead of 1", id="the younger of two"),
        pytest.param(job("a"), (job("b", age=1),), [workload("1")], "", id="the older of two"),
        pytest.param(job("b"), (job("a"),), [workload("1")], "cpu 2 instead of 1", id="by name at one time"),
        pytest.param(
            job("b", age=1), (job("a", spec={"suspend": True}),), [workload("1")], "", id="beside one that is suspended"
        ),
        pytest.param(job("b", age=1), (job("a", status=COMPLETE),), [workload("1")], "", id="after one that ended"),
        pytest.param(
            job("b", age=1),
            (job("a", metadata={"deletionTimestamp": "2026-01-01T00:01:00Z"}),),
            [workload("1")],
            "",
            id="in the place of one that is being deleted",
        ),
        pytest.param(job("a", "2"), (), [workload("1"), workload("1")], "", id="with several Workloads of the owner"),
        pytest.param(job("a", "2"), (), [workload("1", usage={"cpu": "2"})], "", id="with what was counted, if more"),
        pytest.param(
            job("a"), (), [workload("1", usage={"example.com/credits": "5"})], "", id="with resources that are mapped"
        ),
        pytest.param(
            job("a", spec={"template": template("1", **{"example.com/gpu": "1"})}),
            (),
            [workload("1")],
            "example.com/gpu 1 instead of 0",
            id="a resource that the owner does not request",
        ),
    ],
)
def test_what_a_job_requests_beyond_its_owner(
    one: JsonObject, others: tuple[JsonObject, ...], held: list[JsonObject], found: str
) -> None:
    assert beyond(one, *others, held=held) == found


def test_a_job_that_cannot_be_understood_is_beyond_and_affects_itself_only() -> None:
    odd = job("odd", metadata={"annotations": {"kueue.x-k8s.io/job-min-parallelism": "²"}})
    assert "job-min-parallelism" in beyond(odd, held=[workload("9")])
    assert beyond(job("b", age=1), odd, held=[workload("1")]) == ""


def test_jobs_below_objects_in_between_count_with_the_others() -> None:
    between = {"left": "top", "right": "top", "lower": "right"}
    others = (job("a"), job("b", owner="left", age=1), job("c", owner="lower", age=2))
    held = [workload("1", count=3)]
    assert beyond(job("d", owner="right", age=3), *others, held=held, between=between) == "cpu 4 instead of 3"
    assert beyond(job("c", owner="lower", age=2), *others, held=held, between=between) == ""


def test_a_circle_of_owners_ends() -> None:
    between = {"top": "lower", "lower": "top"}
    others = (job("a"), job("b", owner="lower", age=1))
    assert beyond(others[1], *others, held=[workload("1")], between=between) == "cpu 2 instead of 1"


def test_an_object_that_finds_no_place_takes_none_from_younger_ones() -> None:
    large, small = job("large", "5"), job("small", age=1)
    assert beyond(large, small, held=[workload("1")]) == "cpu 5 instead of 1"
    assert beyond(small, large, held=[workload("1")]) == ""


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param({"namespace": "other"}, id="in another namespace"),
        pytest.param({"ownerReferences": [reference("top", name="else")]}, id="by another name"),
        pytest.param({"ownerReferences": [reference("top", kind="Flow")]}, id="by another kind"),
        pytest.param({"ownerReferences": [reference("top", controller=False)]}, id="not as controller"),
    ],
)
def test_a_reference_that_leads_to_no_owner_takes_no_quota_from_the_jobs_of_one(stranger: JsonObject) -> None:
    assert beyond(job("b", age=1), job("a", "9", metadata=stranger), held=[workload("1")]) == ""


def test_younger_jobs_for_which_nothing_is_left_are_named() -> None:
    jobs = [job("a"), job("b", age=1, owner="left"), job("c", age=2), job("d", "500m", age=3)]
    found = owned(*jobs, between={"left": "top"})
    answer, younger = found.excess(jobs[0], top=set_named("top"), workloads=[workload("2500m")])
    assert answer == ""
    assert younger == [Key("team", "c")]
    _, younger = found.excess(jobs[3], top=set_named("top"), workloads=[workload("2500m")])
    assert younger == [], "only younger ones, so that jobs do not ask for each other in turn"


def test_a_job_whose_annotations_change_is_read_again() -> None:
    odd = job("odd", metadata={"annotations": {"kueue.x-k8s.io/job-min-parallelism": "²"}})
    found = owned(odd)
    held = [workload("9")]
    assert found.excess(odd, top=set_named("top"), workloads=held)[0] != ""
    assert found.excess(job("odd"), top=set_named("top"), workloads=held)[0] == ""


def test_a_version_of_a_reference_does_not_matter() -> None:
    assert named_as(reference("top", apiVersion="jobset.x-k8s.io/v1"), namespace="team") == set_named("top")
    assert named_as(None, namespace="team") == ""


NAMES = st.sampled_from(["top", "left", "right", "lower"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("job"), st.sampled_from("abcd"), NAMES, st.integers(1, 5)),
        st.tuples(st.just("gone"), st.sampled_from("abcd"), st.just("top"), st.just(0)),
        st.tuples(st.just("between"), NAMES, st.one_of(NAMES, st.just("")), st.just(0)),
    ),
    max_size=30,
)


@given(changes=CHANGES)
def test_sums_that_are_kept_are_those_of_a_fresh_start(changes: list[tuple[str, str, str, int]]) -> None:
    kept = OwnedJobs(BATCH_JOB)
    jobs: dict[str, JsonObject] = {}
    between: dict[str, str] = {}
    for number, (what, name, above, cpu) in enumerate(changes):
        match what:
            case "job":
                jobs[name] = job(name, str(cpu), owner=above, metadata={"generation": number + 1})
                kept.set(jobs[name])
            case "gone":
                jobs.pop(name, None)
                kept.remove(name)
            case _:
                between[name] = above
                kept.set_between(set_named(name), set_named(above) if above else "")
    fresh = owned(*jobs.values(), between={name: above for name, above in between.items() if above})
    assert sorted(kept.below(set_named("top"))) == sorted(fresh.below(set_named("top")))
    for cores in range(22):
        held = [workload(str(cores))]
        fits = _below_top(jobs.values(), between) <= cores
        assert kept.fits(set_named("top"), held) == fresh.fits(set_named("top"), held) == fits


def _below_top(jobs: Iterable[JsonObject], between: dict[str, str]) -> int:
    """How many CPUs the jobs below the top request, from their owners upwards."""
    total = 0
    for each in jobs:
        owner, seen = each["metadata"]["ownerReferences"][0]["name"], set()
        while owner != "top" and owner and owner not in seen:
            seen.add(owner)
            owner = between.get(owner, "")
        if owner == "top":
            total += int(each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    return total
