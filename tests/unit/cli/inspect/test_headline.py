# SPDX-License-Identifier: Apache-2.0
"""The first lines of `mkctl explain` name what keeps a workload from running, and what to do about it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from manager.workload.status import Status
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    RESOURCE_FLAVORS,
)
from multikueue.cli.inspect import explanation_view
from multikueue.cli.inspect.headline import HeadlineFacts, headline
from multikueue.cli.terminal import wrapped
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import Rule
from multikueue.dispatch.hub.messages import not_managed
from multikueue.engine.explain import Explanation
from tests.unit.cli.inspect.test_live_explanation import (
    NOW,
    Object,
    condition,
    explain,
    hub,
    member,
    obj,
    workload,
)

_FLAVOR = {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
_SPEC = {
    "namespaceSelector": {},
    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [_FLAVOR]}],
    "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
}


def of_cpu(amount: str) -> Object:
    """A Workload without quota that asks for that much."""
    return requesting(cpu=amount)


def requesting(**requests: str) -> Object:
    """A Workload without quota with these requests besides its cpu."""
    made = workload(check={}, reserved=False)
    made["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"].update(requests)
    return made


def selecting(**labels: str) -> Object:
    """A Workload without quota with that node selector."""
    made = of_cpu("1")
    made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = labels
    return made


def queue(**spec: Any) -> dict[Any, list[Object]]:
    return {CLUSTER_QUEUES: [obj("cq", spec={**_SPEC, **spec})]}


def local(**spec: Any) -> dict[Any, list[Object]]:
    return {LOCAL_QUEUES: [obj("lq", namespace="ns", spec={"clusterQueue": "cq", **spec})]}


def deleted() -> Object:
    made = of_cpu("1")
    made["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    return made


def deactivated() -> Object:
    made = of_cpu("1")
    made["spec"]["active"] = False
    made["status"]["conditions"] = [condition("Evicted", reason="DeactivatedDueToAdmissionCheck", message="Rejected")]
    return made


def rejected(managed_by: str) -> Object:
    """A deactivated Workload whose check was rejected for that `managedBy`."""
    made = deactivated()
    made["status"]["admissionChecks"] = [
        {
            "name": "mk",
            "state": "Rejected",
            "message": not_managed(managed_by),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    return made


@pytest.mark.parametrize(
    ("given", "more", "summary", "step"),
    [
        pytest.param(
            of_cpu("50"),
            {},
            "can never get quota in ClusterQueue cq: it requests 50 cpu, but flavor spot has a maximum of 4",
            "reduce the requests of the job, or raise the quota of ClusterQueue cq",
            id="more than the queue can ever give",
        ),
        pytest.param(
            requesting(**{"example.com/gpu": "1"}),
            {},
            "fits no flavor of ClusterQueue cq: couldn't assign flavors to pod set main: resource example.com/gpu"
            " unavailable in ClusterQueue",
            "add example.com/gpu to spec.resourceGroups of ClusterQueue cq, or do not request it in the job",
            id="a resource that no group of the queue covers",
        ),
        pytest.param(
            selecting(zone="b"),
            {RESOURCE_FLAVORS: [obj("spot", spec={"nodeLabels": {"zone": "a"}})]},
            "fits no flavor of ClusterQueue cq: couldn't assign flavors to pod set main: flavor spot doesn't match node"
            " affinity",
            "compare its node selector, affinity and tolerations with the ResourceFlavors of the ClusterQueue",
            id="a node selector that no flavor has",
        ),
        pytest.param(
            of_cpu("50"),
            queue(stopPolicy="Hold"),
            "waits: ClusterQueue cq is stopped (stopPolicy Hold)",
            'kubectl patch clusterqueue cq --type merge -p \'{"spec":{"stopPolicy":"None"}}\'',
            id="a held ClusterQueue, whatever it asks",
        ),
        pytest.param(
            of_cpu("1"),
            local(stopPolicy="HoldAndDrain"),
            "waits: LocalQueue lq is stopped (stopPolicy HoldAndDrain)",
            "kubectl patch localqueue lq -n ns --type merge",
            id="a held LocalQueue",
        ),
        pytest.param(
            of_cpu("1"),
            {LOCAL_QUEUES: []},
            "cannot be queued: LocalQueue lq doesn't exist",
            "create the LocalQueue, or set the label kueue.x-k8s.io/queue-name of the job to another one; if that queue"
            " has a MultiKueue check, then delete the Job and create it again",
            id="no such LocalQueue",
        ),
        pytest.param(
            of_cpu("1"),
            {
                LOCAL_QUEUES: [],
                JOBS: [obj("j", namespace="ns", spec={"managedBy": "kueue.x-k8s.io/multikueue"})],
            },
            "cannot be queued: LocalQueue lq doesn't exist",
            "to another one; if that queue has no MultiKueue check, then delete the Job and create it again",
            id="no such LocalQueue, of a Job that was created for worker clusters",
        ),
        pytest.param(
            of_cpu("1"),
            {CLUSTER_QUEUES: []},
            "cannot be queued: ClusterQueue cq doesn't exist",
            "create the ClusterQueue, or point the LocalQueue to another one; if that queue has a MultiKueue check,",
            id="no such ClusterQueue",
        ),
        pytest.param(
            of_cpu("1"),
            {
                CLUSTER_QUEUES: [
                    obj(
                        "cq",
                        spec={**_SPEC, "admissionChecksStrategy": {"admissionChecks": [{"name": "gone"}]}},
                        status={"conditions": [condition("Active", "False", "NotFound", "gone is missing")]},
                    )
                ]
            },
            "waits: ClusterQueue cq is not active: gone is missing",
            "kubectl describe clusterqueue cq",
            id="a ClusterQueue that is not active",
        ),
        pytest.param(
            of_cpu("1"),
            {
                CLUSTER_QUEUES: [
                    obj(
                        "cq",
                        spec={**_SPEC, "admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}},
                        status={"conditions": [condition("Active", "False", "AdmissionCheckInactive", "budget")]},
                    )
                ],
                ADMISSION_CHECKS: [obj("budget", spec={"controllerName": "example.com/budget"})],
            },
            "waits: ClusterQueue cq is not active: AdmissionCheck budget of example.com/budget: no controller has set"
            " the Active condition of the AdmissionCheck",
            'start or repair the controller that serves controllerName "example.com/budget": kubectl describe'
            " admissioncheck budget",
            id="the controller of an AdmissionCheck does not run",
        ),
        pytest.param(
            deactivated(),
            {},
            "is deactivated and not queued: Rejected",
            'kubectl patch workload wl -n ns --type merge -p \'{"spec":{"active":true}}\'',
            id="a deactivated workload",
        ),
        pytest.param(
            deleted(),
            {},
            "is being deleted, and gets no quota",
            "see which finalizers it waits for: kubectl get workloads.kueue.x-k8s.io wl -n ns -o"
            " jsonpath='{.metadata.finalizers}'",
            id="a workload that is being deleted",
        ),
        pytest.param(
            rejected(""),
            {JOBS: [obj("j", namespace="ns", spec={})]},
            "is deactivated and not queued: Rejected",
            "delete the Job and create it again, without spec.managedBy, in this queue: kubectl delete job j -n ns",
            id="a Job that was created for the hub",
        ),
        pytest.param(
            rejected(""),
            {JOBS: [obj("j", namespace="ns", spec={"managedBy": "kueue.x-k8s.io/multikueue"})]},
            "is deactivated and not queued: Rejected",
            'kubectl patch workload wl -n ns --type merge -p \'{"spec":{"active":true}}\'',
            id="a Job that has replaced the one that was created for the hub",
        ),
        pytest.param(
            workload(check={}),
            {
                CLUSTER_REGISTRATIONS: [obj("w1", spec={"cordoned": True}), obj("w2", spec={"cordoned": True})],
                MULTIKUEUE_CONFIGS: [obj("config", spec={"clusters": ["w1", "w2"]})],
            },
            "has quota, but no cluster accepts it: w1: is cordoned and takes no new work; w2: is cordoned and takes no"
            " new work",
            "an administrator can uncordon one: mkctl cluster uncordon w1",
            id="all clusters are cordoned",
        ),
        pytest.param(
            workload(check={}),
            {MULTIKUEUE_CONFIGS: [obj("config", spec={"clusters": ["absent"]})]},
            "has quota, but no cluster accepts it: absent: the MultiKueueCluster does not exist",
            "ask an administrator to check one; these clusters exist: mkctl cluster list",
            id="the cluster does not exist",
        ),
        pytest.param(
            workload(check={}),
            {MULTIKUEUE_CONFIGS: [obj("config", spec={"clusters": ["absent", "w3"]})]},
            "has quota, but no cluster accepts it: absent: the MultiKueueCluster does not exist; w3: not connected"
            " since 2026-01-01T12:00:00Z",
            "ask an administrator to check one: mkctl cluster describe w3",
            id="one cluster does not exist and the other is not connected",
        ),
    ],
)
def test_the_headline_names_the_true_blocker_and_the_next_step(
    given: Object, more: dict[Any, list[Object]], summary: str, step: str
) -> None:
    silent = condition("Active", "False", "ClientConnectionFailed", "the agent has not renewed its lease")
    found = explain(hub(given, clusters=(member("w1"), member("w2"), member("w3", active=silent)), more=more))
    _, *then = explanation_view.lines(found)
    shown = f"{found.next_step}: {found.next_command}" if found.next_command else found.next_step
    assert (found.summary, step in shown) == (summary, True), shown
    assert then[0].startswith(f"Next: {found.next_step}")
    assert not re.search("kubectl|mkctl", found.next_step), "a command stands on a line of its own"
    assert then[1] == (f"  {found.next_command}" if found.next_command else "")


@pytest.mark.parametrize(
    ("reason", "summary"),
    [
        pytest.param("Succeeded", "succeeded on w1 at 2026-01-01T12:00:50Z, started at 2026-01-01T12:00:20Z: m"),
        pytest.param("Failed", "failed on w1 at 2026-01-01T12:00:00Z, started at 2026-01-01T12:00:20Z: m"),
    ],
    ids=str,
)
@pytest.mark.parametrize("clusters", [("w1",), ()], ids=["the cluster is there", "the cluster was removed"])
def test_finished_work_has_its_cluster_times_and_result(reason: str, summary: str, clusters: tuple[str, ...]) -> None:
    ended = workload(check={"state": "Ready"}, clusterName="w1", conditions=[condition("Finished", reason=reason)])
    status = {"startTime": "2026-01-01T12:00:20Z"}
    if reason == "Succeeded":
        status["completionTime"] = "2026-01-01T12:00:50Z"
    job = {"apiVersion": "batch/v1", "kind": "Job", **obj("j", namespace="ns", status=status)}
    found = explain(hub(ended, clusters=[member(name) for name in clusters], more={JOBS: [job]}))
    assert found.summary == summary
    assert found.next_command == ("" if reason == "Succeeded" else "mkctl timeline job j -n ns")
    text = "\n".join(explanation_view.lines(found))
    assert "The workload has finished." in text
    assert ("it ran there; the cluster has been removed since" in text) is (not clusters)


def test_a_requeued_workload_has_the_time() -> None:
    status = Status(requeue_at=NOW + timedelta(minutes=1))
    seen = HeadlineFacts(status=status, queue=Explanation(workload=Key("ns", "wl"), state="Pending"))
    assert headline(seen, now=NOW).summary == ("was evicted and is queued again at 2026-01-01T12:02:00Z")
    assert "is queued again" not in headline(seen, now=NOW + timedelta(minutes=2)).summary


@pytest.mark.parametrize(
    ("clusters", "config", "why", "step", "command"),
    [
        pytest.param(
            [member("w1"), member("w2")],
            [obj("config", spec={"clusters": ["w2"]})],
            "the cluster is not in the config",
            "to keep its work there, an administrator must list w1 in the MultiKueueConfig again",
            "kubectl get multikueueconfigs -o yaml",
            id="it was removed from the config",
        ),
        pytest.param(
            [member("w1")],
            [],
            "the cluster is not in the config",
            "to keep its work there, an administrator must list w1 in the MultiKueueConfig again",
            "kubectl get multikueueconfigs -o yaml",
            id="the config was deleted",
        ),
        pytest.param(
            [member("w2")],
            [obj("config", spec={"clusters": ["w1", "w2"]})],
            "the MultiKueueCluster does not exist",
            "ask an administrator to check it; these clusters exist",
            "mkctl cluster list",
            id="the cluster was deleted",
        ),
    ],
)
def test_work_on_a_cluster_that_was_taken_away_is_shown_no_time_that_only_the_manager_knows(
    clusters: list[Object], config: list[Object], why: str, step: str, command: str
) -> None:
    on_it = workload(check={"state": "Ready"}, clusterName="w1")
    given = hub(on_it, clusters=clusters, more={MULTIKUEUE_CONFIGS: config})
    found, later = (explain(given, now=moment) for moment in (NOW, NOW + timedelta(minutes=14)))
    assert found.summary == (
        f"was sent to w1: {why}; its work moves to another cluster at most 15m after the manager noticed that,"
        " or after its last restart (policy failover)"
    )
    assert (found.next_step, found.next_command) == (step, command)
    assert [*explanation_view.lines(later)] == [*explanation_view.lines(found)]
    shown = explanation_view.document(found)["dispatch"]
    lost = next(each for each in shown["clusters"] if each["cluster"] == "w1")
    assert (lost["lostSince"], shown["nextLook"]) == (None, None)


def test_work_on_a_lost_cluster_that_was_taken_away_leaves_it_by_the_time_of_the_loss() -> None:
    silent = condition("Active", "False", "ClientConnectionFailed", "the agent has not renewed its lease")
    on_it = workload(check={"state": "Ready"}, clusterName="w1")
    config = obj("config", spec={"clusters": []})
    given = hub(on_it, clusters=[member("w1", active=silent)], more={MULTIKUEUE_CONFIGS: [config]})
    assert "its work moves to another cluster at 2026-01-01T12:15:00Z" in explain(given).summary


NOT_STARTED = 'Worker cluster "w1": the pods do not start: '


@pytest.mark.parametrize(
    ("reason", "text", "step"),
    [
        pytest.param(
            "FailedCreate",
            'serviceaccount "x" not found',
            "an administrator of w1 must create or allow what",
            id="refused",
        ),
        pytest.param(
            "ImagePullBackOff", "pod j-1, container c: no", "correct the image of the job, or let w1", id="image"
        ),
        pytest.param("FailedMount", "pod j-1: no volume", "correct that in the job or on w1", id="any other cause"),
    ],
)
@pytest.mark.parametrize("agent", [True, False], ids=["pull", "push"])
def test_work_whose_pods_do_not_start_has_the_reason_of_the_worker_and_the_time_it_leaves(
    reason: str, text: str, step: str, *, agent: bool
) -> None:
    shown = {
        **condition("PodsStarted", "False", reason, NOT_STARTED + text),
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    stuck = workload(check={"state": "Ready"}, clusterName="w1", conditions=[shown])
    assignment = obj(
        "wl-1",
        namespace="mk-w1",
        spec={"workload": {"namespace": "ns", "name": "wl", "uid": "uid-wl"}, "epoch": 1, "intent": "Run"},
        annotations={"multikueue.io/cluster": "w1"},
        status={
            "epoch": 1,
            "phase": "Running",
            "conditions": [condition("PodsStarted", "False", reason, text)],
        },
    )
    job = {"apiVersion": "batch/v1", "kind": "Job", **obj("j", namespace="ns")}
    more = {JOBS: [job], REMOTE_ASSIGNMENTS: [assignment] if agent else []}
    found = explain(hub(stuck, clusters=[member("w1", agent=agent)], more=more))
    assert found.summary == f"was sent to w1, but its pods do not start: {reason}: {text}"
    assert found.next_step.startswith(step)
    assert found.next_step.endswith("; otherwise it leaves w1 at 2026-01-01T12:05:00Z; see its history") is agent
    assert found.next_command == "mkctl timeline job j -n ns"
    assert f"its pods do not start: {reason}: {text}" in "\n".join(list(explanation_view.lines(found))[1:])


def test_work_that_waits_for_the_cluster_where_its_pods_did_not_start_has_that_reason() -> None:
    shown = condition("PodsStarted", "False", "FailedCreate", f"{NOT_STARTED}no account")
    waiting = workload(check={}, conditions=[shown])
    waiting["metadata"]["annotations"] = {"multikueue.io/avoided-clusters": "w1=2026-01-01T12:10:00Z"}
    found = explain(hub(waiting, clusters=[member("w1")]))
    assert found.summary == (
        "has quota, but no cluster accepts it: w1: failed this workload, is avoided until 2026-01-01T12:10:00Z."
        ' Before: FailedCreate: Worker cluster "w1": the pods do not start: no account'
    )
    assert found.next_step == (
        "an administrator of that cluster must create or allow what the message names;"
        " the cluster is tried again at that time"
    )


@pytest.mark.parametrize(
    ("ready", "summary"),
    [
        pytest.param([], "was sent to w1", id="its pods are not ready"),
        pytest.param([condition("PodsReady", reason="Started")], "runs on w1", id="its pods are ready"),
    ],
)
def test_without_the_right_to_read_clusters_the_conditions_say_whether_it_runs(
    ready: list[Object], summary: str
) -> None:
    status = Status.of(workload(check={"state": "Ready"}, clusterName="w1", conditions=ready))
    seen = HeadlineFacts(status=status, queue=Explanation(workload=Key("ns", "wl"), state="Admitted"))
    assert headline(seen, now=NOW).summary == summary


def test_every_rule_has_a_sentence_without_its_number() -> None:
    assert set(explanation_view.RULES) == set(Rule)
    assert not [text for text in explanation_view.RULES.values() if re.search(r"\d|Rule", text)]


def test_long_lines_are_wrapped_and_commands_are_not() -> None:
    line = "  worker-1: is cordoned and takes no new work, see https://a.very.long/address/that-must-stay-whole"
    assert wrapped(line, width=0) == [line]
    found = wrapped(line, width=40)
    assert found == [
        "  worker-1: is cordoned and takes no new",
        "    work, see",
        "    https://a.very.long/address/that-must-stay-whole",
    ]
    assert wrapped("short", width=40) == ["short"]
    assert wrapped("MultiKueueCluster w not found; `mkctl cluster list`", width=40) == [
        "MultiKueueCluster w not found;",
        "  `mkctl cluster list`",
    ]
    command = "  kubectl patch clusterqueue team-b --type merge -p '{}'"
    assert wrapped(command, width=40) == [command]
