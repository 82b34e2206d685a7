# SPDX-License-Identifier: Apache-2.0
"""Builds the control plane with Go from the sources of the module proxy.

Owns the location of the Go module (`hack/kube` of a checkout, or its copy in an installed package), the version stamps
without which the programs report v0.0.0-master, and progress, counted by compiled packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Progress, Step
from devcluster.providers.binaries import release

_PACKAGES: Final = tuple(f"k8s.io/kubernetes/cmd/{program}" for program in release.KUBERNETES_PROGRAMS)
_ETCD_PACKAGE: Final = "go.etcd.io/etcd/server/v3"
_STAMPED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_USUAL_GO: Final = "/usr/local/go/bin/go"  # the installer's location, often missing in PATH
_MIN_GO: Final = (1, 21)  # the first that downloads the toolchain required by go.mod
_MODULE_FOLDERS: Final = (
    Path(__file__).parents[3] / "hack" / "kube",
    Path(__file__).parents[2] / "kube",
)


def build(folder: Path, progress: Progress) -> None:
    """Build every program into the folder. Raises `BinariesUnavailable` that says what to install."""
    go = find_go()
    module = _module()
    progress(Step("listing the packages to build"))
    packages = _packages(go, module, progress)
    _compile(go, module, ["-ldflags", f"-s -w {_stamps()}", "-o", f"{folder}/", *_PACKAGES], packages, progress)
    _compile(go, module, ["-ldflags", "-s -w", "-o", str(folder / release.ETCD), _ETCD_PACKAGE], packages, progress)


def find_go() -> str:
    """The path of Go. Raises `BinariesUnavailable` that says what to install."""
    go = shutil.which("go") or shutil.which(_USUAL_GO)
    if go is None:
        raise BinariesUnavailable("build: Go is not installed; install Go 1.26 or newer from https://go.dev/dl")
    text = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < _MIN_GO:
        raise BinariesUnavailable(f"build: {go} is {text.strip() or 'broken'}; install Go 1.26 or newer")
    return go


def _module() -> Path:
    for folder in _MODULE_FOLDERS:
        if (folder / "go.mod").exists():
            return folder
    raise BinariesUnavailable(f"build: no go.mod in {' or '.join(map(str, _MODULE_FOLDERS))}")


def _stamps() -> str:
    major, minor, _ = release.KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {
        "gitVersion": release.KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "multikueue",
        "gitTreeState": "clean",
        "buildDate": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return " ".join(f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items())


def _compile(go: str, module: Path, arguments: list[str], packages: list[str], progress: Progress) -> None:
    waiting = set(packages)
    command = [go, "build", "-v", "-trimpath", *arguments]
    progress(Step("building the control plane with Go (minutes the first time)", 0, len(packages)))
    with subprocess.Popen(
        command, cwd=module, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        last: list[str] = []
        for line in _lines(child.stdout):
            waiting.discard(line)
            last = [*last[-14:], line]
            what = line if line.startswith("go: downloading") else f"compiling {line}"
            progress(Step(f"building the control plane with Go: {what}", len(packages) - len(waiting), len(packages)))
    if child.returncode != 0:
        text = "\n    ".join(last)
        raise BinariesUnavailable(f"build: `{' '.join(command[:3])} …` in {module} failed:\n    {text}")


def _lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None  # opened with PIPE
    for line in stream:
        if line.strip():
            yield line.strip()


def _packages(go: str, module: Path, progress: Progress) -> list[str]:
    """All packages of the programs; downloads modules that are not in the module cache."""
    command = [go, "list", "-deps", *_PACKAGES, _ETCD_PACKAGE]
    with tempfile.TemporaryFile("w+") as listed:
        with subprocess.Popen(
            command, cwd=module, env=_environment(), stdout=listed, stderr=subprocess.PIPE, text=True
        ) as child:
            last: list[str] = []
            for line in _lines(child.stderr):
                last = [*last[-4:], line]
                progress(Step(f"fetching sources: {line}"))
        if child.returncode != 0:
            text = "\n    ".join(last)
            raise BinariesUnavailable(
                f"build: `go list` in {module} failed; is the Go module proxy reachable?\n    {text}"
            )
        listed.seek(0)
        return listed.read().split()


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
