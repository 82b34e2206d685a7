# SPDX-License-Identifier: Apache-2.0
"""Readiness probes of servers that may not run yet.

A probe returns True or False and does not raise if the server is down, slow or starting. It does not use `KubeClient`,
which retries.
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

_TIMEOUT: Final = aiohttp.ClientTimeout(total=2.0)


async def answers_ok(url: str, *, ca: bytes | None = None) -> bool:
    """Whether GET answers 200; `ca` is the PEM of the CA of an https server."""
    if not _listens(url):  # first, as a TLS context is expensive and most probes end here
        return False
    context = ssl.create_default_context(cadata=ca.decode()) if ca is not None else False
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session, session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return parts.hostname is not None and probe.connect_ex((parts.hostname, parts.port or 443)) == 0


def accepts(path: Path) -> bool:
    """Whether a server listens on a Unix socket; the path may exceed the kernel's limit of 107 bytes."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        return False
    finally:
        os.close(folder)
    return True
