# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions themselves: made, established, changed, refused and taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import DEFINITIONS
from tests.conformance.harness import Answer, Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("definitions")
GROUP: Final = "{id}.conformance.test"
HERE: Final = f"{DEFINITIONS}/toys.{GROUP}"
TOYS: Final = f"/apis/{GROUP}/v1/namespaces/{{ns}}/toys"
_PATIENCE: Final = 60.0

Schema = dict[str, Any]
_OBJECT: Final[Schema] = {"type": "object"}


def _spec(**properties: Schema) -> Schema:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def version(name: str = "v1", schema: Schema | None = None, **more: object) -> dict[str, Any]:
    """A version of a definition, served and stored."""
    body = {"openAPIV3Schema": _spec(size={"type": "integer"}) if schema is None else schema}
    return {"name": name, "served": True, "storage": True, "schema": body, **more}


def definition(*versions: dict[str, Any], name: str = "", **more: Any) -> dict[str, Any]:
    """A definition of a group of the case's own."""
    names = {"plural": "toys", "kind": "Toy", **more.pop("names", {})}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [*(versions or (version(),))], **more}
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": name or f"{names['plural']}.{GROUP}"},
        "spec": spec,
    }


def toy(name: str = "t", version: str = "v1", **more: object) -> dict[str, Any]:
    """An object of it."""
    return {"kind": "Toy", "apiVersion": f"{GROUP}/{version}", "metadata": {"name": name}, **more}


async def until(side: Side, path: str, test: Callable[[Answer], bool]) -> Answer:
    """Poll until the answer is right; it is not compared."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await side.server.send(Exchange("GET", side.own(path)))
            if test(found):
                return found
            await asyncio.sleep(0.05)


def _established(found: Answer) -> bool:
    conditions = (found.body.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


async def install(side: Side, body: dict[str, Any]) -> None:
    """Create a definition and wait until it is served."""
    await side.quietly(Exchange("POST", DEFINITIONS, body))
    await until(side, HERE, _established)
    for entry in body["spec"]["versions"]:
        if entry["served"]:
            await until(side, f"/apis/{GROUP}/{entry['name']}/toys", lambda found: found.status == 200)


async def _finished(side: Side, path: str = HERE) -> None:
    """The definition, when nothing more happens to it."""
    await until(side, path, _established)
    found = await side.server.send(Exchange("GET", side.own(path)))
    # A real server's controllers write in several steps, which decides the order of managed fields.
    side.note("finished", {**found.body, "metadata": {**found.body["metadata"], "managedFields": None}})


@CASES.case("a definition is made and established")
async def _(side: Side) -> None:
    await side.post(DEFINITIONS, definition())
    await _finished(side)


@CASES.case("a definition with all its names is made and established")
async def _(side: Side) -> None:
    names = {"singular": "toy", "listKind": "ToyCollection", "shortNames": ["ty-{id}"], "categories": ["all"]}
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    await side.post(
        DEFINITIONS,
        definition(
            version(subresources={"status": {}}, additionalPrinterColumns=columns),
            names=names,
            scope="Cluster",
        ),
    )
    await _finished(side)
    await until(side, f"/apis/{GROUP}/v1/toys", lambda found: found.status == 200)
    await side.get(f"/apis/{GROUP}/v1/toys")
    await side.get(f"/apis/{GROUP}/v1")
    await side.get(f"/apis/{GROUP}")


@CASES.case("names in use are not accepted")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.quietly(Exchange("POST", DEFINITIONS, definition(names={"plural": "others", "kind": "Toy"})))

    def told(found: Answer) -> bool:
        return bool((found.body.get("status") or {}).get("conditions"))

    found = await until(side, f"{DEFINITIONS}/others.{GROUP}", told)
    side.note("status", found.body["status"])


@CASES.case("objects go with their definition")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, toy())
    await side.post(TOYS, toy("u"))
    path = f"{TOYS}?watch=true"
    async with side.watching(path) as events:
        first = [(await anext(events))["type"] for _ in range(2)]
        await side.delete(HERE)
        seen = [(await anext(events))["type"] for _ in range(2)]
        side.note("events", [first, seen])
    await until(side, HERE, lambda found: found.status == 404)
    await until(side, TOYS, lambda found: found.status == 404)
    await side.get(TOYS)
    await side.get(f"/apis/{GROUP}/v1")


@CASES.case("a definition whose objects stay waits for them")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, {**toy(), "metadata": {"name": "t", "finalizers": ["example.com/stay"]}})
    await side.delete(HERE)
    found = await until(side, f"{TOYS}/t", lambda found: "deletionTimestamp" in found.body.get("metadata", {}))
    side.note("finalizers", found.body["metadata"]["finalizers"])
    await side.post(TOYS, toy("late"))

    def ending(found: Answer) -> bool:
        return any(entry["type"] == "Terminating" for entry in found.body["status"]["conditions"])

    found = await until(side, HERE, ending)
    side.note("conditions", [[entry["type"], entry["status"]] for entry in found.body["status"]["conditions"]])
    await side.patch("merge", f"{TOYS}/t", {"metadata": {"finalizers": None}})
    if side.server.name == "embedded":  # a real server looks again every few seconds only
        await until(side, HERE, lambda found: found.status == 404)


@CASES.case("a definition comes back empty")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, toy())
    await side.quietly(Exchange("DELETE", HERE))
    await until(side, HERE, lambda found: found.status == 404)
    await install(side, definition())
    await side.get(TOYS)


@CASES.case("a new schema holds for new objects")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, toy("old", spec={"size": 3, "color": "red"}))
    limited = _spec(size={"type": "integer", "maximum": 2}, color={"type": "string", "default": "blue"})
    await side.patch("json", HERE, [_replace("/spec/versions/0/schema/openAPIV3Schema", limited)])
    path, body = f"{TOYS}?dryRun=All", side.own(toy("probe", spec={"size": 3}))
    async with asyncio.timeout(_PATIENCE):
        while (await side.server.send(Exchange("POST", side.own(path), body))).status != 422:
            await asyncio.sleep(0.05)
    await side.post(TOYS, toy("new", spec={"size": 3}))
    await side.post(TOYS, toy("new", spec={"size": 1}))
    await side.patch("merge", f"{TOYS}/old", {"spec": {"color": "green"}})
    await side.patch("merge", f"{TOYS}/old", {"spec": {"size": 4}})
    await _finished(side)


@CASES.case("a new default holds for old objects")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, toy(spec={"size": 3}))
    schema = _spec(size={"type": "integer"}, color={"type": "string", "default": "blue"})
    await side.patch("json", HERE, [_replace("/spec/versions/0/schema/openAPIV3Schema", schema)])
    path, body = f"{TOYS}?dryRun=All", side.own(toy("probe", spec={}))
    async with asyncio.timeout(_PATIENCE):
        while "color" not in (await side.server.send(Exchange("POST", side.own(path), body))).body["spec"]:
            await asyncio.sleep(0.05)
    await side.get(f"{TOYS}/t")


@CASES.case("a status has defaults, whatever the client sends with a new object")
async def _(side: Side) -> None:
    schema = _spec(size={"type": "integer"})
    counted = {"type": "integer", "default": 3}
    properties = {"seen": {"type": "integer"}, "counted": counted}
    schema["properties"]["status"] = {"type": "object", "properties": properties, "default": {"seen": -1}}
    await install(side, definition(version(schema=schema, subresources={"status": {}})))
    await side.post(TOYS, toy("a", spec={"size": 1}))
    await side.post(TOYS, toy("b", spec={"size": 1}, status={"seen": 5}))
    await side.patch("apply", f"{TOYS}/c?fieldManager=m", toy("c", spec={"size": 1}))
    for name in ("a", "b", "c"):
        await side.get(f"{TOYS}/{name}")
        await side.patch("merge", f"{TOYS}/{name}", {"spec": {"size": 2}})
    await side.patch("merge", f"{TOYS}/a/status", {"status": {"seen": 7}})
    await side.patch("merge", f"{TOYS}/a", {"spec": {"size": 3}})
    await _finished(side)


_KEYED: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
_KEYED_ITEM: Final[Schema] = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
}
_APPLIED: Final[tuple[dict[str, Any], ...]] = (
    {"q": 1},
    {"size": "x"},
    {"keyed": [{"k": "a", "q": 1}, {"k": "b", "q": 1}]},
    {"keyed": [{"k": "a", "q": 1}, {"k": "a", "v": "x"}]},
    {"keyed": [{"v": 1}, {"v": 2}]},
    {"keyed": [{"k": "a"}, {"k": "a"}, "x"]},
    {"keyed": [None]},
    {"chosen": ["a", "a", {"x": 1}]},
    {"chosen": [["x"]]},
    {"chosen": [None]},
    {"keyed": [{"k": "a", "v": 1}], "chosen": ["a"], "size": 1},
)


@CASES.case("an applied object must match its schema")
async def _(side: Side) -> None:
    chosen = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    keyed = {"type": "array", "items": _KEYED_ITEM, **_KEYED}
    await install(side, definition(version(schema=_spec(size={"type": "integer"}, chosen=chosen, keyed=keyed))))
    for spec in _APPLIED:
        await side.patch("apply", f"{TOYS}/t?fieldManager=m&dryRun=All", toy(spec=spec))


@CASES.case("a version is added, stored, and taken away")
async def _(side: Side) -> None:
    await install(side, definition())
    await side.post(TOYS, toy(spec={"size": 1}))
    second = version("v2", _spec(size={"type": "integer"}, extra={"type": "string", "default": "x"}))
    old = {**version(), "storage": False}
    await side.patch("merge", HERE, {"spec": {"versions": [old, second]}})
    await until(side, f"/apis/{GROUP}/v2/toys", lambda found: found.status == 200)
    await side.get(TOYS.replace("/v1/", "/v2/") + "/t")
    await side.post(TOYS.replace("/v1/", "/v2/"), toy("u", "v2", spec={"size": 2, "extra": "y"}))
    await side.get(f"{TOYS}/u")
    await side.get(f"{TOYS}/t")
    await side.get(TOYS)
    await until(side, f"/apis/{GROUP}", lambda found: len(found.body["versions"]) == 2)
    await side.get(f"/apis/{GROUP}")
    await _finished(side)
    await side.patch("merge", HERE, {"spec": {"versions": [second]}})
    await side.patch("merge", HERE, {"spec": {"versions": [{**old, "served": False}, second]}})
    await until(side, TOYS, lambda found: found.status == 404)
    await side.patch("merge", f"{HERE}/status", {"status": {"storedVersions": ["v2"]}})
    await side.patch("merge", HERE, {"spec": {"versions": [second]}})
    await until(side, f"/apis/{GROUP}", lambda found: len(found.body["versions"]) == 1)
    await side.get(f"/apis/{GROUP}")


def _replace(path: str, value: object) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


@CASES.case("what may not change does not")
async def _(side: Side) -> None:
    await install(side, definition())
    patches: tuple[dict[str, Any], ...] = (
        {"spec": {"scope": "Cluster"}},
        {"spec": {"group": "other.example"}},
        {"spec": {"names": {"plural": "trains"}}},
        {"spec": {"names": {"kind": "Train", "listKind": "TrainList"}}},
        {"spec": {"versions": []}},
        {"spec": {"versions": [version("v2")]}},
        {"status": {"storedVersions": []}},
        {"spec": {"names": {"shortNames": ["tt-{id}"]}}},
    )
    for patch in patches:
        await side.patch("merge", HERE, patch)


_TWO_STORED: Final = (version("v1"), version("v2"))
_NO_STORED: Final = ({**version("v1"), "storage": False},)
_HOOK: Final = {"url": "https://example.invalid/convert"}
_TWO: Final = (version("v1"), {**version("v2"), "storage": False})
_SELECTED: Final = {"selectableFields": [{"jsonPath": ".spec.size"}]}
_WRONG: Final[dict[str, dict[str, Any]]] = {
    "equal schemas, one version with selectable fields": definition(_TWO[0], _TWO[1] | _SELECTED),
    "equal schemas, equal selectable fields": definition(_TWO[0] | _SELECTED, _TWO[1] | _SELECTED),
    "equal schemas, other selectable fields": definition(
        _TWO[0] | _SELECTED, _TWO[1] | {"selectableFields": [{"jsonPath": ".spec.none"}]}
    ),
    "other schemas, one version with selectable fields": definition(
        _TWO[0], version("v2", _spec(size={"type": "string"}), storage=False) | _SELECTED
    ),
    "no versions": definition(name="toys.{id}.conformance.test") | {"spec": {**definition()["spec"], "versions": []}},
    "two stored versions": definition(*_TWO_STORED),
    "no stored version": definition(*_NO_STORED),
    "the same version twice": definition(version("v1"), {**version("v1"), "storage": False}),
    "a version of a bad name": definition(version("V_1")),
    "another name": definition(name="cars.{id}.conformance.test"),
    "no group": definition(group=""),
    "a group without a dot": definition(group="toys", name="toys.toys"),
    "a bad group": definition(group="No Group.example", name="toys.x"),
    "no kind": definition(names={"kind": ""}),
    "a bad kind": definition(names={"kind": "to_y"}),
    "a kind that is its list": definition(names={"listKind": "Toy"}),
    "a bad singular": definition(names={"singular": "To_y"}),
    "a bad short name": definition(names={"shortNames": ["a b"]}),
    "a bad category": definition(names={"categories": ["A B"]}),
    "no scope": definition(scope=""),
    "a bad scope": definition(scope="Galaxy"),
    "a group of Kubernetes": definition(group="x.k8s.io", name="toys.x.k8s.io"),
    "no schema": definition({"name": "v1", "served": True, "storage": True}),
    "an empty schema": definition(version(schema={})),
    "a schema of a string": definition(version(schema={"type": "string"})),
    "kept unknown fields": definition(preserveUnknownFields=True),
    "a webhook without a client": definition(conversion={"strategy": "Webhook"}),
    "a webhook without versions": definition(conversion={"strategy": "Webhook", "webhook": {"clientConfig": _HOOK}}),
    "a webhook of strange versions": definition(
        conversion={"strategy": "Webhook", "webhook": {"clientConfig": _HOOK, "conversionReviewVersions": ["v9"]}}
    ),
    "a webhook without encryption": definition(
        conversion={
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "http://x"}, "conversionReviewVersions": ["v1"]},
        }
    ),
    "a webhook of no strategy": definition(conversion={"strategy": "None", "webhook": {"clientConfig": _HOOK}}),
    "a strange strategy": definition(conversion={"strategy": "Magic"}),
    "a column without a path": definition(version(additionalPrinterColumns=[{"name": "A", "type": "string"}])),
    "a column of a strange type": definition(
        version(additionalPrinterColumns=[{"name": "A", "type": "what", "jsonPath": ".a"}])
    ),
    "a bad path of a column": definition(
        version(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": "a b"}])
    ),
    "a scale without paths": definition(version(subresources={"scale": {}})),
    "a selectable field of nothing": definition(version(selectableFields=[{"jsonPath": ".spec.none"}])),
    "a selectable field of an object": definition(version(selectableFields=[{"jsonPath": ".spec"}])),
    "a field twice selectable": definition(version(selectableFields=[{"jsonPath": ".spec.size"}] * 2)),
    "unknown fields": definition(version(what=1), more=2),
}

_SCHEMAS: Final[dict[str, Schema]] = {
    "a property without a type": {},
    "an unknown type": {"type": "text"},
    "a list without items": {"type": "array"},
    "items of a list of lists without a type": {"type": "array", "items": {}},
    "properties beside additional ones": {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": {"type": "string"},
    },
    "additional properties in a formula": {"type": "object", "anyOf": [{"additionalProperties": {"type": "string"}}]},
    "a type in a formula": {"type": "object", "anyOf": [{"type": "object"}]},
    "a default in a formula": {"type": "object", "anyOf": [{"properties": {"a": {"default": 1}}}]},
    "a property only a formula knows": {"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]},
    "a default of another type": {"type": "integer", "default": "x"},
    "a default that is not valid": {"type": "integer", "default": 1, "minimum": 2},
    "a default with unknown fields": {"type": "object", "properties": {}, "default": {"a": 1}},
    "a null default": {"type": "string", "default": None},
    "a pattern that is none": {"type": "string", "pattern": "["},
    "a limit below zero": {"type": "string", "maxLength": -1},
    "a reference": {"$ref": "#/x"},
    "unique items": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "a list map without keys": {"type": "array", "items": _OBJECT, "x-kubernetes-list-type": "map"},
    "a list map of strings": {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a"],
    },
    "a list map whose key is unknown": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["b"],
    },
    "a list map whose key may be missing": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a"],
    },
    "a strange list type": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"},
    "a list type of a string": {"type": "string", "x-kubernetes-list-type": "set"},
    "a set of objects": {"type": "array", "items": _OBJECT, "x-kubernetes-list-type": "set"},
    "a strange map type": {"type": "object", "x-kubernetes-map-type": "bag"},
    "kept unknown fields of a string": {"type": "string", "x-kubernetes-preserve-unknown-fields": True},
    "unknown fields that are not kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
    "an embedded string": {"type": "string", "x-kubernetes-embedded-resource": True},
    "an embedded object without fields": {"type": "object", "x-kubernetes-embedded-resource": True},
    "int or string with a type": {"type": "integer", "x-kubernetes-int-or-string": True},
    "a rule that cannot be read": {"type": "object", "x-kubernetes-validations": [{"rule": "self."}]},
    "a rule of an unknown field": {"type": "object", "x-kubernetes-validations": [{"rule": "self.a == 1"}]},
    "a rule that is no question": {"type": "string", "x-kubernetes-validations": [{"rule": "self"}]},
    "an empty rule": {"type": "string", "x-kubernetes-validations": [{"rule": ""}]},
    "a rule of wrong types": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 1"}]},
    "a rule of an unknown function": {"type": "string", "x-kubernetes-validations": [{"rule": "self.sing()"}]},
    "a rule of a strange reason": {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == 'a'", "reason": "Whim"}],
    },
    "a rule with a message of two lines": {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == 'a'", "message": "a\nb"}],
    },
    "a message expression that is no text": {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == 'a'", "messageExpression": "1"}],
    },
    "a rule of a field path of nothing": {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".none"}],
    },
    "a rule that compares items of no key": {
        "type": "array",
        "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
    },
    "an unknown keyword": {"type": "string", "wot": 1},
}
for _name, _body in _WRONG.items():
    CASES.exchanges(f"{_name} is judged", Exchange("POST", f"{DEFINITIONS}?fieldValidation=Strict", _body))
for _name, _schema in _SCHEMAS.items():
    CASES.exchanges(
        f"{_name} is judged",
        Exchange("POST", f"{DEFINITIONS}?fieldValidation=Strict", definition(version(schema=_spec(x=_schema)))),
    )


@pytest.mark.parametrize("case", CASES.params())
async def test_a_definition_is_treated_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """From its creation to its end."""
    await judge(case)
