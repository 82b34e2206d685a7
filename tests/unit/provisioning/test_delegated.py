# SPDX-License-Identifier: Apache-2.0
"""What a worker cluster requests for an assignment, and what follows from the answers (ADR 0018)."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import EPOCH_ANNOTATION
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.provisioning import requests
from multikueue.provisioning.delegated import (
    MAX_CHECKS,
    MAX_CONFIG,
    DelegatedDecision,
    DelegatedFacts,
    ProvisioningEnd,
    RequestStage,
    decide_delegated,
    settings_of,
)
from multikueue.provisioning.requests import RequestMark
from tests.unit.provisioning.builders import CHECK, SETTINGS, TIME, condition, pod_set

NAME = "w-prov-2"


def mark(*, epoch: int = 2, assignment: str = "a") -> RequestMark:
    return RequestMark(labels={"origin": "hub"}, annotations={"assignment": assignment, EPOCH_ANNOTATION: str(epoch)})


def decided(*found: JsonObject, **changes: Any) -> DelegatedDecision:
    given: dict[str, Any] = {
        "workload": "w",
        "namespace": "team",
        "epoch": 2,
        "settings": {CHECK: SETTINGS},
        "pod_sets": (pod_set(),),
        "mark": mark(),
        "requests": {each["metadata"]["name"]: each for each in found},
    }
    return decide_delegated(DelegatedFacts(**(given | changes)))


def stored(*conditions: JsonObject, details: dict[str, str] | None = None, **changes: Any) -> JsonObject:
    """The request of the first decision, as the API server has it."""
    (new,) = decided(**changes).create
    metadata = {**new.body["metadata"], "uid": "r1", "creationTimestamp": TIME}
    status = {"conditions": list(conditions), "provisioningClassDetails": details or {}}
    return {**new.body, "metadata": metadata, "status": status}


def test_one_request_for_each_check_is_made_with_the_mark_of_its_assignment_and_without_an_owner() -> None:
    (new,) = decided().create
    assert new.body["metadata"] == {
        "name": NAME,
        "namespace": "team",
        "labels": {"kueue.x-k8s.io/managed": "true", "origin": "hub"},
        "annotations": {"assignment": "a", EPOCH_ANNOTATION: "2"},
    }
    assert new.body["spec"]["podSets"] == [{"podTemplateRef": {"name": f"ppt-{NAME}-main"}, "count": 1}]
    assert not new.exists


def test_its_templates_are_made_again_unless_they_are_known_to_exist() -> None:
    request = stored()
    assert decided(request).create[0].exists
    assert decided(request, has_templates=frozenset({"r1"})).create == ()


def test_the_message_has_the_request_its_class_since_when_and_the_expected_time() -> None:
    waiting = decided(stored(condition("Accepted"), condition("Provisioned", value=False, message="ETA 12:05")))
    expected = f"ProvisioningRequest {NAME} of class {SETTINGS.class_name} since {TIME}: ETA 12:05"
    assert (waiting.message, waiting.provisioned, waiting.end) == (expected, False, None)
    assert decided(stored()).message.endswith("waiting for an autoscaler to accept it")


def test_provisioned_capacity_is_consumed_by_annotations_and_node_labels_of_the_pods() -> None:
    settings = {CHECK: settings_of([{"name": CHECK, "config": CONFIG}])[CHECK]}
    request = stored(condition("Provisioned", message="3 nodes"), details={"Pool": "p7"}, settings=settings)
    found = decided(request, settings=settings)
    assert (found.provisioned, found.message) == (True, "3 nodes")
    (update,) = found.updates
    assert update["nodeSelector"] == {"pool": "p7"}
    assert update["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == NAME


CONFIG: JsonObject = {
    "provisioningClassName": "c",
    "parameters": {"zone": "a"},
    "podSetUpdates": {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}]},
}


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        pytest.param(requests.FAILED, ProvisioningEnd.FAILED, id="it failed"),
        pytest.param(requests.BOOKING_EXPIRED, ProvisioningEnd.EXPIRED, id="its booking expired"),
        pytest.param(requests.CAPACITY_REVOKED, ProvisioningEnd.REVOKED, id="its capacity was revoked"),
    ],
)
def test_a_request_that_ended_is_kept_and_not_repeated(kind: str, end: ProvisioningEnd) -> None:
    found = decided(stored(condition("Provisioned"), condition(kind, message="no machines")))
    assert (found.end, found.delete, found.create, found.provisioned) == (end, (), (), False)
    assert found.message == f"ProvisioningRequest {NAME}: no machines"


def test_only_revoked_capacity_counts_while_the_job_runs() -> None:
    expired = stored(condition("Provisioned"), condition("BookingExpired"))
    assert decided(expired, stage=RequestStage.RUNS).end is None
    revoked = decided(stored(condition("CapacityRevoked", message="spot")), stage=RequestStage.RUNS)
    assert (revoked.end, revoked.message) == (ProvisioningEnd.REVOKED, f"ProvisioningRequest {NAME}: spot")
    gone = decided(stage=RequestStage.RUNS)
    assert (gone.create, gone.end) == ((), None)


def test_an_assignment_that_is_over_deletes_its_requests_of_every_epoch_and_no_other() -> None:
    older, other = stored(mark=mark(epoch=1)), stored(mark=mark(assignment="b"))
    older["metadata"]["name"], other["metadata"]["name"] = "older", "other"
    assert decided(stored(), older, other, stage=RequestStage.OVER).delete == (NAME, "older")


def test_requests_of_an_earlier_epoch_and_of_a_removed_check_are_deleted() -> None:
    older, dropped = stored(mark=mark(epoch=1)), stored()
    older["metadata"]["name"], dropped["metadata"]["name"] = "w-prov-1", "w-former-2"
    assert set(decided(stored(), older, dropped).delete) == {"w-prov-1", "w-former-2"}


def test_a_request_of_another_owner_is_neither_used_nor_deleted() -> None:
    found = decided(stored(mark=mark(assignment="b")))
    assert (found.end, found.delete, found.create) == (ProvisioningEnd.TAKEN, (), ())
    assert NAME in found.message


def test_a_request_for_other_counts_is_replaced_and_one_being_deleted_is_waited_for() -> None:
    assert decided(stored(pod_sets=(pod_set(count=3),))).delete == (NAME,)
    request = stored()
    request["metadata"]["deletionTimestamp"] = TIME
    waiting = decided(request)
    assert (waiting.delete, waiting.create, waiting.provisioned) == ((), (), False)


def test_pods_without_a_managed_resource_need_no_request() -> None:
    settings = settings_of([{"name": CHECK, "config": {"provisioningClassName": "c", "managedResources": ["gpu"]}}])
    found = decided(settings=settings)
    assert (found.provisioned, found.create, found.updates) == (True, (), ())


def test_all_checks_must_be_provisioned_and_one_that_failed_ends_all() -> None:
    settings = {CHECK: SETTINGS, "second": SETTINGS}
    assert len(decided(settings=settings).create) == 2
    first = stored(condition("Provisioned"))
    assert not decided(first, settings=settings).provisioned
    failed = stored(condition("Failed", message="none"))
    found = decided(failed, settings=settings)
    assert (found.end, found.create) == (ProvisioningEnd.FAILED, ())


def test_two_checks_for_one_pod_set_are_refused_since_its_pods_can_consume_one() -> None:
    first = stored(condition("Provisioned"))
    second = stored(condition("Provisioned"))
    second["metadata"]["name"] = "w-second-2"
    second["spec"] = {**second["spec"], "podSets": [{"podTemplateRef": {"name": "ppt-w-second-2-main"}, "count": 1}]}
    with pytest.raises(BadInput, match="pod set main: two provisioning checks"):
        decided(first, second, settings={CHECK: SETTINGS, "second": SETTINGS})


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        pytest.param([{"name": "c", "config": {}}] * (MAX_CHECKS + 1), "at most 8 checks, found 9", id="too many"),
        pytest.param([{"name": "c"}], "a name and a config", id="without a config"),
        pytest.param([{"name": "c", "config": {}}], "provisioningClassName is missing", id="without a class"),
        pytest.param([{"name": "c", "config": {"x": "y" * MAX_CONFIG}}], "at most 65536", id="too large"),
    ],
)
def test_what_the_hub_sends_has_limits(wire: list[JsonObject], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        settings_of(wire)
