# SPDX-License-Identifier: Apache-2.0
"""Aggregated APIs and their APIServices, on both servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.conformance.aggregation.backend import Backend
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Json, Side

pytestmark = pytest.mark.anyio

_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PATIENCE: Final = 60.0
_CORE: Final = "/api/v1/namespaces/default"
_GROUP: Final = "{id}.example.test"
_HELLOS: Final = f"/apis/{_GROUP}/v1/namespaces/{{ns}}/hellos"
_RIGHTS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def api_service(**spec: Json) -> Json:
    """A registration."""
    return {
        "kind": "APIService",
        "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": f"v1.{_GROUP}"},
        "spec": {"group": _GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, **spec},
    }


def external() -> Json:
    """A Service that leads to this machine."""
    return service(type="ExternalName", externalName="localhost")


def service(**spec: Json) -> Json:
    """A Service of the case, where all of them are."""
    return {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "{id}"}, "spec": spec}


def at(port: int) -> Json:
    """How a registration refers to that Service."""
    return {"name": "{id}", "namespace": "default", "port": port}


async def reason(side: Side, wanted: str) -> None:
    """Wait until the condition Available has that reason; the condition is compared."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await side.quietly(Exchange("GET", f"{_SERVICES}/v1.{_GROUP}"))
            conditions = found.body.get("status", {}).get("conditions", [])
            if [entry["reason"] for entry in conditions] == [wanted]:
                side.note("conditions", conditions)
                return
            await asyncio.sleep(0.05)


async def discovery(side: Side) -> None:
    """The group in all three forms of discovery."""
    group = side.own(_GROUP)
    new = await side.quietly(Exchange("GET", "/apis", accept=_AGGREGATED))
    side.note("aggregated", [item for item in new.body["items"] if item["metadata"]["name"] == group])
    old = await side.quietly(Exchange("GET", "/apis"))
    side.note("legacy", [item for item in old.body["groups"] if item["name"] == group])
    await side.get(f"/apis/{_GROUP}")


async def listed(side: Side) -> None:
    """Wait until discovery knows the resources, which a real server fetches beside the check."""
    group = side.own(_GROUP)
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await side.quietly(Exchange("GET", "/apis", accept=_AGGREGATED))
            if any(i["metadata"]["name"] == group and i["versions"][0].get("resources") for i in found.body["items"]):
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def registered(side: Side, backend: Backend, **spec: Json) -> AsyncIterator[None]:
    """The backend's group, available."""
    backend.groups.add(side.own(_GROUP))
    await side.quietly(Exchange("POST", f"{_CORE}/services", external()))
    trust = {} if spec else {"caBundle": backend.bundle}
    await side.post(_SERVICES, api_service(service=at(backend.port), **trust, **spec))
    try:
        await reason(side, "Passed")
        await listed(side)
        yield
    finally:
        await side.quietly(Exchange("DELETE", f"{_SERVICES}/v1.{_GROUP}"))
        await side.quietly(Exchange("DELETE", f"{_CORE}/services/{{id}}"))


async def test_a_group_of_another_server_is_served(backend: Backend, judge: Judge) -> None:
    """Requests, answers, discovery and OpenAPI."""

    async def play(side: Side) -> None:
        async with registered(side, backend):
            await discovery(side)
            await side.get(f"/apis/{_GROUP}/v1")
            await side.get(f"/apis/{_GROUP}/v2")
            await side.get(f"{_HELLOS}/one?b=2&a=x%20y&a=1", headers={"X-Custom": "yes", "X-Remote-User": "liar"})
            await side.get(f"{_HELLOS}/one/shout")
            await side.get(f"{_HELLOS}/missing")
            await side.get(f"{_HELLOS}/100%25")
            await side.post(_HELLOS, {"say": "hello"})
            await side.delete(f"{_HELLOS}/one")
            await side.watch(f"{_HELLOS}?watch=1")
            table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
            row = await side.quietly(Exchange("GET", f"{_SERVICES}/v1.{_GROUP}", accept=table))
            side.note("row", row.body["rows"][0]["cells"][:3])
        await side.get(f"{_HELLOS}/one")
        await side.get(f"/apis/{_GROUP}")

    await judge(Case("aggregation", "a group of another server is served", play))


async def test_the_index_of_openapi_names_the_document_of_a_backend(backend: Backend, judge: Judge) -> None:
    """Beside those of this server."""

    async def play(side: Side) -> None:
        async with registered(side, backend):
            path = side.own(f"apis/{_GROUP}/v1")
            async with asyncio.timeout(_PATIENCE):
                while True:
                    index = await side.quietly(Exchange("GET", "/openapi/v3"))
                    # A real server calls it plain text.
                    body = json.loads(index.body) if isinstance(index.body, str) else index.body
                    if path in body["paths"]:
                        break
                    await asyncio.sleep(0.1)
            side.note("entry", body["paths"][path])
            await side.get(f"/openapi/v3/apis/{_GROUP}/v1")

    await judge(Case("aggregation", "the index of OpenAPI names the document of a backend", play))


async def test_a_backend_of_the_old_discovery_is_served_too(old_backend: Backend, judge: Judge) -> None:
    """Its list of resources appears in the aggregated form."""

    async def play(side: Side) -> None:
        async with registered(side, old_backend, insecureSkipTLSVerify=True):
            await discovery(side)
            await side.get(f"{_HELLOS}/one")

    await judge(Case("aggregation", "a backend of the old discovery is served, too", play))


async def test_a_backend_gets_the_authorized_user(backend: Backend, judge: Judge) -> None:
    """Rights are looked at before."""

    async def play(side: Side) -> None:
        alice = {
            "Impersonate-User": "alice-{id}",
            "Impersonate-Group": "staff",
            "Impersonate-Uid": "u1",
            "Impersonate-Extra-Some%2fKey": "v1",
        }
        async with registered(side, backend):
            await side.get(f"{_HELLOS}/one", headers=alice)
            role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
            subject = {"kind": "User", "name": "alice-{id}", "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "{id}"}, "roleRef": role}
            await side.quietly(Exchange("POST", _RIGHTS, {**binding, "subjects": [subject]}))
            async with asyncio.timeout(_PATIENCE):
                while (await side.server.send(side.filled(Exchange("GET", _HELLOS, headers=alice)))).status == 403:
                    await asyncio.sleep(0.05)
            await side.get(f"{_HELLOS}/one", headers=alice)

    await judge(Case("aggregation", "a backend gets the authorized user", play))


async def test_a_connection_through_the_server_can_be_upgraded(backend: Backend, judge: Judge) -> None:
    """To a websocket."""

    async def play(side: Side) -> None:
        async with registered(side, backend):
            url = f"{side.server.url}{side.own(_HELLOS)}/one/talk"
            async with side.server.session.ws_connect(url, ssl=side.server.tls) as line:
                for word in ("one", "two"):
                    await line.send_str(word)
                    side.note("answer", await line.receive_str(timeout=_PATIENCE))

    await judge(Case("aggregation", "a connection through the server can be upgraded", play))


async def test_an_unavailable_backend_has_a_reason(backend: Backend, judge: Judge) -> None:
    """In the order in which one who registers meets it."""

    async def play(side: Side) -> None:
        await side.post(_SERVICES, api_service(service=at(backend.port), caBundle=backend.bundle))
        try:
            await reason(side, "ServiceNotFound")
            await discovery(side)
            await side.get(f"/apis/{_GROUP}/v1")
            await side.get(f"{_HELLOS}/one")
            port = {"name": "web", "port": 443}
            await side.quietly(Exchange("POST", f"{_CORE}/services", service(ports=[port])))
            await reason(side, "ServicePortError")
            merge = "application/merge-patch+json"
            more = {"spec": {"ports": [port, {"name": "api", "port": backend.port}]}}
            await side.quietly(Exchange("PATCH", f"{_CORE}/services/{{id}}", more, merge))
            await reason(side, "EndpointsNotFound")
            labels = {"kubernetes.io/service-name": "{id}"}
            endpoints: dict[str, Any] = {
                "metadata": {"name": "{id}", "labels": labels},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["192.0.2.1"]}],
                "ports": [{"name": "other", "port": 443}],
            }
            slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            await side.quietly(Exchange("POST", slices, endpoints))
            await reason(side, "MissingEndpoints")
            await side.get(f"{_HELLOS}/one")
            await side.quietly(Exchange("DELETE", f"{slices}/{{id}}"))
            await side.quietly(Exchange("DELETE", f"{_CORE}/services/{{id}}"))
        finally:
            await side.quietly(Exchange("DELETE", f"{_SERVICES}/v1.{_GROUP}"))

    await judge(Case("aggregation", "an unavailable backend has a reason", play))


async def test_a_backend_that_fails_its_check_is_not_called(backend: Backend, judge: Judge) -> None:
    """A backend without a trusted certificate is called only with insecureSkipTLSVerify."""

    async def play(side: Side) -> None:
        await side.quietly(Exchange("POST", f"{_CORE}/services", external()))
        await side.post(_SERVICES, api_service(service=at(backend.port)))
        try:
            await reason(side, "FailedDiscoveryCheck")
            await side.get(f"{_HELLOS}/one")
            change = {"spec": {"insecureSkipTLSVerify": True}}
            await side.patch("merge", f"{_SERVICES}/v1.{_GROUP}", change)
            await reason(side, "Passed")
            await side.get(f"{_HELLOS}/one")
            await side.patch("merge", f"{_SERVICES}/v1.{_GROUP}", {"spec": {"service": {"port": 1}}})
            await reason(side, "FailedDiscoveryCheck")
        finally:
            await side.quietly(Exchange("DELETE", f"{_SERVICES}/v1.{_GROUP}"))
            await side.quietly(Exchange("DELETE", f"{_CORE}/services/{{id}}"))

    await judge(Case("aggregation", "a backend that fails its check is not called", play))


async def test_what_the_server_serves_itself_is_registered(judge: Judge) -> None:
    """Built in, and by definitions as long as they are there."""

    async def play(side: Side) -> None:
        found = await side.quietly(Exchange("GET", _SERVICES))
        builtin = [i for i in found.body["items"] if "example.test" not in i["metadata"]["name"]]
        onstart = [i for i in builtin if list((i["metadata"].get("labels") or {}).values()) == ["onstart"]]
        # The old form of autoscalers is not served by ours.
        onstart = [i for i in onstart if i["metadata"]["name"] != "v1.autoscaling"]
        for item in onstart:
            del item["metadata"]["resourceVersion"]
        side.note("built in", onstart)
        schema = {"openAPIV3Schema": {"type": "object"}}
        group = "{id}.example.com"
        definition = {
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": schema},
                    {"name": "v1beta1", "served": True, "storage": False, "schema": schema},
                ],
            },
        }
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await side.quietly(Exchange("POST", definitions, definition))
        for name in (f"v1.{group}", f"v1beta1.{group}"):
            await _answers(side, name, 200)
            await side.get(f"{_SERVICES}/{name}")
        await side.quietly(Exchange("DELETE", f"{definitions}/things.{group}"))
        for name in (f"v1.{group}", f"v1beta1.{group}"):
            await _answers(side, name, 404)

    await judge(Case("aggregation", "what the server serves itself is registered", play))


async def _answers(side: Side, name: str, status: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while (await side.server.send(side.filled(Exchange("GET", f"{_SERVICES}/{name}")))).status != status:
            await asyncio.sleep(0.05)


def _refused(name: str, **spec: Json) -> Exchange:
    return Exchange("POST", f"{_SERVICES}?dryRun=All", {"metadata": {"name": name}, "spec": spec})


_NUMBERS: Final[Json] = {"groupPriorityMinimum": 10, "versionPriority": 10}
_THERE: Final = {"name": "a", "namespace": "b"}
CASES: Final = Cases("aggregation")
CASES.exchanges(
    "an invalid registration is refused",
    _refused("bad"),
    _refused("v1.x.test", group="x.test", version="v1", service={}, groupPriorityMinimum=0, versionPriority=-1),
    _refused(
        "v1.x.test",
        group="x.test",
        version="v1",
        service=_THERE,
        caBundle="aGk=",
        insecureSkipTLSVerify=True,
        groupPriorityMinimum=30000,
        versionPriority=1001,
    ),
    _refused("v1.x.test", group="x.test", version="v1", caBundle="aGk=", insecureSkipTLSVerify=True, **_NUMBERS),
    _refused("v1.x.test", group="x.test", version="v1", service={**_THERE, "port": 99999}, **_NUMBERS),
    _refused("v1.x.test", group="x.test", version="v1", service=_THERE, **_NUMBERS),
    _refused("V_1.X_y", group="X_y", version="V_1", service=_THERE, **_NUMBERS),
    _refused("v2.", version="v2", **_NUMBERS),
)


@pytest.mark.parametrize("case", CASES.params())
async def test_registrations(case: Case, judge: Judge) -> None:
    """Rules of the kind."""
    await judge(case)
