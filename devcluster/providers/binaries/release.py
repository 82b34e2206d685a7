# SPDX-License-Identifier: Apache-2.0
"""The release of the control plane, and the cache folder of its binaries.

`hack/kube/go.mod` pins the same versions for the build; a test compares the two.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES_VERSION: Final = "v1.36.3"
ETCD_VERSION: Final = "v3.6.8"
ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBECTL: Final = "kubectl"
KUBERNETES_PROGRAMS: Final = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL)
PROGRAMS: Final = (ETCD, *KUBERNETES_PROGRAMS)
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with all programs."""

    folder: Path

    def path(self, program: str) -> Path:
        """The absolute path of a program."""
        return self.folder / program


def architecture() -> str:
    """The architecture of this machine in Go's spelling."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def cache_root() -> Path:
    """The folder with one folder of binaries per version and platform."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "multikueue" / "kube"


def cache_folder(root: Path | None = None) -> Path:
    """The folder of the binaries of our version for this platform."""
    return (root or cache_root()) / f"{KUBERNETES_VERSION}-linux-{architecture()}"


def missing(folder: Path) -> list[str]:
    """The programs that are missing in the folder or not executable."""
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
