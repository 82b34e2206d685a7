# SPDX-License-Identifier: Apache-2.0
"""A webhook for both servers: reacts as the case sets, and records its requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiohttp import web

from devcluster.pki import Authority
from manager.webhooks.review import convert_review
from multikueue.api import conversion
from tests.conformance import background
from tests.conformance.harness import Exchange, Side

Review: TypeAlias = dict[str, Any]
Reaction: TypeAlias = Callable[[str, Review], "web.Response | Review | Awaitable[web.Response | Review]"]
"""From the name of a webhook and the request to the response, or to a whole answer."""

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
MUTATING: Final = f"{REGISTRATION}/mutatingwebhookconfigurations"
VALIDATING: Final = f"{REGISTRATION}/validatingwebhookconfigurations"
_PATIENCE: Final = 60.0


def allow(**more: object) -> Review:
    """Yes."""
    return {"allowed": True, **more}


def patch(*operations: dict[str, Any], **more: object) -> Review:
    """Yes, with changes."""
    return allow(patchType="JSONPatch", patch=b64encode(json.dumps(operations).encode()).decode(), **more)


class HookServer:
    """Answers reviews under `/<server>/<case>/<webhook>`."""

    def __init__(self) -> None:
        self.url = ""
        self.authority = Authority.create("webhooks")
        self._reactions: dict[tuple[str, str], Reaction] = {}
        self.calls: dict[tuple[str, str], list[tuple[str, Review]]] = {}

    @property
    def bundle(self) -> str:
        """The authority as configurations carry it."""
        return b64encode(self.authority.certificate).decode()

    def client(self, side: Side, name: str) -> dict[str, Any]:
        """Where a case's webhook is."""
        return {"url": f"{self.url}/{side.server.name}/{side.id}/{name}", "caBundle": self.bundle}

    def react(self, side: Side, reaction: Reaction) -> None:
        """Answer a case's reviews so."""
        self._reactions[side.server.name, side.id] = reaction
        self.calls[side.server.name, side.id] = []

    def called(self, side: Side) -> list[tuple[str, Review]]:
        """The requests to the case's webhooks since the last call, without probes."""
        key = (side.server.name, side.id)
        found, self.calls[key] = self.calls[key], []
        return found

    async def answer(self, request: web.Request) -> web.Response:
        """One review."""
        review = await request.json()
        key = (request.match_info["server"], request.match_info["case"])
        name, called = request.match_info["hook"], review["request"]
        if name == "probe":
            return self._reviewed(review, {"allowed": False, "status": {"message": "probed"}})
        if called.get("name") != "probe":
            self.calls.setdefault(key, []).append((name, called))
        found = self._reactions[key](name, called)
        if not isinstance(found, dict | web.Response):
            found = await found
        return found if isinstance(found, web.Response) else self._reviewed(review, found)

    async def convert(self, request: web.Request) -> web.Response:
        """A conversion, as the manager converts."""
        body = convert_review(await request.read(), conversion.convert)
        return web.Response(body=body, content_type="application/json")

    def _reviewed(self, review: Review, response: Review) -> web.Response:
        body = {key: review[key] for key in ("kind", "apiVersion")}
        return web.json_response({**body, "response": {"uid": review["request"]["uid"], **response}})


@contextmanager
def serving(folder: Path) -> Iterator[HookServer]:
    """A running webhook server in a separate event loop, so that its connections belong to no test."""
    server = HookServer()
    certificate, key = server.authority.serving("webhooks", hosts=["127.0.0.1"]).write(folder, name="webhooks")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/convert", server.convert)
    app.router.add_post("/{server}/{case}/{hook}", server.answer)
    with background.serving(app, context) as server.url:
        yield server


def rule(*operations: str, on: str = "configmaps", group: str = "", **more: object) -> dict[str, Any]:
    """The rules of a webhook."""
    resources = {"apiGroups": [group], "apiVersions": ["*"], "resources": [on]}
    return {"operations": [*(operations or ("CREATE",))], **resources, **more}


def hook(server: HookServer, side: Side, name: str, *rules: dict[str, Any], **more: object) -> dict[str, Any]:
    """A webhook of the case, for its namespace only."""
    return {
        "name": f"{name}.conformance.test",
        "clientConfig": server.client(side, name),
        "rules": [*(rules or (rule(),))],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": side.ns}},
        **more,
    }


async def install(server: HookServer, side: Side, path: str, *hooks: dict[str, Any], suffix: str = "") -> None:
    """Create a configuration of these webhooks, and wait until they are called."""
    kind = "MutatingWebhookConfiguration" if path == MUTATING else "ValidatingWebhookConfiguration"
    probe = hook(server, side, "probe", objectSelector={"matchLabels": {"probe": f"{kind}{suffix}"}})
    body = {
        "kind": kind,
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": f"{side.id}{suffix}"},
        "webhooks": [probe, *hooks],
    }
    await side.quietly(Exchange("POST", path, body))
    labels = {"probe": f"{kind}{suffix}"}
    called = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "probe", "labels": labels},
        "data": {"k": "v"},
    }
    exchange = Exchange("POST", f"/api/v1/namespaces/{side.ns}/configmaps?dryRun=All", called)
    async with asyncio.timeout(_PATIENCE):
        while "probed" not in str((await side.server.send(exchange)).body):
            await asyncio.sleep(0.03)
