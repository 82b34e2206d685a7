# SPDX-License-Identifier: Apache-2.0
"""MutatingAdmissionPolicies for the cases: their documents, and how they are put in force."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.conformance.harness import Exchange, Side

Json = dict[str, Any]
VERSION: Final = "admissionregistration.k8s.io/v1"
POLICIES: Final = f"/apis/{VERSION}/mutatingadmissionpolicies"
BINDINGS: Final = f"/apis/{VERSION}/mutatingadmissionpolicybindings"
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
PATIENCE: Final = 60.0


def rule(*operations: str, on: str = "configmaps", group: str = "", **more: object) -> Json:
    resources = {"apiGroups": [group], "apiVersions": ["*"], "resources": [on]}
    return {"operations": [*(operations or ("CREATE", "UPDATE"))], **resources, **more}


def deployments(*operations: str) -> list[Json]:
    return [rule(*operations, on="deployments", group="apps")]


def apply(expression: str) -> Json:
    """A mutation that merges a configuration."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> Json:
    """A mutation by a JSON patch."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def label(key: str, value: str) -> Json:
    """A mutation that sets a label to the value of an expression."""
    return apply(f"Object{{metadata: Object.metadata{{labels: {{'{key}': {value}}}}}}}")


def only(name: str) -> Json:
    """Match conditions for the objects of one name."""
    return {"matchConditions": [{"name": "name", "expression": f"has(request.name) && request.name == '{name}'"}]}


def mutating(*mutations: Json, rules: list[Json] | None = None, **more: Any) -> Json:
    """The spec of a policy about ConfigMaps, unless `rules` say otherwise."""
    constraints = {"resourceRules": rules or [rule()], **more.pop("constraints", {})}
    return {"matchConstraints": constraints, "mutations": [*mutations], "reinvocationPolicy": "Never", **more}


def document(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def config_map(name: str = "a", data: Json | None = None, **metadata: object) -> Json:
    given = {"k": "v"} if data is None else data
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, **metadata}, "data": given}


def deployment(name: str = "a", containers: list[Json] | None = None, **spec: object) -> Json:
    labels = {"app": name}
    listed = containers or [{"name": "main", "image": "registry.example/x:1", "env": [{"name": "A", "value": "1"}]}]
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": listed}},
            **spec,
        },
    }


async def add(side: Side, spec: Json, *, suffix: str = "", **binding: Any) -> None:
    """Create a policy and a binding for the case's namespace; they are not in force yet."""
    name = f"{{id}}{suffix}"
    await side.quietly(Exchange("POST", POLICIES, document("MutatingAdmissionPolicy", name, spec)))
    own = {"matchLabels": {"kubernetes.io/metadata.name": side.ns}}
    matched = {**binding.pop("matchResources", {}), "namespaceSelector": own}
    bound = {"policyName": name, "matchResources": matched, **binding}
    await side.quietly(Exchange("POST", BINDINGS, document("MutatingAdmissionPolicyBinding", name, bound)))


async def begin(side: Side, *, probe: Json | None = None, path: str = "/api/v1/namespaces/{ns}/secrets") -> None:
    """Wait until all policies are in force: the server reads them in the order of their creation."""
    probe = probe or {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "probed"}}
    about = rule(on="*", group="*")
    await add(side, mutating(label("in-force", "'yes'"), rules=[about], **only("probed")), suffix=".probe")
    exchange = side.filled(Exchange("POST", f"{path}?dryRun=All", probe))
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await side.server.send(exchange)
            if isinstance(found.body, dict) and "in-force" in str(found.body.get("metadata")):
                return
            await asyncio.sleep(0.05)


async def install(side: Side, spec: Json, **binding: Any) -> None:
    """Create a policy with its binding, and wait until it is in force."""
    await add(side, spec, **binding)
    await begin(side)
