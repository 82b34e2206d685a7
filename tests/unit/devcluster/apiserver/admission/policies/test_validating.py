# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies beyond what is compared with a real server: other users, changes, any parameters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded import Caller, Seen, config_map

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


def policy(expression: str, *, rules: list[Json] | None = None, **spec: Any) -> Json:
    constraints = {"resourceRules": rules or [RULE]}
    full = {"matchConstraints": constraints, "validations": [{"expression": expression}], **spec}
    return {"metadata": {"name": "p"}, "spec": full}


async def install(admin: Caller, document: Json, **binding: Any) -> None:
    seen = await admin.create(POLICIES, document)
    assert seen.status == 201, seen.body
    spec = {"policyName": "p", "validationActions": ["Deny"], **binding}
    seen = await admin.create(BINDINGS, {"metadata": {"name": "b"}, "spec": spec})
    assert seen.status == 201, seen.body


async def define(admin: Caller, group: str, names: Json) -> None:
    """A custom resource of any content."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    body = {"metadata": {"name": f"{names['plural']}.{group}"}, "spec": spec}
    seen = await admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert seen.status == 201, seen.body


def refused(seen: Seen) -> bool:
    assert seen.status in (201, 422), seen.body
    return seen.status == 422 and "denied request" in seen.body["message"]


async def test_a_policy_without_a_binding_is_not_in_force(admin: Caller) -> None:
    await admin.create(POLICIES, policy("false"))
    assert not refused(await admin.create(MAPS, config_map("a")))


async def test_a_change_of_policy_or_binding_is_in_force_at_once(admin: Caller) -> None:
    await install(admin, policy("false"))
    assert refused(await admin.create(MAPS, config_map("a")))
    await admin.merge(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "object.metadata.name == 'b'"}]}})
    assert refused(await admin.create(MAPS, config_map("a")))
    assert not refused(await admin.create(MAPS, config_map("b")))
    await admin.delete(f"{BINDINGS}/b")
    assert not refused(await admin.create(MAPS, config_map("a")))


async def test_no_policy_can_lock_out_whoever_wants_to_change_it(admin: Caller) -> None:
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    await install(admin, policy("false", rules=[everything]))
    assert refused(await admin.create(MAPS, config_map("a")))
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    assert (await admin.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)).status == 201
    assert (await admin.delete(f"{BINDINGS}/b")).status == 200
    assert (await admin.delete(f"{POLICIES}/p")).status == 200
    assert not refused(await admin.create(MAPS, config_map("a")))


async def test_policies_of_other_systems_are_objects_as_all_others(admin: Caller) -> None:
    names = {"kind": "Rule", "listKind": "RuleList", "plural": "networkpolicybindings", "singular": "rule"}
    await define(admin, "example.com", names)
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    await install(admin, policy("false", rules=[everything]))
    body = {"apiVersion": "example.com/v1", "kind": "Rule", "metadata": {"name": "a"}}
    assert refused(await admin.create("/apis/example.com/v1/namespaces/default/networkpolicybindings", body))


async def test_a_rule_can_ask_for_rights_of_the_requester(admin: Caller) -> None:
    asked = "authorizer.group('').resource('nodes').check('delete').allowed()"
    own = "authorizer.requestResource.check('create').allowed()"
    await install(admin, policy(f"{asked} && {own}"))
    role = {"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}
    await admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    binding = {
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    }
    await admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    tenant = Caller(admin.api, headers={"impersonate-user": "tenant"})
    assert refused(await tenant.create(MAPS, config_map("a")))
    assert not refused(await admin.create(MAPS, config_map("a")))


async def test_parameters_can_be_custom_resources_of_another_namespace(admin: Caller) -> None:
    document = policy("params.most > 1", paramKind={"apiVersion": "example.com/v1", "kind": "Limit"})
    reference = {"name": "one", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
    await install(admin, document, paramRef=reference)

    seen = await admin.create(MAPS, config_map("a"))
    assert "failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'" in seen.body["message"]
    names = {"kind": "Limit", "listKind": "LimitList", "plural": "limits", "singular": "limit"}
    await define(admin, "example.com", names)
    assert not refused(await admin.create(MAPS, config_map("a"))), "none is there, and that is allowed"
    limit = {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "one"}, "most": 1}
    await admin.create("/apis/example.com/v1/namespaces/kube-system/limits", limit)
    assert refused(await admin.create(MAPS, config_map("b")))


@pytest.mark.parametrize(
    ("scope", "reference", "text"),
    [
        ("Cluster", {"namespace": "default"}, "paramRef.namespace must not be provided for a cluster-scoped"),
        ("Namespaced", {}, "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"),
    ],
)
async def test_a_reference_that_fits_no_scope_refuses_the_write(
    admin: Caller, scope: str, reference: Json, text: str
) -> None:
    kind = {"apiVersion": "v1", "kind": "Namespace" if scope == "Cluster" else "ConfigMap"}
    rule = RULE | {"resources": ["namespaces", "configmaps"]}
    document = policy("true", rules=[rule], paramKind=kind)
    await install(admin, document, paramRef={"name": "x", "parameterNotFoundAction": "Allow", **reference})
    path, body = (MAPS, config_map("a")) if scope == "Cluster" else ("/api/v1/namespaces", {"metadata": {"name": "n"}})
    seen = await admin.create(path, body)
    assert seen.status == 422
    assert text in seen.body["message"]


async def test_an_unknown_kind_of_parameters_refuses_the_write(admin: Caller) -> None:
    await install(admin, policy("true", paramKind={"apiVersion": "v1", "kind": "Unknown"}))
    seen = await admin.create(MAPS, config_map("a"))
    assert seen.status == 422
    text = "failed to find resource referenced by paramKind: '/v1, Kind=Unknown'"
    assert f"ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: {text}" in seen.body["message"]


async def test_match_conditions_of_webhooks_can_use_the_authorizer(admin: Caller) -> None:
    hook = {
        "name": "a.b.c",
        "rules": [RULE],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchConditions": [{"name": "n", "expression": "!authorizer.path('/metrics').check('get').allowed()"}],
    }
    body = {"metadata": {"name": "w"}, "webhooks": [hook]}
    assert (await admin.create(f"{GROUP}/validatingwebhookconfigurations", body)).status == 201
    assert (await admin.create(MAPS, config_map("a"))).status == 201
