# SPDX-License-Identifier: Apache-2.0
"""The kubelet's HTTPS server: logs, exec, attach, port forwarding, and requests to programs of its pods.

Accepts only the API server's client certificate, signed by the cluster's CA: the API server authorizes requests, and on
a shared machine any user can connect to the port. The paths are those of a real kubelet, plus `/podProxy`, which
replaces the network between API server and pods.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl

import anyio

from devcluster.apiserver.auth.authentication import certificate_user
from devcluster.apiserver.http.connection_server import ConnectionServer
from devcluster.apiserver.http.requests import Answer, Reply, Request, Tunnel, User
from devcluster.kubelet.containers.command_result import CommandResult
from devcluster.kubelet.containers.commands import CommandContext, run_command
from devcluster.kubelet.containers.netexec import HttpRequest
from devcluster.kubelet.lifecycle import PodLifecycle
from devcluster.kubelet.log_server import FindPod, FollowedLog, lines, log_lines
from devcluster.kubelet.pod_network import ConnectionRefused, ListeningProgram, PodNetwork
from devcluster.kubelet.streams import port_forward, upgrade
from devcluster.kubelet.streams.remote_command import (
    CommandStreams,
    RequestedStreams,
    RunCommand,
    SpdyCommand,
    WebSocketCommand,
)
from devcluster.kubelet.streams.upgrade import COMMAND_PROTOCOLS, FORWARD_CHANNELS, FORWARD_PROTOCOL
from multikueue.api.meta import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.serving.serve import ServingCertificate

MAX_SESSIONS: Final = 128
"""Concurrent streams of all pods of the cluster."""
_PLAIN: Final = "text/plain; charset=utf-8"
_LOOK_SECONDS: Final = 0.2


class KubeletApi:
    """Answers requests of the API server; a `wire.Handler`."""

    def __init__(self, find_pod: FindPod, network: PodNetwork, *, clock: Clock, caller: str) -> None:
        self._find_pod = find_pod
        self._network = network
        self._clock = clock
        self._caller = caller
        self._sessions = 0

    def certificate_user(self, certificate: bytes) -> User | None:
        """The user of a client certificate."""
        return certificate_user(certificate)

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """The answer to a request of the API server."""
        if request.certificate is None or request.certificate.name != self._caller:
            return _text(403, f"only {self._caller} may access the kubelet")
        match request.path.strip("/").split("/"):
            case ["containerLogs", namespace, pod, container]:
                return self._logs(request, Key(namespace, pod), container)
            case ["exec", namespace, pod, container]:
                return self._command(request, Key(namespace, pod), container, attach=False)
            case ["attach", namespace, pod, container]:
                return self._command(request, Key(namespace, pod), container, attach=True)
            case ["portForward", namespace, pod]:
                return self._forward(request, Key(namespace, pod))
            case ["podProxy", namespace, pod, port, *rest]:
                return self._proxy(request, Key(namespace, pod), port, rest)
        return _text(404, f"a virtual kubelet does not serve {request.path}")

    def _logs(self, request: Request, key: Key, container: str) -> Reply:
        found = self._find_pod(key)
        if found is None:
            return _text(404, f"pod {key} does not run on a virtual node of this cluster")
        try:
            return log_lines(FollowedLog(self._find_pod, key, container), request.query)
        except BadInput as error:
            return _text(400, str(error))

    def _command(self, request: Request, key: Key, container: str, *, attach: bool) -> Reply:
        found = self._running(key)
        if isinstance(found, Answer):
            return found
        pod, _ = found
        spec = next((entry for entry in pod["spec"]["containers"] if entry["name"] == container), None)
        if spec is None:
            return _text(404, f"pod {key} has no running container {container}")
        run = self._attached(key, container) if attach else self._execution(request, key, pod, spec)
        try:
            agreed = upgrade.agree(request.headers, websocket=COMMAND_PROTOCOLS, spdy=COMMAND_PROTOCOLS[1:])
        except upgrade.UpgradeRefused as error:
            return _text(400, str(error))
        if self._full():
            return _text(429, f"too many open streams: {MAX_SESSIONS}")
        kind = WebSocketCommand if agreed.kind == upgrade.WEBSOCKET else SpdyCommand
        return Tunnel(kind(agreed, RequestedStreams.of(request.query), run, ended=self._ended))

    def _execution(self, request: Request, key: Key, pod: JsonObject, container: JsonObject) -> RunCommand:
        arguments = [
            value for name, value in parse_qsl(request.query_text, keep_blank_values=True) if name == "command"
        ]

        async def run(streams: CommandStreams) -> CommandResult:
            context = CommandContext(
                key=key,
                pod=pod,
                container=container,
                network=self._network,
                now=self._clock.now,
                stdin=streams.stdin.read,
                write=streams.stdout,
            )
            return await run_command(arguments, context)

        return run

    def _attached(self, key: Key, container: str) -> RunCommand:
        async def run(streams: CommandStreams) -> CommandResult:
            """Write the container's output from now on, until it ends."""
            shown = 0
            while (found := self._find_pod(key)) is not None:
                output = lines(*found, container=container)
                for _, text in output[shown:]:
                    await streams.stdout(f"{text}\n".encode())
                shown = len(output)
                if not found[1].running:
                    return CommandResult(code=found[1].exit_code or 0)
                await anyio.sleep(_LOOK_SECONDS)
            return CommandResult()

        return run

    def _forward(self, request: Request, key: Key) -> Reply:
        found = self._running(key)
        if isinstance(found, Answer):
            return found
        known = (f"{upgrade.TUNNEL_PREFIX}{FORWARD_PROTOCOL}", FORWARD_CHANNELS)
        try:
            agreed = upgrade.agree(request.headers, websocket=known, spdy=(FORWARD_PROTOCOL,))
            tunnels = port_forward.tunnels(agreed)
            ports = [] if tunnels else port_forward.ports_of(request.query.get("port", ""))
        except (upgrade.UpgradeRefused, BadInput) as error:
            return _text(400, str(error))
        if self._full():
            return _text(429, f"too many open streams: {MAX_SESSIONS}")

        def open_port(port: int) -> PodHttp:
            return PodHttp(self._network, self._network.listener(key, port))

        if tunnels:
            return Tunnel(port_forward.SpdyForward(agreed, open_port, ended=self._ended))
        return Tunnel(port_forward.ChannelForward(agreed, open_port, ports, ended=self._ended))

    def _proxy(
        self, request: Request, key: Key, port: str, rest: list[str]
    ) -> Reply | Coroutine[object, object, Reply | None]:
        try:
            listener = self._network.listener(key, int(port) if port.isdecimal() and len(port) < 6 else 0)
        except ConnectionRefused as error:
            return _text(502, str(error))
        path = "/" + "/".join(rest) + ("/" if rest and request.path.endswith("/") else "")
        return PodHttp(self._network, listener).answer(request, path)

    def _running(self, key: Key) -> tuple[JsonObject, PodLifecycle] | Answer:
        found = self._find_pod(key)
        if found is None:
            return _text(404, f"pod {key} does not run on a virtual node of this cluster")
        if not found[1].running:
            return _text(400, f"container of pod {key} is not running")
        return found

    def _full(self) -> bool:
        if self._sessions >= MAX_SESSIONS:
            return True
        self._sessions += 1
        return False

    def _ended(self) -> None:
        self._sessions -= 1


class PodHttp:
    """The HTTP server of one program; a `wire.Handler`."""

    def __init__(self, network: PodNetwork, listener: ListeningProgram) -> None:
        self._network = network
        self._listener = listener

    def certificate_user(self, certificate: bytes) -> User | None:
        """None: programs of virtual pods do not use certificates."""
        return None

    def handle(self, request: Request) -> Coroutine[object, object, Reply | None]:
        """The program's answer; None cuts the connection."""
        return self.answer(request, request.path)

    async def answer(self, request: Request, path: str) -> Reply | None:
        """The program's answer for `path` instead of the request's path."""
        http_request = HttpRequest(
            method=request.method,
            path=path,
            query=request.query,
            client="127.0.0.1",
            headers=request.headers,
        )
        found = await self._network.ask(self._listener, http_request)
        if found is None:
            return None
        return Answer(found.status, found.body.encode(), _PLAIN, found.headers or {})


@asynccontextmanager
async def kubelet_server(api: KubeletApi, *, pem: bytes, ca: bytes) -> AsyncIterator[int]:
    """Serve with the certificate and key in `pem` inside the context; yields the port."""
    serving = ServingCertificate(pem)
    serving.context.load_verify_locations(cadata=ca.decode())
    serving.context.verify_mode = ssl.CERT_REQUIRED
    server = ConnectionServer(api)
    try:
        yield server.start("127.0.0.1", 0, context=serving.context, backlog=128)
    finally:
        await server.stop()


def _text(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode(), _PLAIN)
