# SPDX-License-Identifier: Apache-2.0
"""The command line of etcd, which stores the data of all clusters of a provider under one prefix each.

It listens on Unix sockets in its folder: no port, and access only for its owner. Without fsync data survives the crash
of a process but not of the machine, and a devcluster starts in a third of the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from devcluster import probes
from devcluster.processes.process import ProcessSpec
from devcluster.providers.binaries import release
from devcluster.providers.binaries.release import Binaries

SERVERS: Final = "unix://client.sock:1"
"""`--etcd-servers` of an API server whose working directory is etcd's folder."""
SOCKET: Final = "client.sock:1"
"""Its file in etcd's folder."""
_PEER: Final = "unix://peer.sock:1"
_QUOTA_BYTES: Final = 8 << 30  # a benchmark writes more than the default of 2 GiB between two compactions


def spec(binaries: Binaries, *, folder: Path, log: Path) -> ProcessSpec:
    """etcd with its data and sockets in the existing `folder`."""

    async def ready() -> bool:
        return probes.accepts(folder / SOCKET)

    return ProcessSpec(
        name=release.ETCD,
        arguments=[
            str(binaries.path(release.ETCD)),
            "--name=devcluster",
            f"--data-dir={folder / 'data'}",
            f"--listen-client-urls={SERVERS}",
            # No client uses the advertised URLs: the API server uses the socket, and there is no other member.
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
