# SPDX-License-Identifier: Apache-2.0
"""The embedded API server as a process of its own, with TLS, client certificates and a file for its data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devcluster import probes
from devcluster.cluster import API_SERVER, Cluster
from devcluster.pki import Authority, new_key, write_private
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.process import Process, ProcessSpec


@contextmanager
def embedded_cluster(folder: Path, *, arguments: Sequence[str] = ()) -> Iterator[Cluster]:
    """A cluster of that one process, not started yet; its port is given back at the end.

    `arguments` are further ones of the server.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.load_or_create(folder, name="embedded-ca")
    certificate, key = authority.serving("apiserver", hosts=[LOOPBACK]).write(folder, name="apiserver")
    signing = folder / "service-accounts.key"
    if not signing.exists():
        write_private(signing, new_key())
    with PortRegistry() as ports:
        port = ports.take()
        server = f"https://{LOOPBACK}:{port}"

        async def ready() -> bool:
            return await probes.answers_ok(f"{server}/readyz", ca=authority.certificate)

        command = [
            *(sys.executable, "-m", "devcluster.apiserver"),
            *("--port", str(port), "--signing-key", str(signing), "--data", str(folder / "data.sqlite")),
            *("--certificate", str(certificate), "--key", str(key), "--client-ca", str(folder / "ca.crt")),
            *arguments,
        ]
        spec = ProcessSpec(
            name=API_SERVER,
            arguments=command,
            folder=Path(__file__).parents[2],
            log=folder / "apiserver.log",
            ready=ready,
        )
        yield Cluster(name="embedded", folder=folder, server=server, authority=authority, components=[Process(spec)])
