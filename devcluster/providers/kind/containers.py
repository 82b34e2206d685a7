# SPDX-License-Identifier: Apache-2.0
"""The interfaces of docker and pytest-kind as protocols, so that tests need neither.

Checks whether kind can be used on this machine. pytest-kind is imported on demand, as it is not a dependency.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, cast

from devcluster.errors import DevclusterError

_ANSWER_SECONDS: Final = 60.0


class KindUnavailable(DevclusterError):
    """Kind cannot be used on this machine; the message says what is missing."""


class KindCluster(Protocol):
    """The part of `pytest_kind.KindCluster` that we use."""

    def create(self) -> None:
        """Create it; returns when its API server is ready, at once if it exists."""

    def delete(self) -> None:
        """Delete it."""

    @property
    def kubeconfig_path(self) -> object:
        """The administrator's kubeconfig."""


MakeCluster = Callable[[str], KindCluster]
Docker = Callable[..., bytes]
"""Runs `docker` with arguments and returns its output."""


def docker(*arguments: str) -> bytes:
    """Run docker. Raises `DevclusterError` with its error output."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevclusterError(f"docker {arguments[0]}: {error}") from error
    if done.returncode != 0:
        raise DevclusterError(f"docker {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def find(*, run: Docker = docker) -> MakeCluster:
    """The factory of kind clusters. Raises `KindUnavailable`."""
    if shutil.which("docker") is None:
        raise KindUnavailable("docker is not installed, which kind needs; use --mk-provider embedded")
    try:
        run("version", "--format", "{{.Server.Version}}")
    except DevclusterError as error:
        raise KindUnavailable(f"docker is installed but does not answer: {error}") from error
    if find_spec("pytest_kind") is None:
        raise KindUnavailable("pytest-kind is not installed: pip install --group e2e")
    return cast(MakeCluster, import_module("pytest_kind").KindCluster)
