# SPDX-License-Identifier: Apache-2.0
"""Negotiates the upgrade of a request to streams: WebSocket or SPDY/3.1, and the protocol over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devcluster.kubelet.streams.websocket import accept_key
from multikueue.core.errors import MultikueueError

SPDY: Final = "SPDY/3.1"
WEBSOCKET: Final = "websocket"
TUNNEL_PREFIX: Final = "SPDY/3.1+"
COMMAND_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The protocols of exec and attach in order of preference; SPDY supports only the second."""
FORWARD_PROTOCOL: Final = "portforward.k8s.io"
FORWARD_CHANNELS: Final = "v4.channel.k8s.io"
_VERSION_HEADER: Final = "x-stream-protocol-version"


class UpgradeRefused(MultikueueError):
    """The client requests no upgrade, or no supported protocol."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The negotiated protocol."""

    kind: str
    """`websocket` or `SPDY/3.1`."""
    protocol: str
    head: bytes
    """The HTTP answer before the streams."""


def agree(headers: Mapping[str, str], *, websocket: Sequence[str], spdy: Sequence[str]) -> Upgrade:
    """The first of the server's protocols that the client supports. Raises `UpgradeRefused`."""
    wanted = headers.get("upgrade", "").lower()
    if "upgrade" not in headers.get("connection", "").lower() or wanted not in (WEBSOCKET, SPDY.lower()):
        raise UpgradeRefused("Upgrade request required")
    if wanted == WEBSOCKET:
        offered = _listed(headers.get("sec-websocket-protocol", ""))
        protocol = _best(websocket, offered)
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept_key(headers.get('sec-websocket-key', ''))}",
            f"Sec-WebSocket-Protocol: {protocol}",
        ]
        return Upgrade(WEBSOCKET, protocol, _head(lines))
    protocol = _best(spdy, _listed(headers.get(_VERSION_HEADER, "")))
    lines = ["HTTP/1.1 101 Switching Protocols", f"Upgrade: {SPDY}", "Connection: Upgrade"]
    return Upgrade(SPDY, protocol, _head([*lines, f"X-Stream-Protocol-Version: {protocol}"]))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _best(known: Sequence[str], offered: Sequence[str]) -> str:
    for protocol in known:
        if protocol in offered:
            return protocol
    raise UpgradeRefused(
        f"unable to upgrade: none of {', '.join(offered) or 'no protocol'} is one of {', '.join(known)}"
    )


def _head(lines: Sequence[str]) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode()
