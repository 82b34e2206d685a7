# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.federation.supervisor FOLDER`: runs a federation in the background.

Reads `spec.json` in the folder, starts the federation, keeps it running, writes its state, and stops it on SIGTERM. If
it is killed, the kernel kills everything it started. It is controlled by signals and files only. Imports few modules
before it starts the fork server, as `mkctl up` waits for both.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from devcluster.federation import state
from devcluster.federation.spec import SupervisedSpec
from devcluster.processes import programs
from devcluster.processes.forkserver import ForkServer
from multikueue.core.errors import MultikueueError
from multikueue.core.log_lines import log_to_stderr

log = logging.getLogger(__name__)


def main() -> int:
    """Supervise the federation of a folder."""
    parser = argparse.ArgumentParser(description="Runs a federation of local clusters in the background.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    log_to_stderr()
    try:
        with state.supervising(folder):
            spec = SupervisedSpec.read(folder)
            forks = programs.fork_server(folder, provider=spec.provider)
            forks.start()
            return _supervise(folder, spec, forks)
    except MultikueueError as error:
        log.error("%s", error)
        return 2


def _supervise(folder: Path, spec: SupervisedSpec, forks: ForkServer) -> int:
    # Imported while the fork server imports.
    import anyio

    from devcluster.federation.supervision import FederationSupervisor

    return anyio.run(FederationSupervisor(folder, spec, forks=forks).run)


if __name__ == "__main__":
    sys.exit(main())
