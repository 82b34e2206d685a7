# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies: which writes they are about, what they see, and the answer to what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Play, Side

pytestmark = pytest.mark.binaries

Json = dict[str, Any]
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS: Final = f"{REGISTRATION}/validatingadmissionpolicybindings"
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
JOBS: Final = "/apis/batch/v1/namespaces/{ns}/jobs"
PATIENCE: Final = 60.0
CASES: Final = Cases("policies")


def config_map(name: str = "a", data: Json | None = None, **metadata: object) -> Json:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, **metadata},
        "data": {"k": "v"} if data is None else data,
    }


def job(name: str, **labels: str) -> Json:
    container = {"name": "main", "image": "registry.example/x:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": labels}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


def rule(*operations: str, on: str = "configmaps", group: str = "", **more: object) -> Json:
    resources = {"apiGroups": [group], "apiVersions": ["*"], "resources": [on]}
    return {"operations": [*(operations or ("CREATE", "UPDATE"))], **resources, **more}


def own(side: Side) -> Json:
    """The selector of the case's namespace."""
    return {"matchLabels": {"kubernetes.io/metadata.name": side.ns}}


def policy(*validations: str | Json, rules: list[Json] | None = None, **more: Any) -> Json:
    """The spec of a policy about ConfigMaps, unless `rules` say otherwise."""
    constraints = {"resourceRules": rules or [rule()], **more.pop("constraints", {})}
    listed = [each if isinstance(each, dict) else {"expression": each} for each in validations]
    return {"matchConstraints": constraints, "validations": listed, **more}


async def install(side: Side, spec: Json, *, suffix: str = "", **binding: Any) -> None:
    """Create a policy and a binding for the case's namespace, and wait until it is in force."""
    name = f"{{id}}{suffix}"
    probe = {"expression": "request.name != 'probe'", "message": f"probed{suffix}"}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1"}
    full = {**spec, "validations": [probe, *spec.get("validations", ())]}
    full["matchConstraints"] = {
        **spec["matchConstraints"],
        "resourceRules": [*spec["matchConstraints"]["resourceRules"], rule(on="secrets")],
    }
    body = {**kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": full}
    await side.quietly(Exchange("POST", POLICIES, body))
    matched = {**binding.pop("matchResources", {}), "namespaceSelector": own(side)}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": matched, **binding}
    body = {**kind, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound}
    await side.quietly(Exchange("POST", BINDINGS, body))
    labels = {"probe": "yes", "check": "yes"}
    secret = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "probe", "labels": labels},
        "data": {"k": "dg=="},
    }
    exchange = side.filled(Exchange("POST", "/api/v1/namespaces/{ns}/secrets?dryRun=All", secret))
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await side.server.send(exchange)
            if f"probed{suffix}" in str((found.body, found.warnings)):
                return
            await asyncio.sleep(0.05)


@CASES.case("a write that a rule refuses, and one that it allows")
async def _(side: Side) -> None:
    await install(side, policy("object.data.k == 'v'"))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"k": "w"}))
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w"}})
    await side.patch("apply", f"{MAPS}/c?fieldManager=me", config_map("c", {"k": "w"}))
    await side.put(f"{MAPS}/a", config_map(data={"k": "v", "l": "x"}))
    await side.post(f"{MAPS}?dryRun=All", config_map("b", {"k": "w"}))
    await side.delete(f"{MAPS}/a")


@CASES.case("messages and reasons")
async def _(side: Side) -> None:
    made = "'k is ' + object.data.k"
    rules: list[Json] = [
        {"expression": "  object.data.k != 'plain'  "},
        {"expression": "object.data.k != 'text'", "message": "  give another text  "},
        {"expression": "object.data.k != 'made'", "messageExpression": made, "message": "not this"},
        {"expression": "object.data.k != 'lines'", "messageExpression": "'two\\nlines'", "message": "one line"},
        {"expression": "object.data.k != 'empty'", "messageExpression": "'  '"},
        {
            "expression": "object.data.k != 'wrong'",
            "messageExpression": "string(object.data.none)",
            "message": "instead",
        },
        *(
            {"expression": f"object.data.k != '{reason}'", "reason": reason, "message": "no"}
            for reason in ("Forbidden", "Invalid", "RequestEntityTooLarge")
        ),
    ]
    await install(side, policy(*rules))
    for value in ("plain", "text", "made", "lines", "empty", "wrong"):
        await side.post(MAPS, config_map(value, {"k": value}))
    for number, reason in enumerate(("Forbidden", "Invalid", "RequestEntityTooLarge")):
        await side.post(MAPS, config_map(f"r{number}", {"k": reason}))


@CASES.case("only the first of several refusals is told")
async def _(side: Side) -> None:
    await install(side, policy("object.data.k != 'v'", "!has(object.data.k)", "object.metadata.name == 'x'"))
    await side.post(MAPS, config_map())


@CASES.case("a rule that fails refuses, unless failures are ignored")
async def _(side: Side) -> None:
    await install(side, policy("object.data.none == 'v'", "object.data.k != 'w'"))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"none": "v"}))


@CASES.case("a rule that fails is ignored")
async def _(side: Side) -> None:
    await install(side, policy("object.data.none == 'v'", "object.data.k != 'w'", failurePolicy="Ignore"))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"k": "w"}))


@CASES.case("a binding that warns")
async def _(side: Side) -> None:
    rules: list[Json] = [
        {"expression": "object.data.k == 'v'", "message": "k should be v"},
        {"expression": "has(object.data.l)"},
    ]
    await install(side, policy(*rules), validationActions=["Warn", "Audit"])
    await side.post(MAPS, config_map("a", {"k": "w"}))
    await side.post(MAPS, config_map("b", {"k": "v", "l": "x"}))


@CASES.case("a policy that refuses beside one that warns")
async def _(side: Side) -> None:
    await install(side, policy("object.data.k == 'v'"), suffix="-deny")
    await install(side, policy("object.data.k != 'v'"), suffix="-warn", validationActions=["Warn"])
    await side.post(MAPS, config_map())


@CASES.case("match conditions")
async def _(side: Side) -> None:
    conditions = [
        {"name": "labelled", "expression": "has(object.metadata.labels) && object.metadata.labels.check == 'yes'"},
        {"name": "not-free", "expression": "object.data.k != 'free'"},
    ]
    await install(side, policy("object.data.k == 'v'", matchConditions=conditions))
    await side.post(MAPS, config_map("a", {"k": "w"}))
    await side.post(MAPS, config_map("b", {"k": "w"}, labels={"check": "yes"}))
    await side.post(MAPS, config_map("c", {"k": "w"}, labels={"check": "no"}))
    await side.post(MAPS, config_map("d", {"k": "free"}, labels={"check": "yes"}))
    await side.post(MAPS, config_map("e", {"k": "w"}, labels={"other": "yes"}))


@CASES.case("variables are evaluated when they are used")
async def _(side: Side) -> None:
    variables = [
        {"name": "data", "expression": "object.data"},
        {"name": "known", "expression": "variables.data.k in ['v', 'w']"},
        {"name": "broken", "expression": "object.data.none"},
    ]
    rules: list[Json] = [
        {"expression": "variables.known", "messageExpression": "'no ' + variables.data.k"},
        {"expression": "variables.data.k == 'v' || variables.broken == 'x'"},
    ]
    await install(side, policy(*rules, variables=variables))
    await side.post(MAPS, config_map("a", {"k": "v"}))
    await side.post(MAPS, config_map("b", {"k": "x", "none": "x"}))
    await side.post(MAPS, config_map("c", {"k": "w"}))
    await side.post(MAPS, config_map("d", {"k": "w", "none": "x"}))


@CASES.case("what a rule sees of the request")
async def _(side: Side) -> None:
    rules = [
        "request.operation in ['CREATE', 'UPDATE', 'DELETE']",
        "request.kind.group == '' && request.kind.version == 'v1' && request.kind.kind in ['ConfigMap', 'Secret']",
        "request.resource.resource in ['configmaps', 'secrets'] && request.namespace == namespaceObject.metadata.name",
        "request.operation != 'DELETE' || (object == null && oldObject.data.k == 'v')",
        "request.operation != 'CREATE' || oldObject == null",
        "request.operation != 'UPDATE' || oldObject.data.k == object.data.k",
        "'system:masters' in request.userInfo.groups",
        "!request.dryRun || request.name != 'dry'",
        "!has(request.subResource)",
    ]
    await install(side, policy(*rules, rules=[rule("*")]))
    await side.post(MAPS, config_map())
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w"}})
    await side.post(f"{MAPS}?dryRun=All", config_map("dry"))
    await side.delete(f"{MAPS}/a")


@CASES.case("deletions can be refused")
async def _(side: Side) -> None:
    await install(
        side, policy({"expression": "oldObject.data.k != 'keep'", "message": "keep it"}, rules=[rule("DELETE")])
    )
    await side.post(MAPS, config_map("a", {"k": "keep"}))
    await side.delete(f"{MAPS}/a")
    await side.post(MAPS, config_map("b"))
    await side.delete(f"{MAPS}/b")


@CASES.case("subresources have rules of their own")
async def _(side: Side) -> None:
    rules = [rule("UPDATE", on="jobs/status", group="batch")]
    await install(side, policy({"expression": "request.subResource != 'status'", "message": "no"}, rules=rules))
    await side.post(JOBS, job("a"))
    await side.patch("merge", f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}})
    await side.patch("merge", f"{JOBS}/a/status", {"status": {"ready": 0}})


@CASES.case("a queue label that Jobs must have")
async def _(side: Side) -> None:
    named: Json = {
        "expression": "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels && "
        "object.metadata.labels['kueue.x-k8s.io/queue-name'] != ''",
        "message": "The label 'kueue.x-k8s.io/queue-name' is either missing or does not have a value set.",
    }
    conditions = [{"name": "exclude-owned", "expression": "!(has(object.metadata.ownerReferences))"}]
    rules = [rule("CREATE", "UPDATE", on="jobs", group="batch")]
    await install(side, policy(named, rules=rules, matchConditions=conditions))
    await side.post(JOBS, job("a"))
    await side.post(JOBS, job("b", **{"kueue.x-k8s.io/queue-name": "main"}))
    await side.post(JOBS, job("c", **{"kueue.x-k8s.io/queue-name": ""}))


@CASES.case("rules and selectors of policy and binding")
async def _(side: Side) -> None:
    await install(
        side,
        policy("object.data.k == 'v'", constraints={"excludeResourceRules": [rule(resourceNames=["free"])]}),
        matchResources={"objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}},
    )
    await side.post(MAPS, config_map("a", {"k": "w"}))
    await side.post(MAPS, config_map("free", {"k": "w"}))
    await side.post(MAPS, config_map("b", {"k": "w"}, labels={"skip": "yes"}))


@CASES.case("rules of a binding")
async def _(side: Side) -> None:
    only = [rule("CREATE", "UPDATE", on="secrets"), rule("CREATE", resourceNames=["a"])]
    await install(side, policy("object.data.k == 'v'"), matchResources={"resourceRules": only})
    await side.post(MAPS, config_map("a", {"k": "w"}))
    await side.post(MAPS, config_map("b", {"k": "w"}))


@CASES.case("parameters by name")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", MAPS, config_map("limits", {"most": "3"})))
    spec = policy(
        {
            "expression": "!has(object.data.n) || int(object.data.n) <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most",
        },
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    await install(side, spec, paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
    await side.post(MAPS, config_map("a", {"n": "3"}))
    await side.post(MAPS, config_map("b", {"n": "4"}))


@CASES.case("parameters that are missing")
async def _(side: Side) -> None:
    spec = policy("has(params.data.most)", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    await side.quietly(Exchange("POST", MAPS, config_map("limits")))
    await install(side, spec, paramRef={"name": "limits", "parameterNotFoundAction": "Allow"}, suffix="-there")
    await side.post(MAPS, config_map("a"))


@CASES.case("no parameters where none are an error")
async def _(side: Side) -> None:
    spec = policy("has(params.data.most)", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    await side.quietly(Exchange("POST", MAPS, config_map("limits", {"most": "1"})))
    await install(side, spec, paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
    await side.quietly(Exchange("DELETE", f"{MAPS}/limits"))
    secrets = "/api/v1/namespaces/{ns}/secrets"
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}}
    async with asyncio.timeout(PATIENCE):  # a real server learns of a deletion by its watch
        while "no params" not in str(
            (await side.server.send(side.filled(Exchange("POST", f"{secrets}?dryRun=All", secret)))).body
        ):
            await asyncio.sleep(0.05)
    await side.post(MAPS, config_map("a"))


@CASES.case("parameters by selector are evaluated one after another")
async def _(side: Side) -> None:
    for name, most in (("one", "5"), ("two", "3")):
        await side.quietly(Exchange("POST", MAPS, config_map(name, {"most": most}, labels={"limits": "yes"})))
    spec = policy(
        "!has(object.data.n) || int(object.data.n) <= int(params.data.most)",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    reference = {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}
    await install(side, spec, paramRef=reference)
    await side.post(MAPS, config_map("a", {"n": "3"}))
    await side.post(MAPS, config_map("b", {"n": "4"}))


@CASES.case("a binding without parameters for a policy that has them")
async def _(side: Side) -> None:
    await install(side, policy("params == null", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}))
    await side.post(MAPS, config_map())


@CASES.case("what the requester may do besides")
async def _(side: Side) -> None:
    account = "authorizer.serviceAccount(request.namespace, 'default')"
    rules: list[Json] = [
        {"expression": "authorizer.group('batch').resource('jobs').namespace('x').name('y').check('create').allowed()"},
        {"expression": "authorizer.path('/metrics').check('get').allowed()"},
        {"expression": "authorizer.requestResource.check('delete').allowed()"},
        {"expression": "authorizer.group('apps').resource('x').subresource('scale').check('get').reason() == ''"},
        {"expression": f"{account}.group('').resource('nodes').check('list').allowed()", "message": "not the account"},
    ]
    await install(side, policy(*rules))
    await side.post(MAPS, config_map())


@CASES.case("policies as the server stores and lists them")
async def _(side: Side) -> None:
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "{id}"},
        "spec": policy(
            "object.data.k == 'v'",
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            constraints={"excludeResourceRules": [rule()]},
        ),
    }
    await side.post(POLICIES, body)
    bound: Json = {"policyName": "{id}", "validationActions": ["Warn"], "matchResources": {"resourceRules": [rule()]}}
    named = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding"}
    await side.post(BINDINGS, {**named, "metadata": {"name": "{id}-1"}, "spec": bound})
    references: list[Json] = [
        {"name": "p", "namespace": "n", "parameterNotFoundAction": "Allow"},
        {"name": "p", "parameterNotFoundAction": "Allow"},
        {"selector": {}, "parameterNotFoundAction": "Deny"},
        {
            "selector": {
                "matchLabels": {"b": "1", "a": "2"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
            },
            "parameterNotFoundAction": "Deny",
        },
    ]
    for number, reference in enumerate(references, 2):
        spec = {**bound, "paramRef": reference}
        await side.post(BINDINGS, {**named, "metadata": {"name": f"{{id}}-{number}"}, "spec": spec})
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    await side.get(f"{POLICIES}/{{id}}", accept=table)
    for number in range(1, 6):
        await side.get(f"{BINDINGS}/{{id}}-{number}", accept=table)


GOOD: Final = policy("object.data.k == 'v'")
BAD_POLICIES: Final[dict[str, Json]] = {
    "nothing": {},
    "no constraints": {"validations": [{"expression": "true"}]},
    "no rules": {**GOOD, "matchConstraints": {}},
    "a bad rule": policy("true", rules=[{"operations": ["LOOK"], "apiGroups": [], "resources": ["pods", "*"]}]),
    "no validations": {**GOOD, "validations": []},
    "only annotations": {**GOOD, "validations": [], "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]},
    "a bad policy for failures": {**GOOD, "failurePolicy": "Maybe"},
    "a bad match policy": policy("true", constraints={"matchPolicy": "Nearly"}),
    "no expression": policy({"expression": " "}),
    "no boolean": policy("object.data.k", "'text'", "1 + 1"),
    "bad syntax": policy("object.data.k =="),
    "an unknown name": policy("what.data.k == 'v'"),
    "an unknown function": policy("object.data.k.guess()"),
    "params without a kind": policy("params.data.k == 'v'"),
    "an empty kind of parameters": {**policy("true"), "paramKind": {}},
    "a bad reason": policy({"expression": "true", "reason": "NotFound"}),
    "a message of lines": policy({"expression": "true", "message": "two\nlines"}),
    "an empty message": policy({"expression": "true", "message": "  "}),
    "lines without a message": policy("true ||\nfalse"),
    "a message that is no string": policy({"expression": "true", "messageExpression": "1"}),
    "an unknown variable": policy("variables.none == 1"),
    "variables": policy(
        "variables.ok",
        variables=[
            {"name": "ok", "expression": "true"},
            {"name": "", "expression": "true"},
            {"name": "a-b", "expression": "true"},
            {"name": "empty", "expression": ""},
            {"name": "later", "expression": "variables.last"},
            {"name": "last", "expression": "1"},
        ],
    ),
    "a variable of another type": policy("variables.n", variables=[{"name": "n", "expression": "1"}]),
    "match conditions": policy(
        "true",
        matchConditions=[
            {"name": "a", "expression": "true"},
            {"name": "a", "expression": "false"},
            {"name": "b", "expression": ""},
            {"name": "c", "expression": "1"},
            {"name": "", "expression": "true"},
        ],
    ),
}
BAD_BINDINGS: Final[dict[str, Json]] = {
    "nothing": {},
    "no actions": {"policyName": "p"},
    "a bad name": {"policyName": "A B", "validationActions": ["Deny"]},
    "unknown and repeated actions": {"policyName": "p", "validationActions": ["Deny", "Deny", "Shout"]},
    "both warning and refusal": {"policyName": "p", "validationActions": ["Deny", "Warn"]},
    "an empty reference": {"policyName": "p", "validationActions": ["Deny"], "paramRef": {}},
    "name and selector": {
        "policyName": "p",
        "validationActions": ["Deny"],
        "paramRef": {"name": "n", "selector": {}, "parameterNotFoundAction": "Perhaps"},
    },
    "bad resources": {
        "policyName": "p",
        "validationActions": ["Deny"],
        "matchResources": {"matchPolicy": "Nearly", "resourceRules": [{"operations": ["*", "CREATE"]}]},
    },
}


def _written(path: str, kind: str, spec: Json) -> Play:
    async def play(side: Side) -> None:
        metadata = {"name": "{id}"}
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
        await side.post(path, body)

    return play


for name, bad in BAD_POLICIES.items():
    CASES.add(f"a bad policy: {name}", _written(POLICIES, "ValidatingAdmissionPolicy", bad))
for name, bad in BAD_BINDINGS.items():
    CASES.add(f"a bad binding: {name}", _written(BINDINGS, "ValidatingAdmissionPolicyBinding", bad))


@pytest.mark.parametrize("case", CASES.params())
async def test_policies_are_enforced_as_by_a_real_server(judge: Judge, case: Case) -> None:
    """The answers, with messages, reasons and warnings."""
    await judge(case)
