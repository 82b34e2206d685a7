# SPDX-License-Identifier: Apache-2.0
"""The other API server: serves one resource of any group, and answers with the request it got and its user."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from devcluster.pki import Authority

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_COMPARED: Final = frozenset(
    {"accept", "authorization", "content-type", "x-custom", "x-remote-user", "x-remote-uid", "x-remote-group"}
)
_CREDENTIAL: Final = "x-remote-extra-authentication.kubernetes.io%2fcredential-id"
_VERBS: Final = ["create", "delete", "get", "list", "watch"]


class Backend:
    """Answers for every group of its APIServices; a `modern` one has aggregated discovery."""

    def __init__(self, *, modern: bool) -> None:
        self.url = ""
        self.authority = Authority.create("aggregated")
        self.groups: set[str] = set()
        """The resources it serves."""
        self._modern = modern

    @property
    def port(self) -> int:
        """Where it listens."""
        return urlsplit(self.url).port or 0

    @property
    def bundle(self) -> str:
        """Its authority as APIServices carry it."""
        return b64encode(self.authority.certificate).decode()

    def context(self, proxies: Sequence[str], *, folder: Path) -> ssl.SSLContext:
        """Its TLS: clients that show a certificate have to be front proxies, signed by one of these authorities."""
        # What is in the certificate is the name of the Service, whatever address it leads to.
        pair = self.authority.serving("backend", hosts=["*.default.svc"])
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(*pair.write(folder, name="backend"))
        found.load_verify_locations(cadata="\n".join(proxies))
        found.verify_mode = ssl.CERT_OPTIONAL
        return found

    def application(self) -> web.Application:
        """What is served."""
        app = web.Application()
        app.router.add_get("/apis", self._groups)
        app.router.add_get("/openapi/v3", self._index)
        app.router.add_get("/openapi/v3/apis/{group}/{version}", self._openapi)
        app.router.add_get("/apis/{group}/{version}", self._resources)
        app.router.add_route("*", "/apis/{group}/{version}/{rest:.*}", self._hellos)
        return app

    async def _groups(self, request: web.Request) -> web.Response:
        if not self._modern:
            return web.Response(status=406)
        items = []
        for group in sorted(self.groups):
            kind = {"group": group, "version": "v1", "kind": "Hello"}
            hellos = {
                "resource": "hellos",
                "responseKind": kind,
                "scope": "Namespaced",
                "singularResource": "hello",
                "verbs": _VERBS,
                "shortNames": ["hi"],
                "subresources": [{"subresource": "shout", "responseKind": kind, "verbs": ["get"]}],
            }
            version = {"version": "v1", "resources": [hellos], "freshness": "Current"}
            items.append({"metadata": {"name": group}, "versions": [version]})
        body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
        return web.Response(body=json.dumps(body).encode(), headers={"Content-Type": _AGGREGATED})

    async def _resources(self, request: web.Request) -> web.Response:
        group = request.match_info["group"]
        hello: dict[str, Any] = {"namespaced": True, "kind": "Hello"}
        resources = [
            {"name": "hellos", "singularName": "hello", **hello, "verbs": _VERBS, "shortNames": ["hi"]},
            {"name": "hellos/shout", "singularName": "", **hello, "verbs": ["get"]},
        ]
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/v1", "resources": resources}
        return web.json_response(body)

    async def _index(self, request: web.Request) -> web.Response:
        paths = [f"apis/{group}/v1" for group in sorted(self.groups)]
        return web.json_response({"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash=AB"} for p in paths}})

    async def _openapi(self, request: web.Request) -> web.Response:
        paths: dict[str, Any] = {f"/apis/{request.match_info['group']}/v1/hellos": {}}
        return web.json_response({"openapi": "3.0.0", "info": {"title": "hellos", "version": "1"}, "paths": paths})

    async def _hellos(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._talk(request)
        if "watch" in request.query:
            return await self._watch(request)
        if request.path.endswith("/missing"):
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response(status, status=404)
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        names = dict(pair for part in (certificate or {}).get("subject", ()) for pair in part)
        headers = {
            name.lower(): request.headers.getall(name)
            for name in sorted(set(request.headers))
            if name.lower() in _COMPARED or (name.lower().startswith("x-remote-extra-") and name.lower() != _CREDENTIAL)
        }
        received = {
            "method": request.method,
            "path": request.path_qs,
            "headers": headers,
            "body": (await request.read()).decode(),
            "proxy": names.get("commonName"),
        }
        body = {"kind": "Hello", "apiVersion": f"{request.match_info['group']}/v1", "asked": received}
        return web.json_response(body, headers={"Warning": '299 - "said by the backend"'})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for number in range(3):
            event = {"type": "ADDED", "object": {"kind": "Hello", "metadata": {"name": f"hello-{number}"}}}
            await answer.write(json.dumps(event).encode() + b"\n")
        return answer

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        async for message in line:
            if message.type is WSMsgType.TEXT:
                await line.send_str(f"{request.headers.get('X-Remote-User')} said {message.data}")
        return line
