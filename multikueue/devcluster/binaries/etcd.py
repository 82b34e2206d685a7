# SPDX-License-Identifier: Apache-2.0
"""One etcd, which holds the data of all clusters of a provider under a prefix each.

It listens on Unix sockets in its folder, so it takes no port and only its owner can reach it. Without fsync: data
survive any process, but not the machine, and a devcluster starts in a third of the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from multikueue.devcluster import probes
from multikueue.devcluster.binaries import release
from multikueue.devcluster.binaries.release import Binaries
from multikueue.devcluster.processes.process import ProcessSpec

SERVERS: Final = "unix://client.sock:1"
"""What an API server with etcd's folder as its working directory takes as `--etcd-servers`."""
_SOCKET: Final = "client.sock:1"
_PEER: Final = "unix://peer.sock:1"
_QUOTA_BYTES: Final = 8 << 30  # a benchmark writes more than the default 2 GiB between two compactions


def spec(binaries: Binaries, *, folder: Path, log: Path) -> ProcessSpec:
    """How etcd runs with its data and sockets in `folder`, which exists."""

    async def ready() -> bool:
        return probes.accepts(folder / _SOCKET)

    return ProcessSpec(
        name=release.ETCD,
        arguments=[
            str(binaries.path(release.ETCD)),
            "--name=devcluster",
            f"--data-dir={folder / 'data'}",
            f"--listen-client-urls={SERVERS}",
            # Nobody connects to what is advertised: the one client knows the socket, and there is no other member.
            "--advertise-client-urls=http://localhost:1",
            f"--listen-peer-urls={_PEER}",
            "--initial-advertise-peer-urls=http://localhost:2",
            "--initial-cluster=devcluster=http://localhost:2",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
            "--log-level=warn",
        ],
        folder=folder,
        log=log,
        ready=ready,
    )
