# SPDX-License-Identifier: Apache-2.0
"""The file layout of one embedded cluster, and the files that are written before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import cluster
from devcluster.pki import Authority, new_key, write_private
from devcluster.ports import LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The paths of one cluster's files, and the port of its API server."""

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
        """The path of its log."""
        return self.folder / "logs" / f"{cluster.API_SERVER}.log"


def prepare(layout: Layout, authority: Authority, *, hosts: Sequence[str] = ()) -> None:
    """Write the cluster's missing keys and certificates."""
    layout.log.parent.mkdir(parents=True, exist_ok=True)
    if not layout.signing_key.exists():
        write_private(layout.signing_key, new_key())
    if not (layout.pki / "apiserver.crt").exists():
        names = [LOOPBACK, "::1", "localhost", "kubernetes", "kubernetes.default.svc", *hosts]
        authority.serving("kube-apiserver", hosts=names).write(layout.pki, name="apiserver")
        authority.client(cluster.KUBELET_CLIENT).write(layout.pki, name="kubelet-client")
        authority.serving("kubelet", hosts=[LOOPBACK, "localhost"]).write(layout.pki, name="kubelet")
