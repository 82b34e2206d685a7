# SPDX-License-Identifier: Apache-2.0
"""Our own programs that a federation runs, by the name that `python -m` takes.

Owns what a fork server imports for them, in the order in which a federation needs it. Imports none of them, so that a
fork server can be on its way before its owner has imported anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from multikueue.devcluster.processes.forkserver import ForkServer

EMBEDDED: Final = "multikueue.devcluster.embedded"
NODES: Final = "multikueue.devcluster.nodes"
MANAGER: Final = "manager"
AGENT: Final = "worker_agent"
_CLUSTER: Final = (f"{EMBEDDED}.__main__", f"{EMBEDDED}.warming:warm", "multikueue.devcluster.controllers.app")
_OTHERS: Final = (f"{NODES}.__main__", f"{MANAGER}.__main__", f"{AGENT}.__main__")


def fork_server(folder: Path, *, provider: str) -> ForkServer:
    """A fork server for a federation in that folder, not started yet."""
    own_clusters = EMBEDDED.endswith(f".{provider}")
    return ForkServer([*(_CLUSTER if own_clusters else ()), *_OTHERS], log=folder / "logs" / "fork-server.log")
