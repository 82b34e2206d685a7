# SPDX-License-Identifier: Apache-2.0
"""Server-side apply to one object in several API versions of its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("apply versions")
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION: Final = f"{DEFINITIONS}/gadgets.{{id}}.test"
TEXT: Final = {"type": "string"}
PLAIN: Final = {"key": TEXT, "b": TEXT}
MORE: Final = {**PLAIN, "np": {"type": "string", "default": "Ignore"}}
OPTIONAL: Final = {**PLAIN, "np": TEXT}
_DEADLINE: Final = 20.0


def version(name: str, fields: Any, *, served: bool = True, storage: bool = False) -> dict[str, Any]:
    """A version of the definition, with the fields of `spec`."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def gadgets(name: str, query: str = "") -> str:
    """The path of the gadget in a version."""
    return f"/apis/{{id}}.test/{name}/namespaces/{{ns}}/gadgets/o{query}"


async def define(side: Side, *versions: dict[str, Any], stored: tuple[str, ...] = ()) -> None:
    """Install or change the kind, and wait until it is served so."""
    found = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.{id}.test", "labels": {"round": str(len(side.record))}},
        "spec": {
            "group": "{id}.test",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [*versions],
        },
    }
    if stored:
        status = {"status": {"storedVersions": [*stored]}}
        media = "application/merge-patch+json"
        await side.quietly(Exchange("PATCH", f"{DEFINITION}/status", status, content_type=media))
    query = "?fieldManager=definer&force=true"
    await side.quietly(Exchange("PATCH", DEFINITION + query, found, content_type="application/apply-patch+yaml"))
    # Each field that a version declares can be applied, and no other one.
    async with asyncio.timeout(_DEADLINE):
        for entry in versions:
            fields = entry["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            while not await _serves(side, entry, fields):
                await asyncio.sleep(0.05)


async def _serves(side: Side, entry: dict[str, Any], fields: dict[str, Any]) -> bool:
    name = entry["name"]
    for field in ("key", "b", "np"):
        path = f"/apis/{{id}}.test/{name}/namespaces/{{ns}}/gadgets/ready?fieldManager=ready&dryRun=All"
        body = {**gadget(name, {field: "x"}), "metadata": {"name": "ready"}}
        sent = side.filled(Exchange("PATCH", path, body, content_type="application/apply-patch+yaml"))
        answer = await side.server.send(sent)
        if not entry["served"]:
            return answer.status == 404
        if (answer.status < 300) != (field in fields):
            return False
        made = answer.body.get("spec", {}) if answer.status < 300 else {}
        if answer.status < 300 and ("np" in made) != ("default" in fields.get("np", {}) or field == "np"):
            return False
    return True


def gadget(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A gadget in a version."""
    return {"apiVersion": f"{{id}}.test/{name}", "kind": "Gadget", "metadata": {"name": "o"}, "spec": spec}


async def apply(side: Side, name: str, manager: str, spec: dict[str, Any], *, force: bool = False) -> None:
    """Apply the gadget in a version."""
    query = f"?fieldManager={manager}{'&force=true' if force else ''}"
    await side.patch("apply", gadgets(name, query), gadget(name, spec))


async def merge(side: Side, name: str, manager: str, change: dict[str, Any]) -> None:
    """Update the gadget in a version."""
    await side.patch("merge", gadgets(name, f"?fieldManager={manager}"), change)


def alone(play: Callable[[Side], Awaitable[None]]) -> Callable[[Side], Awaitable[None]]:
    """The case with its kind taken away after it."""

    async def whole(side: Side) -> None:
        await play(side)
        await side.quietly(Exchange("DELETE", DEFINITION))

    return whole


OLD: Final = version("v1beta1", PLAIN)
NEW: Final = version("v1", PLAIN, storage=True)
ANNOTATE: Final = {"metadata": {"annotations": {"a": "b"}}}


@CASES.case("a manager that applies in another version gives up what it leaves out")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1beta1", "m", {"key": "bar", "b": "x"})
    await apply(side, "v1", "m", {"key": "bar"})
    await apply(side, "v1", "m", {"key": "bar"})
    await side.get(gadgets("v1beta1"))


@CASES.case("a manager goes back to the old version")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1", "m", {"key": "bar", "b": "x"})
    await apply(side, "v1beta1", "m", {"key": "bar", "b": "x"})
    await apply(side, "v1beta1", "m2", {"b": "x"})
    await apply(side, "v1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"key": "foo"})
    await apply(side, "v1", "m2", {"key": "foo"}, force=True)
    await apply(side, "v1beta1", "m", {})
    await side.get(gadgets("v1"))


@CASES.case("updates have an entry for each version")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await merge(side, "v1beta1", "m", {"spec": {"b": "1"}})
    await merge(side, "v1", "m", {"spec": {"b": "2"}})
    await merge(side, "v1", "m", ANNOTATE)
    await apply(side, "v1", "m", {"key": "bar", "b": "3"})
    await apply(side, "v1", "m", {"key": "bar", "b": "3"}, force=True)
    await merge(side, "v1beta1", "n", {"spec": {"key": "4"}})
    await side.get(gadgets("v1"))


async def _renewed(side: Side, *, by_update: bool = False) -> None:
    """An object of the old version, whose kind has a new version with one more field and a default."""
    await define(side, version("v1beta1", PLAIN, storage=True))
    if by_update:
        await side.post(gadgets("v1beta1").removesuffix("/o") + "?fieldManager=m", gadget("v1beta1", {"key": "bar"}))
    else:
        await apply(side, "v1beta1", "m", {"key": "bar"})
    await define(side, OLD, NEW)
    await merge(side, "v1", "x", ANNOTATE)
    await define(side, OLD, version("v1", MORE, storage=True))


@CASES.case("an old manager's version is held against a default that it does not know")
@alone
async def _(side: Side) -> None:
    await _renewed(side)
    await apply(side, "v1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"key": "bar"})
    await apply(side, "v1", "m2", {"key": "bar"}, force=True)
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await apply(side, "v1beta1", "m2", {"key": "bar"})
    await side.get(gadgets("v1"))


@CASES.case("an old updater's version is held against a default that it does not know")
@alone
async def _(side: Side) -> None:
    await _renewed(side, by_update=True)
    await apply(side, "v1", "m", {"key": "bar"})
    await apply(side, "v1beta1", "m2", {"key": "bar"})
    await side.get(gadgets("v1"))


@CASES.case("an update in a version with a default that old managers do not know")
@alone
async def _(side: Side) -> None:
    await _renewed(side)
    await merge(side, "v1beta1", "y", {"metadata": {"annotations": {"a": "d"}}})
    await merge(side, "v1", "y", {"metadata": {"annotations": {"a": "c"}}})
    await side.get(gadgets("v1"))
    await apply(side, "v1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"key": "bar"})


@CASES.case("an apply adds a field that the version of another manager does not have")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, version("v1", OPTIONAL, storage=True))
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"np": "x"})
    await apply(side, "v1", "m2", {"np": "x"}, force=True)
    await apply(side, "v1", "m", {"key": "bar", "np": "x"})
    await merge(side, "v1", "u", {"spec": {"np": "y"}})
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"np": "x"}, force=True)
    await side.get(gadgets("v1"))


@CASES.case("an apply that leaves fields out is held against the version of another manager")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, version("v1", OPTIONAL, storage=True))
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await apply(side, "v1", "m2", {"b": "x"})
    await apply(side, "v1", "m2", {"np": "x"})
    await apply(side, "v1", "m2", {"np": "x", "b": "x"}, force=True)
    await apply(side, "v1", "m2", {"key": "foo"})
    await merge(side, "v1", "u", {"spec": {"np": "y"}})
    await apply(side, "v1", "m2", {"b": "x"})
    await apply(side, "v1beta1", "m", {"key": "foo"}, force=True)
    await apply(side, "v1", "m2", {"b": "x"})
    await side.get(gadgets("v1"))


@CASES.case("the entries of a version that is no longer served are kept")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1beta1", "m", {"key": "bar", "b": "x"})
    await merge(side, "v1beta1", "u", ANNOTATE)
    await apply(side, "v1beta1", "n", {"key": "bar"})
    await define(side, version("v1beta1", PLAIN, served=False), NEW)
    await apply(side, "v1", "m", {"key": "bar"})
    await merge(side, "v1", "w", {"metadata": {"annotations": {"c": "d"}}})
    await side.get(gadgets("v1"))


@CASES.case("a version that is no longer served is still held against a new field")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, version("v1", OPTIONAL, storage=True))
    await apply(side, "v1beta1", "m", {"key": "bar"})
    await define(side, version("v1beta1", PLAIN, served=False), version("v1", OPTIONAL, storage=True))
    await apply(side, "v1", "m", {"key": "bar", "np": "x"})
    await side.get(gadgets("v1"))


@CASES.case("an apply after the removal of a version that managers have applied in")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1beta1", "m", {"key": "bar", "b": "x"})
    await merge(side, "v1beta1", "u", ANNOTATE)
    await apply(side, "v1", "n", {"key": "bar"})
    await define(side, NEW, stored=("v1",))
    await apply(side, "v1", "n", {"key": "bar", "b": "x"})
    await apply(side, "v1", "m", {"key": "bar"})
    await side.get(gadgets("v1"))


@CASES.case("an update after the removal of a version that managers have applied in")
@alone
async def _(side: Side) -> None:
    await define(side, OLD, NEW)
    await apply(side, "v1beta1", "m", {"key": "bar", "b": "x"})
    await apply(side, "v1", "n", {"key": "bar"})
    await define(side, NEW, stored=("v1",))
    await merge(side, "v1", "w", {"metadata": {"annotations": {"c": "d"}}})
    await apply(side, "v1", "m", {"key": "bar"})
    await side.get(gadgets("v1"))


@pytest.mark.parametrize("case", CASES.params())
async def test_apply_versions(judge: Judge, case: Case) -> None:
    await judge(case)
