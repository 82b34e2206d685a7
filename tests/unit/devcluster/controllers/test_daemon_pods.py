# SPDX-License-Identifier: Apache-2.0
"""The pods of a DaemonSet and the revisions of its template."""

from __future__ import annotations

from devcluster.controllers import daemon_pods, daemon_revisions
from devcluster.controllers.placement import NodeInfo, select_node
from devcluster.controllers.pod_info import pod_info_of
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers.app_builders import app


def daemon_set(version: str = "1", **pod: object) -> JsonObject:
    made = app("daemons", version=version)
    made["metadata"]["annotations"] = {daemon_pods.GENERATION: "3", "kubernetes.io/change-cause": version}
    made["spec"]["template"]["spec"] |= pod
    return made


def revision(version: str, number: int) -> JsonObject:
    found = daemon_revisions.new_revision(daemon_set(version), number)
    found["metadata"]["name"] = f"web-v{number}"
    return found


def test_a_pod_is_made_for_a_node_and_bound_by_the_scheduler() -> None:
    made = daemon_pods.pod_for(daemon_set(), "b", revision="hash")
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["generateName"] == "web-"
    assert metadata["labels"] == {"app": "web", "controller-revision-hash": "hash", "pod-template-generation": "3"}
    assert "nodeName" not in spec
    assert daemon_pods.node_of(made) == "b"
    cordoned = {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], "unschedulable": True}
    allocatable = {"status": {"allocatable": {"pods": "9"}}}
    nodes = [NodeInfo.of({"metadata": {"name": name}, "spec": cordoned, **allocatable}) for name in "abc"]
    assert select_node(pod_info_of(made), nodes) == "b"


def test_required_node_affinity_is_replaced_and_other_affinity_kept() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    preferred = [{"weight": 1, "preference": {}}]
    by_node = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    affinity = {"nodeAffinity": by_node, "podAntiAffinity": {"kept": "yes"}}
    of = daemon_set(affinity=affinity)
    found = daemon_pods.pod_for(of, "b", revision="x")["spec"]["affinity"]
    assert found["podAntiAffinity"] == {"kept": "yes"}
    assert found["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    terms = found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]
    assert of["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] == by_node


def test_a_toleration_that_is_limited_in_time_is_replaced_in_its_place() -> None:
    limited = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    own = {"key": "gpu", "operator": "Exists"}
    tolerations = [{**limited, "tolerationSeconds": 5}, own]
    found = daemon_pods.spec_of(daemon_set(tolerations=tolerations))["tolerations"]
    assert found[:2] == [limited, own]
    assert len(found) == 7
    assert len(daemon_pods.spec_of(daemon_set(hostNetwork=True))["tolerations"]) == 7


def test_a_pod_has_the_current_template_by_hash_or_generation() -> None:
    def labelled(hashed: str, generation: str) -> JsonObject:
        labels = {"controller-revision-hash": hashed, "pod-template-generation": generation}
        return {"metadata": {"labels": labels}}

    of = daemon_set()
    pods = [labelled("new", "1"), labelled("old", "3"), labelled("old", "1"), {"metadata": {}}]
    assert [daemon_pods.is_updated(of, pod, revision="new") for pod in pods] == [True, True, False, False]


def test_a_generation_that_is_no_number_is_left_out() -> None:
    of = daemon_set()
    of["metadata"]["annotations"][daemon_pods.GENERATION] = "x"
    assert "pod-template-generation" not in daemon_pods.pod_for(of, "b", revision="x")["metadata"]["labels"]


def test_a_new_revision_has_the_annotations_of_the_daemon_set() -> None:
    history = daemon_revisions.history_of(daemon_set("3"), [revision("2", 2), revision("1", 1)])
    assert (history.current, history.number) == (None, 3)
    made = daemon_revisions.new_revision(daemon_set("3"), history.number)
    hashed = daemon_revisions.hash_of(made)
    assert made["metadata"]["name"] == f"web-{hashed}"
    assert made["metadata"]["labels"] == {"app": "web", "controller-revision-hash": hashed}
    assert made["metadata"]["annotations"]["kubernetes.io/change-cause"] == "3"
    assert made["data"]["spec"]["template"]["$patch"] == "replace"


def test_the_keys_of_a_revision_are_in_order() -> None:
    data = daemon_revisions.new_revision(daemon_set(hostNetwork=True, affinity={}), 1)["data"]
    assert list(data["spec"]["template"]) == ["$patch", "metadata", "spec"]
    assert list(data["spec"]["template"]["spec"]) == ["affinity", "containers", "hostNetwork"]


def test_a_template_that_comes_back_gets_the_highest_number() -> None:
    history = daemon_revisions.history_of(daemon_set("1"), [revision("2", 2), revision("1", 1)])
    assert history.current == revision("1", 1)
    assert (history.number, history.old) == (3, (revision("2", 2),))


def test_of_two_revisions_of_a_template_the_newer_is_kept() -> None:
    history = daemon_revisions.history_of(daemon_set("1"), [revision("1", 3), revision("1", 1), revision("2", 2)])
    assert (history.current, history.duplicates) == (revision("1", 3), (revision("1", 1),))


def test_another_hash_follows_a_collision() -> None:
    collided = {**daemon_set(), "status": {"collisionCount": 1}}
    first, second = (daemon_revisions.new_revision(each, 1)["metadata"]["name"] for each in (daemon_set(), collided))
    assert first != second


def test_old_revisions_of_pods_stay_and_count_against_the_limit() -> None:
    old = [revision(str(number), number) for number in range(1, 5)]
    used = {daemon_revisions.hash_of(old[0])}
    found = daemon_revisions.outdated(old, limit=2, used=used)
    assert [each["revision"] for each in found] == [2, 3]
    assert daemon_revisions.outdated(old, limit=4, used=used) == []
