# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.configuration_file import load
from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL, CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.errors import BadInput
from multikueue.dispatch.explanation import DispatchState, explain_dispatch
from multikueue.dispatch.hub.actions import Assign, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import Adoption, DispatchSettings
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.policy.dispatch_policy import (
    DispatchPolicy,
    DispatchSubject,
    PolicyVerdict,
    agent_rules,
    cluster_rules,
    hub_rules,
    patterns_of,
    verdict,
)
from multikueue.dispatch.policy.pod_specs import pod_specs
from tests.unit.dispatch.builders import NOW, facts, running, seen, workload

CONTAINER = {"name": "c", "image": "i"}
WHY = 'its dispatch policy denies the namespace "ns"'


def subject(namespace: str = "team-a", **pod: Any) -> DispatchSubject:
    """A Job of one pod template in that namespace."""
    spec = {"containers": [CONTAINER], **pod}
    return DispatchSubject.of(namespace, {"kind": "Job", "spec": {"template": {"spec": spec}}}, workload_spec={})


def configured(policy: str) -> Any:
    """The rules of a hub whose Configuration has that dispatchPolicy."""
    return hub_rules(load(f"multiKueue: {{dispatchPolicy: {policy}}}"))


def annotated(**texts: str) -> Any:
    """The rules of a cluster with these annotations."""
    return cluster_rules({f"multikueue.io/{key.replace('_', '-')}": text for key, text in texts.items()})


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-x", "kueue-system", "multikueue-system"])
def test_the_namespaces_of_the_system_are_never_allowed(namespace: str) -> None:
    open_to_all = configured('{allowedNamespaces: ["*"]}')
    assert f'never allows the namespace "{namespace}"' in open_to_all.objection(subject(namespace))
    assert open_to_all.objection(subject("team-a")) == ""


def test_the_manager_s_own_namespace_is_where_it_was_installed() -> None:
    rules = hub_rules(load("namespace: queues"))
    assert "never allows" in rules.objection(subject("queues"))
    assert rules.objection(subject("kueue-system")) == ""


def test_the_namespace_of_a_flag_counts_rather_than_that_of_the_configuration() -> None:
    rules = hub_rules(load("namespace: queues"), namespace="elsewhere")
    assert "never allows" in rules.objection(subject("elsewhere"))


def test_an_agent_never_allows_its_own_namespaces() -> None:
    rules = agent_rules(namespaces=("agents", "secrets"))
    assert [bool(rules.objection(subject(name))) for name in ("agents", "secrets", "kube-system", "team")] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("namespace", "allowed"), [("team-a", True), ("team-ab", True), ("other", False), ("team-secret", False)]
)
def test_namespaces_are_allowed_and_denied_by_pattern(namespace: str, allowed: bool) -> None:
    rules = annotated(allowed_namespaces="team-*, x", denied_namespaces="team-secre?")
    assert (rules.objection(subject(namespace)) == "") is allowed


@pytest.mark.parametrize(
    ("pod", "objection"),
    [
        ({"serviceAccountName": "batch"}, ""),
        ({"serviceAccountName": "batch", "serviceAccount": "batch"}, ""),
        ({}, 'spec.template.spec.serviceAccountName: "default", it allows batch, job-*'),
        ({"serviceAccountName": "admin"}, 'spec.template.spec.serviceAccountName: "admin", it allows batch, job-*'),
        ({"serviceAccount": "admin"}, 'spec.template.spec.serviceAccount: "admin", it allows batch, job-*'),
        (
            {"serviceAccountName": "batch", "serviceAccount": "admin"},
            'spec.template.spec.serviceAccount: "admin", it allows batch, job-*',
        ),
    ],
    ids=["allowed", "allowed in both fields", "none named", "another", "another in the old field", "two that differ"],
)
def test_service_accounts_are_those_of_the_policy(pod: dict[str, Any], objection: str) -> None:
    said = annotated(allowed_service_accounts="batch,job-*").objection(subject(**pod))
    assert said == (f"its dispatch policy forbids {objection}" if objection else "")


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"nodeName": "control-plane"}, "nodeName"),
        ({"priorityClassName": "system-node-critical"}, "priorityClassName"),
        ({"priorityClassName": "system-cluster-critical"}, "priorityClassName"),
    ],
    ids=["a node", "a node-critical priority", "a cluster-critical priority"],
)
def test_powers_over_the_worker_are_forbidden_at_every_level(pod: dict[str, Any], field: str) -> None:
    assert f"spec.template.spec.{field}" in configured("{}").objection(subject(**pod))


def test_tolerations_and_other_priority_classes_go_along() -> None:
    pod: dict[str, Any] = {
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "schedulerName": "other",
    }
    assert configured("{}").objection(subject(**pod)) == ""


def test_the_stricter_of_two_pod_security_levels_counts() -> None:
    policy = DispatchPolicy((configured("{podSecurity: baseline}"), annotated(pod_security="restricted")))
    assert policy.pod_security == "restricted"
    assert "baseline (Host Namespaces)" in policy.objection(subject(hostNetwork=True))
    assert "restricted" in policy.objection(subject())


def test_the_pod_sets_of_the_workload_are_looked_at_too() -> None:
    pod_sets = [{"template": {"spec": {"containers": [CONTAINER], "hostPID": True}}}]
    sent = DispatchSubject.of("ns", {}, workload_spec={"podSets": pod_sets}, workload_path="spec.workloadSpec")
    assert "spec.workloadSpec.podSets[0].template.spec.hostPID" in annotated(pod_security="baseline").objection(sent)


def test_every_pod_template_of_a_job_is_found_with_its_path() -> None:
    pod = {"spec": {"containers": [CONTAINER]}, "metadata": {"annotations": {"a": "b"}}}
    replicated = [{"template": {"spec": {"template": pod}}}, {"template": {"spec": {"template": pod}}}]
    found = list(pod_specs({"spec": {"replicatedJobs": replicated, "podSpec": {"initContainers": []}}}))
    assert [each.path for each in found] == [
        "spec.replicatedJobs[0].template.spec.template.spec",
        "spec.replicatedJobs[1].template.spec.template.spec",
        "spec.podSpec",
    ]
    assert found[0].annotations == {"a": "b"}


def test_a_manifest_of_any_depth_is_walked() -> None:
    deep: dict[str, Any] = {"containers": []}
    for _ in range(5000):
        deep = {"a": deep}
    assert len(list(pod_specs(deep))) == 1


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("allowed-namespaces", "", "expected 1 to 256 names or patterns"),
        ("allowed-namespaces", " , ", "expected 1 to 256 names or patterns"),
        ("denied-namespaces", "Team", "a pattern must consist of"),
        ("denied-namespaces", "[a-z]*", "a pattern must consist of"),
        ("allowed-service-accounts", "a," * 300, "expected 1 to 256 names or patterns"),
        ("allowed-service-accounts", "a" * 20_000, "expected at most 16384 characters, found 20000"),
        ("pod-security", "strict", 'expected one of privileged, baseline, restricted, found "strict"'),
        ("pod-security", "", 'expected one of privileged, baseline, restricted, found ""'),
    ],
)
def test_a_mistake_in_an_annotation_allows_nothing(key: str, text: str, problem: str) -> None:
    rules = cluster_rules({f"multikueue.io/{key}": text})
    said = rules.objection(subject())
    assert said.startswith(f"its dispatch policy is invalid and allows nothing: annotation multikueue.io/{key}: ")
    assert problem in said
    assert DispatchPolicy((rules,)).document()["problems"] == [rules.problem]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("{podSecurity: strict}", "podSecurity: expected one of privileged, baseline, restricted"),
        ("{allowedNamespaces: []}", "allowedNamespaces: expected 1 to 256 patterns, got 0"),
        ("{deniedNamespaces: [A]}", r"deniedNamespaces\[0\]: a pattern must consist of"),
        ("{serviceAccount: [a]}", "serviceAccount: unknown field; did you mean serviceAccounts?"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(policy: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        configured(policy)


def test_a_list_of_patterns_may_have_spaces() -> None:
    assert patterns_of(" a, b-* ,", field="f") == ("a", "b-*")


def test_the_document_shows_the_rules_of_all() -> None:
    policy = DispatchPolicy((configured("{allowedNamespaces: [team-*]}"), annotated(allowed_namespaces="*-a")))
    assert policy.document() == {
        "podSecurity": "privileged",
        "allowedNamespaces": [["team-*"], ["*-a"]],
        "deniedNamespaces": ["kube-*", "kueue-system", "multikueue-system"],
        "serviceAccounts": [],
        "problems": [],
    }


def test_the_verdict_names_each_cluster_that_forbids_it() -> None:
    found = verdict(subject(), configured("{}"), {"w1": annotated(allowed_namespaces="x"), "w2": annotated()})
    assert found.on("w1") == 'its dispatch policy allows the namespaces x, not "team-a"'
    assert (found.on("w2"), found.everywhere) == ("", "")


def test_what_the_hub_forbids_is_forbidden_everywhere() -> None:
    found = verdict(subject("kube-system"), configured("{}"), {"w1": annotated()})
    assert found.everywhere == found.on("w1") == found.on("any other") != ""


# In the plan

FORBIDDEN = PolicyVerdict({"w1": WHY})


@pytest.mark.parametrize(
    "name", [DISPATCHER_ALL_AT_ONCE, DISPATCHER_INCREMENTAL, DISPATCHER_CAPACITY, "example.com/external"]
)
def test_no_dispatcher_sends_anything_to_a_cluster_that_forbids_it(name: str) -> None:
    of = workload(nominated=("w1", "w2")) if name.startswith("example") else workload()
    decision = plan(facts(of, policy=FORBIDDEN, settings=DispatchSettings(dispatcher=name)), NOW)
    assert decision.actions == (Assign("w2"),)
    assert WHY in [entry.reason for entry in decision.waiting if entry.cluster == "w1"]


@pytest.mark.parametrize("name", [DISPATCHER_INCREMENTAL, "example.com/external"])
def test_a_nomination_that_a_policy_forbids_by_now_is_taken_back(name: str) -> None:
    of = workload(nominated=("w1", "w2"))
    decision = plan(facts(of, seen("w1"), policy=FORBIDDEN, settings=DispatchSettings(dispatcher=name)), NOW)
    assert set(decision.actions) == {Assign("w2"), RemoveAssignment("w1")}


def test_capacity_that_was_reserved_before_the_policy_was_tightened_is_not_granted() -> None:
    decision = plan(facts(workload(), seen("w1", AssignmentPhase.RESERVED), policy=FORBIDDEN), NOW)
    assert decision.rule is Rule.NOMINATE
    assert RemoveAssignment("w1") in decision.actions


def test_an_assignment_is_not_adopted_where_a_policy_forbids_it() -> None:
    of = workload(adopts=Adoption("w1", "m", "j", 1))
    assert plan(facts(of, policy=FORBIDDEN), NOW).actions == ()
    reserved = facts(of, seen("w1", AssignmentPhase.RUNNING), policy=FORBIDDEN)
    assert plan(reserved, NOW).actions == (RemoveAssignment("w1"),)


def test_a_grant_that_was_not_delivered_is_taken_back_when_a_policy_forbids_it() -> None:
    decision = plan(facts(running(), policy=FORBIDDEN, delivered=False), NOW)
    assert decision.rule is Rule.FORBIDDEN
    assert decision.check is not None
    assert (decision.check.state, WHY in decision.check.message) == (CheckState.RETRY, True)
    assert plan(facts(running(), delivered=False), NOW).actions == (Assign("w1", Intent.RUN),)


def test_the_check_reports_what_each_cluster_forbids() -> None:
    decision = plan(facts(workload(), policy=PolicyVerdict({"w1": WHY, "w2": "no"})), NOW)
    assert decision.check is not None
    assert decision.check.message == f"Waiting for a worker cluster: w1: {WHY}; w2: no"


def test_the_check_reports_that_the_whole_hub_forbids_it() -> None:
    decision = plan(facts(workload(), policy=PolicyVerdict(everywhere="the hub's dispatch policy denies it")), NOW)
    assert decision.check is not None
    assert decision.check.message == (
        "Waiting for a worker cluster: none may run this workload: the hub's dispatch policy denies it"
    )


def test_explain_shows_the_clusters_that_are_forbidden() -> None:
    found = explain_dispatch(facts(workload(), policy=FORBIDDEN), NOW)
    assert found is not None
    first, second = found.clusters
    assert (first.state, first.reason) == (DispatchState.FORBIDDEN, WHY)
    assert second.state is not DispatchState.FORBIDDEN


PRIVILEGED = {"containers": [{**CONTAINER, "securityContext": {"privileged": True}}]}
HOST_PATH = [{"name": "v", "hostPath": {"path": "/"}}]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        pytest.param(
            {"components": [{"template": {"containers": [], "spec": {"template": {"spec": PRIVILEGED}}}}]},
            "spec.components[0].template.spec.template.spec.containers[0].securityContext.privileged",
            id="a pod spec below an object that looks like one",
        ),
        pytest.param(
            {
                "components": [
                    {"template": {"initContainers": {}, "spec": {"podTemplateOverrides": [{"spec": PRIVILEGED}]}}}
                ]
            },
            "spec.components[0].template.spec.podTemplateOverrides[0].spec.containers[0].securityContext.privileged",
            id="the same with another list",
        ),
        pytest.param(
            {"autoscalerOptions": {"image": "i", "securityContext": {"privileged": True}}},
            "spec.autoscalerOptions.containers[0].securityContext.privileged",
            id="a container that the operator makes of options",
        ),
        pytest.param(
            {"podTemplateOverrides": [{"spec": {"serviceAccountName": "admin"}}]},
            "spec.podTemplateOverrides[0].spec.serviceAccountName",
            id="a service account in a part of a pod spec",
        ),
        pytest.param(
            {"podTemplateOverrides": [{"spec": {"volumes": HOST_PATH}}]},
            "spec.podTemplateOverrides[0].spec.volumes[0].hostPath",
            id="a host path in a part of a pod spec",
        ),
        pytest.param(
            {"patches": [{"spec": {"hostNetwork": True}}]}, "spec.patches[0].spec.hostNetwork", id="a host namespace"
        ),
        pytest.param(
            {"patches": [{"spec": {"nodeName": "n"}}]}, "spec.patches[0].spec.nodeName", id="a node in a part of one"
        ),
        pytest.param(
            {"outer": {"containers": [], "overrides": [{"serviceAccountName": "admin"}]}},
            "spec.outer.overrides[0].serviceAccountName",
            id="such a part below an object that looks like a pod spec",
        ),
    ],
)
def test_no_form_of_an_object_hides_a_pod_from_the_policy(job: dict[str, Any], field: str) -> None:
    rules = annotated(pod_security="baseline", allowed_service_accounts="default")
    found = DispatchSubject.of("team-a", {"kind": "AppWrapper", "spec": job}, workload_spec={})
    assert field in rules.objection(found)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"tolerations": [], "nodeSelector": {"a": "b"}}, id="where pods run"),
        pytest.param({"volumes": [{"name": "v", "emptyDir": {}}]}, id="a volume that is allowed"),
        pytest.param({"serviceAccountName": "runner"}, id="a service account that is allowed"),
    ],
)
def test_a_part_of_a_pod_spec_that_is_allowed_is_sent(part: dict[str, Any]) -> None:
    rules = annotated(pod_security="baseline", allowed_service_accounts="runner")
    found = DispatchSubject.of("team-a", {"spec": {"podTemplateOverrides": [{"spec": part}]}}, workload_spec={})
    assert rules.objection(found) == ""
