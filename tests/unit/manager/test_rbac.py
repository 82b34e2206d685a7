# SPDX-License-Identifier: Apache-2.0
"""deploy/rbac: the manager may do what it does, and no more than that with Secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import gen_kind_roles
from manager.cache.indexes import followed
from manager.webhooks.configurations import WebhookClientConfig, configurations
from multikueue.api.resource import PODS, SECRETS, STATEFUL_SETS, WORKLOADS, Resource
from multikueue.cli.cluster.recovering import recovery_rights
from multikueue.dispatch.protocol.worker_rights import SENDING_RIGHTS, job_rights
from multikueue.jobs.declared.external import external_integration
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.jobs.framework.registry import dispatched_integrations
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.unit.jobs.declared.builders import widget_kind

RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
DOCUMENTS = [item for item in yaml.safe_load_all((RBAC / "manager.yaml").read_text()) if item]


def role(kind: str) -> dict[str, Any]:
    return next(item for item in DOCUMENTS if item["kind"] == kind)


def allowed(kind: str, resource: Resource, verb: str) -> bool:
    return any(
        resource.group in rule["apiGroups"] and resource.plural in rule["resources"] and verb in rule["verbs"]
        for rule in role(kind)["rules"]
    )


@pytest.mark.parametrize(
    "resource",
    [item.resource for item in followed(namespace="kueue-system", jobs=(BATCH_JOB,)) if item.namespace is None],
    ids=str,
)
def test_the_manager_may_follow_what_it_caches(resource: Resource) -> None:
    for verb in ("get", "list", "watch"):
        assert allowed("ClusterRole", resource, verb), verb


def test_secrets_are_read_in_its_own_namespace_only() -> None:
    assert not allowed("ClusterRole", SECRETS, "get")
    assert all(allowed("Role", SECRETS, verb) for verb in ("get", "list", "watch", "create", "update"))
    assert role("Role")["metadata"]["namespace"] == "kueue-system"


def test_it_may_make_workloads_and_install_its_webhooks() -> None:
    assert allowed("ClusterRole", WORKLOADS, "create")
    for resource, _ in configurations((), WebhookClientConfig(ca_bundle=""), excluded=()):
        for verb in ("get", "create", "patch"):
            assert allowed("ClusterRole", resource, verb)


def test_nothing_is_allowed_on_everything() -> None:
    for rule in role("ClusterRole")["rules"]:
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]


def test_users_of_queues_may_not_adopt() -> None:
    roles = [
        item
        for name in ("users.yaml", "recover.yaml")
        for item in yaml.safe_load_all((RBAC / name).read_text())
        if item and any("adopt" in rule["verbs"] for rule in item.get("rules") or ())
    ]
    assert [item["metadata"]["name"] for item in roles] == ["kueue-adopter-role", "kueue-recover-role"]
    for item in roles:
        assert "rbac.kueue.x-k8s.io/batch-user" not in item["metadata"].get("labels", {})


def test_pods_may_be_changed_only_where_the_framework_is_enabled() -> None:
    documents = [item for item in yaml.safe_load_all((RBAC / "manager-pods.yaml").read_text()) if item]
    rules = {rule["resources"][0]: rule["verbs"] for rule in documents[0]["rules"]}
    assert rules == {
        "pods": ["get", "list", "watch", "patch", "delete"],
        "pods/status": ["patch"],
        "pods/finalizers": ["update"],
    }
    assert documents[1]["subjects"] == role("ClusterRoleBinding")["subjects"]
    assert not allowed("ClusterRole", PODS, "patch")
    assert "manager-pods.yaml" not in (RBAC / "kustomization.yaml").read_text()


def test_stateful_sets_are_read_only_where_the_framework_is_enabled() -> None:
    documents = [item for item in yaml.safe_load_all((RBAC / "manager-statefulsets.yaml").read_text()) if item]
    rules = {rule["resources"][0]: rule["verbs"] for rule in documents[0]["rules"]}
    assert rules == {"statefulsets": ["get", "list", "watch"], "statefulsets/finalizers": ["update"]}
    assert documents[1]["subjects"] == role("ClusterRoleBinding")["subjects"]
    assert not allowed("ClusterRole", STATEFUL_SETS, "get")
    assert "manager-statefulsets.yaml" not in (RBAC / "kustomization.yaml").read_text()


def test_leader_worker_sets_are_read_only_where_the_framework_is_enabled() -> None:
    documents = list(yaml.safe_load_all((RBAC / "kinds" / "leaderworkerset-manager.yaml").read_text()))
    rules = {rule["resources"][0]: rule["verbs"] for rule in documents[0]["rules"]}
    assert rules == {"leaderworkersets": ["get", "list", "watch"], "leaderworkersets/finalizers": ["update"]}
    assert documents[1]["subjects"] == role("ClusterRoleBinding")["subjects"]
    assert not (RBAC / "kinds" / "leaderworkerset-agent.yaml").exists()


def test_what_is_needed_to_send_objects_is_given_apart_from_everything_else() -> None:
    reader, binding, mailbox = (
        item for item in yaml.safe_load_all((RBAC / "manager-send-objects.yaml").read_text()) if item
    )
    objects = ["configmaps", "secrets"]
    assert [(rule["resources"], rule["verbs"]) for rule in reader["rules"]] == [(objects, ["get"])]
    assert binding["subjects"] == role("ClusterRoleBinding")["subjects"]
    assert binding["roleRef"]["name"] == reader["metadata"]["name"], "mailboxes are bound one by one"
    assert [(rule["resources"], rule["verbs"]) for rule in mailbox["rules"]] == [
        (objects, ["list", "create", "patch", "delete"])
    ]
    agent = next(item for item in yaml.safe_load_all((RBAC / "worker-send-objects.yaml").read_text()) if item)
    granted = {f"{verb} {name}" for rule in agent["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    assert granted == {right.name for right in SENDING_RIGHTS}
    assert "send-objects" not in (RBAC / "kustomization.yaml").read_text()


def test_the_roles_of_declared_kinds_are_as_generated_and_opt_in() -> None:
    assert gen_kind_roles.stale() == []
    assert "kinds" not in (RBAC / "kustomization.yaml").read_text()


def test_jobs_of_every_kind_that_is_sent_can_be_recovered_with_two_unbound_roles() -> None:
    (role_of_kinds,) = yaml.safe_load_all((RBAC / "kinds" / "recover.yaml").read_text())
    recovers = next(
        item
        for item in yaml.safe_load_all((RBAC / "recover.yaml").read_text())
        if item["metadata"]["name"] == "kueue-recover-role" and item["kind"] == "ClusterRole"
    )
    granted = {
        (rule["apiGroups"][0], rule["resources"][0]): rule["verbs"]
        for rule in (*role_of_kinds["rules"], *recovers["rules"])
        if "create" in rule["verbs"]
    }
    for integration in dispatched_integrations().values():
        if integration.traits.sent_as is None:
            resource = integration.resource
            assert granted[resource.group, resource.plural] == ["get", "create", "patch"], resource
    assert "rbac.kueue.x-k8s.io" not in str(role_of_kinds["metadata"])


def test_the_role_for_recovery_is_printed_for_the_kinds_that_a_hub_declares_too() -> None:
    served = [
        *dispatched_integrations().values(),
        widget_kind(),
        external_integration("Fish.v1.example.com", plural="fish"),
    ]
    rules = recovery_rights(served)["rules"]
    granted = {f"{rule['resources'][0]}.{rule['apiGroups'][0]}" for rule in rules}
    assert {"fish.example.com", widget_kind().resource.qualified, "rayjobs.ray.io"} <= granted
    assert "jobs.batch" not in granted, "kueue-recover-role has them"


@pytest.mark.parametrize("framework", sorted(declared_integrations()))
def test_a_kind_is_managed_and_run_with_its_own_roles(framework: str) -> None:
    resource = declared_integrations()[framework].resource
    name = framework.partition("/")[2]
    manager, agent = (
        list(yaml.safe_load_all((RBAC / "kinds" / f"{name}-{part}.yaml").read_text())) for part in ("manager", "agent")
    )
    assert manager[1]["subjects"] == role("ClusterRoleBinding")["subjects"]
    of_jobs = [rule for rule in role("ClusterRole")["rules"] if rule["apiGroups"] == ["batch"]]
    own = [rule for rule in manager[0]["rules"] if not rule["resources"][0].endswith("trainingruntimes")]
    assert [rule["verbs"] for rule in own] == [rule["verbs"] for rule in of_jobs]
    others = [rule for rule in manager[0]["rules"] if rule not in own]
    assert [rule["verbs"] for rule in others] == [["get", "list", "watch"]] * len(others)
    (rule,) = agent[0]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([resource.group], [resource.plural])
    assert set(rule["verbs"]) == {right.verb for right in job_rights(resource)}
