# SPDX-License-Identifier: Apache-2.0
"""What a plan changes of the condition PodsStarted, and of the places of pods that run elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.dispatch.workload_status import PlanChange
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.dispatch.hub.actions import ChangeUpdate, CheckUpdate, DispatchPlan, Finish, Rule, StartUpdate
from tests.unit.manager.builders import NOW, check, reserved, with_checks

SHOWN = changes.pods_started(with_checks(reserved(), check("mk")), reason="FailedCreate", message="m", now=NOW)


def reason_after(plan: DispatchPlan, before: Status = SHOWN) -> str | None:
    """The reason of PodsStarted once the plan was written; None without the condition."""
    found = PlanChange(plan, check="mk", planned_for=before, now=NOW)(before).condition(WorkloadCondition.PODS_STARTED)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("plan", "want"),
    [
        pytest.param(
            DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate("Unschedulable", "n")),
            "Unschedulable",
            id="another reason",
        ),
        pytest.param(DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate()), None, id="a pod has started"),
        pytest.param(DispatchPlan(rule=Rule.GRANT_AT_ONCE, cluster_name="w2"), None, id="another cluster gets it"),
        pytest.param(DispatchPlan(rule=Rule.REMOTE_FINISHED, finish=Finish("Succeeded", "")), None, id="it has ended"),
        pytest.param(
            DispatchPlan(rule=Rule.PODS_NOT_STARTED, check=CheckUpdate(CheckState.RETRY, "x")),
            "FailedCreate",
            id="the reason stays while it is sent again",
        ),
    ],
)
def test_the_condition_after_a_plan(plan: DispatchPlan, want: str | None) -> None:
    assert reason_after(plan) == want


@pytest.mark.parametrize(
    ("plan", "want"),
    [
        pytest.param(
            DispatchPlan(rule=Rule.GRANTED, change_forwarded=ChangeUpdate("Other", "n")), "Other", id="another"
        ),
        pytest.param(DispatchPlan(rule=Rule.GRANTED, change_forwarded=ChangeUpdate()), None, id="it was made"),
        pytest.param(DispatchPlan(rule=Rule.GRANT_AT_ONCE, cluster_name="w2"), None, id="another cluster gets it"),
        pytest.param(DispatchPlan(rule=Rule.GRANTED), "ForbiddenByPolicy", id="it stays"),
    ],
)
def test_a_change_that_is_not_made_after_a_plan(plan: DispatchPlan, want: str | None) -> None:
    before = changes.change_forwarded(SHOWN, reason="ForbiddenByPolicy", message="m", now=NOW)
    after = PlanChange(plan, check="mk", planned_for=before, now=NOW)(before)
    found = after.condition(WorkloadCondition.CHANGE_FORWARDED)
    assert (None if found is None else found.reason) == want


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(CheckState.READY, ("Ready", True), id="is admitted once a cluster has its pods"),
        pytest.param(CheckState.PENDING, ("Pending", False), id="waits until then"),
    ],
)
def test_a_workload_whose_places_are_found_elsewhere(state: CheckState, want: tuple[str, bool]) -> None:
    assignment = {"name": "main", "delayedTopologyRequest": "Pending"}
    held = replace(reserved(), admission={"clusterQueue": "cq", "podSetAssignments": [assignment]})
    before = with_checks(held, check("mk"))
    plan = DispatchPlan(rule=Rule.GRANTED, check=CheckUpdate(state, "x"))
    after = PlanChange(plan, check="mk", planned_for=before, now=NOW)(before)
    assert after.admission is not None
    (found,) = after.admission["podSetAssignments"]
    assert (found["delayedTopologyRequest"], after.is_true(WorkloadCondition.ADMITTED)) == want


def test_a_check_that_is_ready_before_another_one_has_places_but_is_not_admitted() -> None:
    assignment = {"name": "main", "delayedTopologyRequest": "Pending"}
    held = replace(reserved(), admission={"clusterQueue": "cq", "podSetAssignments": [assignment]})
    before = with_checks(held, check("mk"), check("other"))
    plan = DispatchPlan(rule=Rule.GRANTED, check=CheckUpdate(CheckState.READY, "x"))
    after = PlanChange(plan, check="mk", planned_for=before, now=NOW)(before)
    assert after.admission is not None
    assert after.admission["podSetAssignments"][0]["delayedTopologyRequest"] == "Ready"
    assert not after.is_true(WorkloadCondition.ADMITTED)
