# SPDX-License-Identifier: Apache-2.0
"""Release downloads are checked, and a site that is away is told at once."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Step
from devcluster.providers.binaries import download, release


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that looks like both release sites, and its address."""
    root = tmp_path / "site"
    binaries = root / release.KUBERNETES_VERSION / "bin" / "linux" / release.architecture()
    binaries.mkdir(parents=True)
    for program in release.KUBERNETES_PROGRAMS:
        content = f"this is {program}".encode()
        (binaries / program).write_bytes(content)
        (binaries / f"{program}.sha256").write_text(hashlib.sha256(content).hexdigest())
    bundle = f"etcd-{release.ETCD_VERSION}-linux-{release.architecture()}"
    etcd = root / release.ETCD_VERSION
    etcd.mkdir()
    with tarfile.open(etcd / f"{bundle}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{bundle}/etcd")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"etcd"))
    digest = hashlib.sha256((etcd / f"{bundle}.tar.gz").read_bytes()).hexdigest()
    (etcd / "SHA256SUMS").write_text(f"{digest}  {bundle}.tar.gz\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_program_arrives_and_can_be_run(site: tuple[Path, str], tmp_path: Path) -> None:
    _, address = site
    steps: list[Step] = []
    folder = tmp_path / "out"
    folder.mkdir()
    download.fetch(folder, steps.append, kubernetes_site=address, etcd_site=address)
    assert release.missing(folder) == []
    assert (folder / "etcd").read_bytes() == b"etcd"
    assert Step("downloading kubectl", 15, 15) in steps


def test_a_file_with_another_checksum_is_refused(site: tuple[Path, str], tmp_path: Path) -> None:
    root, address = site
    changed = next(root.rglob("kube-scheduler"))
    changed.write_bytes(b"something else")
    with pytest.raises(BinariesUnavailable, match=r"kube-scheduler: SHA-256 is"):
        download.fetch(tmp_path, lambda step: None, kubernetes_site=address, etcd_site=address)


def test_a_site_that_is_away_is_named(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    with pytest.raises(BinariesUnavailable, match=f"{nowhere}/.*Connection refused"):
        download.fetch(tmp_path, lambda step: None, kubernetes_site=nowhere, etcd_site=nowhere)
