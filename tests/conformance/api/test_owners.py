# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: its rules one by one, and its refusals."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.conformance.api.widgets import GADGETS, WIDGETS, gadget, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("owners")
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
SERVICES: Final = "/api/v1/namespaces/{ns}/services"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
NAMESPACES: Final = "/api/v1/namespaces"


def config_map(**more: Any) -> dict[str, Any]:
    """A small object."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "o"}, **more}


def deployment(**spec: Any) -> dict[str, Any]:
    """A deployment of one container."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    }
    base = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "o"}, "spec": {**base, **spec}}


async def apply(side: Side, path: str, body: Any, manager: str = "m", query: str = "") -> None:
    """An apply, which is compared."""
    await side.patch("apply", f"{path}/o?fieldManager={manager}{query}", body)


for what, place, thing in (
    ("built-in", MAPS, config_map(data={"a": "1"})),
    ("custom", WIDGETS, widget("o", {"size": 1})),
):

    @CASES.case(f"an apply of a {what} object that is malformed is refused")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        path = f"{place}/o"
        await side.patch("apply", path, thing)
        await side.patch("apply", f"{path}?fieldManager=", thing)
        await side.patch("apply", f"{path}?fieldManager={'m' * 129}", thing)
        await side.patch("apply", f"{path}?fieldManager=a%07b", thing)
        await side.patch("merge", f"{path}?fieldManager=m&force=true", thing)
        await apply(side, place, b"{")
        await apply(side, place, b"a: b: c")
        await apply(side, place, b"[]")
        await apply(side, place, b"text")
        await apply(side, place, b"")
        await apply(side, place, {})
        await apply(side, place, {"kind": thing["kind"]})
        await apply(side, place, {"apiVersion": thing["apiVersion"]})
        await apply(side, place, {**thing, "kind": "Other"})
        await apply(side, place, {**thing, "apiVersion": "other/v1"})
        await apply(side, place, {**thing, "metadata": {"name": "other"}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "namespace": "other"}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "resourceVersion": "1"}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "uid": "u"}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "managedFields": [{"manager": "x"}]}})
        await side.get(path)

    @CASES.case(f"an apply of a {what} object that breaks its type is refused")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        for mode in ("", "&fieldValidation=Strict", "&fieldValidation=Ignore", "&fieldValidation=Never"):
            await apply(side, place, {**thing, "unknown": 1}, "m", mode)
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"a": 1}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": []}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "finalizers": ["a.b/c", "a.b/c"]}})

    @CASES.case(f"an apply makes a {what} object from a name in the path")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        await apply(side, place, {**thing, "metadata": {}})
        await apply(side, place, {name: entry for name, entry in thing.items() if name != "metadata"})
        await apply(side, place, thing, "m", "&dryRun=All")
        await apply(side, place, thing, "n")
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}}, "n")
        await side.get(f"{place}/o")

    @CASES.case(f"versions and uids in an apply of a {what} object must be right")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        await apply(side, place, thing)
        found = (await side.get(f"{place}/o")).body["metadata"]
        for extra in (
            {"resourceVersion": found["resourceVersion"]},
            {"resourceVersion": "1"},
            {"uid": found["uid"]},
            {"uid": "00000000-0000-4000-8000-000000000000"},
            {"resourceVersion": found["resourceVersion"], "labels": {"x": "y"}},
            {"resourceVersion": found["resourceVersion"], "labels": {"x": "z"}},
            {"creationTimestamp": "2020-01-01T00:00:00Z"},
            {"generation": 7},
        ):
            await apply(side, place, {**thing, "metadata": {"name": "o", **extra}})

    @CASES.case(f"a {what} object that was never applied is taken over")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        await side.post(f"{place}?fieldManager=creator", {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "2"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "2"}}}, "m", "&force=true")
        await apply(side, place, {"kind": thing["kind"], "apiVersion": thing["apiVersion"], "metadata": {"name": "o"}})

    @CASES.case(f"owners of a {what} object are forgotten, and found again")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        path = f"{place}/o"
        await side.post(place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        await side.patch("merge", path, {"metadata": {"managedFields": [{}]}})
        await side.patch("merge", path, {"metadata": {"labels": {"l": "2"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "3"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "3"}}}, "m", "&force=true")
        await side.patch("merge", path, {"metadata": {"managedFields": []}})
        await side.patch("merge", path, {"metadata": {"managedFields": None}})
        await side.get(path)

    @CASES.case(f"owners of a {what} object are edited by hand")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        path = f"{place}/o"
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        entry = {
            "manager": "hand",
            "operation": "Apply",
            "apiVersion": thing["apiVersion"],
            "time": "2020-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:l": {}}}},
        }
        await side.patch("merge", path, {"metadata": {"managedFields": [entry]}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "2"}}}, "n")
        for broken in (
            {**entry, "operation": "Invent"},
            {**entry, "fieldsType": "FieldsV2"},
            {**entry, "manager": "m" * 129},
        ):
            await side.patch("merge", path, {"metadata": {"managedFields": [broken]}})

    @CASES.case(f"many writers of a {what} object are kept, and then made one")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        path = f"{place}/o"
        await side.quietly(Exchange("POST", f"{place}?fieldManager=w00", thing))
        for number in range(1, 14):
            body = {"metadata": {"labels": {f"l{number}": "x"}}}
            query = f"?fieldManager=w{number:02}"
            await side.server.send(
                side.filled(Exchange("PATCH", path + query, body, content_type="application/merge-patch+json"))
            )
        await side.get(path)

    @CASES.case(f"managers of one name differ by what they do to a {what} object")
    async def _(side: Side, place: str = place, thing: Any = thing) -> None:
        path = f"{place}/o"
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        await side.patch("merge", f"{path}?fieldManager=m", {"metadata": {"labels": {"l": "2", "k": "1"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}})
        await apply(side, place, {**thing, "metadata": {"name": "o", "labels": {"l": "1"}}}, "m", "&force=true")
        await side.patch("merge", f"{path}?fieldManager=m", {"metadata": {"labels": {"l": None}}})
        await apply(side, place, thing)


@CASES.case("fields that a custom kind does not know are refused by their place")
async def _(side: Side) -> None:
    await apply(side, WIDGETS, widget("o", {"unknown": 1}))
    await apply(side, WIDGETS, widget("o", {"deep": {"inner": {"z": 1}}}))
    await apply(side, WIDGETS, widget("o", {"parts": [{"name": "a", "what": 1}]}))
    await apply(side, WIDGETS, widget("o", {"size": "x"}))
    await apply(side, WIDGETS, widget("o", {"parts": "x"}))
    await apply(side, WIDGETS, widget("o", {"parts": [{"value": "no name"}]}))
    await apply(side, WIDGETS, widget("o", {"parts": [{"name": "a"}, {"name": "a"}]}))
    await apply(side, WIDGETS, widget("o", {"set": ["a", "a"]}))
    await apply(side, WIDGETS, widget("o", {"size": 101}))
    await apply(side, WIDGETS, widget("o", {"deep": [1]}))
    await apply(side, WIDGETS, widget("o", {"labels": {"a": 1}}))


@CASES.case("fields that a built-in kind does not know are refused by their place")
async def _(side: Side) -> None:
    await apply(side, DEPLOYMENTS, deployment(unknown=1))
    await apply(side, DEPLOYMENTS, deployment(replicas="x"))
    await apply(side, DEPLOYMENTS, deployment(template=[]))
    await apply(side, DEPLOYMENTS, deployment(replicas=-1))
    await apply(side, MAPS, config_map(data={"a": 1}))
    await apply(side, MAPS, config_map(data={"a": None}))
    await apply(side, MAPS, config_map(data=None))
    await apply(side, MAPS, config_map(data=[]))


@CASES.case("keys that are left out are filled in from their defaults")
async def _(side: Side) -> None:
    await apply(side, WIDGETS, widget("o", {"ports": [{"port": 80, "label": "x"}]}))
    await apply(side, WIDGETS, widget("o", {"ports": [{"port": 80, "protocol": "TCP", "label": "y"}]}))
    await apply(side, WIDGETS, widget("o", {"ports": [{"port": 80, "label": "z"}]}), "n")
    await apply(side, WIDGETS, widget("o", {"ports": [{"port": 80, "protocol": "UDP", "label": "z"}]}), "n")
    await apply(side, WIDGETS, widget("o", {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}))


@CASES.case("ports of containers and services are distinguished by protocol")
async def _(side: Side) -> None:
    await apply(side, DEPLOYMENTS, deployment())
    template = deployment()["spec"]["template"]
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "UDP"}]
    await apply(side, DEPLOYMENTS, deployment(template=template), "n")
    await apply(side, DEPLOYMENTS, deployment(template=template))
    service = {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "o"},
        "spec": {
            "clusterIP": "None",
            "selector": {"a": "b"},
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}],
        },
    }
    await apply(side, SERVICES, service)
    service["spec"]["ports"] = [{"name": "c", "port": 80, "protocol": "TCP"}]  # type: ignore[index]
    await apply(side, SERVICES, service, "n")
    await apply(side, SERVICES, service, "n", "&force=true")


@CASES.case("who scales a deployment owns its replicas")
async def _(side: Side) -> None:
    path = f"{DEPLOYMENTS}/o"
    await apply(side, DEPLOYMENTS, deployment(replicas=1))
    await side.patch("merge", f"{path}/scale?fieldManager=scaler", {"spec": {"replicas": 3}})
    await apply(side, DEPLOYMENTS, deployment(replicas=1))
    await apply(side, DEPLOYMENTS, deployment())
    await side.get(path)


@CASES.case("the status is applied apart from the rest")
async def _(side: Side) -> None:
    path = f"{WIDGETS}/o/status"
    status = {"phase": "a", "conditions": [{"type": "Ready", "status": "True"}]}
    await side.patch("apply", f"{path}?fieldManager=s", widget("o", status=status))
    await apply(side, WIDGETS, widget("o", {"size": 1}, status=status))
    await side.patch("apply", f"{path}?fieldManager=s", widget("o", status=status))
    await side.patch("apply", f"{path}?fieldManager=t", widget("o", status={"phase": "b"}))
    await side.patch("apply", f"{path}?fieldManager=t&force=true", widget("o", status={"phase": "b"}))
    done = {"conditions": [{"type": "Done", "status": "False", "reason": "r"}]}
    await side.patch("apply", f"{path}?fieldManager=t", widget("o", status=done))
    await side.patch("apply", f"{path}?fieldManager=s", widget("o", {"size": 9}, status={}))
    await side.patch("apply", f"{path}?fieldManager=s", widget("o"))
    labelled = {"name": "o", "labels": {"x": "y"}}
    await side.patch("apply", f"{path}?fieldManager=l", widget("o", metadata=labelled, status={"replicas": 1}))
    await apply(side, WIDGETS, widget("o", {"size": 2}))


@CASES.case("without a subresource the status is applied with the rest")
async def _(side: Side) -> None:
    path = f"{GADGETS}/{{id}}?fieldManager="
    await side.patch("apply", f"{path}m", gadget(spec={"size": 1}, status={"phase": "a"}))
    await side.patch("apply", f"{path}n", gadget(status={"phase": "b"}))
    await side.patch("apply", f"{path}n&force=true", gadget(status={"phase": "b"}))
    await side.patch("apply", f"{path}m", gadget(spec={"size": 1}))
    await side.patch("apply", f"{path}n", gadget())


@CASES.case("kubectl may take over by itself what it wrote itself")
async def _(side: Side) -> None:
    last = "kubectl.kubernetes.io/last-applied-configuration"
    path = f"{MAPS}/o?fieldManager=x"
    body = config_map(data={"a": "1", "b": "2"})
    annotated = {"name": "o", "annotations": {last: json.dumps(body)}}
    await side.post(f"{MAPS}?fieldManager=kubectl-client-side-apply", {**body, "metadata": annotated})
    labelled = {"metadata": {"name": "o", "labels": {"x": "y"}}}
    await apply(side, MAPS, config_map(data={"a": "1", "b": "3"}), "kubectl", "&dryRun=All")
    await apply(side, MAPS, config_map(data={"a": "1", "b": "3"}), "other", "&dryRun=All")
    await side.patch("merge", path, {"data": {"c": "9", "b": "8"}})
    await apply(side, MAPS, config_map(data={"a": "5", "b": "3"}), "kubectl", "&dryRun=All")
    await apply(side, MAPS, config_map(data={"a": "5", "c": "3"}), "kubectl", "&dryRun=All")
    await apply(side, MAPS, {**config_map(data={"a": "5"}), **labelled}, "kubectl", "&dryRun=All")
    await side.patch("merge", path, {"metadata": {"annotations": {last: "{broken"}}})
    await apply(side, MAPS, config_map(data={"a": "5", "b": "3"}), "kubectl", "&dryRun=All")
    await apply(side, MAPS, {**config_map(data={"a": "1"}), **labelled}, "kubectl")


@CASES.case("a namespace is applied")
async def _(side: Side) -> None:
    body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "{id}-n", "labels": {"a": "b"}}}
    path = f"{NAMESPACES}/{{id}}-n?fieldManager="
    await side.patch("apply", f"{path}m", body)
    body["metadata"] = {"name": "{id}-n", "labels": {"kubernetes.io/metadata.name": "other"}}
    await side.patch("apply", f"{path}n", body)
    await side.patch("apply", f"{path}n&force=true", body)
    await side.patch("apply", f"{path}m", {**body, "metadata": {"name": "{id}-n"}})


@pytest.mark.parametrize("case", CASES.params())
async def test_owners(judge: Judge, case: Case) -> None:
    await judge(case)
