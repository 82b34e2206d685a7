# SPDX-License-Identifier: Apache-2.0
"""Lists and watches: selectors, pages, versions, the order of events, bookmarks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.conformance.api.widgets import GADGETS, WIDGETS, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("watch")
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
PODS: Final = "/api/v1/namespaces/{ns}/pods"
SECRETS: Final = "/api/v1/namespaces/{ns}/secrets"
KINDS: Final = (("built-in", MAPS), ("custom", WIDGETS))


def thing(path: str, name: str, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """An object of the kind at the path."""
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    if path == WIDGETS:
        return widget(name, more.pop("spec", {"size": 1}), metadata=metadata, **more)
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, **more}


async def make(side: Side, path: str, *names: str, labels: dict[str, str] | None = None) -> None:
    """Objects that are not compared."""
    for name in names:
        await side.quietly(Exchange("POST", path, thing(path, name, labels)))


async def patch(side: Side, path: str, body: Any) -> None:
    """A merge patch that is not compared."""
    await side.quietly(Exchange("PATCH", path, body, content_type="application/merge-patch+json"))


async def version(side: Side, path: str) -> str:
    """The version of a list."""
    found = await side.quietly(Exchange("GET", path))
    return str(found.body["metadata"]["resourceVersion"])


for what, place in KINDS:

    @CASES.case(f"{what} objects are watched from a version on")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "before")
        start = await version(side, place)
        await make(side, place, "a", "b")
        await patch(side, f"{place}/a", {"metadata": {"labels": {"x": "1"}}})
        await patch(side, f"{place}/a", {"metadata": {"labels": {"x": "1"}}})
        await side.quietly(Exchange("DELETE", f"{place}/b"))
        await side.quietly(Exchange("DELETE", f"{place}/before"))
        await side.watch(f"{place}?watch=true&resourceVersion={start}", count=5)

    @CASES.case(f"{what} objects that are there come first in a watch from nowhere")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "b", "a", "c")
        for start in ("", "&resourceVersion=0"):
            events = await side.watch(f"{place}?watch=true{start}&timeoutSeconds=2", count=3)
            side.note("names", sorted(event["object"]["metadata"]["name"] for event in events))

    @CASES.case(f"a label selector lets {what} objects enter and leave a watch")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "in", labels={"app": "x"})
        await make(side, place, "out", labels={"app": "y"})
        start = await version(side, place)
        await patch(side, f"{place}/in", {"metadata": {"annotations": {"n": "1"}}})
        await patch(side, f"{place}/in", {"metadata": {"labels": {"app": "z"}}})
        await patch(side, f"{place}/out", {"metadata": {"labels": {"app": "x"}}})
        await patch(side, f"{place}/in", {"metadata": {"labels": {"app": "w"}}})
        await side.quietly(Exchange("DELETE", f"{place}/in"))
        await side.quietly(Exchange("DELETE", f"{place}/out"))
        await side.watch(f"{place}?watch=true&resourceVersion={start}&labelSelector=app%3Dx", count=4)

    @CASES.case(f"one {what} object is watched by its name")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a", "b")
        start = await version(side, place)
        await patch(side, f"{place}/a", {"metadata": {"labels": {"x": "1"}}})
        await patch(side, f"{place}/b", {"metadata": {"labels": {"x": "1"}}})
        await side.quietly(Exchange("DELETE", f"{place}/b"))
        query = f"watch=true&resourceVersion={start}&fieldSelector=metadata.name%3Db"
        await side.watch(f"{place}?{query}", count=2)

    @CASES.case(f"a list of {what} objects is watched in its initial state to the end, then on")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a", "b")
        query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with side.watching(f"{place}?{query}") as events:
            async with asyncio.timeout(15):
                found = [await anext(events) for _ in range(3)]
                await make(side, place, "c")
                found.append(await anext(events))
        side.note("events", found)

    @CASES.case(f"a watch of {what} objects ends in time, and in order")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a")
        start = await version(side, place)
        await side.watch(f"{place}?watch=true&resourceVersion={start}&timeoutSeconds=1")

    @CASES.case(f"{what} objects are listed in pages")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a", "b", "c", "d", "e")
        first = await side.server.send(Exchange("GET", side.own(f"{place}?limit=2")))
        await make(side, place, "aa")
        pages = [first.body]
        while token := pages[-1]["metadata"].get("continue"):
            answer = await side.server.send(Exchange("GET", side.own(f"{place}?limit=2&continue={token}")))
            pages.append(answer.body)
        versions = {page["metadata"]["resourceVersion"] for page in pages}
        side.note("one version", len(versions))
        for page in pages:
            side.note("left", page["metadata"].get("remainingItemCount"))
            side.note("names", [item["metadata"]["name"] for item in page["items"]])
        await side.get(f"{place}?limit=10")
        await side.get(f"{place}?limit=0")

    @CASES.case(f"{what} objects are selected by labels")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "none")
        await make(side, place, "ax", labels={"a": "x"})
        await make(side, place, "ay", labels={"a": "y", "b": ""})
        await make(side, place, "n", labels={"n": "5", "example.com/k": "v"})
        for selector in (
            "a",
            "!a",
            "a=x",
            "a==x",
            "a!=x",
            "a in (x,y)",
            "a in (x, y),b",
            "a notin (x)",
            "a,b=",
            "b=",
            "a in ()",
            "example.com/k=v",
            "n>4",
            "n<5",
            "n gt 4",
            "a=x,a=y",
            "a=x,",
            ",",
            "a in (x",
            "a in x",
            "in in (in)",
            "=x",
            "a=x y",
            "a b=c",
            "A_b.c",
            "-a",
            "a=-",
        ):
            found = await side.server.send(
                Exchange("GET", side.own(place) + "?labelSelector=" + selector.replace(" ", "%20").replace(",", "%2C"))
            )
            names = [item["metadata"]["name"] for item in found.body.get("items") or []]
            failed = None if found.status == 200 else found.body
            side.note(selector, [found.status, names, failed and (failed["reason"], failed["message"])])

    @CASES.case(f"{what} objects are selected by name and namespace")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a", "b")
        for selector in (
            "metadata.name=a",
            "metadata.name==a",
            "metadata.name!=a",
            "metadata.name=a,metadata.name=b",
            "metadata.name=a,metadata.namespace={ns}",
            "metadata.namespace=elsewhere",
            "metadata.name=",
            "metadata.uid=x",
            "spec.size=1",
            "name=a",
            "a",
            "metadata.name=a b",
            "metadata.name=a\\,b",
        ):
            await side.get(f"{place}?fieldSelector=" + selector.replace(" ", "%20").replace(",", "%2C"))

    @CASES.case(f"versions of {what} lists")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a")
        early = await version(side, place)
        await make(side, place, "b")
        # Version 0 may get any state of the real server's cache, so the cache must have the last one first.
        latest = await version(side, place)
        await side.quietly(Exchange("GET", f"{place}?resourceVersion={latest}&resourceVersionMatch=NotOlderThan"))
        for query in (
            "resourceVersion=0",
            f"resourceVersion={early}&resourceVersionMatch=Exact",
            f"resourceVersion={early}&resourceVersionMatch=NotOlderThan",
            f"resourceVersion={early}",
            f"resourceVersion={early}&limit=1",
            "resourceVersion=0&limit=1",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1",
        ):
            found = await side.server.send(Exchange("GET", side.own(f"{place}?{query}")))
            names = [item["metadata"]["name"] for item in found.body.get("items") or []]
            failed = None if found.status == 200 else found.body
            side.note(query.replace(early, "early"), [found.status, names, failed])

    @CASES.case(f"{what} objects are shown in part")
    async def _(side: Side, place: str = place) -> None:
        await make(side, place, "a", labels={"x": "y"})
        one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        many = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        await side.get(f"{place}/a", accept=one)
        await side.get(place, accept=many)
        await side.get(place, accept=f"{many},application/json")


@CASES.case("custom objects are selected by the fields that their definition names")
async def _(side: Side) -> None:
    for name, color in (("r", "red"), ("g", "green")):
        await side.quietly(Exchange("POST", WIDGETS, widget(name, {"color": color})))
    start = await version(side, WIDGETS)
    await side.get(f"{WIDGETS}?fieldSelector=spec.color%3Dred")
    await side.get(f"{WIDGETS}?fieldSelector=spec.color!%3Dred")
    await side.get(f"{WIDGETS}?fieldSelector=spec.color%3Dred%2Cmetadata.name%3Dr")
    await side.get(f"{WIDGETS}?fieldSelector=spec.color%3D")
    await patch(side, f"{WIDGETS}/g", {"spec": {"color": "red"}})
    await patch(side, f"{WIDGETS}/r", {"spec": {"color": "blue"}})
    await side.watch(f"{WIDGETS}?watch=true&resourceVersion={start}&fieldSelector=spec.color%3Dred", count=2)


@CASES.case("secrets are selected by their type")
async def _(side: Side) -> None:
    for name, kind in (("a", "Opaque"), ("b", "example.com/x")):
        body = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "type": kind}
        await side.quietly(Exchange("POST", SECRETS, body))
    await side.get(f"{SECRETS}?fieldSelector=type%3DOpaque")
    await side.get(f"{SECRETS}?fieldSelector=type!%3DOpaque")
    await side.get(f"{SECRETS}?fieldSelector=data%3Dx")


@CASES.case("a watch over all namespaces has events of each")
async def _(side: Side) -> None:
    start = await version(side, "/api/v1/configmaps")
    await make(side, MAPS, "a", "b")
    query = f"watch=true&resourceVersion={start}&fieldSelector=metadata.namespace%3D{side.ns}"
    await side.watch(f"/api/v1/configmaps?{query}", count=2)


@CASES.case("the old paths of watches still work")
async def _(side: Side) -> None:
    await make(side, MAPS, "a")
    start = await version(side, MAPS)
    await patch(side, f"{MAPS}/a", {"data": {"x": "1"}})
    await side.watch(f"/api/v1/watch/namespaces/{{ns}}/configmaps?resourceVersion={start}", count=1)
    await side.watch(f"/api/v1/watch/namespaces/{{ns}}/configmaps/a?resourceVersion={start}", count=1)


@CASES.case("a watch can return metadata only")
async def _(side: Side) -> None:
    start = await version(side, MAPS)
    await make(side, MAPS, "a", labels={"x": "y"})
    path = side.own(f"{MAPS}?watch=true&resourceVersion={start}")
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    events = side.server.stream(Exchange("GET", path, accept=accept))
    async with asyncio.timeout(10):
        side.note("event", await anext(events))
    await events.aclose()  # type: ignore[attr-defined]


@CASES.case("a version of the future is waited for in vain")
async def _(side: Side) -> None:
    found = await side.server.send(Exchange("GET", side.own(f"{MAPS}?resourceVersion=999999999")))
    side.note("list", [found.status, found.body["reason"], found.body["details"].get("causes")])
    start = side.own(f"{MAPS}?watch=true&resourceVersion=999999999&allowWatchBookmarks=true&timeoutSeconds=4")
    events = side.server.stream(Exchange("GET", start))
    await make(side, MAPS, "a")
    async with asyncio.timeout(30):
        side.note("watch", [event async for event in events])


@CASES.case("initial events of a version of the future end with an error")
async def _(side: Side) -> None:
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999999"
    events = side.server.stream(Exchange("GET", side.own(f"{MAPS}?{query}&allowWatchBookmarks=true")))
    async with asyncio.timeout(30):
        found = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    side.note("event", [found["type"], found["object"]["code"], found["object"]["reason"], found["object"]["details"]])


@CASES.case("finalizers make a deletion two events")
async def _(side: Side) -> None:
    start = await version(side, MAPS)
    body = thing(MAPS, "a")
    body["metadata"]["finalizers"] = ["conformance.test/f"]
    await side.quietly(Exchange("POST", MAPS, body))
    await side.quietly(Exchange("DELETE", f"{MAPS}/a"))
    await patch(side, f"{MAPS}/a", {"metadata": {"finalizers": None}})
    await side.watch(f"{MAPS}?watch=true&resourceVersion={start}", count=3)


@CASES.case("a watch of an object has its creation and deletion")
async def _(side: Side) -> None:
    async with side.watching(f"{MAPS}?watch=true&allowWatchBookmarks=false") as events:
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.2)
        await make(side, MAPS, "a")
        async with asyncio.timeout(10):
            found = [await first]
            await side.quietly(Exchange("DELETE", f"{MAPS}/a"))
            found.append(await anext(events))
    side.note("events", found)


@CASES.case("a watch can return tables")
async def _(side: Side) -> None:
    start = await version(side, MAPS)
    await make(side, MAPS, "a", "b")
    path = side.own(f"{MAPS}?watch=true&resourceVersion={start}")
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
    events = side.server.stream(Exchange("GET", path, accept=accept))
    async with asyncio.timeout(10):
        side.note("events", [await anext(events), await anext(events)])
    await events.aclose()  # type: ignore[attr-defined]
    await side.get(MAPS, accept=accept)


@CASES.case("an empty list is a list")
async def _(side: Side) -> None:
    await side.get(MAPS)
    await side.get(WIDGETS)
    await side.get(f"{GADGETS}?labelSelector=none%3D{{id}}")
    await side.get(f"{MAPS}?limit=1")


@pytest.mark.parametrize("case", CASES.params())
async def test_watch(judge: Judge, case: Case) -> None:
    await judge(case)
