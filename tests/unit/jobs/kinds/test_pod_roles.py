# SPDX-License-Identifier: Apache-2.0
"""Pods of groups whose Workload Kueue, or their user, has made: its pod sets have other names."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.jobs.framework.protocol import PodSetInfo, Reclaimable
from multikueue.jobs.kinds.pod_group import role_of
from multikueue.jobs.kinds.pod_roles import counted_in
from tests.unit.jobs.declared.builders import IDENTITY
from tests.unit.jobs.kinds.pod_builders import POD, Object, group, pod, running

ROLE = "kueue.x-k8s.io/role-hash"
POD_SET = "kueue.x-k8s.io/podset"


def member(name: str, *, role: str = "", cpu: str = "1", total: int = 2, **extra: Any) -> Object:
    """A pod in which Kueue has noted a role."""
    return pod(name, total=total, cpu=cpu, annotations={ROLE: role} if role else {}, **extra)


def pod_set(name: str, count: int = 2, *, cpu: str = "1") -> Object:
    """A pod set of Kueue's: its template has no labels, and the gates and default tolerations of the pod."""
    spec = pod("a1", cpu=cpu)["spec"]
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    default = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "name": name,
        "count": count,
        "template": {"metadata": {}, "spec": {**spec, "tolerations": [{"key": taint, **default} for taint in taints]}},
    }


def reserved(*pod_sets: Object) -> Object:
    conditions = [{"type": "QuotaReserved", "status": "True"}]
    return {"metadata": {"name": "g"}, "spec": {"podSets": list(pod_sets)}, "status": {"conditions": conditions}}


def roles(*pods: Object, pod_sets: tuple[Object, ...]) -> list[str]:
    return [role_of(each) for each in counted_in(pods, pod_sets)]


def test_a_pod_is_counted_in_the_pod_set_that_kueue_has_noted_on_it() -> None:
    """Kueue's roles do not depend on limits, so that two pods of one role may have different ones."""
    limited = member("a2", role="theirs")
    limited["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
    assert roles(member("a1", role="theirs"), limited, pod_sets=(pod_set("theirs"),)) == ["theirs", "theirs"]


def test_without_a_note_it_is_counted_in_a_pod_set_of_pods_like_it() -> None:
    sets = (pod_set("large", 1, cpu="4"), pod_set("one", 1), pod_set("two", 1))
    pods = (member("a1", total=3), member("a2", cpu="4", total=3), member("a3", total=3))
    assert roles(*pods, pod_sets=sets) == ["one", "large", "two"]


@pytest.mark.parametrize("noted", ["small", "unknown", ""])
def test_a_pod_that_requests_more_than_any_pod_set_keeps_its_own_role(noted: str) -> None:
    """Users write annotations: a large pod is not counted as a small one."""
    large = member("a1", role=noted, cpu="4")
    assert roles(large, pod_sets=(pod_set("small"),)) == [role_of(large)]


def test_names_of_this_manager_count_before_any_note() -> None:
    own = role_of(member("a1"))
    assert roles(member("a1", role="other"), pod_sets=(pod_set(own), pod_set("other"))) == [own]


def test_pods_that_have_failed_leave_their_place_to_others() -> None:
    failed = member("a1", phase="Failed", total=2)
    assert roles(failed, member("a2"), member("a3"), pod_sets=(pod_set("one", 1), pod_set("two", 1)))[1:] == [
        "one",
        "two",
    ]


class TestGroup:
    """A group of a Workload that Kueue has made."""

    PODS = (member("a1", role="theirs"), member("a2", role="theirs"))
    WORKLOAD = reserved(pod_set("theirs"))

    def counted(self, *pods: Object) -> Object:
        return POD.with_pod_sets(group(*pods), self.WORKLOAD["spec"]["podSets"])

    def test_its_pods_are_not_in_excess(self) -> None:
        assert POD.upkeep(self.counted(*self.PODS), self.WORKLOAD) == ()

    def test_a_large_pod_that_is_noted_as_a_small_one_is(self) -> None:
        large = member("a2", role="theirs", cpu="4")
        (write,) = POD.upkeep(self.counted(self.PODS[0], large), self.WORKLOAD)
        assert (write.reason, write.write.target) == ("ExcessPodDeleted", {**large, "role": role_of(large)})

    def test_its_workload_is_kept_while_it_waits(self) -> None:
        assert POD.matches(self.counted(*self.PODS), self.WORKLOAD)
        large = member("a2", role="theirs", cpu="4")
        assert not POD.matches(self.counted(self.PODS[0], large), self.WORKLOAD)

    def test_all_of_it_is_started_and_sent(self) -> None:
        infos = [PodSetInfo(name="theirs", count=2), PodSetInfo(name="others", count=1)]
        counted = self.counted(*self.PODS)
        started = POD.start(counted, infos)
        assert [each.target["metadata"]["name"] for each in (started, *started.also) if each.target] == ["a1", "a2"]
        sent = POD.remote_manifest(counted, infos, identity=IDENTITY)
        assert [each["metadata"]["name"] for each in sent["members"]] == ["a1", "a2"]
        assert all("role" not in each for each in sent["members"])

    def test_quota_of_pods_that_have_ended_is_given_back_by_that_name(self) -> None:
        done = running("a1", phase="Succeeded")
        done["metadata"]["labels"][POD_SET] = "theirs"
        assert POD.reclaimable(self.counted(done, self.PODS[1])) == (Reclaimable(name="theirs", count=1),)


def test_a_pod_that_is_queued_on_a_worker_has_each_gate_once() -> None:
    """Templates in Kueue's Workloads have the gates of the pod."""
    sent = POD.remote_manifest(group(*TestGroup.PODS), [PodSetInfo(name="theirs", count=2)], identity=IDENTITY)[
        "members"
    ][0]
    queued = POD.queued_manifest(sent, [pod_set("theirs"), pod_set("others")])
    assert [gate["name"] for gate in queued["spec"]["schedulingGates"]] == ["kueue.x-k8s.io/admission"]
    assert queued["metadata"]["annotations"][ROLE] == "theirs"
