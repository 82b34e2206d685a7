# SPDX-License-Identifier: Apache-2.0
"""The next step of a DaemonSet: which nodes get pods, which pods go, and what the status counts."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.controllers import daemon_facts, daemon_pods, daemon_set_sync
from devcluster.controllers.daemon_set_sync import DaemonSetPlan
from devcluster.controllers.failure_pauses import FailurePauses
from devcluster.controllers.set_revisions import REVISION_LABEL
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers import app_builders
from tests.unit.devcluster.controllers.app_builders import NOW, app

GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def daemon_set(status: JsonObject | None = None, *, pod: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A DaemonSet of the template's generation 2."""
    limits = {"maxUnavailable": spec.pop("unavailable", 1), "maxSurge": spec.pop("surge", 0)}
    made = app("daemons", status, **{"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": limits}, **spec})
    made["metadata"]["annotations"] = {daemon_pods.GENERATION: "2"}
    made["spec"]["template"]["spec"] |= pod or {}
    return made


def node(name: str, *, labels: JsonObject | None = None, taints: list[JsonObject] | None = None) -> JsonObject:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}}


def pod(name: str, on: str = "a", *, version: int = 2, bound: bool = True, **more: Any) -> JsonObject:
    """A pod of a version of the template; `bound` to its node or only meant for it."""
    found = app_builders.pod(name, node=on if bound else "", **more)
    found["metadata"]["labels"] |= {REVISION_LABEL: f"v{version}", daemon_pods.GENERATION_LABEL: str(version)}
    found["spec"]["affinity"] = daemon_pods.pod_for(daemon_set(), on, revision="x")["spec"]["affinity"]
    return found


def plan(of: JsonObject, *pods: JsonObject, nodes: list[JsonObject] | None = None, **more: Any) -> DaemonSetPlan:
    known = [node("a"), node("b")] if nodes is None else nodes
    facts = daemon_facts.facts_of(of, pods, known, revision="v2", now=NOW)
    return daemon_set_sync.plan(facts, **more)


def names(pods: list[JsonObject]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def test_each_node_without_a_pod_gets_one() -> None:
    found = plan(daemon_set(), pod("one"))
    assert (found.create, found.delete) == (["b"], [])
    assert found.status == {
        "observedGeneration": 1,
        "desiredNumberScheduled": 2,
        "currentNumberScheduled": 1,
        "numberMisscheduled": 0,
        "numberReady": 1,
        "numberAvailable": 1,
        "numberUnavailable": 1,
        "updatedNumberScheduled": 1,
    }


@pytest.mark.parametrize(
    ("spec", "of", "wanted"),
    [
        pytest.param({}, node("a"), ["a"], id="any"),
        pytest.param({}, node("a", taints=[GPU]), [], id="not one with a taint"),
        pytest.param({}, node("a", taints=[{**GPU, "effect": "PreferNoSchedule"}]), ["a"], id="one that only asks"),
        pytest.param(
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            node("a", taints=[GPU]),
            ["a"],
            id="a tolerated one",
        ),
        pytest.param({"nodeSelector": {"zone": "east"}}, node("a"), [], id="not one without the label"),
        pytest.param({"nodeSelector": {"zone": "east"}}, node("a", labels={"zone": "east"}), ["a"], id="one with it"),
        pytest.param({"nodeName": "b"}, node("a"), [], id="not another than the named one"),
        pytest.param(
            {},
            node("a", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            ["a"],
            id="a cordoned one",
        ),
        pytest.param(
            {},
            node("a", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
            [],
            id="not one that is not ready",
        ),
        pytest.param(
            {},
            node("a", taints=[{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]),
            [],
            id="not one without a network",
        ),
        pytest.param(
            {"hostNetwork": True},
            node("a", taints=[{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]),
            ["a"],
            id="one without a network that needs none",
        ),
    ],
)
def test_nodes_are_eligible(spec: JsonObject, of: JsonObject, wanted: list[str]) -> None:
    assert plan(daemon_set(pod=spec), nodes=[of]).create == wanted


def test_pods_stay_on_a_node_that_only_new_ones_must_avoid() -> None:
    found = plan(daemon_set(), pod("one"), nodes=[node("a", taints=[GPU])])
    assert (found.delete, found.status["numberMisscheduled"], found.status["desiredNumberScheduled"]) == ([], 1, 0)


def test_pods_leave_a_node_that_does_not_suit_them() -> None:
    tainted = [node("a", taints=[{**GPU, "effect": "NoExecute"}])]
    assert names(plan(daemon_set(), pod("one"), pod("two", deleting=True), nodes=tainted).delete) == ["one"]


def test_a_pod_that_waits_for_a_node_that_is_gone_is_deleted() -> None:
    pods = [pod("bound", "c"), pod("waits", "c", bound=False, ready=False)]
    assert names(plan(daemon_set(), *pods, nodes=[]).delete) == ["waits"]


def test_of_two_pods_on_a_node_the_younger_goes() -> None:
    pods = [pod("young", age=10), pod("old", age=60), pod("waits", age=90, bound=False), pod("other", "b")]
    assert names(plan(daemon_set(), *pods).delete) == ["young", "waits"]


def test_a_node_whose_pod_is_being_deleted_gets_none_yet() -> None:
    assert plan(daemon_set(), pod("one", deleting=True), pod("two", "b")).create == []
    gone = pod("one", phase="Failed", deleting=True, ready=False)
    assert plan(daemon_set(), gone, pod("two", "b")).create == ["a"]


def test_pods_that_ended_are_deleted_unless_their_node_is_held() -> None:
    pods = [pod("failed", phase="Failed", ready=False), pod("done", "b", phase="Succeeded", ready=False)]
    found = plan(daemon_set(), *pods)
    assert ([node for node, _ in found.failed], [node for node, _ in found.succeeded]) == (["a"], ["b"])
    assert plan(daemon_set(), *pods, held={"a"}).failed == []


def test_one_failed_pod_of_a_node_is_deleted_at_a_time() -> None:
    pods = [pod(name, phase="Failed", ready=False) for name in ("one", "two")]
    assert [each["metadata"]["name"] for _, each in plan(daemon_set(), *pods).failed] == ["one"]


def test_a_pod_is_available_only_after_its_time() -> None:
    found = plan(daemon_set(minReadySeconds=30), pod("one", since=10), nodes=[node("a")])
    assert (found.after, found.status["numberReady"], found.status["numberUnavailable"]) == (20.0, 1, 1)


@pytest.mark.parametrize(
    ("unavailable", "pods", "deleted"),
    [
        pytest.param(1, [pod("one", version=1), pod("two", "b", version=1)], ["one"], id="one at a time"),
        pytest.param("51%", [pod("one", version=1), pod("two", "b", version=1)], ["one", "two"], id="rounded up"),
        pytest.param(1, [pod("one"), pod("two", "b", version=1)], ["two"], id="the next when the new one is available"),
        pytest.param(1, [pod("one", ready=False), pod("two", "b", version=1)], [], id="none before"),
        pytest.param(1, [pod("one", deleting=True), pod("two", "b", version=1)], [], id="none while one goes"),
        pytest.param(
            1,
            [pod("one", version=1), pod("two", "b", version=1, ready=False)],
            ["two"],
            id="those that are not available, which count",
        ),
        pytest.param(
            1,
            [pod("one", version=1, ready=False), pod("two", "b", version=1, ready=False)],
            ["one", "two"],
            id="all that are not available",
        ),
    ],
)
def test_old_pods_are_deleted(unavailable: int | str, pods: list[JsonObject], deleted: list[str]) -> None:
    found = plan(daemon_set(unavailable=unavailable), *pods)
    assert (names(found.delete), found.create) == (deleted, [])


@pytest.mark.parametrize(
    ("pods", "created", "deleted"),
    [
        pytest.param([pod("one", version=1), pod("two", "b", version=1)], ["a"], [], id="one more at a time"),
        pytest.param(
            [pod("one", version=1), pod("new"), pod("two", "b", version=1)],
            [],
            ["one"],
            id="an old one goes when the new one is available",
        ),
        pytest.param(
            [pod("one", version=1), pod("new", ready=False), pod("two", "b", version=1)], [], [], id="and not before"
        ),
        pytest.param(
            [pod("one", version=1, ready=False), pod("two", "b", version=1)],
            ["a", "b"],
            [],
            id="also where the old one is not available, which does not count",
        ),
        pytest.param(
            [pod("one", version=1, ready=False), pod("new", ready=False), pod("two", "b")],
            [],
            ["one"],
            id="an old one that is not ready goes at once",
        ),
        pytest.param(
            [pod("one", age=60), pod("new", age=50, ready=False), pod("two", "b")],
            [],
            ["new"],
            id="two of the current template are one too many",
        ),
    ],
)
def test_a_surge(pods: list[JsonObject], created: list[str], deleted: list[str]) -> None:
    found = plan(daemon_set(surge=1, unavailable=0), *pods)
    assert (found.create, names(found.delete)) == (created, deleted)


def test_pods_are_left_to_their_user_with_on_delete() -> None:
    found = plan(daemon_set(updateStrategy={"type": "OnDelete"}), pod("one", version=1), pod("two", "b"))
    assert (found.create, found.delete, found.status["updatedNumberScheduled"]) == ([], [], 1)


def test_a_rollout_waits_for_missing_pods() -> None:
    assert plan(daemon_set(), pod("one", version=1)).delete == []


def test_the_status_keeps_what_others_count() -> None:
    assert plan(daemon_set({"collisionCount": 3})).status["collisionCount"] == 3


def test_pauses_double_and_are_forgotten() -> None:
    pauses: FailurePauses[str] = FailurePauses()
    assert pauses.left("a", 0.0) is None
    pauses.begin("a", 0.0)
    assert (pauses.left("a", 0.25), pauses.left("a", 1.0), pauses.left("b", 0.25)) == (0.75, None, None)
    pauses.begin("a", 5.0)
    assert (pauses.left("a", 5.0), pauses.left("a", 7.0)) == (2.0, None)
    pauses.begin("a", 5000.0)
    assert pauses.left("a", 5000.0) == 1.0
