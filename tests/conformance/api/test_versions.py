# SPDX-License-Identifier: Apache-2.0
"""One object in several versions, and events, which two groups serve from one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("versions")
EVENTS: Final = "/api/v1/namespaces/{ns}/events"
NEW_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEADLINE: Final = 20.0


def definition() -> dict[str, Any]:
    """A kind in two versions that are converted by name alone, and one that is served no more."""
    text = {"type": "string"}
    old = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": text, "b": text}}}}
    new = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "made"}},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{id}.test"},
        "spec": {
            "group": "{id}.test",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": new}},
                {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": old}},
                {"name": "v1alpha1", "served": False, "storage": False, "schema": {"openAPIV3Schema": old}},
            ],
        },
    }


def things(version: str) -> str:
    """Where things live in a version."""
    return f"/apis/{{id}}.test/{version}/namespaces/{{ns}}/things"


def thing(version: str, name: str = "o", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """A thing in a version."""
    found: dict[str, Any] = {"apiVersion": f"{{id}}.test/{version}", "kind": "Thing", "metadata": {"name": name}}
    return {**found, "spec": spec} if spec is not None else found


def served(play: Callable[[Side], Awaitable[None]]) -> Callable[[Side], Awaitable[None]]:
    """The case with its kind installed before it, and taken away after it."""

    async def whole(side: Side) -> None:
        await side.quietly(Exchange("POST", DEFINITIONS, definition()))
        async with asyncio.timeout(_DEADLINE):
            for version in ("v1", "v1beta1"):
                path = side.own(f"{things(version)}/ready?fieldManager=ready&dryRun=All")
                body = side.own(thing(version, "ready"))
                ready = Exchange("PATCH", path, body, content_type="application/apply-patch+yaml")
                while (await side.server.send(ready)).status >= 400:
                    await asyncio.sleep(0.05)
        await play(side)
        await side.quietly(Exchange("DELETE", f"{DEFINITIONS}/things.{{id}}.test"))

    return whole


@CASES.case("an object is written in one version and read in another")
@served
async def _(side: Side) -> None:
    await side.post(things("v1beta1"), thing("v1beta1", spec={"a": "1"}))
    await side.get(f"{things('v1')}/o")
    await side.get(f"{things('v1beta1')}/o")
    await side.get(things("v1"))
    await side.get(things("v1beta1"))
    await side.get(f"{things('v1alpha1')}/o")
    await side.post(things("v1beta1"), thing("v1", "p"))
    await side.patch("merge", f"{things('v1beta1')}/o", {"spec": {"a": "2"}})
    await side.patch("merge", f"{things('v1')}/o", {"spec": {"b": "3"}})
    await side.patch("merge", f"{things('v1beta1')}/o", {"spec": {"b": "4"}})
    await side.patch("json", f"{things('v1')}/o", [{"op": "replace", "path": "/spec/a", "value": "5"}])
    found = (await side.get(f"{things('v1beta1')}/o")).body
    await side.put(f"{things('v1beta1')}/o", {**found, "spec": {"a": "6"}})
    await side.get(f"{things('v1')}/o")
    await side.delete(f"{things('v1beta1')}/o")


@CASES.case("owners are kept in the version they wrote in")
@served
async def _(side: Side) -> None:
    await side.patch("apply", f"{things('v1beta1')}/o?fieldManager=old", thing("v1beta1", spec={"a": "1"}))
    await side.patch("apply", f"{things('v1')}/o?fieldManager=new", thing("v1", spec={"b": "1"}))
    await side.patch("apply", f"{things('v1')}/o?fieldManager=new", thing("v1", spec={"a": "2", "b": "1"}))
    await side.patch("apply", f"{things('v1')}/o?fieldManager=new&force=true", thing("v1", spec={"a": "2"}))
    await side.patch("merge", f"{things('v1beta1')}/o?fieldManager=up", {"spec": {"a": "3"}})
    await side.patch("merge", f"{things('v1')}/o?fieldManager=up", {"spec": {"a": "4", "b": "5"}})
    await side.patch("apply", f"{things('v1beta1')}/o?fieldManager=new&force=true", thing("v1beta1", spec={"a": "2"}))
    await side.get(f"{things('v1')}/o")
    await side.get(f"{things('v1beta1')}/o")


@CASES.case("a watch has the requested version")
@served
async def _(side: Side) -> None:
    start = (await side.quietly(Exchange("GET", things("v1")))).body["metadata"]["resourceVersion"]
    await side.quietly(Exchange("POST", things("v1"), thing("v1", spec={"a": "1"})))
    await side.quietly(Exchange("POST", things("v1beta1"), thing("v1beta1", "p", spec={"a": "1"})))
    await side.quietly(Exchange("DELETE", f"{things('v1beta1')}/o"))
    for version in ("v1", "v1beta1"):
        await side.watch(f"{things(version)}?watch=true&resourceVersion={start}", count=3)


EVENT: Final = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p", "uid": "u", "apiVersion": "v1"},
    "reason": "Started",
    "message": "it runs",
    "type": "Normal",
    "source": {"component": "c", "host": "h"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "count": 1,
}
NEW_EVENT: Final = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "f"},
    "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p", "uid": "u", "apiVersion": "v1"},
    "reason": "Started",
    "note": "it runs",
    "type": "Normal",
    "action": "Start",
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "example.com/c",
    "reportingInstance": "c-0",
}


@CASES.case("events are the same in both groups")
async def _(side: Side) -> None:
    await side.post(EVENTS, EVENT)
    await side.post(NEW_EVENTS, NEW_EVENT)
    for path in (EVENTS, NEW_EVENTS):
        await side.get(f"{path}/e")
        await side.get(f"{path}/f")
        await side.get(path)
    await side.patch("merge", f"{EVENTS}/e", {"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"})
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}
    await side.patch("merge", f"{NEW_EVENTS}/f", {"series": series})
    await side.get(f"{EVENTS}/f")
    await side.get(f"{NEW_EVENTS}/e")
    await side.delete(f"{NEW_EVENTS}/e")
    await side.delete(f"{EVENTS}/f")


_BAD_EVENTS: Final = (
    {"type": "Whim"},
    {"eventTime": None},
    {"eventTime": None, "type": ""},
    {"reason": "", "action": ""},
    {"reportingController": ""},
    {"reportingController": "A B", "reportingInstance": "x" * 129},
    {"note": "x" * 1025},
    {"deprecatedCount": 1},
    {"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}},
)


@CASES.case("events of the newer group are held to more")
async def _(side: Side) -> None:
    for change in _BAD_EVENTS:
        await side.post(NEW_EVENTS, {**NEW_EVENT, **change})
    for name in ("involvedObject.name", "regarding.name", "source", "reportingComponent", "reportingController"):
        await side.get(f"{NEW_EVENTS}?fieldSelector={name}=x")
        await side.get(f"{EVENTS}?fieldSelector={name}=x")


@CASES.case("events are selected by what they are about")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", EVENTS, EVENT))
    await side.quietly(Exchange("POST", NEW_EVENTS, NEW_EVENT))
    for selector in ("involvedObject.name=p", "involvedObject.name=q", "reason=Started", "type!=Normal", "source=c"):
        await side.get(f"{EVENTS}?fieldSelector={selector.replace('=', '%3D')}")
    for selector in ("regarding.name=p", "reason=Started"):
        await side.get(f"{NEW_EVENTS}?fieldSelector={selector.replace('=', '%3D')}")


@pytest.mark.parametrize("case", CASES.params())
async def test_versions(judge: Judge, case: Case) -> None:
    await judge(case)
