# SPDX-License-Identifier: Apache-2.0
"""Fills the caches of the embedded API server before servers are forked.

Kinds, schemas and printer columns are equal in all servers; they are cached when a process creates its first server.
"""

from __future__ import annotations

from devcluster.apiserver.server import ApiServer
from devcluster.pki import new_key


def warm() -> None:
    """Create a server to fill the caches; it is not started."""
    ApiServer(signing_key=new_key())
