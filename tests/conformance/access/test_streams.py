# SPDX-License-Identifier: Apache-2.0
"""exec, attach, portforward and proxy, as far as an API server decides; no case calls a kubelet."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.access.actors import acting, grant, rule
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("streams")
AS: Final = acting()
_PODS: Final = "/api/v1/namespaces/{ns}/pods"
_SERVICES: Final = "/api/v1/namespaces/{ns}/services"
_UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
_STREAMS: Final = ("exec?command=true&stdout=true", "attach?stdout=true", "portforward")


async def _pod(side: Side, name: str, *containers: str) -> None:
    """A pod that no node has."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "schedulingGates": [{"name": "example.com/never"}],
        "containers": [{"name": container, "image": "i"} for container in containers],
    }
    await side.post(_PODS, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec})


@CASES.case("streams of pods that are not there")
async def _(side: Side) -> None:
    for what in (*_STREAMS, "proxy/", "proxy/x"):
        await side.get(f"{_PODS}/none/{what}", headers=_UPGRADE if "proxy" not in what else {})


@CASES.case("streams of a pod that no node has")
async def _(side: Side) -> None:
    await _pod(side, "p", "c")
    for what in _STREAMS:
        await side.get(f"{_PODS}/p/{what}", headers=_UPGRADE)
        await side.post(f"{_PODS}/p/{what}", None, headers=_UPGRADE)
    await side.get(f"{_PODS}/p/proxy/")
    await side.get(f"{_PODS}/p:80/proxy/x")


@CASES.case("streams of containers that are not there or not named")
async def _(side: Side) -> None:
    await _pod(side, "p", "a", "b")
    await side.get(f"{_PODS}/p/exec?command=true&stdout=true", headers=_UPGRADE)
    await side.get(f"{_PODS}/p/exec?command=true&stdout=true&container=z", headers=_UPGRADE)
    await side.get(f"{_PODS}/p/attach?stdout=true&container=z", headers=_UPGRADE)


@CASES.case("proxies of services without endpoints")
async def _(side: Side) -> None:
    spec = {"ports": [{"port": 80, "name": "web"}]}
    service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s"}, "spec": spec}
    await side.quietly(Exchange("POST", _SERVICES, service))
    await side.get(f"{_SERVICES}/s:81/proxy/")
    await side.get(f"{_SERVICES}/none:80/proxy/")


@CASES.case("names of proxies that are none")
async def _(side: Side) -> None:
    for name in ("ftp:p:80", "a:b:c:d", ":80"):
        await side.get(f"{_PODS}/{name}/proxy/")
        await side.get(f"{_SERVICES}/{name}/proxy/")


@CASES.case("a user without a role opens no stream")
async def _(side: Side) -> None:
    await _pod(side, "p", "c")
    for what in _STREAMS:
        await side.get(f"{_PODS}/p/{what}", headers={**AS, **_UPGRADE})
        await side.post(f"{_PODS}/p/{what}", None, headers={**AS, **_UPGRADE})
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        await side.send(method, f"{_PODS}/p/proxy/x", headers=AS)


@CASES.case("a user who may only get a stream may not open it")
async def _(side: Side) -> None:
    await _pod(side, "p", "c")
    names = tuple(f"pods/{what.partition('?')[0]}" for what in _STREAMS)
    await grant(side, rule("get", on=names))
    for what in _STREAMS:
        await side.get(f"{_PODS}/p/{what}", headers={**AS, **_UPGRADE})


@pytest.mark.parametrize("case", CASES.params())
async def test_a_stream_is_refused_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Before a kubelet is called."""
    await judge(case)
