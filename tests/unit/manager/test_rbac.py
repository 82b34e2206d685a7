# SPDX-License-Identifier: Apache-2.0
"""deploy/rbac: the manager may do what it does, and no more than that with Secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from manager.caches import followed
from manager.webhooks.configurations import Reach, configurations
from multikueue.api.resource import JOBS, SECRETS, WORKLOADS, Resource

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
    [item.resource for item in followed(namespace="kueue-system", jobs=(JOBS,)) if item.namespace is None],
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
    for resource, _ in configurations((), Reach(ca_bundle=""), excluded=()):
        for verb in ("get", "create", "patch"):
            assert allowed("ClusterRole", resource, verb)


def test_nothing_is_allowed_on_everything() -> None:
    for rule in role("ClusterRole")["rules"]:
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
