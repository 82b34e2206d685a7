# SPDX-License-Identifier: Apache-2.0
"""What workers report of pods, and what tenants send: limited on both sides, and never on pods of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.dispatch.policy.dispatch_policy import DispatchSubject
from multikueue.jobs.framework.protocol import PodSetInfo, RemoteIdentity
from multikueue.jobs.kinds.pod import PodIntegration
from multikueue.jobs.kinds.pod_group import role_of
from multikueue.jobs.kinds.remote_pods import MAX_PODS, MAX_STATUS_BYTES
from worker_agent.local.remote_group import members_of

Object = dict[str, Any]
K = "kueue.x-k8s.io/"
PODS = PodIntegration()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = RemoteIdentity(
    workload_name="g", origin="multikueue", epoch=1, manager_uid="hub", cluster="east", assignment="g-1"
)


def pod(name: str, *, total: int = 2, namespace: str = "team") -> Object:
    """A gated pod of the group `g`."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {K + "pod-group-name": "g", K + "managed": "true"},
            "annotations": {K + "pod-group-total-count": str(total)},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u"}],
            "finalizers": [K + "managed"],
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": K + "admission"}]},
        "status": {"phase": "Pending"},
    }


def group(count: int = 2) -> Object:
    """The group as one object."""
    return PODS.composed([pod(f"g-{index}", total=count) for index in range(count)])


def reported(*pods: tuple[str, str, Object]) -> Object:
    """What a worker reports of them."""
    return {"pods": [{"name": name, "uid": uid, "status": status} for name, uid, status in pods]}


def sent(count: int = 2) -> Object:
    """The manifest of the group."""
    made = group(count)
    info = PodSetInfo(name=role_of(made["members"][0]), count=count)
    return PODS.remote_manifest(made, (info,), identity=IDENTITY)


def test_a_status_of_a_pod_that_is_not_of_the_group_is_shown_nowhere() -> None:
    status = reported(("other", "uid-other", {"phase": "Failed"}), ("g-0", "uid-other", {"phase": "Failed"}))
    assert PODS.sync_status(group(), status).write is None


def test_a_status_is_written_to_the_named_pod_alone() -> None:
    write = PODS.sync_status(group(), reported(("g-1", "uid-g-1", {"phase": "Running"}))).write
    assert write is not None
    assert write.target is not None
    assert (write.target["metadata"]["name"], write.subresource, write.also) == ("g-1", "status", ())


def test_an_address_of_the_worker_is_not_shown() -> None:
    status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.2"}
    write = PODS.sync_status(group(), reported(("g-0", "uid-g-0", status))).write
    assert write is not None
    assert not {"podIP", "podIPs", "hostIP"} & set(write.body["status"])


def test_containers_that_the_pod_does_not_have_are_not_shown() -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "c"}, {"name": "x"}]}
    write = PODS.sync_status(group(), reported(("g-0", "uid-g-0", status))).write
    assert write is not None
    assert [each["name"] for each in write.body["status"]["containerStatuses"]] == ["c"]


def test_a_huge_status_is_refused_with_its_size() -> None:
    status = {"phase": "Running", "message": "x" * MAX_STATUS_BYTES}
    with pytest.raises(BadInput, match=r"status of pod \"?'?g-0.*expected at most 32768 bytes, found 328\d\d"):
        PODS.sync_status(group(), reported(("g-0", "uid-g-0", status)))


def test_too_many_statuses_are_refused() -> None:
    with pytest.raises(BadInput, match="expected at most 256 statuses, found 257"):
        PODS.sync_status(group(), reported(*((f"g-{n}", "u", {}) for n in range(MAX_PODS + 1))))


@pytest.mark.parametrize(
    "status",
    [[], {}, {"pods": {}}, {"pods": ["x"]}, {"pods": [{"name": "g-0", "status": []}]}],
    ids=["a list", "nothing", "a map of pods", "a text", "a status that is a list"],
)
def test_a_status_of_another_form_is_refused(status: Any) -> None:
    with pytest.raises(BadInput):
        PODS.sync_status(group(), status)


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(BadInput, match="phase: expected one of Failed, Pending"):
        PODS.sync_status(group(), reported(("g-0", "uid-g-0", {"phase": "Gone"})))


def test_an_agent_shortens_a_huge_status_to_what_the_hub_accepts() -> None:
    remote = {**pod("g-0"), "status": {"phase": "Running", "conditions": [{"type": "x" * MAX_STATUS_BYTES}]}}
    assert PODS.remote_status({"metadata": {"name": "g"}, "members": [remote]}) == {
        "pods": [{"name": "g-0", "uid": "", "status": {"phase": "Running"}}]
    }


def test_a_group_of_ten_thousand_pods_is_not_sent() -> None:
    text = "the group has 10000 pods, and at most 256 of one group are sent to a worker cluster"
    assert PODS.not_sent(PODS.composed([pod("g-0", total=10_000)])) == text


def test_a_group_with_huge_pods_is_not_sent() -> None:
    made = group()
    made["members"][0]["spec"]["containers"][0]["args"] = ["x" * 600_000]
    assert "and at most 524288 are sent to a worker cluster" in PODS.not_sent(made)


def test_no_more_pods_are_sent_than_quota_is_held_for() -> None:
    made = group(4)
    info = PodSetInfo(name=role_of(made["members"][0]), count=2)
    assert len(PODS.remote_manifest(made, (info,), identity=IDENTITY)["members"]) == 2


def test_pods_that_contradict_each_other_are_refused_with_both_numbers() -> None:
    made = PODS.composed([pod("g-0", total=2), pod("g-1", total=3)])
    with pytest.raises(BadInput, match="expected one number on all pods of the group, found 2, 3"):
        PODS.not_sent(made)


def test_a_remote_pod_has_no_owner_finalizer_gate_or_status() -> None:
    for member in sent()["members"]:
        assert not {"ownerReferences", "finalizers", "uid"} & set(member["metadata"])
        assert "schedulingGates" not in member["spec"]
        assert K + "managed" not in member["metadata"]["labels"]
        assert "status" not in member


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda members: members[1]["metadata"].update(namespace="kube-system"), "not of the namespace"),
        (lambda members: members[1]["metadata"].update(name="g-0"), "is there twice"),
        (lambda members: members[1].update(kind="Secret"), "expected the kind of the group"),
        (lambda members: members[1].update(metadata=[]), "expected a pod with a name"),
        (lambda members: members.extend(members * MAX_PODS), "expected 1 to 256 pods, found 514"),
        (list.clear, "expected 1 to 256 pods, found 0"),
    ],
    ids=["another namespace", "a name twice", "another kind", "no metadata", "too many", "none"],
)
def test_an_agent_refuses_a_group_with(change: Any, message: str) -> None:
    manifest = sent()
    change(manifest["members"])
    with pytest.raises(BadInput, match=message):
        members_of(manifest, namespace="team")


def test_the_annotations_of_a_pod_are_held_to_the_policy() -> None:
    manifest = {**pod("a"), "kind": "Pod"}
    manifest["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
    subject = DispatchSubject.of("team", manifest, workload_spec={})
    assert [dict(each.annotations) for each in subject.pods] == [manifest["metadata"]["annotations"]]


def test_a_pod_that_is_stopped_has_not_failed() -> None:
    stopped = pod("g-0")
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stopped["status"] = {"phase": "Failed"}
    del stopped["spec"]["schedulingGates"]
    assert PODS.remote_end(stopped) is None
    assert PODS.remote_status(stopped) is None
    assert PODS.remotely_stopped(stopped)


def test_a_pod_whose_remote_pod_is_gone_is_shown_as_gated() -> None:
    shown = pod("a")
    shown["status"] = {"phase": "Running", "containerStatuses": [{"name": "c"}], "qosClass": "BestEffort"}
    write = PODS.stopped_status(shown, now=NOW)
    assert write is not None
    status = write.body["status"]
    assert (status["phase"], status["containerStatuses"], "qosClass" in status) == ("Pending", None, False)
    assert status["conditions"][0]["reason"] == "SchedulingGated"
