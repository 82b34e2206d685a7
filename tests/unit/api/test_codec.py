# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api import codec
from multikueue.api.clusterqueue import ClusterQueue
from multikueue.api.job import Job
from multikueue.api.meta import ObjectMeta, WireCondition
from multikueue.api.workload import PodSet, Workload, WorkloadSpec
from multikueue.core import conditions
from multikueue.core.errors import BadInput
from multikueue.core.quantity import Quantity

CLUSTER_QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "team-a", "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]},
    "spec": {
        "cohortName": "all",
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": 9, "future": [1]}]}],
            }
        ],
        "somethingNew": {"deep": [{"er": None, "est": True}]},
    },
    "status": {"brandNew": 1.5},
}

json_leaf = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
json_value = st.recursive(
    json_leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def test_an_unknown_field_survives_a_round_trip_at_every_depth() -> None:
    queue = codec.load(CLUSTER_QUEUE)
    assert isinstance(queue, ClusterQueue)
    want = orjson.loads(orjson.dumps(CLUSTER_QUEUE))
    want["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "9"
    assert orjson.loads(codec.dump(queue)) == want


@given(extra=st.dictionaries(st.text(min_size=1, max_size=6).map(lambda key: f"x-{key}"), json_value, max_size=4))
def test_unknown_fields_of_any_shape_survive_a_round_trip(extra: dict[str, Any]) -> None:
    extra = {key: value for key, value in extra.items() if value is not None}
    given_object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": extra}}
    assert orjson.loads(codec.dump(codec.load(given_object))) == given_object


def test_a_default_is_not_written() -> None:
    workload = Workload(metadata=ObjectMeta(name="w", namespace="ns"), spec=WorkloadSpec(pod_sets=(PodSet(count=3),)))
    assert codec.to_dict(workload) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podSets": [{"count": 3}]},
    }


def test_defaults_of_the_schema_are_there_to_be_read() -> None:
    queue = codec.load({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"})
    assert isinstance(queue, ClusterQueue)
    assert queue.spec.queueing_strategy == "BestEffortFIFO"
    assert queue.spec.flavor_fungibility.when_can_preempt == "TryNextFlavor"
    assert queue.spec.preemption.borrow_within_cohort.policy == "Never"
    assert queue.spec.namespace_selector is None


def test_null_means_absent() -> None:
    job = codec.load(
        b'{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","creationTimestamp":null,"labels":null},'
        b'"status":{"conditions":null}}'
    )
    assert isinstance(job, Job)
    assert job.status.conditions == ()
    assert job.metadata.labels == {}


def test_quantities_are_exact_and_written_canonically() -> None:
    workload = codec.load(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "status": {"resourceRequests": [{"name": "main", "resources": {"cpu": "1500m", "memory": 2147483648}}]},
        }
    )
    assert isinstance(workload, Workload)
    requests = workload.status.resource_requests[0].resources
    assert requests["cpu"] == Quantity.of_milli(1500)
    assert requests["memory"] == Quantity.parse("2Gi")
    assert codec.to_dict(workload)["status"]["resourceRequests"][0]["resources"]["cpu"] == "1500m"


def test_times_are_aware_and_written_in_whole_seconds_of_utc() -> None:
    job = codec.load({"apiVersion": "batch/v1", "kind": "Job", "status": {"startTime": "2026-01-31T10:00:00.75+02:00"}})
    assert isinstance(job, Job)
    assert job.status.start_time == datetime(2026, 1, 31, 8, 0, 0, 750_000, tzinfo=UTC)
    assert codec.to_dict(job)["status"]["startTime"] == "2026-01-31T08:00:00Z"


def test_an_older_version_comes_out_as_the_one_used_inside() -> None:
    queue = codec.load({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "spec": {"cohort": "all"}})
    assert isinstance(queue, ClusterQueue)
    assert queue.spec.cohort_name == "all"
    assert codec.to_dict(queue)["apiVersion"] == "kueue.x-k8s.io/v1beta2"


def test_a_kind_without_a_model_stays_a_dict() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}}
    assert codec.loads_any(pod) == pod
    with pytest.raises(BadInput, match="Pod ns/p: there is no model of v1/Pod"):
        codec.load(pod)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"{", "not JSON", id="broken JSON"),
        pytest.param(b"[]", "expected a JSON object, got list", id="a list"),
        pytest.param(
            CLUSTER_QUEUE | {"spec": {"fairSharing": {"weight": "many"}}},
            'ClusterQueue team-a: spec.fairSharing.weight: "many" is not a quantity',
            id="a quantity that is none",
        ),
        pytest.param(
            CLUSTER_QUEUE | {"spec": {"resourceGroups": [{"coveredResources": ["cpu"]}]}},
            r"ClusterQueue team-a: spec.resourceGroups\[0\].flavors: Field required",
            id="a missing field deep inside",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_path(data: bytes | dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        codec.load(data)


def test_a_manifest_gives_its_objects_one_by_one() -> None:
    text = "---\n---\nkind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n"
    assert [document["kind"] for document in codec.documents(text)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "queues.yaml: not YAML", id="broken YAML"),
        pytest.param("kind: A\n---\njust text", "queues.yaml: document 2: expected an object, got str", id="text"),
        pytest.param("kind: List\nitems: [3]", "document 1: expected an object, got int", id="a list of numbers"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(codec.documents(text, source="queues.yaml"))


def test_every_registered_model_is_there_under_its_kind() -> None:
    for group, version, kind in codec.MODELS:
        model = codec.model_of(group, version, kind)
        assert model is not None
        assert (model.RESOURCE.group, model.RESOURCE.version, model.RESOURCE.kind) == (group, version, kind)


def test_conditions_pass_to_the_planners_and_back() -> None:
    value = conditions.Condition(
        type="Active",
        status="True",
        reason="Ready",
        message="m",
        last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
        observed_generation=3,
    )
    assert WireCondition.of(value).value() == value
