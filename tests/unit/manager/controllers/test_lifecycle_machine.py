# SPDX-License-Identifier: Apache-2.0
"""Some steps of the lifecycle's state machine; `python -m tests.simulation.lifecycle` takes ten thousand and more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manager.provisioning import controller as provisioning_controller
from manager.provisioning.execution import ProvisioningExecutor
from manager.workload import changes
from multikueue.provisioning import decision as provisioning_decision
from tests.simulation.lifecycle.hub import Violation
from tests.simulation.lifecycle.machine import Lifecycle, play
from tests.simulation.lifecycle.world import LifecycleManager


def test_no_invariant_is_violated_in_some_steps() -> None:
    assert play(steps=400, number=1) >= 400


def started() -> Lifecycle:
    """One Job with quota whose check is Pending."""
    found = Lifecycle()
    found.submit("j0", "a", 1, None, None)
    found.manager_does_everything()
    return found


def test_the_machine_sees_a_decision_that_forgets_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = started()
    found.answer(0, 0, "Ready", None)
    original = changes.sync_checks
    monkeypatch.setattr(changes, "sync_checks", lambda status, required, now: original(status, (), now=now))
    with pytest.raises(Violation, match="admitted without"):
        found.manager_does_everything()


def test_the_machine_sees_quota_that_is_not_counted() -> None:
    found = started()
    (key,) = found.hub.workloads
    found.manager.engine.delete_workload(key, found.hub.now)
    with pytest.raises(Violation, match="ClusterQueue a: reserved"):
        found.manager.check_quota()


def test_a_running_workload_that_gets_another_check_in_a_held_queue_is_evicted_before_its_quota_is_free() -> None:
    found = Lifecycle()
    found.change_checks("a", [])
    found.submit("j0", "a", 1, None, None)
    found.manager_does_everything()
    found.pods_run(0, True)
    found.change_checks("a", ["second"])
    found.stop_cluster_queue("a", "Hold")
    found.manager_does_everything()
    (workload,) = found.hub.workloads.values()
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    assert conditions["Evicted"]["reason"] == "ClusterQueueStopped"
    assert conditions["QuotaReserved"]["status"] == "True", "its pods run"
    found.pods_are_gone(0)
    found.manager_does_everything()
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    assert conditions["QuotaReserved"]["status"] == "False"


def asked() -> Lifecycle:
    """One Job with quota whose capacity is requested."""
    found = Lifecycle()
    found.start(("a",))
    assert len(found.hub.capacity.requests()) == 1
    return found


def test_the_machine_reaches_the_last_attempt_and_a_new_first_one() -> None:
    found = asked()
    found.autoscaler_and_manager_take_turns(0, ["Failed", "Failed", "Failed"], 101)
    assert [found.hub.capacity.met[f"attempt {each}"] for each in (1, 2, 3)] == [1, 1, 1]
    assert found.hub.capacity.requests() == []
    found.activate(0, True)
    found.autoscaler_and_manager_take_turns(0, ["Provisioned", "CapacityRevoked"], 1)
    assert found.hub.capacity.met["attempt 1"] == 2
    assert found.hub.capacity.requests() == []


@pytest.mark.parametrize("config", [True, False], ids=["that asks again", "whose check has no config any more"])
def test_the_request_of_a_workload_goes_with_it_although_another_has_its_name_now(config: bool) -> None:
    found = asked()
    former = found.hub.capacity.requests()[0]["metadata"]["uid"]
    if not config:
        found.config_is_deleted()
    found.delete_workload(0)
    found.manager_does_everything()
    uids = [each["metadata"]["uid"] for each in found.hub.capacity.requests()]
    assert former not in uids
    assert len(uids) == config


@pytest.mark.parametrize("answer", ["Failed", "BookingExpired", "Provisioned"])
def test_an_answer_counts_although_a_template_cannot_be_made(answer: str) -> None:
    found = asked()
    found.a_user_deletes_a_template(0)
    found.another_takes_a_name(0, template=True)
    found.autoscaler_answers(0, answer, "by the test", None)
    found.manager_does_everything()
    (workload,) = found.hub.workloads.values()
    true = {each["type"] for each in workload["status"]["conditions"] if each["status"] == "True"}
    assert ("Admitted" in true) == (answer == "Provisioned")
    assert workload["status"]["admissionChecks"][0].get("retryCount") == (None if answer == "Provisioned" else 1)


def test_a_check_whose_capacity_is_revoked_keeps_its_updates_until_the_eviction() -> None:
    found = asked()
    found.autoscaler_and_manager_take_turns(0, ["Provisioned"], 1)
    (workload,) = found.hub.workloads.values()
    updates = workload["status"]["admissionChecks"][0]["podSetUpdates"]
    found.autoscaler_answers(0, "CapacityRevoked", "", None)
    found.manager.capacity.catch_up()
    found.manager.capacity.reconcile()
    (entry,) = workload["status"]["admissionChecks"]
    assert (entry["state"], entry["podSetUpdates"]) == ("Rejected", updates)
    assert found.hub.jobs["j0"]["spec"]["template"]["spec"]["nodeSelector"] == {"example.com/pool": "p"}
    found.manager_does_everything()
    assert "podSetUpdates" not in workload["status"]["admissionChecks"][0]


def test_the_machine_sees_a_request_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = provisioning_decision.decide
    monkeypatch.setattr(provisioning_controller, "decide", lambda facts: replace(decide(facts), delete=()))
    found = asked()
    found.activate(0, False)
    with pytest.raises(Violation, match="is left, its Workload is deactivated"):
        found.manager_does_everything()


def test_the_machine_sees_a_booking_whose_end_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = provisioning_decision._answered

    def ignores(check: str, request: Any, *more: Any) -> Any:
        conditions = (request.get("status") or {}).get("conditions") or ()
        others = [each for each in conditions if each["type"] != "BookingExpired"]
        return answered(check, {**request, "status": {"conditions": others}}, *more)

    found = asked()
    monkeypatch.setattr(provisioning_decision, "_answered", ignores)
    found.change_checks("a", ["capacity", "first"])
    with pytest.raises(Violation, match="BookingExpired"):
        found.autoscaler_and_manager_take_turns(0, ["Provisioned", "BookingExpired"], 1)


def test_the_machine_sees_templates_that_are_not_made_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgets(executor: ProvisioningExecutor, body: object) -> None:
        pass

    found = asked()
    found.a_user_deletes_a_template(0)
    monkeypatch.setattr(ProvisioningExecutor, "_create_template", forgets)
    with pytest.raises(Violation, match="is missing or that of another request"):
        found.manager_does_everything()


def test_the_machine_sees_two_requests_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keeps(executor: ProvisioningExecutor, request: object) -> None:
        pass

    monkeypatch.setattr(ProvisioningExecutor, "delete", keeps)
    found = asked()
    with pytest.raises(Violation, match=r"request .*-2 beside .*-1|is left"):
        found.autoscaler_and_manager_take_turns(0, ["Failed", "Failed"], 101)


def test_a_violation_is_raised_with_the_steps_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LifecycleManager, "round", lambda manager: True)
    with pytest.raises(Violation, match="still writing") as caught:
        play(steps=100, number=1, length=5)
    assert "state = Lifecycle()" in "\n".join(caught.value.__notes__)
