# SPDX-License-Identifier: Apache-2.0
"""What is asked of docker and of pytest-kind, as protocols, so that a test needs neither.

Owns finding out whether kind can be used here, and the commands on the one container of a cluster. The package is
looked up when it is needed and only then: it is not among our dependencies.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, cast

from multikueue.devcluster.errors import DevclusterError

_ANSWER_SECONDS: Final = 60.0


class KindUnavailable(DevclusterError):
    """Kind cannot be used on this machine; the message says what is missing."""


class KindCluster(Protocol):
    """As much of `pytest_kind.KindCluster` as we use."""

    def create(self) -> None:
        """Make it; returns when its API server is ready, and at once when it is there."""

    def delete(self) -> None:
        """Remove it."""

    @property
    def kubeconfig_path(self) -> object:
        """The administrator's kubeconfig."""


MakeCluster = Callable[[str], KindCluster]
Docker = Callable[..., bytes]
"""Runs `docker` with arguments; what it prints."""


def docker(*arguments: str) -> bytes:
    """Run docker. Raises `DevclusterError` with what it says when it fails."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevclusterError(f"docker {arguments[0]}: {error}") from error
    if done.returncode != 0:
        raise DevclusterError(f"docker {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def find(*, run: Docker = docker) -> MakeCluster:
    """What makes kind clusters here. Raises `KindUnavailable`."""
    if shutil.which("docker") is None:
        raise KindUnavailable("no docker here, which kind needs; --mk-provider embedded needs nothing")
    try:
        run("version", "--format", "{{.Server.Version}}")
    except DevclusterError as error:
        raise KindUnavailable(f"docker is installed and does not answer: {error}") from error
    if find_spec("pytest_kind") is None:
        raise KindUnavailable("pytest-kind is not installed: pip install --group e2e")
    return cast(MakeCluster, import_module("pytest_kind").KindCluster)
