# SPDX-License-Identifier: Apache-2.0
"""The memory of TLS connections."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from typing import Final

BUFFER_BYTES: Final = 64 * 1024
"""A record has 16 KiB at most; with 32 KiB large answers take a tenth more CPU time."""


def limit_tls_buffers() -> None:
    """Give each TLS connection of this process 64 KiB to read into, instead of asyncio's 256.

    asyncio fills the buffer with zeros, so that all of it counts as memory of the process, for idle connections too:
    an API server keeps dozens to a webhook, and each agent has several to its hub.
    """
    SSLProtocol.max_size = BUFFER_BYTES
