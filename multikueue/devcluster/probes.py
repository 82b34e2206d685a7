# SPDX-License-Identifier: Apache-2.0
"""Questions to a server that may not be there yet: does it listen, does it say that it is ready?

A probe answers True or False and never raises for a server that is down, slow or half-started. It uses no `KubeClient`:
that one retries, which is what a probe must not do.
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
    """Whether GET answers 200; `ca` is the PEM that vouches for an https server."""
    if not _listens(url):  # before a TLS context is made: while a server starts, nearly all answers come from here
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
    """Whether somebody listens on a Unix socket; its path may be longer than the kernel's limit of 107 bytes."""
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
