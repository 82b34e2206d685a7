# SPDX-License-Identifier: Apache-2.0
"""Create, read, update and delete, and the rules of metadata and schemas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api.subjects import JOBS, MAPS, NAMESPACES, config_map, delete, get, job, post, put
from tests.conformance.api.widgets import GADGETS, WIDGETS, gadget, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("crud")


@CASES.case("an object is created, changed and deleted")
async def _(side: Side) -> None:
    await side.post(MAPS, config_map())
    await side.get(f"{MAPS}/a")
    await side.get(MAPS)
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))
    await side.put(f"{MAPS}/a", config_map(data={"k": "w"}))
    await side.delete(f"{MAPS}/a")
    await side.get(f"{MAPS}/a")


@CASES.case("a custom object is created, changed and deleted")
async def _(side: Side) -> None:
    await side.post(WIDGETS, widget(spec={"size": 1}))
    await side.get(f"{WIDGETS}/w")
    await side.get(WIDGETS)
    for size in (2, 2):
        found = await side.server.send(Exchange("GET", side.own(f"{WIDGETS}/w")))
        await side.put(f"{WIDGETS}/w", {**found.body, "spec": {"size": size}})
    await side.delete(f"{WIDGETS}/w")
    await side.get(f"{WIDGETS}/w")


@CASES.case("a job is made with its defaults, and its spec is counted")
async def _(side: Side) -> None:
    await side.post(JOBS, job())
    await side.patch("merge", f"{JOBS}/j", {"spec": {"parallelism": 3}})
    await side.patch("merge", f"{JOBS}/j", {"metadata": {"labels": {"a": "b"}}})
    await side.patch("merge", f"{JOBS}/j/status", {"status": {"active": 1}, "spec": {"parallelism": 9}})
    await side.patch("merge", f"{JOBS}/j", {"status": {"active": 7}, "spec": {"suspend": False}})


CASES.exchanges("a second object of that name is refused", post(MAPS, config_map()), post(MAPS, config_map()))
CASES.exchanges("a second custom object of that name is refused", post(WIDGETS, widget()), post(WIDGETS, widget()))
CASES.exchanges(
    "the error for a missing namespace names it", post("/api/v1/namespaces/absent/configmaps", config_map())
)
CASES.exchanges(
    "the error for a missing namespace names it for custom objects",
    post("/apis/conformance.test/v1/namespaces/absent/widgets", widget()),
)
CASES.exchanges(
    "reading in a missing namespace finds nothing",
    get("/api/v1/namespaces/absent/configmaps"),
    get("/api/v1/namespaces/absent/configmaps/a"),
    get("/api/v1/namespaces/absent"),
)
CASES.exchanges(
    "what is not there cannot be read, written or deleted",
    get(f"{MAPS}/no"),
    put(f"{MAPS}/no", config_map("no")),
    put(f"{MAPS}/no", config_map("no", metadata={"name": "no", "resourceVersion": "5"})),
    delete(f"{MAPS}/no"),
    get(f"{WIDGETS}/no"),
    put(f"{WIDGETS}/no", widget("no")),
    delete(f"{WIDGETS}/no"),
    Exchange("PATCH", f"{MAPS}/no", {}, content_type="application/merge-patch+json"),
    Exchange("PATCH", f"{WIDGETS}/no", {}, content_type="application/merge-patch+json"),
    get(f"{GADGETS}/{{id}}-no"),
    put(f"{JOBS}/no/status", job("no")),
)
CASES.exchanges(
    "the name in the body must be that of the path",
    post(MAPS, config_map()),
    put(f"{MAPS}/a", config_map("b")),
    post(WIDGETS, widget("w")),
    put(f"{WIDGETS}/w", widget("v")),
    put(f"{MAPS}/a", {"kind": "ConfigMap", "apiVersion": "v1"}),
    put(f"{MAPS}/a", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}),
    put(f"{WIDGETS}/w", {"kind": "Widget", "apiVersion": "conformance.test/v1", "metadata": {}}),
    put(f"{MAPS}/a", config_map("")),
)
CASES.exchanges(
    "the namespace in the body must be that of the path",
    post(MAPS, config_map(metadata={"name": "a", "namespace": "elsewhere"})),
    post(WIDGETS, widget(metadata={"name": "a", "namespace": "elsewhere"})),
    post(MAPS, config_map()),
    put(f"{MAPS}/a", config_map(metadata={"name": "a", "namespace": "elsewhere"})),
    put(f"{MAPS}/a", config_map(metadata={"name": "a", "namespace": "{ns}"})),
    post(GADGETS, gadget(metadata={"name": "{id}", "namespace": "elsewhere"})),
    post(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "{id}-n", "namespace": "x"}}),
)
CASES.exchanges(
    "the kind in the body must be that of the path",
    post(MAPS, {**config_map(), "kind": "Secret"}),
    post(MAPS, {**config_map(), "kind": "Nothing"}),
    post(MAPS, {**config_map(), "apiVersion": "v2"}),
    post(MAPS, {**config_map(), "apiVersion": "apps/v1"}),
    post(MAPS, {"metadata": {"name": "untyped"}, "data": {"a": "b"}}),
    post(MAPS, {"metadata": {"name": "kind-only"}, "kind": "ConfigMap"}),
    post(MAPS, {"metadata": {"name": "version-only"}, "apiVersion": "v1"}),
    post(WIDGETS, {**widget(), "kind": "Gadget"}),
    post(WIDGETS, {**widget(), "apiVersion": "conformance.test/v2"}),
    post(WIDGETS, {**widget(), "apiVersion": "other.test/v1"}),
    post(WIDGETS, {"metadata": {"name": "untyped"}}),
    post(WIDGETS, {"metadata": {"name": "kind-only"}, "kind": "Widget"}),
    post(JOBS, {**job(), "apiVersion": "v1"}),
    post(JOBS, {**job(), "kind": "CronJob"}),
    post(JOBS, {**job(), "apiVersion": "batch/v1beta1"}),
)
CASES.exchanges(
    "a put in another kind is refused",
    post(MAPS, config_map()),
    put(f"{MAPS}/a", {**config_map(), "kind": "Secret"}),
    put(f"{MAPS}/a", {**config_map(), "apiVersion": "v7"}),
    post(WIDGETS, widget()),
    put(f"{WIDGETS}/w", {**widget(), "kind": "Gadget"}),
    put(f"{WIDGETS}/w", {**widget(), "apiVersion": "conformance.test/v7"}),
)


@CASES.case("a write with an old version is refused")
async def _(side: Side) -> None:
    first = (await side.post(MAPS, config_map())).body
    await side.put(f"{MAPS}/a", {**first, "data": {"k": "2"}})
    await side.put(f"{MAPS}/a", {**first, "data": {"k": "3"}})
    await side.put(f"{MAPS}/a", first)
    await side.put(f"{MAPS}/a", config_map(data={"k": "4"}))
    await side.put(f"{MAPS}/a", config_map(metadata={"name": "a", "resourceVersion": "0"}))
    await side.put(f"{MAPS}/a", config_map(metadata={"name": "a", "resourceVersion": "no"}))
    await side.put(f"{MAPS}/a", config_map(metadata={"name": "a", "resourceVersion": "1"}))
    await side.patch("merge", f"{MAPS}/a", {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}})


@CASES.case("a custom object is replaced at its version only")
async def _(side: Side) -> None:
    first = (await side.post(WIDGETS, widget(spec={"size": 1}))).body
    await side.put(f"{WIDGETS}/w", widget(spec={"size": 2}))
    await side.put(f"{WIDGETS}/w", {**first, "spec": {"size": 3}})
    await side.put(f"{WIDGETS}/w", {**first, "spec": {"size": 4}})
    await side.put(f"{WIDGETS}/w", widget(metadata={"name": "w", "resourceVersion": "0"}))
    await side.put(f"{WIDGETS}/w", widget(metadata={"name": "w", "resourceVersion": "no"}))
    await side.put(f"{WIDGETS}/w/status", widget(status={"phase": "a"}))
    await side.put(f"{WIDGETS}/w/status", {**first, "status": {"phase": "b"}})


@CASES.case("another uid is refused")
async def _(side: Side) -> None:
    await side.post(MAPS, config_map())
    uid = "00000000-0000-4000-8000-000000000000"
    await side.put(f"{MAPS}/a", config_map(metadata={"name": "a", "uid": uid}))
    await side.patch("merge", f"{MAPS}/a", {"metadata": {"uid": uid}})
    await side.patch("merge", f"{MAPS}/a", {"metadata": {"uid": None}})
    await side.post(WIDGETS, widget())
    await side.patch("merge", f"{WIDGETS}/w", {"metadata": {"uid": uid}})
    await side.put(f"{MAPS}/none", config_map(metadata={"name": "none", "uid": uid}))


CASES.exchanges(
    "a name is generated",
    post(MAPS, config_map(metadata={"generateName": "gen-"})),
    post(WIDGETS, widget(metadata={"generateName": "gen-"})),
    post(MAPS, config_map(metadata={"generateName": "gen-", "name": "given"})),
    post(MAPS, config_map(metadata={})),
    post(WIDGETS, widget(metadata={})),
    post(MAPS, {"kind": "ConfigMap", "apiVersion": "v1"}),
    post(WIDGETS, {"kind": "Widget", "apiVersion": "conformance.test/v1"}),
    post(MAPS, config_map(metadata={"generateName": "x" * 100})),
)
CASES.exchanges(
    "a generated name must be a name",
    post(MAPS, config_map(metadata={"generateName": "Bad_"})),
    post(WIDGETS, widget(metadata={"generateName": "Bad_"})),
)


@CASES.case("an object given with a version is no new object")
async def _(side: Side) -> None:
    await side.post(MAPS, config_map(metadata={"name": "a", "resourceVersion": "5"}))
    await side.post(WIDGETS, widget(metadata={"name": "a", "resourceVersion": "5"}))
    for place, made in ((MAPS, config_map), (WIDGETS, widget)):
        await side.post(f"{place}?dryRun=All", made(metadata={"name": "a", "resourceVersion": "5"}))
        await side.post(place, made(metadata={"name": "A!", "resourceVersion": "5"}))
        await side.post(f"{place}?dryRun=All", made(metadata={"name": "A!", "resourceVersion": "5"}))
        await side.post(place, made(metadata={"name": "a", "resourceVersion": "no"}))
    await side.post(MAPS, config_map(metadata={"name": "a", "uid": "x", "generation": 7, "selfLink": "/x"}))
    meta = {"name": "a", "uid": "x", "generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z"}
    await side.post(WIDGETS, widget(metadata={**meta, "deletionTimestamp": "2020-01-01T00:00:00Z"}))
    await side.post(MAPS, config_map(metadata={"name": "b", "deletionTimestamp": "2020-01-01T00:00:00Z"}))


@CASES.case("server-set metadata cannot be changed")
async def _(side: Side) -> None:
    for path, body in ((f"{MAPS}/a", config_map()), (f"{WIDGETS}/a", widget("a", {"size": 1}))):
        await side.post(path.removesuffix("/a"), body)
        for patch in (
            {"creationTimestamp": "2020-01-01T00:00:00Z"},
            {"generation": 9},
            {"deletionTimestamp": "2020-01-01T00:00:00Z"},
            {"deletionGracePeriodSeconds": 4},
            {"selfLink": "/x"},
            {"generateName": "x-"},
            {"name": "b"},
            {"namespace": "elsewhere"},
            {"name": None},
            {"namespace": None},
            {"managedFields": None},
            {"creationTimestamp": None},
        ):
            await side.patch("merge", path, {"metadata": patch})


CASES.exchanges(
    "names must be names",
    *(post(MAPS, config_map(name)) for name in ("A", "a_b", "-a", "a.", "a" * 253, "a" * 254, "a/b", ".", "..", "a%b")),
    *(post(WIDGETS, widget(name)) for name in ("A", "a_b", "a" * 254)),
    *(
        post(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        for name in ("A.b", "a.b", "a" * 64, "-")
    ),
)
MALFORMED: list[dict[str, Any]] = [
    {"labels": {"a b": "c"}},
    {"labels": {"": "c"}},
    {"labels": {"a": "b c"}},
    {"labels": {"a": "x" * 64}},
    {"labels": {"a/b/c": "d"}},
    {"labels": {"-a.b/c": "d", "ok": "-"}},
    {"labels": {"x" * 64: "d"}},
    {"annotations": {"a b": "c"}},
    {"annotations": {"A b": "c"}},
    {"annotations": {"big": "x" * 262145}},
    {"finalizers": ["a"]},
    {"finalizers": ["a.b/c", "a b/c", ""]},
    {"ownerReferences": [{}]},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
    {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "e", "uid": "u"}]},
    {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "K", "name": "e", "uid": "u", "controller": True},
            {"apiVersion": "v1", "kind": "K", "name": "f", "uid": "v", "controller": True},
        ]
    },
]
CASES.exchanges(
    "labels, annotations, finalizers and owners must be well formed",
    *(
        post(path, {**body, "metadata": {"name": "x", **meta}})
        for path, body in ((MAPS, config_map()), (WIDGETS, widget()))
        for meta in MALFORMED
    ),
)
CASES.exchanges(
    "updates keep labels, annotations, finalizers and owners well formed",
    post(MAPS, config_map()),
    post(WIDGETS, widget("a")),
    *(
        Exchange("PATCH", f"{path}/a", {"metadata": meta}, content_type="application/merge-patch+json")
        for path in (MAPS, WIDGETS)
        for meta in (
            {"labels": {"a b": "c"}},
            {"annotations": {"a b": "c"}},
            {"annotations": {"A b": "c"}},
            {"finalizers": ["a b/c"]},
            {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "e"}]},
            {"resourceVersion": "", "labels": {"fine": "yes"}},
            {"resourceVersion": None, "labels": {"fine": "too"}},
        )
    ),
)
BROKEN: list[dict[str, Any]] = [
    {"size": -1},
    {"size": 101},
    {"size": "big"},
    {"size": None},
    {"color": "purple"},
    {"title": "x"},
    {"title": "x" * 21},
    {"title": 3},
    {"port": True},
    {"port": "http"},
    {"enabled": "no"},
    {"ratio": "x"},
    {"ratio": 1},
    {"ratio": 1.0},
    {"nothing": None},
    {"plain": "x"},
    {"plain": [1]},
    {"plain": [None]},
    {"set": ["a", "a"]},
    {"set": ["a", "b", "a", "b"]},
    {"numbers": [1, 2, 1]},
    {"parts": [{"value": "x"}]},
    {"parts": [{"name": "a"}, {"name": "a"}]},
    {"parts": [{"name": "a", "count": "x"}, {"name": 3}]},
    {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
    {"labels": {"a": 1}},
    {"deep": "x"},
    {"deep": {"inner": {"x": "y", "y": "z"}}},
    {"size": -1, "color": "purple", "title": "x"},
    {"level": None},
    {},
]
CASES.exchanges(
    "custom objects that break their schema are refused with their places",
    *(post(WIDGETS, widget(f"w{number}", spec)) for number, spec in enumerate(BROKEN)),
    post(WIDGETS, {**widget("bad"), "spec": "x"}),
    post(WIDGETS, {**widget("bad"), "spec": None}),
    post(WIDGETS, {**widget("bad2"), "spec": []}),
    get(WIDGETS),
)
CASES.exchanges(
    "a cluster-scoped object is created, changed and deleted",
    post(GADGETS, gadget(spec={"size": 1}, status={"phase": "made"})),
    get(f"{GADGETS}/{{id}}"),
    Exchange(
        "PATCH",
        f"{GADGETS}/{{id}}",
        {"status": {"phase": "x"}, "spec": {"size": 2}},
        content_type="application/merge-patch+json",
    ),
    delete(f"{GADGETS}/{{id}}"),
    delete(f"{GADGETS}/{{id}}"),
)
CASES.exchanges(
    "the status is written apart from the rest",
    post(WIDGETS, widget(spec={"size": 1}, status={"phase": "ignored"})),
    Exchange(
        "PATCH",
        f"{WIDGETS}/w/status",
        {"status": {"phase": "seen"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
        content_type="application/merge-patch+json",
    ),
    Exchange("PATCH", f"{WIDGETS}/w", {"status": {"phase": "x"}}, content_type="application/merge-patch+json"),
    get(f"{WIDGETS}/w/status"),
    Exchange("PATCH", f"{WIDGETS}/w/status", {"status": None}, content_type="application/merge-patch+json"),
    Exchange(
        "PATCH",
        f"{WIDGETS}/w/status",
        {"status": {"conditions": [{"type": "A"}, {"type": "A", "status": "True"}]}},
        content_type="application/merge-patch+json",
    ),
)
CASES.exchanges(
    "a config map that is immutable stays as it is",
    post(MAPS, config_map(immutable=True)),
    put(f"{MAPS}/a", config_map(immutable=True, data={"k": "w"})),
    put(f"{MAPS}/a", config_map(immutable=False)),
    put(f"{MAPS}/a", config_map()),
    Exchange("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"a": "b"}}}, content_type="application/merge-patch+json"),
)
CASES.exchanges(
    "reads with parameters that are wrong",
    get(f"{MAPS}?limit=x"),
    get(f"{MAPS}?limit=-1"),
    get(f"{MAPS}?resourceVersion=x"),
    get(f"{MAPS}?resourceVersionMatch=Exact"),
    get(f"{MAPS}?resourceVersion=1&resourceVersionMatch=Nearly"),
    get(f"{MAPS}?labelSelector=a%3D%3D%3Db"),
    get(f"{MAPS}?labelSelector=a%20b"),
    get(f"{MAPS}?fieldSelector=spec.x%3D1"),
    get(f"{MAPS}?fieldSelector=nonsense"),
    get(f"{MAPS}?timeoutSeconds=x"),
    get(f"{MAPS}?continue=x"),
    get(f"{MAPS}?watch=maybe&timeoutSeconds=1"),
    get(f"{MAPS}/a?resourceVersion=x"),
    get(f"{WIDGETS}?fieldSelector=spec.size%3D1"),
    get(f"{WIDGETS}?labelSelector=a%20b"),
    get(f"{MAPS}?sendInitialEvents=true"),
    get(f"{MAPS}?watch=true&sendInitialEvents=true"),
    get(f"{MAPS}?watch=true&resourceVersionMatch=Exact"),
)


@pytest.mark.parametrize("case", CASES.params())
async def test_crud(judge: Judge, case: Case) -> None:
    await judge(case)
