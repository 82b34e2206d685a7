# SPDX-License-Identifier: Apache-2.0
"""Finds or obtains the binaries: $KUBEBUILDER_ASSETS, the cache, the official downloads, or a build with Go.

The cache folder is complete or absent (a temporary folder is renamed into place); of two concurrent processes one fills
it and the other waits. All functions block; an event loop calls them in a thread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Progress, Step, ignore_progress
from devcluster.providers.binaries import build, download, release
from devcluster.providers.binaries.release import Binaries

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"

Source: TypeAlias = Callable[[Path, Progress], None]
"""Puts all programs into a folder, or raises `BinariesUnavailable` with the reason."""
SOURCES: Final[Sequence[Source]] = (download.fetch, build.build)


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
