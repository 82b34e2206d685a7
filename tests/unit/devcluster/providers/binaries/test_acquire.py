# SPDX-License-Identifier: Apache-2.0
"""Where the binaries come from, in which order, and that nobody ever sees half of them."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Progress, Step
from devcluster.providers.binaries import acquire, release
from devcluster.providers.binaries.acquire import Source


def fill(folder: Path, *, without: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program in release.PROGRAMS:
        if program != without:
            (folder / program).touch(mode=0o755)


def source(calls: list[str], name: str, *, problem: str = "") -> Source:
    def make(folder: Path, progress: Progress) -> None:
        calls.append(name)
        if problem:
            (folder / release.ETCD).touch(mode=0o755)
            raise BinariesUnavailable(problem)
        fill(folder)

    return make


def test_assets_that_the_environment_names_win(tmp_path: Path) -> None:
    fill(tmp_path / "assets")
    found = acquire.acquire(environment={"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}, cache=tmp_path, sources=[])
    assert found.folder == tmp_path / "assets"


def test_assets_that_lack_a_program_are_an_error_that_names_it(tmp_path: Path) -> None:
    fill(tmp_path / "assets", without="kube-scheduler")
    with pytest.raises(BinariesUnavailable, match="lacks kube-scheduler"):
        acquire.acquire(environment={"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}, cache=tmp_path, sources=[])


def test_the_cache_is_used_before_anything_is_fetched(tmp_path: Path) -> None:
    fill(release.cache_folder(tmp_path))
    calls: list[str] = []
    acquire.acquire(environment={}, cache=tmp_path, sources=[source(calls, "download")])
    assert calls == []


def test_sources_are_tried_in_order_until_one_delivers(tmp_path: Path) -> None:
    calls: list[str] = []
    sources = [source(calls, "download", problem="no route"), source(calls, "build"), source(calls, "never")]
    found = acquire.acquire(environment={}, cache=tmp_path, sources=sources)
    assert calls == ["download", "build"]
    assert release.missing(found.folder) == []


def test_when_all_sources_fail_each_reason_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    calls: list[str] = []
    sources = [source(calls, "a", problem="no route to dl.k8s.io"), source(calls, "b", problem="install Go")]
    with pytest.raises(BinariesUnavailable, match=r"(?s)no route to dl.k8s.io.*install Go"):
        acquire.acquire(environment={}, cache=tmp_path, sources=sources)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    fill(release.cache_folder(tmp_path), without="kubectl")
    calls: list[str] = []
    acquire.acquire(environment={}, cache=tmp_path, sources=[source(calls, "build")])
    assert calls == ["build"]


def test_of_two_processes_that_need_the_binaries_one_makes_them(tmp_path: Path) -> None:
    script = f"""
import time
from pathlib import Path
from devcluster.providers.binaries import acquire, release
def make(folder, progress):
    time.sleep(0.3)
    for program in release.PROGRAMS:
        (folder / program).touch(mode=0o755)
    print("made")
acquire.acquire(environment={{}}, cache=Path({str(tmp_path)!r}), sources=[make])
"""
    children = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    output = "".join(child.communicate()[0] for child in children)
    assert [child.returncode for child in children] == [0, 0, 0]
    assert output == "made\n"


def test_the_build_pins_what_the_provider_expects() -> None:
    text = (Path(__file__).parents[5] / "hack" / "kube" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {release.KUBERNETES_VERSION}" in text
    assert f"go.etcd.io/etcd/server/v3 {release.ETCD_VERSION}" in text


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
    acquire.fetch(folder, steps.append, kubernetes_site=address, etcd_site=address)
    assert release.missing(folder) == []
    assert (folder / "etcd").read_bytes() == b"etcd"
    assert Step("downloading kubectl", 15, 15) in steps


def test_a_file_with_another_checksum_is_refused(site: tuple[Path, str], tmp_path: Path) -> None:
    root, address = site
    changed = next(root.rglob("kube-scheduler"))
    changed.write_bytes(b"something else")
    with pytest.raises(BinariesUnavailable, match=r"kube-scheduler: SHA-256 is"):
        acquire.fetch(tmp_path, lambda step: None, kubernetes_site=address, etcd_site=address)


def test_a_site_that_is_away_is_named(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    with pytest.raises(BinariesUnavailable, match=f"{nowhere}/.*Connection refused"):
        acquire.fetch(tmp_path, lambda step: None, kubernetes_site=nowhere, etcd_site=nowhere)
