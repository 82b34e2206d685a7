# SPDX-License-Identifier: Apache-2.0
"""Where the binaries come from: $KUBEBUILDER_ASSETS, our cache, the official downloads, or a build with Go.

Promises that the cache folder is complete or absent (a temporary folder is renamed into place), and that of two that
need it at the same time one makes it and the other waits. Everything here blocks; an event loop calls it in a thread.
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

from multikueue.devcluster.binaries import build, download, release
from multikueue.devcluster.binaries.release import Binaries
from multikueue.devcluster.errors import BinariesUnavailable
from multikueue.devcluster.progress import Progress, Step, silent

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"

Source: TypeAlias = Callable[[Path, Progress], None]
"""Puts all programs into a folder, or raises `BinariesUnavailable` with the reason."""
SOURCES: Final[Sequence[Source]] = (download.fetch, build.build)


def find(*, environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Binaries | None:
    """The binaries that are here already; None when they have to be made.

    Raises `BinariesUnavailable` when $KUBEBUILDER_ASSETS is set and lacks a program: silently running other binaries
    than the ones asked for would be worse.
    """
    chosen = (os.environ if environment is None else environment).get(ASSETS_VARIABLE)
    if chosen:
        lacking = release.missing(Path(chosen))
        if lacking:
            raise BinariesUnavailable(
                f"${ASSETS_VARIABLE} is {chosen}, which lacks {', '.join(lacking)}; "
                f"unset it, or put all of {', '.join(release.PROGRAMS)} there"
            )
        return Binaries(Path(chosen).resolve())
    folder = release.cache_folder(cache)
    return Binaries(folder) if not release.missing(folder) else None


def acquire(
    *,
    progress: Progress = silent,
    environment: Mapping[str, str] | None = None,
    cache: Path | None = None,
    sources: Sequence[Source] = SOURCES,
) -> Binaries:
    """The binaries, made first if need be. Raises `BinariesUnavailable` that says what each source lacked."""
    found = find(environment=environment, cache=cache)
    if found is not None:
        return found
    folder = release.cache_folder(cache)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock"), progress):
        if not release.missing(folder):  # whoever held the lock has made them
            return Binaries(folder)
        _fill(folder, sources, progress)
    return Binaries(folder)


def _fill(folder: Path, sources: Sequence[Source], progress: Progress) -> None:
    reasons = []
    for source in sources:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            source(unfinished, progress)
            lacking = release.missing(unfinished)
            if lacking:
                raise BinariesUnavailable(f"{', '.join(lacking)} did not arrive")
            if folder.exists():  # left by a version that wrote in place, or damaged since
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
    raise BinariesUnavailable(f"the Kubernetes {release.KUBERNETES_VERSION} binaries cannot be had:\n{lines}")


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(Step("waiting for another process that is making the Kubernetes binaries"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
