# SPDX-License-Identifier: Apache-2.0
"""MutatingAdmissionPolicies beyond what is compared with a real server: order of names, changes, hostile results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded import Caller, config_map

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
RULE = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
APPEND = "{'order': object.metadata.?annotations[?'order'].orValue('') + '%s'}"


def applied(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


async def install(admin: Caller, name: str, *mutations: Json, **spec: Any) -> None:
    full = {
        "matchConstraints": {"resourceRules": [RULE]},
        "mutations": mutations,
        "reinvocationPolicy": "Never",
        **spec,
    }
    seen = await admin.create(POLICIES, {"metadata": {"name": name}, "spec": full})
    assert seen.status == 201, seen.body
    seen = await admin.create(BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name}})
    assert seen.status == 201, seen.body


async def test_policies_run_in_the_order_of_their_names(admin: Caller) -> None:
    for name in ("b", "a", "c"):
        await install(admin, name, applied(f"Object{{metadata: Object.metadata{{annotations: {APPEND % name}}}}}"))
    seen = await admin.create(MAPS, config_map("x"))
    assert seen.body["metadata"]["annotations"] == {"order": "abc"}


async def test_a_change_of_a_policy_is_in_force_at_once(admin: Caller) -> None:
    await install(admin, "p", applied("Object{data: {'k': 'v'}}"))
    assert (await admin.create(MAPS, config_map("a"))).body["data"] == {"k": "v"}
    mutations = {"spec": {"mutations": [applied("Object{data: {'k': 'w'}}")]}}
    assert (await admin.merge(f"{POLICIES}/p", mutations)).status == 200
    assert (await admin.create(MAPS, config_map("b"))).body["data"] == {"k": "w"}
    await admin.delete(f"{BINDINGS}/p")
    assert "data" not in (await admin.create(MAPS, config_map("c"))).body


async def test_the_object_that_a_patch_leaves_alone_is_not_written(admin: Caller) -> None:
    await install(admin, "p", patched("[JSONPatch{op: 'test', path: '/data/k', value: 'none'}]"))
    first = await admin.create(MAPS, config_map("a", k="v"))
    assert first.status == 201, first.body
    again = await admin.merge(f"{MAPS}/a", {"data": {"k": "v"}})
    assert again.version == first.version


async def test_an_unknown_kind_of_parameters_refuses_the_write_whatever_the_binding(admin: Caller) -> None:
    await install(admin, "p", applied("Object{}"), paramKind={"apiVersion": "v1", "kind": "Unknown"})
    await admin.merge(
        f"{BINDINGS}/p", {"spec": {"matchResources": {"resourceRules": [RULE | {"resourceNames": ["x"]}]}}}
    )
    seen = await admin.create(MAPS, config_map("a"))
    assert seen.status == 403
    text = "failed to find resource referenced by paramKind: '/v1, Kind=Unknown'"
    assert seen.body["message"] == f'policy "p" denied request: failed to configure policy: {text}'
    await admin.merge(f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
    assert (await admin.create(MAPS, config_map("a"))).status == 201


@pytest.mark.parametrize(
    "expression",
    [
        "Object{data: {'k': object.data.k.replace('x', object.data.k.replace('x', object.data.k))}}",
        "Object{data: {'k': string(lists.range(2147483647).size())}}",
        "Object{data: {'k': string(object.data.k.split('').map(a, object.data.k.split('').map(b, a + b)).size())}}",
        "Object{data: {'k': string(object.data.k.split('').all(a, object.data.k.split('').all(b, a == b)))}}",
    ],
)
async def test_an_expression_that_costs_too_much_is_cancelled(admin: Caller, expression: str) -> None:
    await install(admin, "p", applied(expression))
    seen = await admin.create(MAPS, config_map("a", k="x" * 2000))
    assert seen.status == 403
    assert "actual cost limit exceeded" in seen.body["message"]


async def test_a_message_in_a_list_of_a_patch_is_an_error(admin: Caller) -> None:
    await install(admin, "p", patched("[JSONPatch{op: 'add', path: '/data/k', value: [Object.x{}]}]"))
    assert (await admin.create(MAPS, config_map("a", k="v"))).status == 500
