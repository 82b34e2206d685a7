# SPDX-License-Identifier: Apache-2.0
"""The federations of this user: their folders, and starting and ending their supervisors.

Each federation has a folder under $XDG_STATE_HOME/multikueue, so several stand side by side. Imports nothing heavy.
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

from multikueue.core.errors import BadInput, MultikueueError
from multikueue.devcluster import state
from multikueue.devcluster.progress import Progress, Step
from multikueue.devcluster.state import Phase, State

DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_POLL_SECONDS: Final = 0.05
_DOWN_SECONDS: Final = 40.0


def root() -> Path:
    """The folder of all federations."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "multikueue"


def folder_of(name: str) -> Path:
    """The folder of one federation. Raises `BadInput` for a name that could not be part of a path or a host name."""
    if _NAME.fullmatch(name) is None:
        raise BadInput(f"{name!r} is no name for a federation: lower-case letters, digits and dashes, at most 40")
    return root() / name


def names() -> list[str]:
    """The federations that have a folder with a state."""
    if not root().is_dir():
        return []
    return sorted(folder.name for folder in root().iterdir() if State.read(folder) is not None)


def existing(name: str) -> State:
    """The state of a federation. Raises `BadInput` that says how to make one when there is none."""
    found = State.read(folder_of(name))
    if found is None:
        others = ", ".join(names())
        hint = f"there are {others}" if others else "make one with `mkctl up`"
        raise BadInput(f"there is no federation {name!r}; {hint}")
    return found


def start_supervisor(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that will own the federation; it outlives us."""
    with (folder / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "multikueue.devcluster.supervisor", str(folder)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def follow(folder: Path, supervisor: subprocess.Popen[bytes], progress: Progress) -> State:
    """Show how the federation comes up; its state when it is up. Raises `MultikueueError` with the reason else."""
    shown = ""
    while True:
        found = State.read(folder)
        ended = supervisor.poll() is not None
        if found is not None and found.supervisor == supervisor.pid:
            if found.phase is Phase.UP:
                return found
            if found.phase in (Phase.FAILED, Phase.DOWN):
                raise MultikueueError(found.error or "it was ended while it came up")
            if found.step != shown:
                shown = found.step
                progress(Step(shown))
        if ended:
            raise MultikueueError(f"its supervisor ended with status {supervisor.returncode}: {folder}/supervisor.log")
        time.sleep(_POLL_SECONDS)


def end(folder: Path) -> None:
    """End the federation's supervisor and wait for it. Raises `MultikueueError` when it does not end."""
    found = State.read(folder)
    if found is None or not state.is_supervised(folder):
        return
    os.kill(found.supervisor, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while state.is_supervised(folder):
        if time.monotonic() > deadline:
            os.kill(found.supervisor, signal.SIGKILL)  # the kernel ends what it started
            raise MultikueueError(f"supervisor {found.supervisor} did not end in {_DOWN_SECONDS:.0f} s and was killed")
        time.sleep(_POLL_SECONDS)


def forget(folder: Path) -> None:
    """Remove the federation's data and logs."""
    shutil.rmtree(folder, ignore_errors=True)
