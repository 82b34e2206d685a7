# SPDX-License-Identifier: Apache-2.0
"""Each rule of docs/spec/kueue-api.md §5.2, from facts to a decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import CheckState
from multikueue.provisioning import messages, requests
from multikueue.provisioning.decision import CheckChange, ProvisioningDecision, decide
from multikueue.provisioning.settings import MergePolicy, ProvisioningSettings
from tests.unit.provisioning.builders import (
    CHECK,
    FAILED,
    PROVISIONED,
    SETTINGS,
    after_answer,
    answered,
    condition,
    created,
    facts,
    pod_set,
    stored_request,
    workload,
)

NAME = "w-prov-1"


def only(decision: ProvisioningDecision) -> CheckChange:
    (change,) = decision.changes
    return change


def test_a_request_is_created_when_quota_is_reserved() -> None:
    decision = decide(facts(workload(pod_set(count=3))))
    (new,) = decision.create
    assert new.body == {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": NAME,
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/managed": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "Workload",
                    "name": "w",
                    "uid": "w-uid",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "provisioningClassName": SETTINGS.class_name,
            "podSets": [{"podTemplateRef": {"name": f"ppt-{NAME}-main"}, "count": 3}],
        },
    }
    assert only(decision).state is CheckState.PENDING
    assert NAME in only(decision).message


def test_templates_are_created_for_the_stored_request_until_they_exist() -> None:
    before = facts()
    (new,) = decide(before).create
    stored = replace(before, requests={NAME: stored_request(new.body)})
    (missing,) = decide(stored).templates
    template = missing.body
    assert template["metadata"]["name"] == f"ppt-{NAME}-main"
    assert template["metadata"]["ownerReferences"][0]["uid"] == "pr-uid"
    assert template["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    of_this = frozenset({(f"ppt-{NAME}-main", "pr-uid")})
    assert decide(replace(stored, templates=of_this)).templates == ()
    of_former = frozenset({(f"ppt-{NAME}-main", "another")})
    assert len(decide(replace(stored, templates=of_former)).templates) == 1


def test_a_decision_on_its_own_result_creates_nothing() -> None:
    decision = decide(created(facts()))
    assert (decision.create, decision.templates, decision.delete) == ((), (), ())


def test_without_quota_nothing_is_requested() -> None:
    assert decide(facts(workload(conditions=()))) == ProvisioningDecision()


def test_without_pods_that_use_a_managed_resource_the_check_is_ready() -> None:
    settings = replace(SETTINGS, managed_resources=frozenset({"nvidia.com/gpu"}))
    decision = decide(facts(settings=settings))
    assert (only(decision).state, only(decision).message) == (
        CheckState.READY,
        "the provisioning request is not needed",
    )
    assert decision.create == ()


def test_a_missing_config_keeps_the_check_pending() -> None:
    decision = decide(facts(settings=None))
    assert (only(decision).state, only(decision).message) == (CheckState.PENDING, "the check is not active")
    assert decision.create == ()


def test_an_accepted_request_shows_when_capacity_is_expected() -> None:
    eta = condition(requests.PROVISIONED, value=False, message="ETA: 12:05")
    change = only(after_answer(condition(requests.ACCEPTED, message="accepted"), eta))
    assert (change.state, change.message) == (CheckState.PENDING, "ETA: 12:05")


def test_an_accepted_request_without_progress_shows_its_own_message() -> None:
    change = only(after_answer(condition(requests.ACCEPTED, message="3 nodes are coming")))
    assert (change.state, change.message) == (CheckState.PENDING, "3 nodes are coming")


def test_a_provisioned_request_makes_the_check_ready_and_its_pods_consume_it() -> None:
    change = only(after_answer(PROVISIONED))
    assert change.state is CheckState.READY
    assert change.pod_set_updates == (
        {
            "name": "main",
            "annotations": {
                "autoscaling.x-k8s.io/consume-provisioning-request": NAME,
                "autoscaling.x-k8s.io/provisioning-class-name": SETTINGS.class_name,
            },
        },
    )


def test_node_labels_come_from_the_details_of_the_request() -> None:
    settings = replace(SETTINGS, node_selector=(("pool", "PoolName"), ("zone", "Absent")))
    before = created(facts(settings=settings))
    change = only(decide(answered(before, PROVISIONED, details={"PoolName": "pool-7", "Other": 3})))
    assert change.pod_set_updates[0]["nodeSelector"] == {"pool": "pool-7"}


def test_a_detail_that_cannot_be_a_label_keeps_the_check_pending_and_is_named() -> None:
    settings = replace(SETTINGS, node_selector=(("pool", "PoolName"),))
    before = created(facts(settings=settings))
    change = only(decide(answered(before, PROVISIONED, details={"PoolName": "a b"})))
    assert change.state is CheckState.PENDING
    assert "provisioningClassDetails[PoolName] cannot be a node label" in change.message
    assert '"a b"' in change.message


def test_all_pod_sets_of_a_merged_one_consume_the_capacity() -> None:
    merged = workload(pod_set("a"), pod_set("b", count=2))
    change = only(after_answer(PROVISIONED, of=merged, merge_policy=MergePolicy.IDENTICAL_TEMPLATES))
    assert [each["name"] for each in change.pod_set_updates] == ["a", "b"]


@pytest.mark.parametrize(("attempt", "seconds"), [pytest.param(1, 60, id="first"), pytest.param(3, 240, id="third")])
def test_a_failed_attempt_is_retried_after_a_growing_delay(attempt: int, seconds: int) -> None:
    change = only(after_answer(FAILED, of=workload(retry_count=attempt - 1)))
    assert change == CheckChange(
        name=CHECK,
        state=CheckState.RETRY,
        message="Retrying after failure: no quota in the cloud",
        requeue_after_seconds=seconds,
    )


def test_the_check_is_rejected_when_no_attempt_is_left() -> None:
    change = only(after_answer(FAILED, of=workload(retry_count=3)))
    assert change.state is CheckState.REJECTED
    assert change.message == messages.no_attempt_left(4, "no quota in the cloud")


def test_a_limit_of_zero_never_retries() -> None:
    assert only(after_answer(FAILED, retries=0)).state is CheckState.REJECTED


def test_a_booking_that_expires_before_admission_is_retried() -> None:
    change = only(after_answer(PROVISIONED, condition(requests.BOOKING_EXPIRED, message="after 10 min")))
    assert (change.state, change.message) == (CheckState.RETRY, "Retrying after booking expired: after 10 min")


def test_a_booking_that_expires_while_other_checks_are_pending_is_retried() -> None:
    ready = workload(state=CheckState.READY)
    assert only(after_answer(PROVISIONED, condition(requests.BOOKING_EXPIRED), of=ready)).state is CheckState.RETRY


def admitted_after(*conditions: dict[str, object]) -> ProvisioningDecision:
    before = created(facts())
    running = workload(state=CheckState.READY, conditions=("QuotaReserved", "Admitted"))
    return decide(answered(replace(before, workload=running), *conditions))


def test_a_booking_that_expires_after_admission_changes_nothing() -> None:
    assert admitted_after(PROVISIONED, condition(requests.BOOKING_EXPIRED)) == ProvisioningDecision()


def test_revoked_capacity_rejects_an_admitted_workload() -> None:
    change = only(admitted_after(PROVISIONED, condition(requests.CAPACITY_REVOKED, message="spot nodes went away")))
    assert (change.state, change.message) == (CheckState.REJECTED, "spot nodes went away")


def test_revoked_capacity_rejects_a_workload_that_is_not_admitted_yet() -> None:
    change = only(after_answer(PROVISIONED, condition(requests.CAPACITY_REVOKED)))
    assert (change.state, change.message) == (CheckState.REJECTED, messages.REVOKED)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(workload(conditions=("QuotaReserved", "Admitted", "Finished")), id="finished"),
        pytest.param(workload(active=False), id="deactivated"),
    ],
)
def test_the_request_of_an_ended_workload_is_deleted_whatever_the_autoscaler_wrote(ended: dict[str, object]) -> None:
    before = created(facts())
    after = answered(replace(before, workload=ended), condition(requests.CAPACITY_REVOKED))
    assert decide(after) == ProvisioningDecision(delete=(NAME,))


def test_the_request_of_a_workload_that_is_being_deleted_is_deleted() -> None:
    going = workload()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert decide(replace(created(facts()), workload=going)) == ProvisioningDecision(delete=(NAME,))


def test_an_eviction_deletes_the_request_unless_the_gate_is_off() -> None:
    evicted = replace(created(facts()), workload=workload(conditions=("QuotaReserved", "Evicted")))
    assert decide(evicted) == ProvisioningDecision(delete=(NAME,))
    assert decide(replace(evicted, delete_when_evicted=False)) == ProvisioningDecision()


def test_the_next_attempt_has_a_request_of_its_own_and_deletes_the_last() -> None:
    again = replace(created(facts()), workload=workload(retry_count=1))
    decision = decide(again)
    assert decision.delete == (NAME,)
    assert [new.body["metadata"]["name"] for new in decision.create] == ["w-prov-2"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(SETTINGS, class_name="other.example.com"), id="class"),
        pytest.param(replace(SETTINGS, parameters={"a": "b"}), id="parameters"),
    ],
)
def test_a_changed_config_replaces_the_request(changed: ProvisioningSettings) -> None:
    before = replace(answered(created(facts()), PROVISIONED), checks={CHECK: changed})
    decision = decide(before)
    assert decision.delete == (NAME,)
    assert only(decision).state is CheckState.PENDING
    assert len(decide(replace(before, requests={})).create) == 1


def test_a_changed_config_leaves_the_request_of_an_admitted_workload() -> None:
    running = workload(state=CheckState.READY, conditions=("QuotaReserved", "Admitted"))
    other = replace(SETTINGS, class_name="other.example.com")
    before = replace(answered(created(facts()), PROVISIONED), checks={CHECK: other}, workload=running)
    assert decide(before) == ProvisioningDecision()


def test_the_request_of_a_check_that_was_removed_is_deleted() -> None:
    gone = workload()
    gone["status"]["admissionChecks"] = []
    assert decide(replace(created(facts()), workload=gone)) == ProvisioningDecision(delete=(NAME,))


def test_a_request_that_is_being_deleted_is_waited_for() -> None:
    before = created(facts())
    going = dict(before.requests[NAME], metadata={**before.requests[NAME]["metadata"], "deletionTimestamp": "now"})
    decision = decide(answered(replace(before, requests={NAME: going}), PROVISIONED))
    assert (decision.create, only(decision).state) == ((), CheckState.PENDING)


def test_a_request_of_another_owner_is_neither_used_nor_deleted() -> None:
    foreign = {"metadata": {"name": NAME, "uid": "x"}, "spec": {}, "status": {"conditions": [PROVISIONED]}}
    decision = decide(replace(facts(), requests={NAME: foreign}))
    assert (decision.delete, decision.create) == ((), ())
    assert (only(decision).state, only(decision).message) == (CheckState.PENDING, messages.taken(NAME))


def test_a_request_of_a_former_workload_of_the_same_name_is_not_used() -> None:
    before = answered(created(facts()), PROVISIONED)
    newer = workload()
    newer["metadata"]["uid"] = "another"
    assert only(decide(replace(before, workload=newer))).message == messages.taken(NAME)


def test_a_request_of_a_former_workload_that_a_finalizer_keeps_is_waited_for() -> None:
    before = answered(created(facts()), PROVISIONED)
    going = dict(before.requests[NAME], metadata={**before.requests[NAME]["metadata"], "deletionTimestamp": "now"})
    newer = workload()
    newer["metadata"]["uid"] = "another"
    decision = decide(replace(before, workload=newer, requests={NAME: going}))
    assert (decision.create, decision.delete, decision.blocked) == ((), (), False)
    assert only(decision).message == only(decide(facts())).message


@pytest.mark.parametrize("state", [CheckState.RETRY, CheckState.REJECTED])
def test_a_check_whose_outcome_was_written_is_left_alone(state: CheckState) -> None:
    before = answered(created(facts()), FAILED)
    assert decide(replace(before, workload=workload(state=state))) == ProvisioningDecision()


def test_five_hundred_parameters_of_a_tenant_reject_the_check_with_the_number() -> None:
    many = {f"provreq.kueue.x-k8s.io/p{number}": "x" for number in range(500)}
    decision = decide(facts(workload(annotations=many)))
    assert only(decision).state is CheckState.REJECTED
    assert "at most 100" in only(decision).message
    assert "found 500" in only(decision).message
    assert decision.create == ()


def test_a_parameter_that_is_too_long_rejects_the_check_and_is_quoted_in_part() -> None:
    long = {"provreq.kueue.x-k8s.io/p": "\x1b[2J" + "x" * 100_000}
    change = only(decide(facts(workload(annotations=long))))
    assert change.state is CheckState.REJECTED
    assert len(change.message) < 400
    assert "\x1b" not in change.message


@pytest.mark.parametrize(
    "status",
    [
        pytest.param("text", id="no object"),
        pytest.param({"conditions": "Provisioned"}, id="no list"),
        pytest.param({"conditions": [None, 3, {"type": "Provisioned"}]}, id="no conditions"),
        pytest.param({"conditions": [PROVISIONED], "provisioningClassDetails": [1]}, id="no details"),
    ],
)
def test_a_status_of_another_shape_counts_as_no_answer_or_without_details(status: object) -> None:
    settings = replace(SETTINGS, node_selector=(("pool", "PoolName"),))
    before = created(facts(settings=settings))
    change = only(decide(replace(before, requests={NAME: {**before.requests[NAME], "status": status}})))
    ready = isinstance(status, dict) and "provisioningClassDetails" in status
    assert change.state is (CheckState.READY if ready else CheckState.PENDING)


def test_a_long_message_of_the_autoscaler_is_cut() -> None:
    change = only(after_answer(condition(requests.ACCEPTED, message="x" * 100_000)))
    assert len(change.message) < 5000


def test_a_delegated_check_makes_no_request_here() -> None:
    found = decide(replace(facts(), delegated=True))
    assert (found.create, found.changes) == ((), ())


def test_a_delegated_check_that_needs_nothing_is_ready_and_one_with_bad_parameters_is_rejected() -> None:
    nothing = replace(facts(), delegated=True, checks={CHECK: replace(SETTINGS, managed_resources=frozenset({"gpu"}))})
    assert [change.state for change in decide(nothing).changes] == [CheckState.READY]
    bad = replace(facts(workload(annotations={"provreq.kueue.x-k8s.io/a": "x" * 300})), delegated=True)
    assert [change.state for change in decide(bad).changes] == [CheckState.REJECTED]


def test_a_request_from_before_the_check_was_delegated_is_deleted() -> None:
    (new,) = decide(facts()).create
    stored = {**new.body, "metadata": {**new.body["metadata"], "uid": "r1"}}
    left = replace(facts(), delegated=True, requests={new.body["metadata"]["name"]: stored})
    assert decide(left).delete == (new.body["metadata"]["name"],)
