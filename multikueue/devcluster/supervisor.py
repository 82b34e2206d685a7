# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.supervisor FOLDER`: owns a federation that outlives the command that started it.

Reads `spec.json` in the folder, brings the federation up, keeps it running, tells its state, and ends it on SIGTERM.
When it is killed the kernel ends everything it started. Nothing talks to it but signals and files. Imports little
before its fork server is on its way: `mkctl up` waits for both.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from multikueue.core.errors import MultikueueError
from multikueue.devcluster import programs, state
from multikueue.devcluster.processes.forkserver import ForkServer

log = logging.getLogger(__name__)

_SPEC: Final = "spec.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSpec:
    """What `mkctl up` asks for."""

    name: str
    provider: str
    workers: int
    nodes: int

    def write(self, folder: Path) -> None:
        """Leave it for the supervisor."""
        values = {"name": self.name, "provider": self.provider, "workers": self.workers, "nodes": self.nodes}
        (folder / _SPEC).write_bytes(orjson.dumps(values))

    @classmethod
    def read(cls, folder: Path) -> SupervisedSpec:
        """What was left."""
        return cls(**orjson.loads((folder / _SPEC).read_bytes()))


def main() -> int:
    """Supervise the federation of a folder."""
    parser = argparse.ArgumentParser(description="owns a federation of local clusters")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
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
    # Imported beside the fork server's own imports.
    import anyio

    from multikueue.devcluster.supervision import Supervisor

    return anyio.run(Supervisor(folder, spec, forks=forks).run)


if __name__ == "__main__":
    sys.exit(main())
