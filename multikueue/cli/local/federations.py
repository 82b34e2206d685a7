# SPDX-License-Identifier: Apache-2.0
"""The local federations of this user: their folders, and starting and stopping their supervisors.

Each federation has a folder under $XDG_STATE_HOME/multikueue. Imports nothing heavy.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from devcluster.federation import state
from devcluster.federation.state import FederationPhase, FederationState
from devcluster.progress import Progress, Step
from multikueue.core.errors import BadInput, MultikueueError

DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_POLL_SECONDS: Final = 0.05
_DOWN_SECONDS: Final = 40.0


def root() -> Path:
    """The folder of all federations."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "multikueue"


def folder_of(name: str) -> Path:
    """The folder of one federation. Raises `BadInput` for a name that is not valid in paths and host names."""
    if _NAME.fullmatch(name) is None:
        raise BadInput(f"{name!r} is not a valid federation name: use at most 40 lower-case letters, digits and dashes")
    return root() / name


def names() -> list[str]:
    """The federations that have a folder with a state."""
    if not root().is_dir():
        return []
    return sorted(folder.name for folder in root().iterdir() if FederationState.read(folder) is not None)


def existing(name: str) -> FederationState:
    """The state of a federation. Raises `BadInput` if it does not exist."""
    found = FederationState.read(folder_of(name))
    if found is None:
        others = ", ".join(names())
        hint = f"existing federations: {others}" if others else "create one with `mkctl up`"
        raise BadInput(f"federation {name!r} does not exist; {hint}")
    return found


def start_supervisor(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that runs the federation; it survives this one."""
    with (folder / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "devcluster.federation.supervisor", str(folder)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def follow(folder: Path, supervisor: subprocess.Popen[bytes], progress: Progress) -> FederationState:
    """Show progress until the federation is up and return its state. Raises `MultikueueError` if it fails."""
    shown = ""
    while True:
        found = FederationState.read(folder)
        ended = supervisor.poll() is not None
        if found is not None and found.supervisor == supervisor.pid:
            if found.phase is FederationPhase.UP:
                return found
            if found.phase in (FederationPhase.FAILED, FederationPhase.DOWN):
                raise MultikueueError(found.error or "the federation was stopped while it started")
            if found.step != shown:
                shown = found.step
                progress(Step(shown))
        if ended:
            raise MultikueueError(f"supervisor exited with status {supervisor.returncode}; see {folder}/supervisor.log")
        time.sleep(_POLL_SECONDS)


def end(folder: Path) -> None:
    """Stop the federation's supervisor and wait for it. Raises `MultikueueError` if it does not exit."""
    found = FederationState.read(folder)
    if found is None or not state.is_supervised(folder):
        return
    os.kill(found.supervisor, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while state.is_supervised(folder):
        if time.monotonic() > deadline:
            os.kill(found.supervisor, signal.SIGKILL)  # the kernel kills its child processes
            raise MultikueueError(
                f"supervisor {found.supervisor} did not exit within {_DOWN_SECONDS:.0f} s and was killed"
            )
        time.sleep(_POLL_SECONDS)


def forget(folder: Path) -> None:
    """Delete the federation's data and logs."""
    shutil.rmtree(folder, ignore_errors=True)
