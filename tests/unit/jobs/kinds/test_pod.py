# SPDX-License-Identifier: Apache-2.0
"""Pods and pod groups: what a Workload is made of, and which pods start, are in excess, are replaced, end."""

from __future__ import annotations

import pytest

from multikueue.api import featuregates
from multikueue.api.constants import ADMISSION_SCHEDULING_GATE, POD_FINALIZER, TOPOLOGY_SCHEDULING_GATE
from multikueue.api.defaulting import JobSurroundings
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.admission import defaulted
from multikueue.jobs.framework.protocol import JobEnd, JobWrite, PodSetInfo
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.jobs.kinds.pod_group import role_of
from tests.unit.jobs.declared.builders import IDENTITY
from tests.unit.jobs.kinds.pod_builders import DELETING, PAIR, POD, SERVING, K, Object, group, pod, running, workload


def targets(write: JobWrite | None) -> list[str]:
    assert write is not None
    return [each.target["metadata"]["name"] for each in (write, *write.also) if each.target is not None]


UNRETRIABLE: Object = {"annotations": {K + "retriable-in-group": "false"}}


class TestWorkload:
    def test_a_single_pod_is_one_pod_set_without_its_gate(self) -> None:
        (pod_set,) = POD.pod_sets(pod("a1"))
        assert (pod_set["name"], pod_set["count"]) == ("main", 1)
        assert "schedulingGates" not in pod_set["template"]["spec"]

    def test_a_group_has_a_pod_set_for_each_role(self) -> None:
        found = POD.pod_sets(group(pod("a1", total=3), pod("a2", total=3, cpu="2"), pod("a3", total=3)))
        assert {each["name"]: each["count"] for each in found} == {
            role_of(pod("a1")): 2,
            role_of(pod("a2", cpu="2")): 1,
        }

    def test_it_has_the_name_of_the_group_and_all_pods_as_owners(self) -> None:
        made = workload(group(*PAIR))
        assert made["metadata"]["name"] == "g"
        assert [owner["name"] for owner in made["metadata"]["ownerReferences"]] == ["a1", "a2"]
        assert made["metadata"]["annotations"] == {K + "is-group-workload": "true"}

    def test_with_fast_admission_one_pod_is_enough(self) -> None:
        fast = group(pod("a1", total=4, annotations={K + "pod-group-fast-admission": "true"}))
        assert POD.incomplete(fast) == ""
        assert [each["count"] for each in POD.pod_sets(fast)] == [4]
        assert POD.matches(fast, workload(fast))

    def test_a_later_pod_of_a_fast_group_is_kept_if_it_requests_what_the_pod_set_of_another_name_does(self) -> None:
        fast: Object = {"annotations": {K + "pod-group-fast-admission": "true"}}
        first = pod("a1", total=3, gated=False, phase="Running", labels={K + "podset": "main"}, **fast)
        same, larger = pod("a2", total=3, **fast), pod("a3", total=3, cpu="2", **fast)
        same["spec"]["tolerations"] = [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ]
        admitted = workload(group(pod("a1", total=3, **fast)), "QuotaReserved")
        admitted["spec"]["podSets"][0]["name"] = "main"
        assert POD.upkeep(group(first, same), admitted) == ()
        [excess] = POD.upkeep(group(first, same, larger), admitted)
        assert targets(excess.write) == ["a3", "a3"]

    def test_a_pod_differs_from_its_workload_in_no_part_that_an_api_server_adds_to_pods(self) -> None:
        local, remote = pod("a1"), pod("a1")
        for each, name in ((local, "kube-api-access-aaaaa"), (remote, "kube-api-access-bbbbb")):
            each["spec"]["volumes"] = [{"name": name, "projected": {"sources": []}}]
            mount = {"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
            each["spec"]["containers"][0]["volumeMounts"] = [mount]
        assert POD.differences(remote, workload(local)) == ()
        remote["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        assert len(POD.differences(remote, workload(local))) == 1

    def test_a_group_waits_for_all_its_pods(self) -> None:
        assert POD.incomplete(group(PAIR[0])) == "1 of 2 pods of the group exist"
        assert POD.incomplete(group(*PAIR)) == ""

    def test_a_count_that_differs_between_the_pods_is_refused(self) -> None:
        with pytest.raises(BadInput, match="expected one number on all pods of the group, found 2, 3"):
            POD.incomplete(group(pod("a1", total=2), pod("a2", total=3)))

    def test_other_pods_before_admission_change_it(self) -> None:
        assert POD.matches(group(*PAIR), workload(group(*PAIR)))
        assert not POD.matches(group(PAIR[0], pod("a2", total=2, cpu="2")), workload(group(*PAIR)))

    def test_a_gated_pod_keeps_the_workload_that_kueue_has_made_unless_its_demands_change(self) -> None:
        """Kueue's templates have no labels and annotations, and the gates of the pod."""
        own = pod("a1")
        made = workload(own)
        (pod_set,) = made["spec"]["podSets"]
        gates = [{"name": ADMISSION_SCHEDULING_GATE}, {"name": TOPOLOGY_SCHEDULING_GATE}]
        template = {"metadata": {}, "spec": {**pod_set["template"]["spec"], "schedulingGates": gates}}
        kueues = {**made, "spec": {**made["spec"], "podSets": [{**pod_set, "template": template}]}}
        assert POD.matches(own, kueues)
        assert not POD.matches(pod("a1", cpu="2"), kueues)
        assert POD.matches(own, made)
        relabelled = pod("a1", labels={"team": "b"})
        assert not POD.matches(relabelled, made), "a Workload of ours has the labels of its pod"
        theirs = [*gates, {"name": "example.com/own"}]
        other = {**template, "spec": {**template["spec"], "schedulingGates": theirs}}
        assert not POD.matches(own, {**kueues, "spec": {"podSets": [{**pod_set, "template": other}]}})


class TestStart:
    def test_each_gated_pod_is_started_with_what_its_role_gets(self) -> None:
        role = role_of(PAIR[0])
        info = PodSetInfo(name=role, count=2, labels={K + "podset": role}, node_selector={"zone": "a"})
        write = POD.start(group(running("a1"), PAIR[1]), (info,))
        assert targets(write) == ["a2"]
        assert write.body == {
            "metadata": {"labels": {K + "podset": role}},
            "spec": {"nodeSelector": {"zone": "a"}, "schedulingGates": None},
        }

    def test_a_group_waits_while_one_pod_is_gated_and_is_suspended_while_all_are(self) -> None:
        assert POD.waits(group(running("a1"), PAIR[1]))
        assert not POD.is_suspended(group(running("a1"), PAIR[1]))
        assert POD.is_suspended(group(*PAIR))


class TestStop:
    def test_started_pods_are_marked_and_deleted_and_gated_ones_kept(self) -> None:
        write = POD.stop(group(running("a1"), PAIR[1]), ())
        assert targets(write) == ["a1", "a1"]
        assert write is not None
        assert write.body["status"]["conditions"][0]["type"] == "TerminationTarget"
        assert [each.delete for each in write.also] == [True]

    @pytest.mark.parametrize(
        "of",
        [
            pytest.param(group(*PAIR), id="of gated pods"),
            pytest.param(group(running("a1", **DELETING)), id="of pods that are deleted already"),
            pytest.param(group(running("a1", "Succeeded")), id="of pods that have ended"),
        ],
    )
    def test_there_is_nothing_to_stop(self, of: Object) -> None:
        assert POD.stop(of, ()) is None


class TestUpkeep:
    def names(self, of: Object, *conditions: str, owner: Object | None = None) -> list[str]:
        found = POD.upkeep(of, workload(owner or group(*PAIR), *conditions))
        return [name for each in found for name in targets(each.write)]

    def test_the_youngest_pod_beyond_the_total_is_deleted(self) -> None:
        of = group(pod("a1", total=2), running("a2"), pod("a3", total=2))
        (write,) = POD.upkeep(of, workload(group(*PAIR)))
        assert set(targets(write.write)) == {"a3"}
        assert write.reason == "ExcessPodDeleted"

    def test_a_pod_of_a_role_without_quota_is_deleted(self) -> None:
        of = group(running("a1"), pod("a2", total=2, cpu="8"))
        assert set(self.names(of, "QuotaReserved")) == {"a2"}
        assert self.names(of) == []

    def test_a_failed_pod_is_kept_until_it_is_replaced(self) -> None:
        failed = running("a1", "Failed")
        assert self.names(group(failed, PAIR[1]), "QuotaReserved") == []
        assert self.names(group(failed, PAIR[1], pod("a3", total=2)), "QuotaReserved") == ["a1"]

    def test_all_pods_are_let_go_once_the_group_has_ended(self) -> None:
        assert self.names(group(running("a1", "Failed"), running("a2", "Succeeded")), "Finished") == ["a1", "a2"]

    def test_a_pod_that_runs_is_never_let_go(self) -> None:
        assert self.names(group(running("a1"), running("a2")), "Finished") == []

    def test_a_group_of_which_all_pods_are_deleted_while_they_are_gated_goes(self) -> None:
        deleted = [pod(name, total=2, **DELETING) for name in ("a1", "a2")]
        assert self.names(group(*deleted)) == ["a1", "a2"]
        assert self.names(group(deleted[0], PAIR[1])) == [], "another one may replace it"
        ran = [running(name, "Failed", **DELETING) for name in ("a1", "a2")]
        assert self.names(group(*ran), "QuotaReserved") == [], "others may replace them"

    def test_a_gated_pod_that_is_deleted_before_there_is_a_workload_goes(self) -> None:
        (write,) = POD.upkeep(group(pod("a1", total=2, **DELETING)), None)
        assert targets(write.write) == ["a1"]


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pod("a1", phase="Running", gated=False), None, id="a pod that runs"),
        pytest.param(
            pod("a1", phase="Succeeded"), JobEnd(reason="Succeeded", message="Pod succeeded"), id="a pod that succeeded"
        ),
        pytest.param(pod("a1", phase="Failed"), JobEnd(reason="Failed", message="Pod failed"), id="a pod that failed"),
        pytest.param(
            pod("a1", **DELETING), JobEnd(reason="Failed", message="Pod was deleted"), id="a gated pod that was deleted"
        ),
        pytest.param(
            group(running("a1", "Succeeded"), running("a2", "Succeeded")),
            JobEnd(reason="Succeeded", message="Pods succeeded: 2/2."),
            id="a group of which all pods succeeded",
        ),
        pytest.param(group(running("a1", "Succeeded"), running("a2", "Failed")), None, id="a group that may retry"),
        pytest.param(
            group(running("a1", "Succeeded", **UNRETRIABLE), running("a2", "Failed")),
            JobEnd(reason="Failed", message="Pods succeeded: 1/2."),
            id="an unretriable group with nothing left",
        ),
        pytest.param(
            group(running("a1", **UNRETRIABLE), running("a2", "Failed")), None, id="an unretriable group that runs"
        ),
        pytest.param(
            group(running("a1", "Succeeded", **SERVING), running("a2", "Succeeded")), None, id="a group that serves"
        ),
    ],
)
def test_the_end_of(of: Object, want: JobEnd | None) -> None:
    assert POD.finished(of) == want


def test_pods_to_replace_are_counted() -> None:
    made = workload(group(*PAIR))
    failed = group(running("a1"), running("a2", "Failed"))
    assert POD.replacements(failed, made) == "1 of 2 pods failed or were deleted, and have to be created again"
    assert POD.replacements(group(running("a1", **UNRETRIABLE), running("a2", "Failed")), made) == ""
    assert POD.replacements(group(running("a1"), running("a2", "Failed"), pod("a3", total=2)), made) == ""


def test_succeeded_pods_of_a_group_release_their_quota() -> None:
    of = group(running("a1", "Succeeded"), running("a2"))
    (found,) = POD.reclaimable(of)
    assert (found.name, found.count) == (role_of(PAIR[0]), 1)
    assert POD.reclaimable(pod("a1", phase="Succeeded")) == ()


def test_a_group_is_ready_when_each_pod_is_ready_or_succeeded() -> None:
    ready = running("a1")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert POD.pods_ready(group(ready, running("a2", "Succeeded")))
    assert not POD.pods_ready(group(ready, running("a2")))


def test_a_pod_that_kueue_has_made_loses_the_gate_for_topologies_as_well() -> None:
    gates = [{"name": "example.com/own"}, {"name": ADMISSION_SCHEDULING_GATE}, {"name": TOPOLOGY_SCHEDULING_GATE}]
    given = pod("a1")
    given["spec"]["schedulingGates"] = gates
    (pod_set,) = POD.pod_sets(given)
    assert pod_set["template"]["spec"]["schedulingGates"] == gates[:1]
    write = POD.start(given, (PodSetInfo(name="main", count=1),))
    assert write is not None
    assert write.body["spec"]["schedulingGates"] == gates[:1]
    remote = POD.remote_manifest(given, [PodSetInfo(name="main", count=1)], identity=IDENTITY)
    assert remote["spec"]["schedulingGates"] == gates[:1]


PLACED = PodSetInfo(name="main", count=1, scheduling_gates=({"name": TOPOLOGY_SCHEDULING_GATE},))


def gates_of_started(*gates: str) -> list[str]:
    """The gates that a pod with these has once it was started in a pod set that waits for domains."""
    given = pod("a1")
    given["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    write = POD.start(given, (PLACED,))
    assert write is not None
    assert write.body is not None
    return [each["name"] for each in write.body["spec"]["schedulingGates"] or ()]


def test_a_pod_with_a_place_keeps_the_gate_for_topologies_until_it_has_its_domain() -> None:
    both = (ADMISSION_SCHEDULING_GATE, TOPOLOGY_SCHEDULING_GATE)
    assert gates_of_started(*both) == [TOPOLOGY_SCHEDULING_GATE]
    assert gates_of_started("example.com/own", *both) == ["example.com/own", TOPOLOGY_SCHEDULING_GATE]


def test_a_pod_that_was_made_without_the_gate_for_topologies_cannot_get_it() -> None:
    assert gates_of_started(ADMISSION_SCHEDULING_GATE) == []
    assert gates_of_started("example.com/own", ADMISSION_SCHEDULING_GATE) == ["example.com/own"]


@pytest.mark.parametrize(("counts", "total"), [([3], "3"), ([1], "1"), ([1, 2], "3"), ([], "4")])
def test_a_remote_pod_in_a_queue_has_the_total_count_of_the_pod_sets_that_are_to_run(
    counts: list[int], total: str
) -> None:
    annotations = {K + "pod-group-total-count": "4"}
    remote = {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": []}}
    made = BARE_POD.queued_manifest(remote, [{"name": f"r{at}", "count": count} for at, count in enumerate(counts)])
    assert made["metadata"]["annotations"][K + "pod-group-total-count"] == total


def test_a_remote_pod_in_a_queue_has_the_token_of_the_workload() -> None:
    """Kueue on the worker compares containers, and the API server there would mount a token of another name."""
    token = {"name": "kube-api-access-abcde", "projected": {"sources": []}}
    mount = {"name": token["name"], "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    own = {"name": "data", "mountPath": "/data"}
    data = {"name": "data", "emptyDir": {}}
    spec = {"containers": [{"name": "c", "volumeMounts": [own]}], "volumes": [data]}
    on_hub = {"containers": [{"name": "c", "volumeMounts": [own, mount]}], "volumes": [data, token]}
    made = queued(spec, on_hub)
    assert made["spec"]["containers"] == on_hub["containers"]
    assert made["spec"]["volumes"] == on_hub["volumes"]
    assert "automountServiceAccountToken" not in made["spec"]


@pytest.mark.parametrize("given", [{}, {"automountServiceAccountToken": True}])
def test_a_remote_pod_in_a_queue_gets_no_token_that_its_workload_has_not(given: dict[str, bool]) -> None:
    containers = {"containers": [{"name": "c"}]}
    made = queued(containers | given, containers)
    assert made["spec"]["automountServiceAccountToken"] is bool(given)
    assert made["spec"]["containers"] == containers["containers"]


def test_a_remote_pod_of_a_group_in_a_queue_names_its_pod_set() -> None:
    """Kueue would compute another name from the pod, and find that the group has other pods than the Workload."""
    annotations = {K + "pod-group-total-count": "1"}
    assert queued({"containers": []}, {}, **annotations)["metadata"]["annotations"][K + "role-hash"] == "main"
    assert K + "role-hash" not in queued({"containers": []}, {})["metadata"]["annotations"]


def queued(spec: Object, on_hub: Object, **annotations: str) -> Object:
    """A remote pod for the queues of a worker, and the template of its Workload."""
    remote = {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}
    return BARE_POD.queued_manifest(remote, [{"name": "main", "count": 1, "template": {"spec": on_hub}}])


def test_a_queued_pod_is_created_with_gate_label_and_finalizer() -> None:
    made = defaulted({"metadata": {"labels": {K + "queue-name": "q"}}, "spec": {}}, BARE_POD, JobSurroundings())
    gates = [{"name": ADMISSION_SCHEDULING_GATE}, {"name": TOPOLOGY_SCHEDULING_GATE}]
    assert made["spec"]["schedulingGates"] == gates, "none can be added once it is admitted"
    assert made["metadata"]["labels"][K + "managed"] == "true"
    assert made["metadata"]["finalizers"] == [POD_FINALIZER]


@pytest.mark.parametrize(
    "surroundings",
    [
        pytest.param(JobSurroundings(owner_managed=True), id="of an owner that is queued"),
        pytest.param(JobSurroundings(namespace_managed=False), id="in a namespace that is not managed"),
    ],
)
def test_a_pod_is_left_alone(surroundings: JobSurroundings) -> None:
    plain = {"metadata": {"labels": {K + "queue-name": "q"}}, "spec": {}}
    assert defaulted(plain, BARE_POD, surroundings) is plain


def changed(of: Object, **annotations: str | None) -> Object:
    kept = {**of["metadata"]["annotations"], **{K + key.replace("_", "-"): value for key, value in annotations.items()}}
    values = {key: value for key, value in kept.items() if value is not None}
    return {**of, "metadata": {**of["metadata"], "annotations": values}}


@pytest.mark.parametrize(
    ("new", "old", "want"),
    [
        pytest.param(PAIR[0], None, "", id="a pod of a group is accepted"),
        pytest.param(pod("a1"), None, "", id="a pod of its own is accepted"),
        pytest.param(pod("a1", labels={K + "managed": "no"}), None, "can only be 'true'", id="another managed label"),
        pytest.param(pod("a1", labels={K + "pod-group-name": "g"}), None, "both the group's name", id="no total count"),
        pytest.param(changed(pod("a1"), pod_group_total_count="2"), None, "both the group's name", id="no group name"),
        pytest.param(changed(PAIR[0], pod_group_total_count="0"), None, "positive integer", id="a total of nothing"),
        pytest.param(
            pod("a1", total=2, labels={K + "prebuilt-workload-name": "w"}),
            None,
            "name of the pod group",
            id="a Workload of another name",
        ),
        pytest.param(pod("a1"), PAIR[0], "field is immutable", id="a pod that leaves its group"),
        pytest.param(
            PAIR[0],
            changed(PAIR[0], retriable_in_group="false"),
            "can't be converted to retriable",
            id="a group that may retry again",
        ),
        pytest.param(
            running("a1", labels={K + "queue-name": "x"}),
            running("a1"),
            "immutable while",
            id="another queue while it runs",
        ),
        pytest.param(
            changed(pod("a1"), podset_required_topology="!"), None, "podset-required-topology", id="a topology"
        ),
        pytest.param(
            changed(pod("a1"), podset_required_topology="!", retriable_in_group="true"),
            changed(pod("a1"), podset_required_topology="!"),
            "",
            id="a topology that it had before",
        ),
    ],
)
def test_what_is_refused_of_pods(new: Object, old: Object | None, want: str) -> None:
    found = POD.refusals(new, old, has_default_queue=False, gate=featuregates.default)
    assert bool(found) is bool(want)
    assert want in " ".join(found)


def reserved(of: Object, usage: str = "1") -> Object:
    """The Workload of a pod or group, with quota for it as it was queued."""
    made = workload(of, "QuotaReserved", "Admitted")
    assignments = [
        {"name": each["name"], "count": each["count"], "resourceUsage": {"cpu": usage}}
        for each in made["spec"]["podSets"]
    ]
    return made | {"status": made["status"] | {"admission": {"podSetAssignments": assignments}}}


SINGLE = reserved(pod("a1"))
FORGED = {"labels": {K + "podset": role_of(pod("a1", total=2))}, "annotations": {K + "workload": "g"}}


@pytest.mark.parametrize(
    ("of", "made", "deleted"),
    [
        pytest.param(pod("a1", gated=False), SINGLE, [], id="one of its size is left alone"),
        pytest.param(pod("a1", gated=False, cpu="500m"), SINGLE, [], id="a smaller one is left alone"),
        pytest.param(
            pod("a1", gated=False, cpu="8"), SINGLE, ["a1"], id="a resized one, or one whose gate was removed"
        ),
        pytest.param(pod("a1", cpu="8"), SINGLE, [], id="a gated one waits for a Workload of its size"),
        pytest.param(
            pod("a1", gated=False, cpu="8"),
            reserved(pod("a1"), "8"),
            [],
            id="one that quota was counted for is left alone",
        ),
        pytest.param(
            group(running("a1"), pod("a2", total=2, gated=False, phase="Running", cpu="8", **FORGED)),
            reserved(group(*PAIR), "2"),
            ["a2"],
            id="one of a group that bears the label of a smaller role",
        ),
        pytest.param(
            group(running("a1"), running("a2")),
            reserved(group(*PAIR), "2"),
            [],
            id="a group as it was admitted is left alone",
        ),
    ],
)
def test_a_pod_runs_with_what_its_workload_has_only(of: Object, made: Object, deleted: list[str]) -> None:
    writes = POD.upkeep(of, made)
    assert [name for each in writes for name in dict.fromkeys(targets(each.write))] == deleted
    assert all("it requests more than its Workload: cpu 8 instead of 1" in each.message for each in writes)
