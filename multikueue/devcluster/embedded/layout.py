# SPDX-License-Identifier: Apache-2.0
"""Where the files of one embedded cluster are, and which of them are made before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from multikueue.devcluster import cluster
from multikueue.devcluster.pki import Authority, new_key, write_private
from multikueue.devcluster.ports import LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of one cluster, and the port of its API server."""

    name: str
    folder: Path
    port: int

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{LOOPBACK}:{self.port}"

    @property
    def pki(self) -> Path:
        """The folder of keys and certificates."""
        return self.folder / "pki"

    @property
    def data(self) -> Path:
        """The database of its objects."""
        return self.folder / "objects.sqlite"

    @property
    def signing_key(self) -> Path:
        """The key of service-account tokens."""
        return self.pki / "service-accounts.key"

    @property
    def log(self) -> Path:
        """Where it logs."""
        return self.folder / "logs" / f"{cluster.API_SERVER}.log"


def prepare(layout: Layout, authority: Authority) -> None:
    """Write what is missing of the cluster's keys and certificates."""
    layout.log.parent.mkdir(parents=True, exist_ok=True)
    if not layout.signing_key.exists():
        write_private(layout.signing_key, new_key())
    if not (layout.pki / "apiserver.crt").exists():
        hosts = [LOOPBACK, "::1", "localhost", "kubernetes", "kubernetes.default.svc"]
        authority.serving("kube-apiserver", hosts=hosts).write(layout.pki, name="apiserver")
        authority.client(cluster.KUBELET_CLIENT).write(layout.pki, name="kubelet-client")
        authority.serving("kubelet", hosts=[LOOPBACK, "localhost"]).write(layout.pki, name="kubelet")
