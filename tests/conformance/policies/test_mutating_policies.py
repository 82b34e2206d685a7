# SPDX-License-Identifier: Apache-2.0
"""MutatingAdmissionPolicies in force: which writes they change, how, and in which order."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.definitions import definition
from tests.conformance.harness import Case, Cases, Exchange, Side
from tests.conformance.policies import test_policies as validating
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

JOBS: Final = "/apis/batch/v1/namespaces/{ns}/jobs"
CASES: Final = Cases("mutating-policies")
NOTE: Final = "Object{metadata: Object.metadata{annotations: {'note': %s}}}"
AGAIN: Final = NOTE % "object.metadata.?annotations[?'note'].orValue('') + 'x'"


@CASES.case("a label that a configuration adds to every write")
async def _(side: Side) -> None:
    await install(side, mutating(label("added", "'by ' + request.operation == 'by CREATE' ? 'new' : 'old'")))
    await side.post(MAPS, config_map(labels={"kept": "yes"}))
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w"}})
    await side.patch("merge", f"{MAPS}/a", {"metadata": {"labels": {"added": None}}})
    await side.put(f"{MAPS}/a", config_map(data={"k": "x"}))
    await side.patch("apply", f"{MAPS}/a?fieldManager=me&force=true", config_map(data={"k": "y"}))
    await side.patch("apply", f"{MAPS}/b?fieldManager=me", config_map("b"))
    await side.post("/api/v1/namespaces/{ns}/secrets", {**config_map("other"), "kind": "Secret", "data": {}})
    await side.delete(f"{MAPS}/a")


@CASES.case("labels that a JSON patch adds and removes")
async def _(side: Side) -> None:
    key = "jsonpatch.escapeKey('example.com/a~b')"
    added = f"JSONPatch{{op: 'add', path: '/metadata/annotations/' + {key}, value: string(size(object.data))}}"
    removed = "JSONPatch{op: 'remove', path: '/metadata/labels/old'}"
    made = "JSONPatch{op: 'add', path: '/metadata/annotations', value: {'first': 'yes'}}"
    await install(side, mutating(patch(f"[{made}, {added}]"), patch(f"[{removed}]")))
    await side.post(MAPS, config_map(labels={"kept": "yes", "old": "yes"}))
    await side.put(f"{MAPS}/a", config_map(labels={"old": "yes"}, annotations={"mine": "yes"}))
    await side.post(MAPS, config_map("b"))


@CASES.case("a dry run")
async def _(side: Side) -> None:
    await install(side, mutating(label("dry", "string(request.dryRun)")))
    await side.post(f"{MAPS}?dryRun=All", config_map())
    await side.get(f"{MAPS}/a")
    await side.post(MAPS, config_map())
    await side.patch("merge", f"{MAPS}/a?dryRun=All", {"data": {"k": "w"}})


@CASES.case("an update sees the old object")
async def _(side: Side) -> None:
    kept = "JSONPatch{op: 'replace', path: '/data/k', value: oldObject.data.k}"
    await install(side, mutating(patch(f"[{kept}]"), rules=[rule("UPDATE")]))
    await side.post(MAPS, config_map())
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w", "l": "x"}})
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))


@CASES.case("variables, the namespace, the requester and the request")
async def _(side: Side) -> None:
    variables = [
        {"name": "count", "expression": "size(object.data)"},
        {"name": "text", "expression": "string(variables.count) + '-' + namespaceObject.metadata.name"},
    ]
    parts = {
        "text": "variables.text",
        "user": "request.userInfo.username",
        "allowed": "string(authorizer.group('').resource('nodes').check('get').allowed())",
        "kind": "request.kind.kind + request.resource.resource + request.namespace + request.name",
    }
    listed = ", ".join(f"'{key}': {text}" for key, text in parts.items())
    made = f"Object{{metadata: Object.metadata{{annotations: {{{listed}}}}}, data: {{'l': 'w'}}}}"
    later = NOTE % "'now ' + variables.text"
    await install(side, mutating(apply(made), apply(later), variables=variables))
    await side.post(MAPS, config_map())


@CASES.case("match conditions")
async def _(side: Side) -> None:
    conditions = [
        {"name": "first", "expression": "object.data.k == 'v'"},
        {"name": "second", "expression": "object.data.l.startsWith('x')"},
    ]
    await install(side, mutating(label("matched", "'yes'"), matchConditions=conditions))
    await side.post(MAPS, config_map("a", {"k": "v", "l": "xy"}))
    await side.post(MAPS, config_map("b", {"k": "w"}))
    await side.post(MAPS, config_map("c", {"k": "v"}))


@CASES.case("match conditions that fail and are ignored")
async def _(side: Side) -> None:
    conditions = [{"name": "first", "expression": "object.data.l == 'v'"}]
    await install(side, mutating(label("a", "'b'"), matchConditions=conditions, failurePolicy="Ignore"))
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b", {"l": "v"}))


@CASES.case("which objects a policy is about")
async def _(side: Side) -> None:
    chosen = {"objectSelector": {"matchLabels": {"chosen": "yes"}}}
    excluded = {"excludeResourceRules": [rule("UPDATE", resourceNames=["b"])]}
    await add(side, mutating(label("selected", "'yes'"), constraints={**chosen, **excluded}), suffix=".1")
    await add(side, mutating(label("named", "'yes'"), rules=[rule("*", resourceNames=["b"])]), suffix=".2")
    narrowed = {"matchResources": {"resourceRules": [rule("CREATE")]}}
    await add(side, mutating(label("created", "'yes'")), suffix=".3", **narrowed)
    await begin(side)
    await side.post(MAPS, config_map("a", labels={"chosen": "yes"}))
    await side.post(MAPS, config_map("b", labels={"chosen": "yes"}))
    await side.put(f"{MAPS}/a", config_map("a", labels={"chosen": "yes"}))
    await side.put(f"{MAPS}/b", config_map("b", labels={"chosen": "yes"}))
    await side.put(f"{MAPS}/b", config_map("b"))


@CASES.case("parameters by name and by selector")
async def _(side: Side) -> None:
    kind: Json = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    for name in ("p1", "p2"):
        made = config_map(name, {"key": f"from-{name}"}, labels={"params": "yes"})
        await side.quietly(Exchange("POST", MAPS, made))
    one = {"name": "p1", "parameterNotFoundAction": "Deny"}
    await add(side, mutating(label("one", "params.data.key"), **kind), suffix=".1", paramRef=one)
    all_of = {"selector": {"matchLabels": {"params": "yes"}}, "parameterNotFoundAction": "Deny"}
    by_name = apply("Object{metadata: Object.metadata{annotations: {params.metadata.name: params.data.key}}}")
    await add(side, mutating(by_name, **kind), suffix=".2", paramRef=all_of)
    none = {"name": "p3", "parameterNotFoundAction": "Allow"}
    await add(side, mutating(label("none", "params.data.key"), **kind), suffix=".3", paramRef=none)
    await add(side, mutating(label("unbound", "string(params == null)"), **kind), suffix=".4")
    await begin(side)
    await side.post(MAPS, config_map())


@CASES.case("items of lists with keys are merged")
async def _(side: Side) -> None:
    container = (
        "Object.spec.template.spec.containers{name: 'main', imagePullPolicy: 'Never', "
        "env: [Object.spec.template.spec.containers.env{name: 'A', value: '2'}, "
        "Object.spec.template.spec.containers.env{name: 'B', value: '3'}]}"
    )
    sidecar = "Object.spec.template.spec.containers{name: 'sidecar', image: 'registry.example/y:1'}"
    inside = f"Object.spec.template.spec{{containers: [{container}, {sidecar}]}}"
    made = f"Object{{spec: Object.spec{{replicas: 3, template: Object.spec.template{{spec: {inside}}}}}}}"
    await install(side, mutating(apply(made), rules=deployments()))
    await side.post(DEPLOYMENTS, deployment())
    await side.patch("merge", f"{DEPLOYMENTS}/a", {"spec": {"replicas": 1}})
    await side.post(DEPLOYMENTS, deployment("b", [{"name": "own", "image": "registry.example/z:1"}], replicas=2))


@CASES.case("a container that is added to a pod gets what pods get")
async def _(side: Side) -> None:
    side.prefixes.add("kube-api-access-")
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
    sidecar = "Object.spec.containers{name: 'sidecar', image: 'registry.example/y:1'}"
    first = "Object.spec.initContainers{name: 'first', image: 'registry.example/z', restartPolicy: 'Always'}"
    made = f"Object{{spec: Object.spec{{containers: [{sidecar}], initContainers: [{first}]}}}}"
    mutated = mutating(apply(made), rules=[rule("CREATE", on="pods")])
    await install(side, mutated)
    spec: Json = {"containers": [{"name": "main", "image": "registry.example/x:1"}]}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec}
    await side.post("/api/v1/namespaces/{ns}/pods", pod)
    spec = {**spec, "automountServiceAccountToken": False}
    await side.post("/api/v1/namespaces/{ns}/pods", {**pod, "metadata": {"name": "b"}, "spec": spec})


@CASES.case("structs, sets and maps are merged")
async def _(side: Side) -> None:
    metadata = (
        "metadata: Object.metadata{finalizers: ['example.com/a'], labels: {'x': 'y'}, "
        "ownerReferences: [Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'X', name: 'x', uid: 'u'}]}"
    )
    spec = (
        "spec: Object.spec{strategy: Object.spec.strategy{type: 'RollingUpdate', "
        "rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: 2, maxUnavailable: '10%'}}, "
        "template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'more': 'yes'}}, "
        "spec: Object.spec.template.spec{securityContext: "
        "Object.spec.template.spec.securityContext{runAsNonRoot: true, runAsUser: 1000}}}}"
    )
    await install(side, mutating(apply(f"Object{{{metadata}, {spec}}}"), rules=deployments()))
    await side.post(DEPLOYMENTS, deployment(strategy={"rollingUpdate": {"maxSurge": 1}}))


@CASES.case("optional fields")
async def _(side: Side) -> None:
    made = (
        "Object{spec: Object.spec{?paused: object.spec.?nothing, ?minReadySeconds: optional.of(4), "
        "?replicas: object.metadata.?labels[?'n'].optMap(n, size(n))}}"
    )
    await install(side, mutating(apply(made), rules=deployments()))
    await side.post(DEPLOYMENTS, deployment())
    await side.post(DEPLOYMENTS, {**deployment("b"), "metadata": {"name": "b", "labels": {"n": "7"}}})


@CASES.case("a JSON patch with typed values, tests, moves and copies")
async def _(side: Side) -> None:
    volume = "Object.v{name: 'v', emptyDir: Object.v.emptyDir{}}"
    security = "Object.spec.template.spec.securityContext{runAsUser: 1000, supplementalGroups: [1, 2]}"
    mount = "{'name': 'v', 'mountPath': '/v'}"
    operations = [
        "JSONPatch{op: 'test', path: '/spec/template/spec/containers/0/name', value: 'main'}",
        "JSONPatch{op: 'add', path: '/spec/template/spec/volumes', value: []}",
        f"JSONPatch{{op: 'add', path: '/spec/template/spec/volumes/0', value: {volume}}}",
        f"JSONPatch{{op: 'add', path: '/spec/template/spec/securityContext', value: {security}}}",
        f"JSONPatch{{op: 'add', path: '/spec/template/spec/containers/0/volumeMounts', value: [{mount}]}}",
        "JSONPatch{op: 'add', path: '/spec/template/spec/containers/0/env/-', value: {'name': 'C', 'value': 'D'}}",
        "JSONPatch{op: 'copy', from: '/metadata/name', path: '/spec/template/metadata/labels/copied'}",
        "JSONPatch{op: 'add', path: '/metadata/labels', value: {}}",
        "JSONPatch{op: 'move', from: '/metadata/annotations/moved', path: '/metadata/labels/moved'}",
        "JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}",
    ]
    await install(side, mutating(patch(f"[{', '.join(operations)}]"), rules=deployments("CREATE")))
    body = deployment()
    body["metadata"]["annotations"] = {"moved": "yes", "kept": "yes"}
    await side.post(DEPLOYMENTS, body)
    body = deployment("b", [{"name": "other", "image": "registry.example/x:1"}])
    await side.post(DEPLOYMENTS, body)


@CASES.case("a list built with functions of the language")
async def _(side: Side) -> None:
    made = (
        "object.data.map(k, JSONPatch{op: 'replace', path: '/data/' + jsonpatch.escapeKey(k), "
        "value: object.data[k].upperAscii()}) + [JSONPatch{op: 'add', path: '/data/count', "
        "value: string(size(object.data))}]"
    )
    await install(side, mutating(patch(made), rules=[rule("CREATE")]))
    await side.post(MAPS, config_map("a", {"k": "v", "l": "w"}))


@CASES.case("reinvocation of one policy")
async def _(side: Side) -> None:
    await add(side, mutating(apply(AGAIN), **only("never")), suffix=".1")
    await add(side, mutating(apply(AGAIN), **{**only("needed"), "reinvocationPolicy": "IfNeeded"}), suffix=".2")
    same = NOTE % "'same'"
    await add(side, mutating(apply(same), **{**only("same"), "reinvocationPolicy": "IfNeeded"}), suffix=".3")
    await begin(side)
    for name in ("never", "needed", "same"):
        await side.post(MAPS, config_map(name))


@CASES.case("two policies that need each other's changes")
async def _(side: Side) -> None:
    needed: Json = {"reinvocationPolicy": "IfNeeded"}
    copied = label("copied", "object.metadata.?labels[?'set'].orValue('nothing')")
    await add(side, mutating(copied, **needed), suffix=".1")
    await add(side, mutating(label("set", "'yes'"), **needed), suffix=".2")
    await begin(side)
    await side.post(MAPS, config_map())
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w"}})


@CASES.case("the mutations of a policy see each other's changes")
async def _(side: Side) -> None:
    await install(side, mutating(label("a", "'1'"), label("b", "object.metadata.labels.a + '2'"), label("a", "'3'")))
    await side.post(MAPS, config_map())


@CASES.case("a validating policy sees the changes")
async def _(side: Side) -> None:
    seen = "!has(object.metadata.labels) || object.metadata.labels.?added != optional.of('yes')"
    await validating.install(side, validating.policy(seen))
    await side.post(MAPS, config_map())
    await install(side, mutating(label("added", "'yes'"), rules=[rule("UPDATE")]))
    await side.patch("merge", f"{MAPS}/a", {"data": {"k": "w"}})


@CASES.case("two bindings of a policy")
async def _(side: Side) -> None:
    await add(side, mutating(apply(AGAIN)))
    own = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": side.ns}}}
    more = {"policyName": "{id}", "matchResources": own}
    await side.quietly(Exchange("POST", BINDINGS, document("MutatingAdmissionPolicyBinding", "{id}.more", more)))
    await begin(side)
    await side.post(MAPS, config_map())


@CASES.case("defaults and validation come after the changes")
async def _(side: Side) -> None:
    made = (
        "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
        "[Object.spec.template.spec.containers{name: 'more', image: 'registry.example/y', ports: "
        "[Object.spec.template.spec.containers.ports{containerPort: 80}]}]}}}}"
    )
    invalid = "Object{spec: Object.spec{replicas: -1}}"
    await add(side, mutating(apply(made), rules=deployments(), **only("a")), suffix=".1")
    await add(side, mutating(apply(invalid), rules=deployments(), **only("b")), suffix=".2")
    renamed = patch("[JSONPatch{op: 'replace', path: '/spec/template/spec/containers/0/name', value: 'Not A Name'}]")
    await add(side, mutating(renamed, rules=deployments(), **only("c")), suffix=".3")
    await begin(side)
    for name in ("a", "b", "c"):
        await side.post(DEPLOYMENTS, deployment(name))


def _kind(side: Side) -> Json:
    """The definition of a custom resource of the case's own."""
    items = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
    }
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "default": 1, "maximum": 10},
            "words": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "items": {
                "type": "array",
                "items": items,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "inner": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    return definition("Thing", schema, group=f"{side.id}.example.com", subresources={"status": {}})


async def _define(side: Side) -> tuple[str, Json]:
    """Define the custom resource; its path, and an object of it."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await side.quietly(Exchange("POST", path, _kind(side)))
    version = f"{side.id}.example.com/v1"
    return f"/apis/{version}/namespaces/{{ns}}/things", {"apiVersion": version, "kind": "Thing", "metadata": {}}


def _thing(base: Json, name: str, **spec: object) -> Json:
    return {**base, "metadata": {"name": name}, "spec": spec}


@CASES.case("custom resources")
async def _(side: Side) -> None:
    path, base = await _define(side)
    rules = [rule(on="things", group="*")]
    made = (
        "Object{metadata: Object.metadata{labels: {'l': 'm'}}, spec: Object.spec{set: ['b', 'c'], items: "
        "[Object.spec.items{name: 'x', n: 2}, Object.spec.items{name: 'y'}], inner: Object.spec.inner{}, "
        "free: Object.spec.free{any: 'thing', n: 1.5}}}"
    )
    await add(side, mutating(apply(made), rules=rules, **only("applied")), suffix=".1")
    operations = (
        "[JSONPatch{op: 'add', path: '/spec/words', value: ['a', 'b']}, JSONPatch{op: 'remove', path: '/spec/free'}, "
        "JSONPatch{op: 'add', path: '/spec/unknown', value: 1}, JSONPatch{op: 'add', path: '/spec/inner', value: {}}]"
    )
    await add(side, mutating(patch(operations), rules=rules, **only("patched")), suffix=".2")
    await add(side, mutating(apply("Object{spec: Object.spec{size: 11}}"), rules=rules, **only("big")), suffix=".3")
    await add(
        side, mutating(apply("Object{spec: Object.spec{words: ['a']}}"), rules=rules, **only("atomic")), suffix=".4"
    )
    await add(side, mutating(apply("Object{spec: Object.spec{other: 1}}"), rules=rules, **only("other")), suffix=".5")
    typed = patch("[JSONPatch{op: 'add', path: '/spec/size', value: 'large'}]")
    await add(side, mutating(typed, rules=rules, **only("typed")), suffix=".6")
    await begin(side, probe=_thing(base, "probed"), path=path)
    full = {"set": ["a", "b"], "items": [{"name": "x", "n": 1}, {"name": "z", "n": 3}], "free": {"some": "thing"}}
    for name in ("applied", "patched", "big", "atomic", "other", "typed"):
        await side.post(path, _thing(base, name, **full))
    await side.patch("merge", f"{path}/applied", {"spec": {"items": [{"name": "x", "n": 9}], "set": None}})
    await side.patch("merge", f"{path}/applied/status", {"status": {"x": 1}})


@CASES.case("the status")
async def _(side: Side) -> None:
    status = patch("[JSONPatch{op: 'add', path: '/status', value: Object.status{ready: 4}}]")
    applied = apply("Object{status: Object.status{ready: 2}, metadata: Object.metadata{labels: {'s': 't'}}}")
    on_jobs, on_status = rule(on="jobs", group="batch"), rule(on="jobs/status", group="batch")
    await add(side, mutating(status, rules=[on_jobs], **only("a")), suffix=".1")
    await add(side, mutating(applied, rules=[on_status]), suffix=".2")
    await begin(side)
    await side.post(JOBS, validating.job("a"))
    await side.post(JOBS, validating.job("b"))
    await side.patch("merge", f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}})
    await side.patch("merge", f"{JOBS}/b/status", {"status": {"active": 1}})


@CASES.case("policies are not about policies")
async def _(side: Side) -> None:
    every = [rule("*", on="*", group="admissionregistration.k8s.io")]
    spec = mutating(label("changed", "'yes'"), rules=every)
    await side.quietly(Exchange("POST", POLICIES, document("MutatingAdmissionPolicy", "{id}", spec)))
    bound = {"policyName": "{id}", "matchResources": {"objectSelector": {"matchLabels": {"case": "{id}"}}}}
    await side.quietly(Exchange("POST", BINDINGS, document("MutatingAdmissionPolicyBinding", "{id}", bound)))
    await begin(side)
    labelled = {"name": "{id}.x", "labels": {"case": "{id}"}}
    other = {**document("MutatingAdmissionPolicy", "", mutating(label("a", "'b'"))), "metadata": labelled}
    await side.post(POLICIES, other)
    hooks = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    await side.post(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {**hooks, "metadata": labelled}
    )


@CASES.case("a generated name")
async def _(side: Side) -> None:
    made = label("named", "string(has(object.metadata.name)) + string(has(object.metadata.uid))")
    await install(side, mutating(made))
    body = config_map()
    body["metadata"] = {"generateName": "generated-"}
    await side.post(MAPS, body)
    await side.post(MAPS, config_map())


@CASES.case("a policy that has no binding, and one that is deleted")
async def _(side: Side) -> None:
    await add(side, mutating(label("a", "'b'")), suffix=".1")
    unbound = document("MutatingAdmissionPolicy", "{id}.2", mutating(label("c", "'d'")))
    await side.quietly(Exchange("POST", POLICIES, unbound))
    await side.quietly(Exchange("DELETE", f"{BINDINGS}/{{id}}.1"))
    await begin(side)
    await side.post(MAPS, config_map())


@pytest.mark.parametrize("case", CASES.params())
async def test_writes_are_changed_as_by_a_real_server(judge: Judge, case: Case) -> None:
    """The answers, with the changed objects."""
    await judge(case)
