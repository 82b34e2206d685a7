# SPDX-License-Identifier: Apache-2.0
"""Deployments and StatefulSets as jobs: which frameworks they need, and what of a StatefulSet starts."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api import featuregates
from multikueue.api.constants import PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import PODS
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.capabilities import HeldPod
from multikueue.jobs.framework.protocol import PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.workloads import prebuilt_name
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.jobs.kinds.pod_group import PodGroup, group_of
from multikueue.jobs.kinds.stateful_set import StatefulSetIntegration
from worker_agent.kinds import served_integrations

SETS = StatefulSetIntegration()
GATE = [{"name": "kueue.x-k8s.io/admission"}]


def stateful(*, replicas: int = 2, cpu: str = "1", left: int = 0, queue: str = "q") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "team", "uid": "u", "labels": labels},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
        "status": {"replicas": left},
    }


def named(workload: str, *, replicas: int = 2) -> dict[str, Any]:
    """One that brings its Workload along, as a hub of Kueue's sends it to a worker."""
    made = stateful(replicas=replicas)
    made["metadata"]["labels"] = made["metadata"]["labels"] | {"kueue.x-k8s.io/prebuilt-workload-name": workload}
    return made


def grouped(*, replicas: int = 2) -> dict[str, Any]:
    """One whose template makes its pods a group, as earlier versions of Kueue left it."""
    made = stateful(replicas=replicas)
    metadata = made["spec"]["template"]["metadata"]
    metadata["labels"] = metadata["labels"] | {"kueue.x-k8s.io/pod-group-name": "g"}
    return made


def test_it_may_bring_its_workload_along() -> None:
    assert SETS.refusals(named("w"), None, has_default_queue=False, gate=featuregates.default) == ()
    assert prebuilt_name(named("w"), SETS) == "w"


def test_what_its_template_has_already_does_not_keep_it_from_being_changed() -> None:
    gate = featuregates.default
    assert SETS.refusals(grouped(replicas=0), grouped(), has_default_queue=False, gate=gate) == ()
    (found,) = SETS.refusals(grouped(replicas=0), stateful(), has_default_queue=False, gate=gate)
    assert found.startswith("spec.template.metadata.labels[kueue.x-k8s.io/pod-group-name]: Forbidden: ")


def pod(name: str, *, problem: str = "", gated: bool = True) -> HeldPod:
    spec: dict[str, Any] = {"containers": [{"name": "c"}], **({"schedulingGates": GATE} if gated else {})}
    return HeldPod(pod={"metadata": {"name": name}, "spec": spec, "status": {}}, problem=problem)


@pytest.mark.parametrize("framework", ["deployment", "statefulset"])
def test_it_is_enabled_together_with_the_framework_pod(framework: str) -> None:
    assert [each.framework for each in JobRegistry((framework,))] == [framework, "pod"]


def test_a_kind_that_another_controller_queues_as_well_is_refused() -> None:
    with pytest.raises(BadInput, match="is queued by the framework statefulset already"):
        JobRegistry(("statefulset",), external=("StatefulSet.v1.apps",))


@pytest.mark.parametrize(
    ("held", "started"),
    [
        pytest.param(pod("web-1"), ["web-1"], id="one of its pods"),
        pytest.param(pod("web-2"), [], id="not one beyond its size"),
        pytest.param(pod("web-01"), [], id="not one whose number has a zero in front"),
        pytest.param(pod("other-0"), [], id="not one of another name"),
        pytest.param(pod("web-0", problem="too large"), [], id="not one that requests more"),
        pytest.param(pod("web-0", gated=False), [], id="not one that was started already"),
    ],
)
def test_a_pod_is_started_in_a_place_of_the_set(held: HeldPod, started: list[str]) -> None:
    job = SETS.with_pods(stateful(), [held])
    write = SETS.start(job, [PodSetInfo(name="main", count=2)])
    assert [each.target["metadata"]["name"] for each in (write, *write.also) if each.target] == started
    assert SETS.waits(job) is bool(started)


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        pytest.param(stateful(replicas=0), stateful(replicas=3), "", id="from zero"),
        pytest.param(stateful(replicas=3), stateful(replicas=0), "", id="to zero"),
        pytest.param(stateful(replicas=2), stateful(replicas=3), "scale it to 0 first", id="from one size to another"),
        pytest.param(
            stateful(replicas=0, left=2), stateful(replicas=3), "still being removed", id="while pods are left"
        ),
        pytest.param(stateful(), stateful(cpu="2"), "only while spec.replicas is 0", id="with larger pods"),
        pytest.param(stateful(replicas=0), stateful(replicas=0, cpu="2"), "", id="with larger pods at zero"),
        pytest.param(stateful(), stateful(queue=""), "can be removed only while", id="out of its queue"),
        pytest.param(stateful(replicas=0), stateful(replicas=0, queue=""), "", id="out of its queue at zero"),
        pytest.param(stateful(), named("w"), "can be changed only while", id="to a Workload that it names"),
        pytest.param(stateful(replicas=0), named("w", replicas=0), "", id="to a Workload that it names at zero"),
    ],
)
def test_an_update_is_refused(before: dict[str, Any], after: dict[str, Any], refusal: str) -> None:
    found = SETS.refusals(after, before, has_default_queue=False, gate=featuregates.default)
    assert bool(found) is bool(refusal)
    assert refusal in " ".join(found)


def counted(*, cpu: str, count: int = 2) -> dict[str, Any]:
    """The admitted Workload of `stateful()`, for which that much was counted."""
    (pod_set,) = SETS.pod_sets(stateful(replicas=count))
    assignment = {"name": "main", "count": count, "resourceUsage": {"cpu": cpu}}
    conditions = [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]
    return {
        "metadata": {"name": "w"},
        "spec": {"podSets": [pod_set]},
        "status": {"conditions": conditions, "admission": {"podSetAssignments": [assignment]}},
    }


def ungated(name: str, *, cpu: str, problem: str = "") -> HeldPod:
    """A pod whose gate was removed by hand, with the annotation that the manager writes when it starts one."""
    held = pod(name, gated=False, problem=problem)
    held.pod["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    held.pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return held


@pytest.mark.parametrize(
    ("held", "usage", "deleted"),
    [
        pytest.param(ungated("web-1", cpu="1"), "2", [], id="one as large as the others is left alone"),
        pytest.param(ungated("web-1", cpu="8", problem="too large"), "2", ["web-1"], id="a larger one is deleted"),
        pytest.param(
            ungated("web-1", cpu="2", problem="too large"), "4", [], id="one that quota was counted for is left alone"
        ),
        pytest.param(ungated("web-7", cpu="1"), "2", ["web-7"], id="one beyond its size is deleted"),
    ],
)
def test_a_pod_that_runs_is_compared_with_the_workload_whatever_its_annotations_say(
    held: HeldPod, usage: str, deleted: list[str]
) -> None:
    writes = SETS.upkeep(SETS.with_pods(stateful(), [held]), counted(cpu=usage))
    assert [each.write.target["metadata"]["name"] for each in writes if each.write.target] == deleted


IDENTITY = RemoteIdentity(
    workload_name="statefulset-web-1", origin="hub", epoch=1, manager_uid="m", cluster="w", assignment="a"
)


def sent(*names: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The manifest of a StatefulSet of two with these gated pods, and one that requests too much."""
    held = [pod(name) for name in names]
    for each in held:
        each.pod["metadata"] |= {"namespace": "team", "uid": f"uid-{each.pod['metadata']['name']}"}
    job = SETS.with_pods(stateful(), [*held, pod("web-7")])
    job["metadata"]["annotations"] = annotations or {}
    return SETS.remote_manifest(job, [PodSetInfo(name="main", count=2)], identity=IDENTITY)


def test_the_pods_that_may_be_started_are_sent_as_a_serving_group_with_the_name_of_the_workload() -> None:
    manifest = sent("web-0", "web-1")
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Pod", "statefulset-web-1")
    assert [each["metadata"]["name"] for each in manifest["members"]] == ["web-0", "web-1"]
    group = PodGroup(manifest["members"])
    assert (group.total, group.is_fast, group.is_serving) == (2, True, True)
    assert {group_of(each) for each in manifest["members"]} == {"statefulset-web-1"}


def test_the_first_pod_asks_a_worker_for_the_capacity_of_all() -> None:
    [pod_set] = BARE_POD.pod_sets(sent("web-0"))
    assert pod_set["count"] == 2


def test_each_pod_that_is_sent_has_the_partition_policy_of_its_stateful_set() -> None:
    manifest = sent("web-0", annotations={PARTITION_POLICY_ANNOTATION: "fenced"})
    assert [each["metadata"]["annotations"][PARTITION_POLICY_ANNOTATION] for each in manifest["members"]] == ["fenced"]


def test_a_status_is_shown_on_the_pod_of_that_uid_only() -> None:
    first, second = pod("web-0"), pod("web-1")
    for each in (first, second):
        each.pod["metadata"] |= {"namespace": "team", "uid": f"uid-{each.pod['metadata']['name']}"}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    entries = [
        {"name": "web-0", "uid": "uid-web-0", "status": status},
        {"name": "web-1", "uid": "uid-of-a-former-pod", "status": status},
    ]
    write = SETS.sync_status(SETS.with_pods(stateful(), [first, second]), {"pods": entries}).write
    assert write is not None
    assert (write.resource, write.subresource, write.also) == (PODS, "status", ())
    assert write.target == first.pod


def test_a_set_without_pods_that_could_be_sent_waits_for_them() -> None:
    assert SETS.awaits_members(SETS.with_pods(stateful(), [pod("web-0", problem="too large")]))
    assert not SETS.awaits_members(SETS.with_pods(stateful(), [pod("web-0")]))


def test_one_with_too_many_replicas_is_not_sent() -> None:
    job = SETS.with_pods(stateful(replicas=300), [pod("web-0")])
    assert SETS.not_sent(job) == "the group has 300 pods, and at most 256 of one group are sent to a worker cluster"


def test_an_agent_serves_pods_and_not_stateful_sets() -> None:
    assert [each.framework for each in served_integrations(["pod", "statefulset"])] == ["pod"]
