# SPDX-License-Identifier: Apache-2.0
"""JSON patch and merge patch, on every kind of list and map."""

from __future__ import annotations

import pytest

from tests.conformance.api.patched import (
    CONFIG_MAP,
    DEPLOYMENT,
    DEPLOYMENTS,
    MAPS,
    WIDGET,
    op,
    patches,
    pod,
)
from tests.conformance.api.widgets import WIDGETS
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("patch")

# JSON patch

for what, place, thing in (("built-in", MAPS, CONFIG_MAP), ("custom", WIDGETS, WIDGET)):
    patches(
        CASES,
        f"a JSON patch adds, replaces and removes in the metadata of a {what} object",
        place,
        thing,
        "json",
        [op("add", "/metadata/labels", {"l3": "z"})],
        [op("add", "/metadata/labels/l4", "w")],
        [op("replace", "/metadata/labels/l4", "v")],
        [op("remove", "/metadata/labels/l4")],
        [op("remove", "/metadata/labels")],
        [op("remove", "/metadata/labels")],
        [op("add", "/metadata/labels/l4", "w")],
        [op("add", "/metadata/annotations", {})],
        [op("add", "/metadata/annotations", {"a": "b"}), op("test", "/metadata/annotations/a", "b")],
        [op("add", "/metadata/finalizers/-", "conformance.test/three")],
        [op("add", "/metadata/finalizers/0", "conformance.test/zero")],
        [op("remove", "/metadata/finalizers/0")],
        [op("replace", "/metadata/finalizers", ["conformance.test/all"])],
        [op("replace", "/metadata/name", "other")],
        [op("remove", "/metadata/name")],
        [op("remove", "/metadata")],
        [op("replace", "/kind", "Other")],
        [op("replace", "/apiVersion", "other/v1")],
        [op("remove", "/kind")],
    )
    patches(
        CASES,
        f"a JSON patch of a {what} object that does not fit is refused",
        place,
        thing,
        "json",
        [op("remove", "/absent")],
        [op("replace", "/absent", 1)],
        [op("add", "/absent/deep", 1)],
        [op("test", "/metadata/name", "other")],
        [op("test", "/metadata/name", "o"), op("add", "/metadata/labels", {"tested": "yes"})],
        [op("test", "/absent", None)],
        [op("test", "/absent", 1)],
        [op("test", "/metadata/labels/none", None)],
        [op("move", "/metadata/labels/x", **{"from": "/metadata/absent"})],
        [op("copy", "/metadata/labels/x", **{"from": "/metadata/absent"})],
        [op("add", "/metadata/finalizers/9", "conformance.test/nine")],
        [op("remove", "/metadata/finalizers/9")],
        [op("replace", "/metadata/finalizers/x", "conformance.test/x")],
        [op("add", "/metadata/finalizers/-1", "conformance.test/minus")],
        [op("remove", "/metadata/finalizers/-1")],
        [op("invent", "/metadata/labels", {})],
        [{"path": "/metadata/labels"}],
        [{"op": "add"}],
        [op("add", "/metadata/labels")],
        [op("add", "metadata/labels", {})],
        [op("add", "", {})],
        [op("replace", "", {"a": 1})],
        [op("remove", "")],
        [],
        {"op": "add"},
        "text",
        None,
        b"[{]",
        b"",
        [op("add", "/metadata/labels", 3)],
        [op("add", "/metadata/labels/bad", 3)],
        ["add"],
    )
patches(
    CASES,
    "a JSON patch reads escapes",
    WIDGETS,
    WIDGET,
    "json",
    [op("replace", "/spec/labels/with~1slash", "5")],
    [op("replace", "/spec/labels/with~0tilde", "6")],
    [op("test", "/spec/labels/with~1slash", "5"), op("remove", "/spec/labels/with~1slash")],
    [op("replace", "/spec/labels/with/slash", "7")],
    [op("copy", "/spec/labels/c", **{"from": "/spec/labels/k1"})],
    [op("move", "/spec/labels/d", **{"from": "/spec/labels/k1"})],
    [op("move", "/spec/labels/d", **{"from": "/spec/labels/d"})],
    [op("add", "/spec/labels/n", None)],
)
patches(
    CASES,
    "a JSON patch changes the lists of a custom object",
    WIDGETS,
    WIDGET,
    "json",
    [op("add", "/spec/plain/1", "x")],
    [op("remove", "/spec/plain/0")],
    [op("replace", "/spec/plain/0", "y")],
    [op("add", "/spec/set/-", "s3")],
    [op("add", "/spec/set/-", "s3")],
    [op("add", "/spec/parts/-", {"name": "p3"})],
    [op("add", "/spec/parts/-", {"name": "p3"})],
    [op("remove", "/spec/parts/0")],
    [op("replace", "/spec/parts/0/value", "changed")],
    [op("add", "/spec/parts/0/value", "added")],
    [op("move", "/spec/atomicItems/0", **{"from": "/spec/atomicItems/1"})],
    [op("copy", "/spec/free/copied", **{"from": "/spec/deep/inner"})],
    [op("test", "/spec/deep/inner", {"y": 2, "x": 1}), op("replace", "/spec/size", 2)],
    [op("test", "/spec/size", 2.0), op("replace", "/spec/size", 3)],
    [op("test", "/spec/size", "3")],
    [op("test", "/spec/plain", ["y", "b", "c"])],
    [op("add", "/spec/free/list/1/z", 3)],
    [op("replace", "/spec/size", 1000)],
    [op("add", "/spec/deep/inner", None)],
    [op("replace", "/spec", {})],
    [op("remove", "/spec")],
)
patches(
    CASES,
    "a JSON patch changes the lists of a deployment",
    DEPLOYMENTS,
    DEPLOYMENT,
    "json",
    [op("add", "/spec/template/spec/containers/-", {"name": "c3", "image": "i:3"})],
    [op("remove", "/spec/template/spec/containers/1")],
    [op("replace", "/spec/template/spec/containers/0/env/0/value", "changed")],
    [op("add", "/spec/template/spec/containers/0/command/0", "first")],
    [op("replace", "/spec/replicas", "3")],
    [op("replace", "/spec/replicas", 3)],
    [op("test", "/spec/replicas", 3), op("replace", "/spec/replicas", 4), op("test", "/spec/replicas", 4)],
    [op("replace", "/spec/template/spec/containers", [])],
    [op("replace", "/spec/selector/matchLabels/app", "e")],
)

# merge patch

for what, place, thing in (("built-in", MAPS, CONFIG_MAP), ("custom", WIDGETS, WIDGET)):
    patches(
        CASES,
        f"a merge patch merges maps and replaces lists in the metadata of a {what} object",
        place,
        thing,
        "merge",
        {"metadata": {"labels": {"l1": None, "l3": "z"}}},
        {"metadata": {"labels": {"l1": None}}},
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {}}},
        {"metadata": {"labels": {"a": None}}},
        {"metadata": {"finalizers": ["conformance.test/new"]}},
        {"metadata": {"finalizers": []}},
        {"metadata": {"finalizers": ["conformance.test/x", "conformance.test/x"]}},
        {"metadata": {"annotations": {"a": ""}}},
        {"metadata": {"annotations": "text"}},
        {"metadata": {"labels": ["a"]}},
        {"metadata": None},
        {"metadata": {"name": "other"}},
        {"kind": "Other"},
        {"kind": None},
        {"apiVersion": "x/v1"},
        {},
        [],
        [{"op": "add", "path": "/metadata/labels", "value": {}}],
        "text",
        None,
        3,
        b"{",
        b"",
        b"{} x",
    )
patches(
    CASES,
    "a merge patch of a config map",
    MAPS,
    CONFIG_MAP,
    "merge",
    {"data": {"a": None}},
    {"data": {"c": "3"}, "metadata": {"annotations": {"d": "4"}}},
    {"data": {"c": 3}},
    {"data": {"c": {"deep": "x"}}},
    {"data": None, "binaryData": {"k": "AAAA"}},
    {"binaryData": {"k": "no!"}},
    {"immutable": True},
    {"data": {"x": "y"}},
    {"immutable": None},
)
patches(
    CASES,
    "a merge patch of a custom object",
    WIDGETS,
    WIDGET,
    "merge",
    {"spec": {"plain": ["z"]}},
    {"spec": {"set": ["s2", "s2"]}},
    {"spec": {"parts": [{"name": "p9"}]}},
    {"spec": {"parts": [{"value": "x"}]}},
    {"spec": {"deep": {"inner": {"x": None}}}},
    {"spec": {"deep": {"inner": {"x": None, "y": None}}}},
    {"spec": {"deep": {"a": None, "inner": None}}},
    {"spec": {"labels": {"k1": None, "k3": "v3"}}},
    {"spec": {"free": {"list": None, "more": {"a": None, "b": [None]}}}},
    {"spec": {"nothing": None}},
    {"spec": {"level": None}},
    {"spec": {"size": "x"}},
    {"spec": {"size": 101}},
    {"spec": {"size": 5, "unknown": {"a": 1}}},
    {"spec": None},
    {"spec": {"size": 5}},
    {"status": {"phase": "ignored"}},
    {"spec": {"atomicMap": {"a": "1"}}},
    {"spec": {"atomicMap": {"b": "2"}}},
)
patches(
    CASES,
    "a merge patch of a deployment",
    DEPLOYMENTS,
    DEPLOYMENT,
    "merge",
    {"spec": {"replicas": 5}},
    {"spec": {"replicas": None}},
    {"spec": {"replicas": "x"}},
    {"spec": {"replicas": -1}},
    {"spec": {"paused": True}},
    {"spec": {"paused": False}},
    pod(containers=[{"name": "only", "image": "i:2"}]),
    pod(containers=[{"name": "only"}]),
    pod(containers=[]),
    pod(containers=None),
    pod(nodeSelector={"n": None}),
    pod(nodeSelector={"m": "y"}),
    pod(tolerations=None),
    pod(volumes=[]),
    {"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}},
    {"spec": {"selector": {"matchLabels": {"more": "x"}}}},
    {"spec": {"unknown": 1}},
)


@CASES.case("a patch of the status leaves the spec, and the other way round")
async def _(side: Side) -> None:
    await side.post(DEPLOYMENTS, DEPLOYMENT)
    path = f"{DEPLOYMENTS}/o"
    await side.patch("merge", f"{path}/status", {"status": {"replicas": 1}, "spec": {"replicas": 9}})
    condition = {"type": "Available", "status": "True", "lastUpdateTime": None, "lastTransitionTime": None}
    await side.patch("strategic", f"{path}/status", {"status": {"conditions": [condition]}})
    other = {"type": "Progressing", "status": "False", "reason": "r"}
    await side.patch("strategic", f"{path}/status", {"status": {"conditions": [other]}})
    await side.patch("json", f"{path}/status", [op("replace", "/status/conditions/0/status", "Unknown")])
    gone = {"type": "Available", "$patch": "delete"}
    await side.patch("strategic", f"{path}/status", {"status": {"conditions": [gone]}})
    await side.patch("merge", f"{path}/status", {"metadata": {"labels": {"from": "status"}}})
    await side.patch("strategic", path, {"status": {"replicas": 7}})
    await side.patch("merge", f"{path}/status", {"status": None})


@pytest.mark.parametrize("case", CASES.params())
async def test_patch(judge: Judge, case: Case) -> None:
    await judge(case)
