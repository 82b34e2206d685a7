# SPDX-License-Identifier: Apache-2.0
"""JSON patch, merge patch and strategic merge patch, on every kind of list and map."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.api.widgets import WIDGETS, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, PatchType, Side

pytestmark = [pytest.mark.binaries, pytest.mark.xdist_group("conformance")]

CASES = Cases("patch")
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
SERVICES: Final = "/api/v1/namespaces/{ns}/services"
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"

CONFIG_MAP: Final = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {
        "name": "o",
        "labels": {"l1": "x", "l2": "y"},
        "finalizers": ["conformance.test/one", "conformance.test/two"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1"}],
    },
    "data": {"a": "1", "b": "2"},
}
WIDGET: Final = widget(
    "o",
    {
        "size": 1,
        "plain": ["a", "b", "c"],
        "set": ["s1", "s2"],
        "parts": [{"name": "p1", "value": "v1"}, {"name": "p2", "tags": ["t1", "t2"]}],
        "atomicItems": [{"a": "1"}, {"a": "2"}],
        "labels": {"k1": "v1", "k2": "v2", "with/slash": "3", "with~tilde": "4"},
        "deep": {"a": "x", "inner": {"x": 1, "y": 2}},
        "free": {"list": [1, {"z": 2}], "n": None},
    },
)
DEPLOYMENT: Final[dict[str, Any]] = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": {"name": "o", "labels": {"l1": "x"}, "annotations": {"a1": "x"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "containers": [
                    {
                        "name": "c1",
                        "image": "i:1",
                        "command": ["a", "b"],
                        "env": [{"name": "E1", "value": "1"}, {"name": "E2", "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "second"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    },
                    {"name": "c2", "image": "i:1"},
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
                "nodeSelector": {"n": "x"},
            },
        },
    },
}
SERVICE: Final = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "o"},
    "spec": {
        "clusterIP": "None",
        "selector": {"app": "d"},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    },
}
ACCOUNT: Final = {
    "kind": "ServiceAccount",
    "apiVersion": "v1",
    "metadata": {"name": "o", "finalizers": ["conformance.test/a", "conformance.test/b"]},
    "secrets": [{"name": "s1"}, {"name": "s2"}],
    "imagePullSecrets": [{"name": "i1"}],
}


def patches(name: str, path: str, body: Any, kind: PatchType, *documents: Any) -> None:
    """A case: the object is made, and each patch is tried on what the last one left."""

    async def play(side: Side) -> None:
        await side.post(path, body)
        for document in documents:
            await side.patch(kind, f"{path}/o", document)
        await side.get(f"{path}/o")

    CASES.add(name, play)


def pod(**fields: Any) -> dict[str, Any]:
    """A patch of a deployment's pods."""
    return {"spec": {"template": {"spec": fields}}}


def op(name: str, path: str, *value: Any, **more: Any) -> dict[str, Any]:
    """An operation of a JSON patch."""
    return {"op": name, "path": path, **({"value": value[0]} if value else {}), **more}


# JSON patch

for what, place, thing in (("built-in", MAPS, CONFIG_MAP), ("custom", WIDGETS, WIDGET)):
    patches(
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

# strategic merge patch

patches(
    "a strategic patch merges lists of maps by their key",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "image": "i:2"}]),
    pod(containers=[{"name": "c3", "image": "i:3"}]),
    pod(containers=[{"name": "c1", "env": [{"name": "E1", "value": "new"}, {"name": "E3", "value": "3"}]}]),
    pod(containers=[{"name": "c1", "command": ["x"]}]),
    pod(containers=[{"name": "c1", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 82}]}]),
    pod(containers=[{"name": "c1", "volumeMounts": [{"mountPath": "/v", "name": "w"}]}]),
    pod(volumes=[{"name": "x", "emptyDir": {}}]),
    pod(volumes=[{"name": "v", "emptyDir": None, "configMap": {"name": "m"}}]),
    pod(tolerations=[{"key": "l", "operator": "Exists"}]),
    pod(nodeSelector={"m": "y"}),
    pod(nodeSelector={"n": None}),
    {"metadata": {"labels": {"l1": None, "l2": "y"}}},
    {"spec": {"replicas": 3}},
    {"spec": {"replicas": None}},
)
patches(
    "a strategic patch deletes by directive",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "env": [{"name": "E1", "$patch": "delete"}]}]),
    pod(containers=[{"name": "c1", "ports": [{"containerPort": 81, "$patch": "delete"}]}]),
    pod(containers=[{"name": "c2", "$patch": "delete"}]),
    pod(containers=[{"name": "absent", "$patch": "delete"}]),
    pod(nodeSelector={"$patch": "delete"}),
    pod(volumes=[{"$patch": "delete", "name": "w"}]),
    {"metadata": {"annotations": {"$patch": "delete"}}},
    pod(containers=[{"name": "c1", "$patch": "delete"}]),
)
patches(
    "a strategic patch replaces by directive",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "env": [{"$patch": "replace"}, {"name": "E9", "value": "9"}]}]),
    pod(containers=[{"$patch": "replace"}, {"name": "only", "image": "i:1"}]),
    pod(nodeSelector={"$patch": "replace", "o": "z"}),
    pod(volumes=[{"$patch": "replace"}]),
    {"metadata": {"labels": {"$patch": "replace", "new": "label"}}},
    {"metadata": {"annotations": {"$patch": "merge", "a2": "y"}}},
    {"metadata": {"labels": {"$patch": "invent"}}},
    pod(containers=[{"$patch": "invent"}]),
    pod(containers=[{"name": "only", "$patch": "invent"}]),
)
patches(
    "a strategic patch sets the order of elements",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(**{"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}]}),
    pod(
        **{"$setElementOrder/containers": [{"name": "c3"}, {"name": "c2"}, {"name": "c1"}]},
        containers=[{"name": "c3", "image": "i:3"}],
    ),
    pod(**{"$setElementOrder/containers": [{"name": "c1"}]}, containers=[{"name": "c1", "image": "i:4"}]),
    pod(**{"$setElementOrder/containers": [{"name": "c1"}]}, containers=[{"name": "c2", "image": "i:4"}]),
    pod(**{"$setElementOrder/volumes": [{"name": "w"}, {"name": "v"}]}),
    pod(**{"$setElementOrder/containers": "text"}),
    {"metadata": {"$setElementOrder/finalizers": ["conformance.test/b"], "finalizers": ["conformance.test/b"]}},
)
patches(
    "a strategic patch keeps only the keys it is told to",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    {"spec": {"strategy": {"$retainKeys": ["type", "rollingUpdate"], "type": "RollingUpdate"}}},
    pod(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]),
    {"spec": {"strategy": {"$retainKeys": ["other"], "type": "Recreate"}}},
    {"spec": {"strategy": {"$retainKeys": "type", "type": "Recreate"}}},
)
patches(
    "a strategic patch that does not fit is refused",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"image": "i:2"}]),
    pod(containers={"name": "c1"}),
    pod(containers="text"),
    {"spec": "text"},
    {"spec": []},
    {"spec": {"replicas": "x"}},
    {"spec": {"replicas": {"a": 1}}},
    {"spec": {"replicas": -1}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": {"labels": []}},
    {"metadata": {"name": "other"}},
    {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}},
    {"metadata": {"resourceVersion": "1"}},
    {"kind": "Other"},
    {"apiVersion": "x/v1"},
    {"unknown": 1},
    [],
    "text",
    None,
    b"{",
    b"",
)
patches(
    "a strategic patch merges lists of plain values",
    ACCOUNTS,
    ACCOUNT,
    "strategic",
    {"metadata": {"finalizers": ["conformance.test/c"]}},
    {"metadata": {"finalizers": ["conformance.test/a", "conformance.test/d"]}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": ["conformance.test/b", "conformance.test/absent"]}},
    {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["conformance.test/a"],
            "$setElementOrder/finalizers": ["conformance.test/e", "conformance.test/c"],
            "finalizers": ["conformance.test/e"],
        }
    },
    {"metadata": {"finalizers": None}},
    {"metadata": {"finalizers": ["conformance.test/z"]}},
    {"secrets": [{"name": "s3"}]},
    {"secrets": [{"name": "s1", "$patch": "delete"}]},
    {"$setElementOrder/secrets": [{"name": "s3"}, {"name": "s2"}], "secrets": [{"name": "s2"}]},
    {"imagePullSecrets": [{"name": "i2"}, {"name": "i1"}]},
)
patches(
    "a strategic patch of a service's ports",
    SERVICES,
    SERVICE,
    "strategic",
    {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}},
    {"spec": {"ports": [{"port": 8443, "name": "more"}]}},
    {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}},
    {"spec": {"selector": {"app": None, "tier": "x"}}},
    {"spec": {"selector": None}},
    {"spec": {"$setElementOrder/ports": [{"port": 8443}, {"port": 80}], "ports": [{"port": 80, "name": "web"}]}},
)
patches(
    "a strategic patch of a config map is like a merge patch",
    MAPS,
    CONFIG_MAP,
    "strategic",
    {"data": {"a": None, "c": "3"}},
    {"data": {"$patch": "replace", "d": "4"}},
    {"data": {"$patch": "delete"}},
    {"data": {"e": "5"}},
    {"metadata": {"ownerReferences": [{"uid": "u1", "$patch": "delete"}]}},
    {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Secret", "name": "t", "uid": "u2"},
                {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1"},
            ]
        }
    },
    {"metadata": {"ownerReferences": [{"uid": "u2", "name": "renamed"}]}},
    {"metadata": {"ownerReferences": None, "finalizers": None}},
    {"$patch": "merge", "data": {"f": "6"}},
    {"$patch": "replace", "data": {"f": "7"}},
    {"$patch": "delete"},
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
