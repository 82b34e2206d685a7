# SPDX-License-Identifier: Apache-2.0
"""Webhooks: which are called, what they can change, and the errors if they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, Final

import pytest
from aiohttp import web

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Exchange, Side
from tests.conformance.webhooks.hookserver import (
    MUTATING,
    VALIDATING,
    HookServer,
    Reaction,
    Review,
    allow,
    hook,
    install,
    patch,
    rule,
)

pytestmark = pytest.mark.binaries

MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
Scene = Callable[[HookServer, Side], Awaitable[None]]
SCENES: Final[dict[str, Scene]] = {}


def scene(name: str) -> Callable[[Scene], Scene]:
    """A case that needs the webhook."""

    def keep(play: Scene) -> Scene:
        SCENES[name] = play
        return play

    return keep


def config_map(name: str = "a", **more: object) -> dict[str, Any]:
    """A small object."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}, **more}


def _set(name: str, value: str) -> dict[str, Any]:
    return {"op": "add", "path": f"/data/{name}", "value": value}


def _names(server: HookServer, side: Side) -> list[str]:
    return [name for name, _ in server.called(side)]


def _answering(answers: dict[str, Review]) -> Reaction:
    return lambda name, _: answers[name]


@scene("changes are made in order, and validators see them all")
async def _(server: HookServer, side: Side) -> None:
    server.react(
        side, _answering({"m1": patch(_set("a", "1")), "m2": patch(_set("a", "2"), _set("b", "3")), "v": allow()})
    )
    await install(server, side, MUTATING, hook(server, side, "m1"), hook(server, side, "m2"))
    await install(server, side, VALIDATING, hook(server, side, "v"))
    await side.post(MAPS, config_map())
    side.note("seen", [[name, called["object"]["data"]] for name, called in server.called(side)])
    await side.post(f"{MAPS}?dryRun=All", config_map("dry"))
    side.note("dry", [[name, called["dryRun"]] for name, called in server.called(side)])
    await side.patch("merge", f"{MAPS}/a", {"data": {"x": "y"}})
    side.note("updates", _names(server, side))


@scene("a review has everything about a write")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    every = rule("*"), rule("*", on="configmaps/*"), rule("*", on="pods/*"), rule("*", on="serviceaccounts")
    await install(server, side, VALIDATING, hook(server, side, "v", *every))
    await side.post(MAPS, config_map())
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))
    await side.patch("merge", f"{MAPS}/a?fieldManager=me", {"data": {"x": "y"}})
    await side.patch("apply", f"{MAPS}/a?fieldManager=me&force=true", config_map(data={"z": "y"}))
    await side.patch("apply", f"{MAPS}/b?fieldManager=me", config_map("b"))
    await side.delete(f"{MAPS}/b", {"propagationPolicy": "Background"})
    await side.delete(f"{MAPS}?labelSelector=nothing%3Dhere")
    await side.delete(MAPS)
    await side.post("/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"generateName": "x-"}})
    found = []
    for _, called in server.called(side):
        for part in ("object", "oldObject"):
            if called.get(part):
                called[part] = {**called[part], "metadata": sorted(called[part]["metadata"])}
        info = called["userInfo"]
        found.append({**called, "uid": "", "userInfo": {**info, "uid": "", "extra": None}})
    for request in found:
        if request["resource"]["resource"] == "serviceaccounts":
            request["name"] = bool(request.get("name"))
    # A real server calls again if it has to retry a write.
    side.note("requests", [called for before, called in pairwise([None, *found]) if called != before])


_DENIALS: Final[dict[str, Review]] = {
    "a message": {"status": {"message": "no"}},
    "nothing": {},
    "a code": {"status": {"message": "no", "code": 418}},
    "a code of success": {"status": {"message": "no", "code": 200}},
    "a reason": {"status": {"reason": "Forbidden", "code": 403}},
    "a reason and a message": {"status": {"reason": "Invalid", "message": "bad", "code": 422}},
    "causes": {
        "status": {
            "message": "bad",
            "code": 422,
            "reason": "Invalid",
            "details": {"causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "data.k"}]},
        }
    },
    "warnings": {"status": {"message": "no"}, "warnings": ["think again", 'a "quoted" word']},
}
_CHANGES: Final[dict[str, Review | str]] = {
    "a patch without a type": allow(patch="W10="),
    "a patch of another type": allow(patch="W10=", patchType="Merge"),
    "a type without a patch": allow(patchType="JSONPatch"),
    "an empty patch": patch(),
    "a patch that does not fit": patch({"op": "remove", "path": "/data/none"}),
    "a patch that is no patch": allow(patchType="JSONPatch", patch="e30="),
    "a patch that breaks the object": patch({"op": "add", "path": "/data/k", "value": 1}),
    "a patch that renames": patch({"op": "replace", "path": "/metadata/name", "value": "other"}),
    "a patch that adds what is unknown": patch({"op": "add", "path": "/what", "value": 1}),
    "a patch that makes it invalid": patch(_set("a b", "x")),
    "warnings": allow(warnings=["be careful", "x" * 300]),
    "annotations for the audit": allow(auditAnnotations={"k": "v"}),
}


def _denial(response: Review, path: str) -> Scene:
    async def play(server: HookServer, side: Side) -> None:
        server.react(side, lambda _name, _request: {"allowed": False, **response})
        await install(server, side, path, hook(server, side, "h"))
        await side.post(MAPS, config_map())

    return play


def _change(response: Review, path: str) -> Scene:
    async def play(server: HookServer, side: Side) -> None:
        server.react(side, lambda _name, _request: response)
        await install(server, side, path, hook(server, side, "h"))
        await side.post(MAPS, config_map())

    return play


for _name, _response in _DENIALS.items():
    SCENES[f"a refusal with {_name} is passed on"] = _denial(_response, VALIDATING)
SCENES["a mutator's refusal is passed on"] = _denial(_DENIALS["a message"], MUTATING)
for _name, _answer in _CHANGES.items():
    assert isinstance(_answer, dict)
    SCENES[f"{_name} of a mutator"] = _change(_answer, MUTATING)
SCENES["a validator's patch"] = _change(patch(_set("a", "1")), VALIDATING)


async def _slow(_name: str, _request: Review) -> Review:
    await asyncio.sleep(1.5)
    return allow()


_FAILURES: Final[dict[str, Reaction]] = {
    "answers 500": lambda _name, _request: web.Response(status=500, text="broken"),
    "answers 404": lambda _name, _request: web.Response(status=404),
    "answers nonsense": lambda _name, _request: web.Response(text="nonsense"),
    "answers nothing": lambda _name, _request: web.json_response({}),
    "answers without a response": lambda _name, _request: web.json_response(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    ),
    "answers of another kind": lambda _name, called: web.json_response(
        {"kind": "Pod", "apiVersion": "v1", "response": {"uid": called["uid"], "allowed": True}}
    ),
    "answers another question": lambda _name, _request: {"allowed": True, "uid": "other"},
    "is too slow": _slow,
}


def _failure(reaction: Reaction, policy: str) -> Scene:
    async def play(server: HookServer, side: Side) -> None:
        server.react(side, reaction)
        failing = hook(server, side, "h", failurePolicy=policy, timeoutSeconds=1)
        await install(server, side, VALIDATING, failing)
        found = await side.server.send(Exchange("POST", side.own(MAPS), config_map()))
        text = str(found.body.get("message", "")).replace(server.url, "<hooks>").replace(side.id, "<case>")
        for name in ("embedded", "real"):
            text = text.replace(f"/{name}/", "/<server>/")
        uids = [called["uid"] for _, called in server.called(side)]
        for uid in uids:
            text = text.replace(uid, "<uid>")
        side.note("answer", [found.status, found.body.get("reason"), text, sorted(found.body.get("details", ()))])

    return play


for _name, _reaction in _FAILURES.items():
    SCENES[f"a webhook that {_name} stops the write"] = _failure(_reaction, "Fail")
for _name in ("answers 500", "answers nonsense", "is too slow"):
    SCENES[f"a webhook that {_name} and may be ignored is ignored"] = _failure(_FAILURES[_name], "Ignore")


@scene("a mutator that fails and may be ignored changes nothing")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda name, _request: web.Response(status=500) if name == "m1" else patch(_set("b", "2")))
    first = hook(server, side, "m1", failurePolicy="Ignore")
    await install(server, side, MUTATING, first, hook(server, side, "m2"))
    await side.post(MAPS, config_map())


@scene("no server listens")
async def _(server: HookServer, side: Side) -> None:
    closed = {"url": "https://127.0.0.1:1/x", "caBundle": server.bundle}
    server.react(side, lambda _name, _request: allow())
    await install(server, side, VALIDATING, hook(server, side, "h", clientConfig=closed))
    await side.post(MAPS, config_map())


@scene("an absent service is called")
async def _(server: HookServer, side: Side) -> None:
    service = {"service": {"namespace": "{ns}", "name": "gone", "path": "/x"}, "caBundle": server.bundle}
    server.react(side, lambda _name, _request: allow())
    await install(server, side, VALIDATING, side.own(hook(server, side, "h", clientConfig=service)))
    await side.post(MAPS, config_map())


@scene("rules select the writes")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    hooks = {
        "creates": rule("CREATE"),
        "deletes": rule("DELETE"),
        "all": rule("*", on="*"),
        "every-group": {**rule("*", on="*/*"), "apiGroups": ["*"]},
        "other-group": rule("*", group="apps"),
        "other-version": {**rule("*"), "apiVersions": ["v2"]},
        "namespaced": rule("*", scope="Namespaced"),
        "cluster": rule("*", scope="Cluster"),
        "status": rule("*", on="*/status"),
        "jobs": rule("*", on="jobs", group="batch"),
        "jobs-status": rule("*", on="jobs/status", group="batch"),
    }
    await install(server, side, VALIDATING, *(hook(server, side, name, chosen) for name, chosen in hooks.items()))
    job = {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"name": "j"},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    jobs = "/apis/batch/v1/namespaces/{ns}/jobs"
    for what, exchange in {
        "create": Exchange("POST", MAPS, config_map()),
        "patch": Exchange("PATCH", f"{MAPS}/a", {"data": {"b": "c"}}, "application/merge-patch+json"),
        "nothing changed": Exchange("PATCH", f"{MAPS}/a", {"data": {"b": "c"}}, "application/merge-patch+json"),
        "get": Exchange("GET", f"{MAPS}/a"),
        "delete": Exchange("DELETE", f"{MAPS}/a"),
        "job": Exchange("POST", jobs, job),
        "job status": Exchange(
            "PATCH", f"{jobs}/j/status", {"status": {"active": 0, "ready": 0}}, "application/merge-patch+json"
        ),
    }.items():
        await side.quietly(exchange)
        side.note(what, sorted(_names(server, side)))


@scene("selectors select the objects")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    chosen = {"matchLabels": {"pick": "me"}}
    other = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    none = {"matchExpressions": [{"key": "pick", "operator": "DoesNotExist"}]}
    own = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [side.ns, "x"]}]}
    changes = rule("CREATE", "UPDATE", "DELETE")
    await install(
        server,
        side,
        VALIDATING,
        hook(server, side, "picked", changes, objectSelector=chosen),
        hook(server, side, "not-picked", changes, objectSelector=none),
        hook(server, side, "elsewhere", changes, namespaceSelector=other),
        hook(server, side, "here", changes, namespaceSelector=own),
    )
    labelled = config_map("b", metadata={"name": "b", "labels": {"pick": "me"}})
    unlabel = {"metadata": {"labels": {"pick": None}}}
    for what, exchange in {
        "plain": Exchange("POST", MAPS, config_map()),
        "labelled": Exchange("POST", MAPS, labelled),
        "unlabelling": Exchange("PATCH", f"{MAPS}/b", unlabel, "application/merge-patch+json"),
        "delete": Exchange("DELETE", f"{MAPS}/b"),
    }.items():
        await side.quietly(exchange)
        side.note(what, sorted(_names(server, side)))


def _condition(expression: str) -> list[dict[str, str]]:
    return [{"name": "only", "expression": expression}]


@scene("match conditions select the writes")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    expressions = {
        "named-a": "object.metadata.name == 'a'",
        "has-data": "has(object.data) && object.data['k'].startsWith('v')",
        "creating": "request.operation == 'CREATE' && !has(request.subResource)",
        "by-admin": "'system:masters' in request.userInfo.groups",
        "new": "oldObject == null",
        "false": "false",
        "in-group": "request.kind.group == '' && request.resource.resource == 'configmaps'",
    }
    hooks = [
        hook(server, side, name, rule("CREATE", "UPDATE"), matchConditions=_condition(text))
        for name, text in expressions.items()
    ]
    both = [*_condition("true"), {"name": "second", "expression": "object.metadata.name == 'b'"}]
    hooks.append(hook(server, side, "two", matchConditions=both))
    await install(server, side, VALIDATING, *hooks)
    for what, exchange in {
        "a": Exchange("POST", MAPS, config_map()),
        "b": Exchange("POST", MAPS, config_map("b", data={"k": "w"})),
        "change": Exchange("PATCH", f"{MAPS}/a", {"data": {"l": "m"}}, "application/merge-patch+json"),
    }.items():
        await side.quietly(exchange)
        side.note(what, sorted(_names(server, side)))


_UNPROBED: Final = {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}


@scene("a condition that cannot be evaluated stops the write, or not")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    broken = _condition("object.data['none'] == 'x'")
    ignored = hook(server, side, "ignored", matchConditions=broken, failurePolicy="Ignore")
    await install(server, side, VALIDATING, ignored)
    await side.post(MAPS, config_map())
    side.note("requests", _names(server, side))
    failing = hook(server, side, "failed", matchConditions=broken, objectSelector=_UNPROBED)
    await install(server, side, VALIDATING, failing, suffix="-2")
    await side.post(MAPS, config_map("b"))


@scene("a mutator is called again if a later one made changes")
async def _(server: HookServer, side: Side) -> None:
    def react(name: str, called: Review) -> Review:
        data = called["object"].get("data", {})
        if name == "counts":
            return patch(_set("count", str(len(data))))
        return patch(_set("late", "x")) if "late" not in data else allow()

    server.react(side, react)
    again = hook(server, side, "counts", reinvocationPolicy="IfNeeded")
    await install(server, side, MUTATING, again, hook(server, side, "late"))
    await side.post(MAPS, config_map())
    side.note("requests", _names(server, side))


@scene("a mutator without reinvocation is called once")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda name, _request: patch(_set(name, "x")))
    once = hook(server, side, "once", reinvocationPolicy="Never")
    idle = hook(server, side, "again", reinvocationPolicy="IfNeeded")
    await install(server, side, MUTATING, once, idle)
    await side.post(MAPS, config_map())
    side.note("requests", _names(server, side))


@scene("configurations are called in the order of their names")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda name, _request: patch(_set("last", name)))
    await install(server, side, MUTATING, hook(server, side, "second"), suffix="-b")
    await install(server, side, MUTATING, hook(server, side, "first"), suffix="-a")
    await side.post(MAPS, config_map())
    side.note("requests", _names(server, side))


@scene("only webhooks without side effects are called for dry runs")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    await install(server, side, VALIDATING, hook(server, side, "h", sideEffects="NoneOnDryRun"))
    await side.post(f"{MAPS}?dryRun=All", config_map())
    side.note("requests", [[name, called["dryRun"]] for name, called in server.called(side)])


@scene("a write that is invalid is not validated by webhooks")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: allow())
    await install(server, side, MUTATING, hook(server, side, "m"))
    await install(server, side, VALIDATING, hook(server, side, "v"))
    await side.post(MAPS, config_map(data={"a b": "c"}))
    side.note("requests", _names(server, side))
    await side.post(MAPS, config_map(metadata={"name": "A B"}))
    side.note("requests", _names(server, side))
    await side.patch("merge", f"{MAPS}/gone", {"data": {}})
    await side.delete(f"{MAPS}/gone")
    side.note("requests", _names(server, side))


@scene("deletions are refused too")
async def _(server: HookServer, side: Side) -> None:
    server.react(
        side, lambda _name, called: {"allowed": called["operation"] != "DELETE", "status": {"message": "stay"}}
    )
    await side.post(MAPS, config_map())
    await side.post(MAPS, config_map("b"))
    await install(server, side, VALIDATING, hook(server, side, "h", rule("DELETE")))
    await side.delete(f"{MAPS}/a")
    await side.delete(MAPS)
    await side.get(MAPS)
    side.note("requests", [called.get("name") for _, called in server.called(side)])


_CONFIGURATION: Final = {"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1"}
_PLAIN: Final[dict[str, Any]] = {
    "name": "h.conformance.test",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [rule()],
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "namespaceSelector": {"matchLabels": {"nobody": "is"}},
}
_WRONG: Final[dict[str, dict[str, Any]]] = {
    "nothing unusual": {},
    "a name without dots": {"name": "h"},
    "no name": {"name": ""},
    "no side effects": {"sideEffects": None},
    "side effects": {"sideEffects": "Some"},
    "no versions": {"admissionReviewVersions": []},
    "strange versions": {"admissionReviewVersions": ["v9"]},
    "no client": {"clientConfig": {}},
    "a client of both kinds": {"clientConfig": {"url": "https://x", "service": {"name": "a", "namespace": "b"}}},
    "an open client": {"clientConfig": {"url": "http://x"}},
    "a client with a query": {"clientConfig": {"url": "https://x/?a=b"}},
    "a nameless service": {"clientConfig": {"service": {"namespace": "b"}}},
    "a service on a strange port": {"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 0}}},
    "a service with a strange path": {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}},
    "a long timeout": {"timeoutSeconds": 31},
    "no time": {"timeoutSeconds": 0},
    "a strange policy": {"failurePolicy": "Pray"},
    "a strange match": {"matchPolicy": "Some"},
    "no operations": {"rules": [{**rule(), "operations": []}]},
    "a strange operation": {"rules": [{**rule(), "operations": ["SING"]}]},
    "a star among operations": {"rules": [{**rule(), "operations": ["*", "CREATE"]}]},
    "no groups": {"rules": [{**rule(), "apiGroups": []}]},
    "no resources": {"rules": [{**rule(), "resources": []}]},
    "a star among resources": {"rules": [{**rule(), "resources": ["*", "pods"]}]},
    "a strange scope": {"rules": [rule(scope="Galaxy")]},
    "a bad selector": {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
    "a condition without a name": {"matchConditions": [{"expression": "true"}]},
    "a condition without an expression": {"matchConditions": [{"name": "a", "expression": ""}]},
    "a condition that is no question": {"matchConditions": [{"name": "a", "expression": "1"}]},
    "a condition of a policy's variables": {"matchConditions": _condition("has(variables.x)")},
    "a condition of parameters": {"matchConditions": _condition("params == null")},
    "a condition that is any value": {"matchConditions": _condition("object.data.k")},
    "a condition that compares a kind with a map": {"matchConditions": _condition("request.kind == {'kind': 'Pod'}")},
    "a condition twice": {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
}


def _judged(changes: dict[str, Any]) -> Scene:
    async def play(_server: HookServer, side: Side) -> None:
        plain = {key: value for key, value in {**_PLAIN, **changes}.items() if value is not None}
        body = {**_CONFIGURATION, "metadata": {"name": "{id}"}, "webhooks": [plain]}
        found = await side.post(VALIDATING, body)
        if found.status == 201:
            await side.quietly(Exchange("DELETE", f"{VALIDATING}/{{id}}"))

    return play


for _name, _changes in _WRONG.items():
    SCENES[f"a configuration with {_name} is judged"] = _judged(_changes)


@pytest.mark.parametrize("name", SCENES)
async def test_a_webhook_is_called_as_by_a_real_server(judge: Judge, hooks: HookServer, name: str) -> None:
    """In the same order, about the same things, with the same effect."""

    async def play(side: Side) -> None:
        try:
            await SCENES[name](hooks, side)
        finally:
            for path in (MUTATING, VALIDATING):
                for suffix in ("", "-a", "-b", "-2"):
                    await side.server.send(Exchange("DELETE", f"{path}/{side.id}{suffix}"))

    await judge(Case("webhooks", name, play))
