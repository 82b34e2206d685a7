# SPDX-License-Identifier: Apache-2.0
"""MutatingAdmissionPolicies that fail or do harm, and those that a server refuses to store."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Play, Side
from tests.conformance.policies.mutating import (
    BINDINGS,
    DEPLOYMENTS,
    MAPS,
    POLICIES,
    Json,
    add,
    apply,
    begin,
    config_map,
    deployment,
    deployments,
    document,
    install,
    label,
    mutating,
    only,
    patch,
    rule,
)

pytestmark = pytest.mark.binaries

CASES: Final = Cases("mutation-failures")
FAILING: Final = label("failed", "object.data.none")


def _each(name: str, mutations: dict[str, Json], *, on_deployments: bool = False, **spec: object) -> None:
    """Add a case with a policy for each mutation, and an object for each policy."""

    async def play(side: Side) -> None:
        rules = deployments() if on_deployments else [rule()]
        for key, mutation in mutations.items():
            await add(side, mutating(mutation, rules=rules, **only(key), **spec), suffix=f".{key}")
        await begin(side)
        for key in mutations:
            body = deployment(key) if on_deployments else config_map(key, labels={"l": "m"})
            await side.post(DEPLOYMENTS if on_deployments else MAPS, body)

    CASES.add(name, play)


@CASES.case("an expression that fails")
async def _(side: Side) -> None:
    await install(side, mutating(FAILING, label("next", "'yes'")))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"none": "some"}))
    await side.post(f"{MAPS}?dryRun=All", config_map("c"))


@CASES.case("an expression that fails for an object whose name is generated")
async def _(side: Side) -> None:
    await install(side, mutating(FAILING))
    for metadata in ({"generateName": "generated-"}, {}):
        body = config_map()
        await side.post(MAPS, {**body, "metadata": metadata})


@CASES.case("a priority that comes too late")
async def _(side: Side) -> None:
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
    version = "scheduling.k8s.io/v1"
    for name, more in (("first", {"value": 7}), ("second", {"value": 0, "preemptionPolicy": "Never"})):
        body = {"kind": "PriorityClass", "apiVersion": version, "metadata": {"name": f"{{id}}.{name}"}, **more}
        await side.quietly(Exchange("POST", f"/apis/{version}/priorityclasses", body))
        late = apply(f"Object{{spec: Object.spec{{priorityClassName: '{side.id}.{name}'}}}}")
        await add(side, mutating(late, rules=[rule("CREATE", on="pods")], **only(name)), suffix=f".{name}")
    await begin(side)
    spec: Json = {"containers": [{"name": "main", "image": "x"}], "automountServiceAccountToken": False}
    for name in ("first", "second"):
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
        await side.post("/api/v1/namespaces/{ns}/pods", pod)
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "third"}, "spec": {**spec, "priority": 5}}
    await side.post("/api/v1/namespaces/{ns}/pods", pod)


@CASES.case("an expression that fails and is ignored")
async def _(side: Side) -> None:
    await install(side, mutating(label("before", "'yes'"), FAILING, label("after", "'yes'"), failurePolicy="Ignore"))
    await side.post(MAPS, config_map())


@CASES.case("several policies that fail")
async def _(side: Side) -> None:
    await install(side, mutating(FAILING, FAILING, patch("[JSONPatch{op: 'remove', path: '/data/none'}]")))
    await side.post(MAPS, config_map())
    await side.patch("apply", f"{MAPS}/b?fieldManager=me", config_map("b"))


@CASES.case("match conditions that fail")
async def _(side: Side) -> None:
    conditions = [{"name": name, "expression": f"object.data.{name} == 'v'"} for name in ("x", "y")]
    await install(side, mutating(label("a", "'b'"), matchConditions=conditions))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"x": "w"}))


@CASES.case("a variable that fails")
async def _(side: Side) -> None:
    variables = [{"name": "bad", "expression": "object.data.x + '!'"}, {"name": "unused", "expression": "1 / 0"}]
    await install(side, mutating(label("a", "variables.bad"), variables=variables))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"x": "w"}))


@CASES.case("parameters that are missing")
async def _(side: Side) -> None:
    kind: Json = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    reference = {"name": "none", "parameterNotFoundAction": "Deny"}
    await install(side, mutating(label("a", "params.data.k"), **kind), paramRef=reference)
    await side.post(MAPS, config_map())


@CASES.case("parameters of a namespace for an object without one")
async def _(side: Side) -> None:
    kind: Json = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    reference = {"name": "none", "parameterNotFoundAction": "Allow"}
    roles = [rule(on="namespaces")]
    await install(side, mutating(label("a", "params.data.k"), rules=roles, **kind), paramRef=reference)
    await side.patch("merge", "/api/v1/namespaces/{ns}", {"metadata": {"labels": {"x": "y"}}})


_each(
    "configurations that do not fit the schema",
    {
        "field": apply("Object{spec: Object.spec{replicaz: 1}}"),
        "type": apply("Object{spec: Object.spec{replicas: 'three'}}"),
        "args": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[Object.spec.template.spec.containers{name: 'main', args: ['a']}]}}}}"
        ),
        "selector": apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
        "nodes": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
            "nodeSelector: {'a': 'b'}}}}}"
        ),
        "mapped": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[{'name': 'x', 'image': 'y'}]}}}}"
        ),
        "keyless": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[Object.spec.template.spec.containers{image: 'x'}]}}}}"
        ),
        "twice": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[Object.spec.template.spec.containers{name: 'x'}, Object.spec.template.spec.containers{name: 'x'}]}}}}"
        ),
        "named": apply("Object{spec: Object.spec{template: Object.spec.wrong{}}}"),
        "listed": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[Object.spec.containers{name: 'x'}]}}}}"
        ),
        "quantity": apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
            "[Object.spec.template.spec.containers{name: 'main', resources: "
            "Object.spec.template.spec.containers.resources{limits: {'cpu': 'much'}}}]}}}}"
        ),
        "number": apply("Object{spec: Object.spec{replicas: 1.5}}"),
        "root": apply("Object{spec: 'text'}"),
        "empty": apply("Object{}"),
    },
    on_deployments=True,
)
_each(
    "values that are no JSON values",
    {
        "null": apply("Object{data: null}"),
        "inner": apply("Object{data: Object.data{k: null}}"),
        "number": apply("Object{data: {'k': 1}}"),
        "keys": apply("Object{data: {1: 'k'}}"),
        "nested": apply("Object{metadata: {'labels': {'a': 'b'}}}"),
        "list": apply("Object{metadata: Object.metadata{finalizers: []}}"),
    },
)
_each(
    "values of JSON patches",
    {
        "number": patch("[JSONPatch{op: 'add', path: '/data/l', value: 9007199254740993}]"),
        "keys": patch("[JSONPatch{op: 'add', path: '/data/l', value: {1: 'b'}}]"),
        "time": patch("[JSONPatch{op: 'add', path: '/data/l', value: timestamp('2020-01-01T00:00:00Z')}]"),
        "duration": patch("[JSONPatch{op: 'add', path: '/data/l', value: duration('1h30m')}]"),
        "quantity": patch("[JSONPatch{op: 'add', path: '/data/l', value: quantity('1')}]"),
        "optional": patch("[JSONPatch{op: 'add', path: '/data/l', value: optional.of('x')}]"),
        "fields": patch("[JSONPatch{op: 'add', path: '/data/l', value: JSONPatch{op: 'a'}.op + Object{a: 'x'}.a}]"),
        "has": patch("[JSONPatch{op: 'add', path: '/data/l', value: string(has(Object{a: 1}.a))}]"),
        "dynamic": patch("[JSONPatch{op: dyn(1), path: '/data/l'}]"),
        "object": patch("[JSONPatch{op: 'add', path: '/data', value: object.metadata.labels}]"),
        "typed": patch("[JSONPatch{op: 'add', path: '/data', value: Object.x{a: 'b', c: 'd'}}]"),
    },
)
_each(
    "JSON patches that do not apply",
    {
        "test": patch("[JSONPatch{op: 'remove', path: '/data/k'}, JSONPatch{op: 'test', path: '/data/k', value: 'x'}]"),
        "parent": patch("[JSONPatch{op: 'add', path: '/none/k', value: 'x'}]"),
        "replaced": patch("[JSONPatch{op: 'replace', path: '/data/none', value: 'x'}]"),
        "removed": patch("[JSONPatch{op: 'remove', path: '/data/none'}]"),
        "unreached": patch("[JSONPatch{op: 'remove', path: '/none/k'}]"),
        "moved": patch("[JSONPatch{op: 'move', from: '/data/none', path: '/data/l'}]"),
        "fromless": patch("[JSONPatch{op: 'copy', path: '/data/l'}]"),
        "copied": patch("[JSONPatch{op: 'copy', from: '/none/k', path: '/data/l'}]"),
        "op": patch("[JSONPatch{op: 'change', path: '/data/l', value: 'x'}]"),
        "opless": patch("[JSONPatch{path: '/data/l', value: 'x'}]"),
        "pathless": patch("[JSONPatch{op: 'add', value: 'x'}]"),
        "relative": patch("[JSONPatch{op: 'add', path: 'data', value: 'x'}]"),
        "valueless": patch("[JSONPatch{op: 'add', path: '/data/l'}]"),
        "index": patch(
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['e.com/a']}, "
            "JSONPatch{op: 'add', path: '/metadata/finalizers/7', value: 'e.com/b'}]"
        ),
        "key": patch(
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['e.com/a']}, "
            "JSONPatch{op: 'remove', path: '/metadata/finalizers/x'}]"
        ),
        "empty": patch("[JSONPatch{op: 'add', path: '/data/l', value: 'x'}].filter(x, false)"),
    },
)
_each(
    "JSON patches whose result is no object of the kind",
    {
        "field": patch("[JSONPatch{op: 'add', path: '/spec', value: 'x'}]"),
        "type": patch("[JSONPatch{op: 'replace', path: '/data', value: 'x'}]"),
        "number": patch("[JSONPatch{op: 'add', path: '/data/l', value: 1}]"),
        "kind": patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"),
        "version": patch("[JSONPatch{op: 'replace', path: '/apiVersion', value: 'v9'}]"),
        "document": patch("[JSONPatch{op: 'replace', path: '', value: {}}]"),
        "label": patch("[JSONPatch{op: 'add', path: '/metadata/labels/l', value: 'not a label'}]"),
        "misnamed": patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: Object.a{b: Object.c{}}}]"),
    },
)
_each(
    "JSON patches whose result is no object of the kind are no failures to ignore",
    {
        "field": patch("[JSONPatch{op: 'add', path: '/spec', value: 'x'}]"),
        "removed": patch("[JSONPatch{op: 'remove', path: '/data/none'}]"),
    },
    failurePolicy="Ignore",
)
_each(
    "metadata of new objects",
    {
        "uid": patch("[JSONPatch{op: 'add', path: '/metadata/uid', value: 'mine'}]"),
        "version": patch("[JSONPatch{op: 'add', path: '/metadata/resourceVersion', value: '7'}]"),
        "namespace": patch("[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'default'}]"),
        "generation": apply("Object{metadata: Object.metadata{generation: 7}}"),
        "created": apply("Object{metadata: Object.metadata{creationTimestamp: '2020-01-01T00:00:00Z'}}"),
        "deleted": apply("Object{metadata: Object.metadata{deletionTimestamp: '2020-01-01T00:00:00Z'}}"),
        "managed": patch("[JSONPatch{op: 'remove', path: '/metadata/managedFields'}]"),
        "none": patch("[JSONPatch{op: 'remove', path: '/metadata'}]"),
    },
)


@CASES.case("metadata of old objects")
async def _(side: Side) -> None:
    changes = {
        "name": patch("[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]"),
        "uid": patch("[JSONPatch{op: 'replace', path: '/metadata/uid', value: 'mine'}]"),
        "version": patch("[JSONPatch{op: 'replace', path: '/metadata/resourceVersion', value: '7'}]"),
        "namespace": patch("[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'default'}]"),
        "created": apply("Object{metadata: Object.metadata{creationTimestamp: '2020-01-01T00:00:00Z'}}"),
        "generation": apply("Object{metadata: Object.metadata{generation: 7}}"),
    }
    for key, change in changes.items():
        await add(side, mutating(change, rules=[rule("UPDATE")], **only(key)), suffix=f".{key}")
    await begin(side)
    for key in changes:
        await side.post(MAPS, config_map(key))
        await side.patch("merge", f"{MAPS}/{key}", {"data": {"k": "w"}})
        await side.put(f"{MAPS}/{key}", config_map(key))


@CASES.case("huge and deep results")
async def _(side: Side) -> None:
    big = {"k": "x" * 1000}
    deep = "{'a': " * 12 + "'b'" + "}" * 12
    long = f"object.data.k.replace('xx', '{'y' * 1000}')"
    changes = {
        "long": apply(f"Object{{metadata: Object.metadata{{annotations: {{'note': {long}}}}}}}"),
        "label": apply("Object{metadata: Object.metadata{labels: {'note': object.data.k}}}"),
        "deep": patch(f"[JSONPatch{{op: 'add', path: '/data/l', value: {deep}}}]"),
        "many": patch("object.data.k.split('').map(c, JSONPatch{op: 'add', path: '/data/' + c, value: c})"),
    }
    for key, change in changes.items():
        await add(side, mutating(change, **only(key)), suffix=f".{key}")
    await begin(side)
    for key in changes:
        await side.post(MAPS, config_map(key, big))


@CASES.case("expressions that cost too much")
async def _(side: Side) -> None:
    letters = "object.data.k.split('')"
    changes = {
        "loops": label("a", f"string({letters}.map(a, {letters}.map(b, a + b)).size())"),
        "text": label("a", "variables.v5.size() > 1 ? 'big' : 'small'"),
    }
    variables = [{"name": "v0", "expression": "object.data.k"}]
    for number in range(1, 6):
        variables.append({"name": f"v{number}", "expression": f"variables.v{number - 1}.replace('x', 'xxxxxxxxxx')"})
    for key, change in changes.items():
        await add(side, mutating(change, variables=variables, **only(key)), suffix=f".{key}")
    await begin(side)
    for key in changes:
        await side.post(MAPS, config_map(key, {"k": "x" * 1500}))


@CASES.case("policies as the server stores and lists them")
async def _(side: Side) -> None:
    kind: Json = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    spec = mutating(label("a", "'b'"), patch("[JSONPatch{op: 'test'}]"), constraints={"excludeResourceRules": [rule()]})
    spec["matchConstraints"]["resourceRules"] = [rule(on="secrets", resourceNames=["none"])]
    await side.post(POLICIES, document("MutatingAdmissionPolicy", "{id}", {**spec, **kind}))
    bound: Json = {"policyName": "{id}", "matchResources": {"resourceRules": [rule()]}}
    await side.post(BINDINGS, document("MutatingAdmissionPolicyBinding", "{id}.1", bound))
    reference = {"name": "p", "namespace": "n", "parameterNotFoundAction": "Allow"}
    await side.post(BINDINGS, document("MutatingAdmissionPolicyBinding", "{id}.2", {**bound, "paramRef": reference}))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    await side.get(f"{POLICIES}/{{id}}", accept=table)
    for number in (1, 2):
        await side.get(f"{BINDINGS}/{{id}}.{number}", accept=table)
    await side.put(f"{POLICIES}/{{id}}", document("MutatingAdmissionPolicy", "{id}", spec))
    await side.put(f"{BINDINGS}/{{id}}.1", document("MutatingAdmissionPolicyBinding", "{id}.1", bound))
    await side.patch("merge", f"{POLICIES}/{{id}}", {"spec": {"failurePolicy": "Ignore"}})
    await side.patch("merge", f"{BINDINGS}/{{id}}.1", {"spec": {"matchResources": None}})
    await side.patch("merge", f"{POLICIES}/{{id}}", {"spec": {"mutations": []}})


GOOD: Final = label("a", "'b'")
BAD_POLICIES: Final[dict[str, Json]] = {
    "nothing": {},
    "no mutations": mutating(),
    "no rules": {**mutating(GOOD), "matchConstraints": {}},
    "deletions": mutating(GOOD, rules=[rule("DELETE", "CREATE"), rule("LOOK")]),
    "connections": mutating(GOOD, rules=[rule("CONNECT", on="pods/exec")]),
    "no reinvocation policy": {**mutating(GOOD), "reinvocationPolicy": ""},
    "a bad reinvocation policy": {**mutating(GOOD), "reinvocationPolicy": "Often"},
    "a bad policy for failures": mutating(GOOD, failurePolicy="Maybe"),
    "a bad match policy": mutating(GOOD, constraints={"matchPolicy": "Nearly"}),
    "no type of patch": mutating({"applyConfiguration": {"expression": "Object{}"}}),
    "a bad type of patch": mutating({"patchType": "Merge"}),
    "a patch without its expression": mutating({"patchType": "JSONPatch"}, {"patchType": "ApplyConfiguration"}),
    "both patches": mutating({**apply("Object{}"), **patch("[JSONPatch{}]"), "patchType": "JSONPatch"}),
    "both configurations": mutating({**patch("[JSONPatch{}]"), **apply("Object{}")}),
    "empty expressions": mutating(apply(" "), patch("")),
    "configurations of other types": mutating(
        *map(apply, ("1", "object", "Object.spec{}", "{'a': 'b'}", "null", "JSONPatch{}"))
    ),
    "patches of other types": mutating(*map(patch, ("[]", "[1]", "JSONPatch{}", "object.x", "[Object{}]", "null"))),
    "a conditional configuration": mutating(apply("object.x == 1 ? Object{} : Object{spec: Object.spec{}}")),
    "a conditional patch": mutating(patch("object.x == 1 ? [JSONPatch{op: 'test', path: '/x'}] : []")),
    "bad syntax": mutating(*map(apply, ("Object{", "Object{a}", "Object{a:}", "Object{a: 1 b: 2}", "Object{1: 2}"))),
    "more bad syntax": mutating(
        *map(apply, ("Object{a: 1,}", "Object{,}", "Object{?a}", "Object{}{}", "Object.{}", "Object{`a-b`: 1}"))
    ),
    "unknown types": mutating(*map(apply, ("Thing{}", "object{}", "Object{a: Thing.x{}}", "int{}"))),
    "fields of a patch": mutating(
        *map(
            patch,
            (
                "[JSONPatch{op: 1}]",
                "[JSONPatch{?op: 'a'}]",
                "[JSONPatch{path: object.x, value: 1.5}]",
                "[JSONPatch{foo: 1}]",
            ),
        )
    ),
    "optional fields": mutating(*map(apply, ("Object{?a: 1}", "Object{?a: object.?a}", "Object{?a: object.a}"))),
    "types in other expressions": mutating(
        GOOD,
        variables=[{"name": "a", "expression": "Object{}"}, {"name": "b", "expression": "jsonpatch.escapeKey('a')"}],
        matchConditions=[{"name": "a", "expression": "Object{} == null"}],
    ),
    "escaping in a configuration": mutating(label("a", "jsonpatch.escapeKey('a') + jsonpatch.unescapeKey('b')")),
    "fields of messages": mutating(
        apply("Object{a: Object{b: 1}.b + Object.x{}.y}"), patch("[JSONPatch{op: JSONPatch{op: 'add'}.op}]")
    ),
    "nested expressions": mutating(
        *(patch("[JSONPatch{op: 'add', path: '/x', value: " + "{'a': " * n + "1" + "}" * n + "}]") for n in (40, 300)),
        *(apply("Object{a: " + "(" * n + "1" + ")" * n + "}") for n in (40, 300)),
        apply("Object{a: " + "-" * 300 + "object.a}"),
        apply("Object{a: " + "[" * 300 + "1" + "]" * 300 + "}"),
        apply("Object{a: 1" + " + 1" * 300 + "}"),
    ),
    "a huge expression": mutating(label("a", "'" + "x" * 120_000 + "'")),
    "an unknown name": mutating(label("a", "what.x")),
    "params without a kind": mutating(label("a", "params.data.x")),
    "an empty kind of parameters": mutating(GOOD, paramKind={}),
    "variables": mutating(
        label("a", "variables.ok + variables.number + variables.none"),
        variables=[
            {"name": "ok", "expression": "'true'"},
            {"name": "", "expression": "true"},
            {"name": "a-b", "expression": "true"},
            {"name": "empty", "expression": ""},
            {"name": "number", "expression": "1"},
        ],
    ),
    "match conditions": mutating(
        GOOD,
        variables=[{"name": "ok", "expression": "true"}],
        matchConditions=[
            {"name": "a", "expression": "variables.ok"},
            {"name": "a", "expression": "1"},
            {"name": "", "expression": ""},
        ],
    ),
}
BAD_BINDINGS: Final[dict[str, Json]] = {
    "nothing": {},
    "a bad name": {"policyName": "A B"},
    "actions": {"policyName": "p", "validationActions": ["Deny"]},
    "an empty reference": {"policyName": "p", "paramRef": {}},
    "name and selector": {
        "policyName": "p",
        "paramRef": {"name": "n", "selector": {}, "parameterNotFoundAction": "Perhaps"},
    },
    "bad resources": {
        "policyName": "p",
        "matchResources": {"matchPolicy": "Nearly", "resourceRules": [{"operations": ["*", "DELETE"]}]},
    },
}


def _written(path: str, kind: str, spec: Json) -> Play:
    async def play(side: Side) -> None:
        await side.post(path, document(kind, "{id}", spec))

    return play


for name, bad in BAD_POLICIES.items():
    CASES.add(f"a stored policy: {name}", _written(POLICIES, "MutatingAdmissionPolicy", bad))
for name, bad in BAD_BINDINGS.items():
    CASES.add(f"a stored binding: {name}", _written(BINDINGS, "MutatingAdmissionPolicyBinding", bad))


@pytest.mark.parametrize("case", CASES.params())
async def test_failures_are_answered_as_by_a_real_server(judge: Judge, case: Case) -> None:
    """The answers, with messages and causes."""
    await judge(case)
