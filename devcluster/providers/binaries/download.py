# SPDX-License-Identifier: Apache-2.0
"""Downloads the official releases and verifies their published SHA-256.

The timeout is short: behind a firewall the build should start without a long wait.
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Progress, Step
from devcluster.providers.binaries import release

KUBERNETES_SITE: Final = "https://dl.k8s.io/release"
ETCD_SITE: Final = "https://github.com/etcd-io/etcd/releases/download"
_TIMEOUT_SECONDS: Final = 4.0
_CHUNK: Final = 1 << 18


def fetch(
    folder: Path, progress: Progress, *, kubernetes_site: str = KUBERNETES_SITE, etcd_site: str = ETCD_SITE
) -> None:
    """Download every program into the folder. Raises `BinariesUnavailable` with the address that failed."""
    machine = release.architecture()
    progress(Step(f"looking for the release downloads at {kubernetes_site}"))
    for program in release.KUBERNETES_PROGRAMS:
        address = f"{kubernetes_site}/{release.KUBERNETES_VERSION}/bin/linux/{machine}/{program}"
        expected = _text(f"{address}.sha256").split()[0]
        _download(address, folder / program, expected=expected, progress=progress)
        (folder / program).chmod(0o755)
    bundle = f"etcd-{release.ETCD_VERSION}-linux-{machine}"
    base = f"{etcd_site}/{release.ETCD_VERSION}"
    lines = [line.split() for line in _text(f"{base}/SHA256SUMS").splitlines()]
    sums = {line[1]: line[0] for line in lines if len(line) == 2}
    archive = folder / f"{bundle}.tar.gz"
    expected = sums.get(archive.name, "")
    _download(f"{base}/{archive.name}", archive, expected=expected, progress=progress)
    with tarfile.open(archive) as members:
        inner = members.extractfile(f"{bundle}/{release.ETCD}")
        if inner is None:
            raise BinariesUnavailable(f"{archive.name} does not contain etcd")
        (folder / release.ETCD).write_bytes(inner.read())
    (folder / release.ETCD).chmod(0o755)
    archive.unlink()


def _text(address: str) -> str:
    return b"".join(_read(address)).decode()


def _download(address: str, target: Path, *, expected: str, progress: Progress) -> None:
    digest = hashlib.sha256()
    done = 0
    total: int | None = None
    with target.open("wb") as file:
        for chunk in _read(address, length := ContentLength()):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            total = length.total
            progress(Step(f"downloading {target.name}", done, total))
    if digest.hexdigest() != expected:
        raise BinariesUnavailable(f"{address}: SHA-256 is {digest.hexdigest()}, expected {expected!r}")


class ContentLength:
    """The length of a download in bytes, once it is known."""

    total: int | None = None


def _read(address: str, length: ContentLength | None = None) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as answer:
            if length is not None and answer.headers.get("Content-Length"):
                length.total = int(answer.headers["Content-Length"])
            while chunk := answer.read(_CHUNK):
                yield chunk
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise BinariesUnavailable(f"download: {address}: {reason}") from error
