# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig of all clusters, written to the file of `mkctl up --as-kind NAME --kubeconfig FILE`.

A file with other content than this federation wrote is never replaced or removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from devcluster.federation.spec import SupervisedSpec
from multikueue.core.errors import BadInput

_OWN: Final = "kubeconfig"


def check(spec: SupervisedSpec, folder: Path) -> None:
    """Raise `BadInput` if the file cannot be written or belongs to someone else."""
    if not spec.kubeconfig:
        return
    path = Path(spec.kubeconfig)
    if path.exists() and not _is_ours(path, folder):
        raise BadInput(f"--kubeconfig {path}: the file already exists; choose another file or remove it")
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"--kubeconfig {path}: folder {path.parent} does not exist or is not writable")


def write(spec: SupervisedSpec, folder: Path) -> None:
    """Write the file with mode 600."""
    if not spec.kubeconfig:
        return
    path = Path(spec.kubeconfig)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write((folder / _OWN).read_bytes())
    unfinished.replace(path)


def remove(folder: Path) -> None:
    """Remove the file of the federation if its content is unchanged."""
    try:
        spec = SupervisedSpec.read(folder)
    except (FileNotFoundError, BadInput):
        return  # it never started, or an older version created it, which wrote no such file
    if spec.kubeconfig and _is_ours(Path(spec.kubeconfig), folder):
        Path(spec.kubeconfig).unlink(missing_ok=True)


def _is_ours(path: Path, folder: Path) -> bool:
    try:
        return path.read_bytes() == (folder / _OWN).read_bytes()
    except OSError:
        return False
