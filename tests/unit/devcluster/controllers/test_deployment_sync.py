# SPDX-License-Identifier: Apache-2.0
"""The next step of a Deployment: sizes of its ReplicaSets, revisions, history, conditions."""

from __future__ import annotations

import pytest

from devcluster.controllers import deployment_sync
from devcluster.controllers.deployment_sync import DeploymentPlan
from devcluster.controllers.revision_sets import HISTORY, REVISION
from devcluster.controllers.rollout_sizes import RolloutLimits
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers.app_builders import NOW, ago, deployment, pod, replica_set


def plan(of: JsonObject, *sets: JsonObject, pods: list[JsonObject] | None = None) -> DeploymentPlan:
    owned = {each["metadata"]["uid"]: pods or [] for each in sets}
    return deployment_sync.plan(of, sets, pods=owned, now=NOW)


def sizes(found: DeploymentPlan) -> dict[str, int]:
    """The new sizes of ReplicaSets that change, by the image of their template."""
    return {each.value["spec"]["template"]["spec"]["containers"][0]["image"]: each.replicas for each in found.change}


def reason(found: DeploymentPlan, type_: str = "Progressing") -> str:
    return next((each["reason"] for each in found.status["conditions"] if each["type"] == type_), "")


def test_a_new_deployment_creates_a_replica_set_of_its_size() -> None:
    found = plan(deployment())
    assert found.create is not None
    assert (found.create.replicas, found.create.annotations[REVISION], found.revision) == (3, "1", "1")
    assert reason(found) == "NewReplicaSetCreated"


@pytest.mark.parametrize(
    ("surge", "unavailable", "limits"),
    [
        pytest.param("25%", "25%", (1, 0), id="percentages are rounded up and down"),
        pytest.param(0, 0, (0, 1), id="one of them is at least one"),
        pytest.param(2, 9, (2, 3), id="no more can be unavailable than are wanted"),
    ],
)
def test_limits_are_read(surge: int | str, unavailable: int | str, limits: tuple[int, int]) -> None:
    found = RolloutLimits.of(deployment(surge=surge, unavailable=unavailable))
    assert (found.surge, found.unavailable) == limits


def test_a_rollout_begins_with_the_surge() -> None:
    found = plan(deployment(version="2"), replica_set("1", 3))
    assert found.create is not None
    assert (found.create.replicas, found.create.annotations[REVISION]) == (1, "2")


def test_old_pods_go_as_far_as_enough_stay_available() -> None:
    found = plan(deployment(version="2"), replica_set("1", 3), replica_set("2", 1, available=0, revision=2, age=1))
    assert sizes(found) == {"1": 2}


def test_old_pods_that_are_not_available_go_first() -> None:
    sets = [
        replica_set("1", 2, age=300),
        replica_set("2", 1, available=0, revision=2, age=200),
        replica_set("3", 1, revision=3, age=1),
    ]
    assert sizes(plan(deployment(version="3"), *sets)) == {"1": 1, "2": 0}


def test_new_pods_follow_when_old_ones_are_gone() -> None:
    found = plan(deployment(version="2"), replica_set("1", 2), replica_set("2", 1, revision=2, age=1))
    assert sizes(found) == {"2": 2}


def test_a_template_that_comes_back_is_the_newest_revision() -> None:
    sets = [replica_set("1", 0, age=300), replica_set("2", 3, revision=2, age=100)]
    found = plan(deployment(version="1"), *sets)
    (back,) = [each for each in found.change if each.replicas]
    assert (back.annotations[REVISION], back.annotations[HISTORY], found.revision) == ("3", "1", "3")
    assert found.create is None


def test_a_scaled_deployment_shares_the_change_among_its_replica_sets() -> None:
    sets = [
        replica_set("1", 8, desired=10, most=13),
        replica_set("2", 5, available=0, revision=2, age=1, desired=10, most=13),
    ]
    found = plan(deployment({"replicas": 13}, version="2", replicas=15, surge=4, unavailable=2), *sets)
    assert sizes(found) == {"1": 12, "2": 7}


def test_a_paused_deployment_is_scaled_only() -> None:
    found = plan(deployment(version="2", paused=True, replicas=5), replica_set("1", 3))
    assert (found.create, sizes(found), reason(found)) == (None, {"1": 5}, "DeploymentPaused")


def test_recreate_waits_for_the_last_old_pod() -> None:
    recreating = deployment(version="2", strategy={"type": "Recreate"})
    assert sizes(plan(recreating, replica_set("1", 3))) == {"1": 0}
    empty = replica_set("1", 0)
    assert plan(recreating, empty, pods=[pod("a", deleting=True)]).create is None
    made = plan(recreating, empty, pods=[pod("a", "Failed", deleting=True)]).create
    assert made is not None
    assert made.replicas == 3


def test_old_replica_sets_beyond_the_history_limit_are_deleted() -> None:
    complete = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
    sets = [replica_set(str(number), 0, revision=number, age=1000 - number) for number in (1, 2, 3)]
    found = plan(deployment(complete, version="4", revisionHistoryLimit=1), *sets, replica_set("4", 3, revision=4))
    assert [each.revision for each in found.delete] == [1, 2]


def progress(seconds: float, why: str = "ReplicaSetUpdated") -> JsonObject:
    times = {"lastUpdateTime": ago(seconds), "lastTransitionTime": ago(seconds)}
    return {"type": "Progressing", "status": "True", "reason": why, "message": "", **times}


@pytest.mark.parametrize(
    ("since", "why", "after"),
    [
        pytest.param(100, "ReplicaSetUpdated", 501.0, id="has time left"),
        pytest.param(601, "ProgressDeadlineExceeded", None, id="is over"),
    ],
)
def test_a_rollout_without_progress_has_a_deadline(since: float, why: str, after: float | None) -> None:
    status = {"replicas": 3, "updatedReplicas": 3, "conditions": [progress(since)]}
    found = plan(deployment(status), replica_set("1", 3, available=0))
    assert (reason(found), found.after) == (why, after)
    assert reason(found, "Available") == "MinimumReplicasUnavailable"


def test_pods_that_become_ready_are_progress() -> None:
    status = {"replicas": 3, "updatedReplicas": 3, "conditions": [progress(599)]}
    found = plan(deployment(status), replica_set("1", 3, available=1))
    (condition,) = [each for each in found.status["conditions"] if each["type"] == "Progressing"]
    assert (condition["lastUpdateTime"], condition["lastTransitionTime"]) == (ago(0), ago(599))


def test_a_complete_rollout_is_available() -> None:
    found = plan(deployment({"conditions": [progress(1)]}), replica_set("1", 3))
    assert (reason(found), reason(found, "Available")) == ("NewReplicaSetAvailable", "MinimumReplicasAvailable")


def test_a_refusal_of_pods_is_shown() -> None:
    refused = replica_set("1", 3, available=0)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no"}
    refused["status"]["conditions"] = [failure]
    assert reason(plan(deployment(), refused), "ReplicaFailure") == "FailedCreate"


def test_a_deployment_that_is_deleted_changes_nothing() -> None:
    gone = deployment(version="2")
    gone["metadata"]["deletionTimestamp"] = ago(0)
    found = plan(gone, replica_set("1", 3))
    assert (found.create, found.change, found.delete) == (None, (), ())
