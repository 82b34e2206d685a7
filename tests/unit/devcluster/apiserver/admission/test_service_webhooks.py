# SPDX-License-Identifier: Apache-2.0
"""Webhooks that name a Service are called at the address of its process, whose certificate must have its name."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from devcluster.pki import Authority
from tests.support.embedded import Caller, api_server, config_map

NAMESPACE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def webhook(folder: Path, *, named: str) -> AsyncIterator[tuple[int, str]]:
    """A webhook that denies everything; its port, and its authority in the form of a configuration."""
    authority = Authority.create("hooks")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving("hook", hosts=[named]).write(folder, name="hook"))

    async def refuse(request: web.Request) -> web.Response:
        uid = (await request.json())["request"]["uid"]
        response = {"uid": uid, "allowed": False, "status": {"message": f"called at {request.path}"}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    app = web.Application()
    app.router.add_post("/{rest:.*}", refuse)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield runner.addresses[0][1], b64encode(authority.certificate).decode()
    await runner.cleanup()
    await asyncio.sleep(0)


async def refusal(port: int, bundle: str, *, address: str = "127.0.0.1", service: Any = None, slices: int = 1) -> str:
    """The error of a create while the webhook is configured."""
    api = api_server()
    caller = Caller(api)
    spec = service or {"ports": [{"name": "https", "port": 443, "targetPort": port}]}
    await caller.create(f"{NAMESPACE}/services", {"metadata": {"name": "hook"}, "spec": spec})
    for number in range(slices):
        made = await caller.create(
            SLICES,
            {
                "metadata": {"name": f"hook-{number}", "labels": {"kubernetes.io/service-name": "hook"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address]}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            },
        )
        assert made.status == 201
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "hook.example.test",
        "clientConfig": {
            "service": {"name": "hook", "namespace": "default", "path": "/check"},
            "caBundle": bundle,
        },
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = await caller.create(HOOKS, {"metadata": {"name": "hook"}, "webhooks": [hook]})
    assert made.status == 201
    answer = await caller.create(f"{NAMESPACE}/configmaps", config_map("refused"))
    await api.close()
    assert answer.status >= 400
    return str(answer.body["message"])


async def test_the_process_behind_a_service_is_called(tmp_path: Path) -> None:
    async with webhook(tmp_path, named="hook.default.svc") as (port, bundle):
        assert await refusal(port, bundle) == (
            'admission webhook "hook.example.test" denied the request: called at /check'
        )


async def test_a_process_with_the_certificate_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    async with webhook(tmp_path, named="other.default.svc") as (port, bundle):
        message = await refusal(port, bundle)
    assert message.startswith("Internal error occurred: failed calling webhook")
    assert "https://hook.default.svc:443/check" in message


@pytest.mark.parametrize(
    ("how", "why"),
    [
        pytest.param({"address": "10.244.0.7"}, "have no addresses", id="a virtual pod"),
        pytest.param({"slices": 0}, "cannot find endpointslices", id="no slices"),
        pytest.param({"service": {"ports": [{"port": 80}]}}, "not listening on port 443", id="another port"),
    ],
)
async def test_a_service_without_a_process_is_a_failure_with_a_reason(how: dict[str, Any], why: str) -> None:
    message = await refusal(9, b64encode(Authority.create("hooks").certificate).decode(), **how)
    assert "failed calling webhook" in message
    assert why in message
