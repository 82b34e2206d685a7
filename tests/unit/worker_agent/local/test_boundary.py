# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
import yaml

from multikueue.cli.cluster import joining_instructions
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.policy.dispatch_policy import PolicyRules, agent_rules
from multikueue.dispatch.worker.assignment_state import FORBIDDEN_BY_POLICY, Obstacle
from tests.support.managers import job_manifest
from worker_agent.local.boundary import BAD_MANIFEST, Boundary
from worker_agent.options import parse

REQUIRED = ("--cluster", "w", "--hub-kubeconfig", "f")


def obstacle(*flags: str, namespace: str = "team", workload_spec: dict[str, Any] | None = None) -> Obstacle | None:
    """What an agent with those flags says of a Job in the namespace."""
    policy = parse([*REQUIRED, *flags]).policy
    return _obstacle(policy, job_manifest("j", namespace=namespace, queue="q"), namespace, workload_spec or {})


def _obstacle(policy: PolicyRules, job: dict[str, Any], namespace: str, spec: dict[str, Any]) -> Obstacle | None:
    boundary = Boundary(cluster="w", origin="multikueue", rules=lambda: (policy,))
    return boundary.obstacle(Key(namespace, "j"), job, kind="Job", workload_spec=spec)


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [
        ((), "kube-system"),
        ((), "multikueue-system"),
        (("--namespace=agents",), "agents"),
        (("--allowed-namespaces=a,team-*",), "team"),
        (("--denied-namespaces=te?m",), "team"),
        (("--allowed-namespaces=*",), "kube-system"),
        (("--allowed-service-accounts=batch",), "team"),
        (("--pod-security=restricted",), "team"),
    ],
)
def test_an_agent_refuses(flags: tuple[str, ...], namespace: str) -> None:
    found = obstacle(*flags, namespace=namespace)
    assert found is not None
    assert found.reason == FORBIDDEN_BY_POLICY
    assert found.message.startswith("the agent of this cluster ")


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [
        ((), "team"),
        (("--namespace=agents",), "multikueue-system"),
        (("--allowed-namespaces=team",), "team"),
        (("--allowed-service-accounts=default",), "team"),
        (("--pod-security=baseline",), "team"),
    ],
)
def test_an_agent_takes(flags: tuple[str, ...], namespace: str) -> None:
    assert obstacle(*flags, namespace=namespace) is None


def test_an_agent_refuses_the_namespace_of_the_secret_with_its_identity() -> None:
    policy = parse(["--cluster", "w", "--hub-secret", "secrets/identity"]).policy
    assert policy.reserved_namespaces == ("kube-*", "multikueue-system", "secrets")


def test_the_workload_in_a_queue_of_the_worker_is_checked_too() -> None:
    pod_sets = [{"template": {"spec": {"containers": [], "hostNetwork": True}}}]
    found = obstacle("--pod-security=baseline", workload_spec={"podSets": pod_sets})
    assert found is not None
    assert "spec.workloadSpec.podSets[0].template.spec.hostNetwork" in found.message


@pytest.mark.parametrize(
    "change", [{"kind": "CronJob"}, {"metadata": {"name": "other"}}, {"metadata": {"generateName": "j-"}}], ids=str
)
def test_a_manifest_of_another_object_is_refused(change: dict[str, Any]) -> None:
    job = job_manifest("j", namespace="team", queue="q") | change
    found = _obstacle(agent_rules(), job, "team", {})
    assert found is not None
    assert found.reason == BAD_MANIFEST
    assert 'expected the Job "j", found' in found.message


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--allowed-namespaces=", "--allowed-namespaces: expected 1 to 256 names or patterns"),
        ("--denied-namespaces=A", '--denied-namespaces: "A": a pattern must consist of'),
        ("--allowed-service-accounts=,", "--allowed-service-accounts: expected 1 to 256"),
    ],
)
def test_a_mistake_in_a_flag_is_named(flag: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse([*REQUIRED, flag])


def test_the_manifest_passes_the_namespace_to_the_agent() -> None:
    documents = yaml.safe_load_all(joining_instructions.newer_manifest("w"))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--namespace=$(POD_NAMESPACE)" in container["command"]
    field = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert container["env"] == [{"name": "POD_NAMESPACE", "valueFrom": field}]
    parse([flag.replace("$(POD_NAMESPACE)", "agents") for flag in container["command"][1:]])
