# SPDX-License-Identifier: Apache-2.0
"""Tokens and roles after a change of what they refer to."""

from __future__ import annotations

import random
from typing import Any

import pytest

from devcluster.apiserver.auth.escalation import uncovered
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.server import ApiServer
from devcluster.pki import new_key

_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def api() -> ApiServer:
    """A server for each test."""
    return ApiServer(signing_key=new_key())


def _put(api: ApiServer, collection: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{random.Random(name).random()}", **more.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    value = {"metadata": metadata, **more}
    api.context.store.put(collection, f"{namespace}/{name}" if namespace else name, value)
    return value


def test_a_token_is_not_valid_after_its_account_is_deleted(api: ApiServer) -> None:
    """Also if an account of the same name exists again."""
    account = _put(api, "serviceaccounts", "robot", "team")
    uid = account["metadata"]["uid"]
    token = api.tokens.issue(namespace="team", name="robot", uid=uid, audiences=(), seconds=600, bound={})
    assert api.tokens.check(token) is not None
    api.context.store.remove("serviceaccounts", "team/robot")
    assert api.tokens.check(token) is None
    _put(api, "serviceaccounts", "robot", "team", metadata={"uid": "another"})
    assert api.tokens.check(token) is None


def test_a_bound_token_is_not_valid_after_its_pod_is_deleted(api: ApiServer) -> None:
    """The pod is identified by its UID."""
    account, pod = _put(api, "serviceaccounts", "robot", "team"), _put(api, "pods", "p", "team")
    bound = {"pod": {"name": "p", "uid": pod["metadata"]["uid"]}}
    uid = account["metadata"]["uid"]
    token = api.tokens.issue(namespace="team", name="robot", uid=uid, audiences=(), seconds=600, bound=bound)
    assert api.tokens.check(token) is not None
    api.context.store.remove("pods", "team/p")
    assert api.tokens.check(token) is None


def test_an_aggregating_role_has_the_rules_of_those_it_selects(api: ApiServer) -> None:
    """As soon as they exist."""
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
    _put(api, f"clusterroles.{_RBAC}", "whole", kind="ClusterRole", aggregationRule=selectors, rules=None)
    subjects = [{"kind": "User", "name": "jane"}]
    reference = {"kind": "ClusterRole", "name": "whole"}
    bound: dict[str, Any] = {"kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": reference}
    _put(api, f"clusterrolebindings.{_RBAC}", "b", **bound)
    jane = User("jane", ("system:authenticated",))
    assert not api.authorizer.allows(jane, verb="get", group="", resource="pods")
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    _put(api, f"clusterroles.{_RBAC}", "part", kind="ClusterRole", metadata={"labels": {"part": "yes"}}, rules=rules)
    assert api.authorizer.allows(jane, verb="get", group="", resource="pods")


def test_uncovered_rules_are_grouped_by_resource() -> None:
    """The verbs of one resource are in one rule."""
    held = [{"verbs": ["get"], "apiGroups": [""], "resources": ["*"]}]
    requested = [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
    assert uncovered(held, requested) == [{"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
