# SPDX-License-Identifier: Apache-2.0
"""Finds or obtains the binaries: $KUBEBUILDER_ASSETS, the cache, the official downloads, or a build with Go.

The cache folder is complete or absent (a temporary folder is renamed into place); of two concurrent processes one fills
it and the other waits. A download is verified by its published SHA-256; its timeout is short: behind a firewall the
build should start without a long wait. All functions block; an event loop calls them in a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Progress, Step, ignore_progress
from devcluster.providers.binaries import build, release
from devcluster.providers.binaries.release import Binaries

KUBERNETES_SITE: Final = "https://dl.k8s.io/release"
ETCD_SITE: Final = "https://github.com/etcd-io/etcd/releases/download"
_TIMEOUT_SECONDS: Final = 4.0
_CHUNK: Final = 1 << 18
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
Source: TypeAlias = Callable[[Path, Progress], None]
"""Puts all programs into a folder, or raises `BinariesUnavailable` with the reason."""


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


SOURCES: Final[Sequence[Source]] = (fetch, build.build)


def find(*, environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Binaries | None:
    """The binaries on this machine; None if they have to be downloaded or built.

    Raises `BinariesUnavailable` if $KUBEBUILDER_ASSETS is set and lacks a program, rather than use other binaries than
    requested.
    """
    chosen = (os.environ if environment is None else environment).get(ASSETS_VARIABLE)
    if chosen:
        missing = release.missing(Path(chosen))
        if missing:
            raise BinariesUnavailable(
                f"${ASSETS_VARIABLE} is {chosen}, which lacks {', '.join(missing)}; "
                f"unset it, or put all of {', '.join(release.PROGRAMS)} there"
            )
        return Binaries(Path(chosen).resolve())
    folder = release.cache_folder(cache)
    return Binaries(folder) if not release.missing(folder) else None


def acquire(
    *,
    progress: Progress = ignore_progress,
    environment: Mapping[str, str] | None = None,
    cache: Path | None = None,
    sources: Sequence[Source] = SOURCES,
) -> Binaries:
    """The binaries, downloaded or built if necessary. Raises `BinariesUnavailable` with the reason of each source."""
    found = find(environment=environment, cache=cache)
    if found is not None:
        return found
    folder = release.cache_folder(cache)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock"), progress):
        if not release.missing(folder):  # the previous holder of the lock has filled it
            return Binaries(folder)
        _fill(folder, sources, progress)
    return Binaries(folder)


def _fill(folder: Path, sources: Sequence[Source], progress: Progress) -> None:
    reasons = []
    for source in sources:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            source(unfinished, progress)
            missing = release.missing(unfinished)
            if missing:
                raise BinariesUnavailable(f"{', '.join(missing)} missing after the download or build")
            if folder.exists():  # incomplete: damaged, or left by an older version
                shutil.rmtree(folder)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        except BinariesUnavailable as error:
            reasons.append(f"  - {error}")
        else:
            return
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    lines = "\n".join(reasons)
    raise BinariesUnavailable(f"the Kubernetes {release.KUBERNETES_VERSION} binaries are not available:\n{lines}")


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(Step("waiting for another process that downloads or builds the Kubernetes binaries"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
