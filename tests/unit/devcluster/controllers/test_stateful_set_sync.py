# SPDX-License-Identifier: Apache-2.0
"""The next step of a StatefulSet: pods by their ordinal, revisions, claims."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.controllers import set_revisions, stateful_pods, stateful_set_sync
from devcluster.controllers.stateful_set_sync import StatefulSetPlan
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers import app_builders
from tests.unit.devcluster.controllers.app_builders import NOW, app


def stateful_set(status: JsonObject | None = None, **spec: Any) -> JsonObject:
    return app("set", status, **{"updateStrategy": {"type": "RollingUpdate"}, "serviceName": "web", **spec})


def revision(version: str, number: int = 1) -> JsonObject:
    made = set_revisions.update_revision(stateful_set(version=version), []).value
    made["metadata"]["name"] = f"web-v{version}"
    return {**made, "revision": number}


def pod(ordinal: int, version: str = "1", phase: str = "Running", **more: Any) -> JsonObject:
    name = f"web-{ordinal}"
    found = app_builders.pod(name, phase, **more)
    found["metadata"]["labels"] |= {
        **stateful_pods.identity(name, ordinal),
        set_revisions.REVISION_LABEL: f"web-v{version}",
    }
    return found


def plan(of: JsonObject, *pods: JsonObject, current: str = "1", update: str = "1") -> StatefulSetPlan:
    return stateful_set_sync.plan(of, pods, current=revision(current), update=revision(update), now=NOW)


def created(found: StatefulSetPlan) -> list[tuple[int, str]]:
    return [(ordinal, each["metadata"]["name"]) for ordinal, each in found.create]


def names(pods: list[JsonObject]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


@pytest.mark.parametrize(
    ("policy", "pods", "ordinals"),
    [
        pytest.param("OrderedReady", [], [0], id="the first"),
        pytest.param("OrderedReady", [pod(0)], [1], id="the next when the one before is ready"),
        pytest.param("OrderedReady", [pod(0, ready=False)], [], id="none while one is not ready"),
        pytest.param("OrderedReady", [pod(0, phase="Pending", ready=False, node="")], [], id="none behind a gated one"),
        pytest.param("OrderedReady", [pod(0), pod(1, deleting=True)], [], id="none while one is being deleted"),
        pytest.param("Parallel", [pod(1, ready=False)], [0, 2], id="all at once if parallel"),
    ],
)
def test_pods_are_created(policy: str, pods: list[JsonObject], ordinals: list[int]) -> None:
    found = plan(stateful_set(podManagementPolicy=policy), *pods)
    assert [ordinal for ordinal, _ in found.create] == ordinals


def test_a_pod_is_available_only_after_its_time() -> None:
    found = plan(stateful_set(minReadySeconds=30), pod(0, since=10))
    assert (found.create, found.after, found.status["readyReplicas"]) == ([], 20.0, 1)
    assert found.status["availableReplicas"] == 0


def test_pods_are_deleted_from_the_last_one_at_a_time() -> None:
    pods = [pod(number) for number in range(4)]
    assert names(plan(stateful_set(replicas=2), *pods).condemned) == ["web-3"]
    assert names(plan(stateful_set(replicas=2, podManagementPolicy="Parallel"), *pods).condemned) == ["web-3", "web-2"]


def test_no_pod_is_deleted_while_another_is_not_ready() -> None:
    pods = [pod(0), pod(1, ready=False), pod(2)]
    assert plan(stateful_set(replicas=2), *pods).condemned == []
    unhealthy = [pod(0), pod(1), pod(2, ready=False)]
    assert names(plan(stateful_set(replicas=2), *unhealthy).condemned) == ["web-2"]


def test_a_pod_that_ended_is_deleted_to_be_made_again() -> None:
    assert names(plan(stateful_set(), pod(0, phase="Failed", ready=False)).replace) == ["web-0"]


@pytest.mark.parametrize(
    ("strategy", "pods", "updated"),
    [
        pytest.param({}, [pod(0), pod(1), pod(2)], ["web-2"], id="the last first"),
        pytest.param({}, [pod(0), pod(1), pod(2, "2")], ["web-1"], id="then the one before"),
        pytest.param({"partition": 2}, [pod(0), pod(1), pod(2, "2")], [], id="none below the partition"),
    ],
)
def test_pods_are_updated(strategy: JsonObject, pods: list[JsonObject], updated: list[str]) -> None:
    of = stateful_set(version="2", updateStrategy={"type": "RollingUpdate", "rollingUpdate": strategy})
    assert names(plan(of, *pods, update="2").update) == updated


def test_a_parallel_update_waits_for_the_pods_after() -> None:
    of = stateful_set(version="2", podManagementPolicy="Parallel")
    assert plan(of, pod(0), pod(1), pod(2, "2", ready=False), update="2").update == []


def test_pods_are_left_to_their_user_with_on_delete() -> None:
    of = stateful_set(version="2", updateStrategy={"type": "OnDelete"})
    found = plan(of, pod(0), pod(1), update="2")
    assert (found.update, created(found)) == ([], [(2, "web-v2")])


def test_a_missing_pod_below_the_partition_has_the_current_revision() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    of = stateful_set(version="2", updateStrategy=strategy, podManagementPolicy="Parallel")
    assert created(plan(of, pod(2, "2"), update="2")) == [(0, "web-v1"), (1, "web-v2")]


def test_the_update_revision_is_current_once_all_pods_have_it() -> None:
    of = stateful_set(version="2")
    partly = plan(of, pod(0), pod(1), pod(2, "2"), update="2").status
    assert (partly["currentRevision"], partly["updatedReplicas"]) == ("web-v1", 1)
    done = plan(of, *(pod(number, "2") for number in range(3)), update="2").status
    assert (done["currentRevision"], done["currentReplicas"], done["updatedReplicas"]) == ("web-v2", 3, 3)


def test_ordinals_may_start_later() -> None:
    found = plan(stateful_set(ordinals={"start": 5}, podManagementPolicy="Parallel"), pod(4), pod(5))
    assert [ordinal for ordinal, _ in found.create] == [6, 7]
    assert names(found.condemned) == ["web-4"]


def test_a_pod_has_its_names_and_claims() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    of = stateful_set(volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy)
    made = stateful_pods.pod_at(of, 1, revision("1"))
    assert made["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "web-v1",
    }
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("web-1", "web")
    assert made["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}]
    (own,) = stateful_pods.claims_of(of, 1)
    assert (own["metadata"]["name"], own["metadata"]["ownerReferences"][0]["kind"]) == ("data-web-1", "StatefulSet")


def test_a_name_that_is_not_of_the_set_has_no_ordinal() -> None:
    assert stateful_pods.ordinal_of(stateful_set(), app_builders.pod("web-x-1")) is None
    assert stateful_pods.ordinal_of(stateful_set(), app_builders.pod("web-12")) == 12


def test_revisions_are_found_renumbered_and_made() -> None:
    first, second = revision("1"), revision("2", 2)
    back = set_revisions.update_revision(stateful_set(version="1"), [second, first])
    assert (back.value, back.exists, back.number) == (first, True, 3)
    same = set_revisions.update_revision(stateful_set(version="2"), [first, second])
    assert (same.value, same.number) == (second, 2)
    new = set_revisions.update_revision(stateful_set(version="3"), [first, second])
    assert (new.exists, new.number) == (False, 3)


def test_revisions_beyond_the_limit_that_no_pod_has_are_outdated() -> None:
    all_of_them = [revision(str(number), number) for number in range(1, 6)]
    found = set_revisions.outdated_revisions(
        stateful_set(revisionHistoryLimit=1), all_of_them, used=["web-v1", "web-v5"]
    )
    assert names(found) == ["web-v2", "web-v3"]
