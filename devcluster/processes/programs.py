# SPDX-License-Identifier: Apache-2.0
"""The Python modules that a federation runs as processes, and what the fork server imports for them.

The order is that in which a federation needs them. This module imports none of them, so that the fork server can start
before its owner imports anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from devcluster.processes.forkserver import ForkServer

EMBEDDED: Final = "devcluster.providers.embedded"
NODES: Final = "devcluster.kubelet"
MANAGER: Final = "manager"
AGENT: Final = "worker_agent"
_CLUSTER: Final = (f"{EMBEDDED}.__main__", f"{EMBEDDED}.warming:warm", "devcluster.controllers.app")
_OTHERS: Final = (f"{NODES}.__main__", f"{MANAGER}.__main__", f"{AGENT}.__main__")


def fork_server(folder: Path, *, provider: str) -> ForkServer:
    """A fork server for the federation in this folder, not started."""
    own_clusters = EMBEDDED.endswith(f".{provider}")
    return ForkServer([*(_CLUSTER if own_clusters else ()), *_OTHERS], log=folder / "logs" / "fork-server.log")
