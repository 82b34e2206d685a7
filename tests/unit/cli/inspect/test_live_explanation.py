# SPDX-License-Identifier: Apache-2.0
"""A hub's objects explained, without a hub."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from manager.cache.caches import Caches
from multikueue.api import configuration_file
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REPORTS,
    DEVICE_CLASSES,
    LEASES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from multikueue.cli.hub_options import WorkloadRef
from multikueue.cli.inspect import explanation_view
from multikueue.cli.inspect.explain import main as explain_command
from multikueue.cli.inspect.hub_facts import HubObjects
from multikueue.cli.inspect.live_explanation import LiveExplanation, explain_workload
from multikueue.cli.inspect.timeline import main as timeline_command
from multikueue.cli.inspect.workload_of_job import find
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.explanation import DispatchState
from multikueue.dispatch.hub.actions import Rule
from multikueue.kube.cache.store import read_row
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
T0 = "2026-01-01T12:00:00Z"
KUEUE = "kueue.x-k8s.io/v1beta2"


def obj(
    name: str, *, namespace: str = "", spec: Object | None = None, status: Object | None = None, **more: Any
) -> Object:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": T0, **more}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata, "spec": spec or {}, **({"status": status} if status else {})}


def condition(kind: str, value: str = "True", reason: str = "R", message: str = "m") -> Object:
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": T0}


def member(name: str, *, agent: bool = True, active: Object | None = None) -> Object:
    annotations = {"multikueue.io/transport": "agent"} if agent else {}
    conditions = [active or condition("Active", reason="Active", message="Connected")]
    return obj(name, annotations=annotations, status={"conditions": conditions})


def workload(name: str = "wl", *, check: Object | None = None, reserved: bool = True, **status: Any) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if reserved:
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}}
        status["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
        status.setdefault("conditions", []).append(condition("QuotaReserved", reason="QuotaReserved"))
    if check is not None:
        status["admissionChecks"] = [{"name": "mk", "state": "Pending", "lastTransitionTime": T0, **check}]
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}], "active": True}
    return obj(name, namespace="ns", spec=spec, status=status, ownerReferences=[owner])


def hub(
    *workloads: Object, clusters: Iterable[Object] = (), more: dict[Resource, list[Object]] | None = None
) -> HubObjects:
    """A hub with one queue of 4 cpu whose MultiKueue check stands for these clusters."""
    client = KubeClient(credentials.from_dict(_KUBECONFIG, source="a test"))
    found = HubObjects(configuration_file.load(""), Caches(client, (), clock=ManualClock(NOW)))
    group = {"coveredResources": ["cpu"], "flavors": [_FLAVOR]}
    checks = {"admissionChecks": [{"name": "mk"}]}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"}
    members = list(clusters)
    objects: dict[Resource, list[Object]] = {
        RESOURCE_FLAVORS: [obj("spot")],
        CLUSTER_QUEUES: [
            obj("cq", spec={"namespaceSelector": {}, "resourceGroups": [group], "admissionChecksStrategy": checks})
        ],
        LOCAL_QUEUES: [obj("lq", namespace="ns", spec={"clusterQueue": "cq"})],
        ADMISSION_CHECKS: [
            obj(
                "mk",
                spec={"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters},
                status={"conditions": [condition("Active", reason="Active")]},
            )
        ],
        MULTIKUEUE_CONFIGS: [obj("config", spec={"clusters": [each["metadata"]["name"] for each in members]})],
        MULTIKUEUE_CLUSTERS: members,
        WORKLOADS: list(workloads),
        **(more or {}),
    }
    for resource, listed in objects.items():
        for each in listed:
            found.caches.view(resource).store.put(read_row(orjson.dumps(each)))
    return found


_FLAVOR = {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
_KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


def explain(objects: HubObjects, name: str = "wl", *, now: datetime = NOW) -> LiveExplanation:
    found = find(objects.all(WORKLOADS), WorkloadRef("workload", Key("ns", name)))
    return explain_workload(objects, found, now=now)


def standings(found: LiveExplanation) -> dict[str, DispatchState]:
    assert found.dispatch is not None
    return {each.cluster: each.state for each in found.dispatch.clusters}


def report(cluster: str, free: str, *, written: str) -> Object:
    capacity = {"name": "cpu", "allocatable": "8", "free": free, "largestFree": free, "largest": "8"}
    status = {"groups": [{"nodes": 1, "capacity": [capacity]}], "time": T0}
    fields = [{"manager": "agent", "time": written}]
    return obj("agent", namespace=f"mk-{cluster}", status=status, managedFields=fields)


def test_capacity_comes_from_reports_and_from_assignments() -> None:
    other = workload("other", check={"state": "Ready"}, clusterName="w1")
    reports = [report(name, "3", written="2026-01-01T12:00:50Z") for name in ("w1", "w2")]
    objects = hub(workload(check={}), other, clusters=(member("w1"), member("w2")), more={CLUSTER_REPORTS: reports})
    found = explain(objects)
    assert standings(found) == {"w1": DispatchState.NO_CAPACITY, "w2": DispatchState.HAS_CAPACITY}
    assert found.summary == "has quota and is dispatched next, to one of w2"
    shown = explanation_view.document(found)["dispatch"]["clusters"]
    assert shown[0]["short"] == [{"resource": "cpu", "amount": "1", "flavor": "spot", "onOneNode": False}]
    parts = shown[1]["score"]["parts"]
    assert (parts["freeCapacity"], parts["room"]) == (0.125, 0.125)
    assert [(each["state"], each["standing"]) for each in shown] == [
        ("NoCapacity", "NoRoom"),
        ("HasCapacity", "HasRoom"),
    ]


def test_a_report_that_the_hub_received_long_ago_is_ignored_whatever_the_agents_clock() -> None:
    reports = [report("w1", "8", written="2026-01-01T12:00:10Z")]
    found = explain(hub(workload(check={}), clusters=(member("w1"),), more={CLUSTER_REPORTS: reports}))
    assert standings(found) == {"w1": DispatchState.UNKNOWN_CAPACITY}


def test_a_lost_cluster_counts_from_its_last_renewal() -> None:
    silent = condition("Active", "False", "ClientConnectionFailed", "the agent has not renewed its lease")
    lease = obj("agent", namespace="mk-w1", spec={"renewTime": "2026-01-01T11:59:20Z"})
    found = explain(hub(workload(check={}), clusters=(member("w1", active=silent),), more={LEASES: [lease]}))
    assert found.dispatch is not None
    assert found.dispatch.clusters[0].reason == "not connected since 2026-01-01T11:59:20Z"


def test_fenced_work_that_cannot_be_stopped_stays_on_its_cluster() -> None:
    silent = condition("Active", "False", "ClientConnectionFailed", "the agent has not renewed its lease")
    lease = obj(
        "agent",
        namespace="mk-w1",
        spec={"renewTime": "2026-01-01T09:00:00Z"},
        annotations={"multikueue.io/cannot-stop-since": "2026-01-01T09:00:10Z"},
    )
    granted = workload(check={"state": "Ready"}, clusterName="w1")
    granted["metadata"]["annotations"] = {"multikueue.io/partition-policy": "fenced"}
    copy = obj(
        "wl-1",
        namespace="mk-w1",
        spec={"workload": {"namespace": "ns", "name": "wl", "uid": "uid-wl"}, "epoch": 1, "intent": "Run"},
        annotations={"multikueue.io/cluster": "w1"},
    )
    more = {LEASES: [lease], REMOTE_ASSIGNMENTS: [copy]}
    found = explain(hub(granted, clusters=(member("w1", active=silent),), more=more))
    assert found.dispatch is not None
    assert found.dispatch.clusters[0].reason.endswith("cannot stop it, so fenced work stays there")


def test_a_missing_cluster_and_one_outside_the_config_have_their_reason() -> None:
    copy = obj(
        "wl-1",
        namespace="mk-gone",
        spec={"workload": {"namespace": "ns", "name": "wl", "uid": "uid-wl"}, "epoch": 1, "intent": "Reserve"},
        annotations={"multikueue.io/cluster": "gone"},
    )
    config = obj("config", spec={"clusters": ["absent"]})
    found = explain(hub(workload(check={}), more={MULTIKUEUE_CONFIGS: [config], REMOTE_ASSIGNMENTS: [copy]}))
    assert found.dispatch is not None
    assert {each.cluster: each.reason for each in found.dispatch.clusters} == {
        "absent": "the MultiKueueCluster does not exist",
        "gone": "the cluster is not in the config",
    }


def test_of_a_cluster_that_the_manager_reaches_itself_the_check_is_quoted() -> None:
    said = "Waiting for a worker cluster: west: insufficient free capacity: short 1 cpu"
    waiting = explain(hub(workload(check={"message": said}), clusters=(member("west", agent=False),)))
    assert waiting.dispatch is not None
    assert waiting.dispatch.clusters[0].reason == "insufficient free capacity: short 1 cpu"
    granted = workload(check={"state": "Ready"}, clusterName="west")
    sent = explain(hub(granted, clusters=(member("west", agent=False),)))
    assert standings(sent) == {"west": DispatchState.CHOSEN}
    assert sent.dispatch is not None
    assert sent.dispatch.rule is Rule.GRANTED
    assert sent.summary.startswith("was sent to west: was chosen; the manager connects to this cluster itself")


def test_a_workload_in_the_queue_shows_its_place_and_what_is_short() -> None:
    running = workload("big", conditions=[])
    running["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = "3"
    found = explain(hub(running, workload(check={}, reserved=False)))
    assert found.summary == (
        "waits for quota at position 1 in ClusterQueue cq: it requests 2 cpu, but flavor spot has 1 free"
    )
    text = "\n".join(explanation_view.lines(found))
    assert "cpu: requests 2 of 1 free, 1 short" in text
    assert "workload/ns/wl of Job j waits for quota" in text


@pytest.mark.parametrize(
    ("check", "trouble", "step"),
    [
        pytest.param([], "the AdmissionCheck does not exist", "ask an administrator to check it", id="missing"),
        pytest.param(
            [obj("mk", spec={"controllerName": "x"})],
            "no controller has set",
            'start or repair the controller that serves controllerName "x"',
            id="no controller",
        ),
        pytest.param(
            [obj("mk", spec={"controllerName": "x"}, status={"conditions": [condition("Active", "False", "Broken")]})],
            "the AdmissionCheck is not Active: Broken: m",
            'correct what the message names, or ask the owner of the controller "x"',
            id="not active",
        ),
    ],
)
def test_an_inactive_admission_check_has_its_reason(check: list[Object], trouble: str, step: str) -> None:
    found = explain(hub(workload(check={}), more={ADMISSION_CHECKS: check}))
    assert trouble in found.checks[0].trouble
    assert found.dispatch is None
    assert found.summary.startswith("has quota and waits for the admission check mk: ")
    assert (found.next_step, found.next_command) == (
        step,
        "kubectl describe admissioncheck mk",
    )
    assert trouble in "\n".join(explanation_view.lines(found))


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param(
            [condition("Finished", reason="Succeeded")], "succeeded at 2026-01-01T12:00:00Z: m", id="succeeded"
        ),
        pytest.param([condition("Finished", reason="Failed")], "failed at 2026-01-01T12:00:00Z: m", id="failed"),
        pytest.param(
            [condition("Finished", reason="OwnerNotFound")],
            "finished (OwnerNotFound) at 2026-01-01T12:00:00Z: m",
            id="ended otherwise",
        ),
        pytest.param([condition("Evicted", reason="Preempted")], "is being evicted: Preempted: m", id="stopping"),
        pytest.param([], "is admitted", id="admitted without a check"),
    ],
)
def test_the_first_line_is_the_answer(conditions: list[Object], want: str) -> None:
    assert explain(hub(workload(conditions=conditions))).summary == want


def test_of_several_workloads_of_a_job_the_newest_is_meant() -> None:
    old, new = workload("old"), workload("new")
    new["metadata"]["creationTimestamp"] = "2026-01-01T12:00:30Z"
    assert find([new, old], WorkloadRef("job", Key("ns", "j")))["metadata"]["name"] == "new"
    with pytest.raises(BadInput, match="Workload of Job ns/x not found"):
        find([old], WorkloadRef("job", Key("ns", "x")))
    with pytest.raises(BadInput, match=r"Workload other/old not found.*\nkubectl get jobs,workloads -n other$"):
        find([old], WorkloadRef("workload", Key("other", "old")))


@pytest.mark.parametrize("arguments", [["workload", "ns/wl"], ["workload", "ns/wl", "--config", "CONFIG"]])
def test_a_hub_that_does_not_answer_is_one_line_and_exit_code_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "config"
    kubeconfig.write_bytes(orjson.dumps(_KUBECONFIG))
    config.write_text("")
    given = [str(config) if each == "CONFIG" else each for each in arguments]
    assert explain_command([*given, "--kubeconfig", str(kubeconfig)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mkctl explain: ")
    assert timeline_command(["ns/wl", "--kubeconfig", str(kubeconfig)]) == 2
    assert capsys.readouterr().err.startswith("mkctl timeline: ")


def test_cycles_are_of_manifests_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_command(["workload", "ns/wl", "--cycles", "1"]) == 2
    assert "--cycles needs manifests" in capsys.readouterr().err


MAPPINGS = "resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu.example.com]}]}"


def claiming(*, more: dict[Resource, list[Object]] | None = None, mappings: str = MAPPINGS) -> HubObjects:
    """A hub with a pending Workload whose pods claim devices of the template `t`."""
    waiting = workload(reserved=False)
    pod = waiting["spec"]["podSets"][0]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return replace(hub(waiting, more=more), configuration=configuration_file.load(mappings))


def test_devices_are_counted_with_the_templates_and_classes_of_the_hub() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 3}}
    template = obj("t", namespace="ns", spec={"spec": {"devices": {"requests": [request]}}})
    more = {RESOURCE_CLAIM_TEMPLATES: [template], DEVICE_CLASSES: [obj("gpu.example.com")]}
    assert "resource gpus unavailable in ClusterQueue" in explain(claiming(more=more)).queue.message


def test_a_claim_that_cannot_be_counted_is_explained() -> None:
    assert 'ResourceClaimTemplate "t" not found' in explain(claiming()).queue.message


def test_a_user_who_may_not_list_claim_templates_is_shown_no_queue_but_what_is_missing() -> None:
    objects = claiming()
    objects.forbidden.add(RESOURCE_CLAIM_TEMPLATES)
    found = explain(objects)
    assert any("resourceclaimtemplates" in right for part in found.left_out for right in part.rights)
    unmapped = claiming(mappings="")
    unmapped.forbidden.add(RESOURCE_CLAIM_TEMPLATES)
    assert not [part for part in explain(unmapped).left_out if "resourceclaimtemplates" in str(part)]
