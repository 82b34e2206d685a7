# SPDX-License-Identifier: Apache-2.0
"""TCP ports of the loopback interface that nobody else takes between choosing and listening.

A port is held by a lock on a small file of the user's, for as long as the `PortRegistry` lives, so two federations
never choose the same one, and the same component can come back on its port after a restart. Ports come from below the
kernel's ephemeral range, so no outgoing connection of anyone sits on them. A foreign server that listens at a fixed
port in that range is seen when the port is chosen.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from multikueue.devcluster.errors import DevclusterError

LOOPBACK: Final = "127.0.0.1"
_FIRST, _LAST = 18000, 31999  # below 32768, where Linux starts to hand out ports of outgoing connections
_TRIES: Final = 500


class PortRegistry:
    """The ports that one owner holds; a context manager, and `close` gives them back. Closing twice is harmless."""

    def __init__(self, *, folder: Path | None = None, choice: random.Random | None = None) -> None:
        self._folder = folder or _lock_folder()
        self._random = choice or random.SystemRandom()
        self._locks: dict[int, int] = {}

    def take(self) -> int:
        """Hold a port that nothing listens on. Raises `DevclusterError` when none can be found."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            # In a shared folder for temporary files anybody may have made it first, to have us write where they like.
            raise DevclusterError(f"{self._folder} belongs to somebody else; set XDG_RUNTIME_DIR to a folder of yours")
        for _ in range(_TRIES):
            port = self._random.randint(_FIRST, _LAST)
            if port not in self._locks and self._hold(port):
                return port
        raise DevclusterError(f"no free port of {LOOPBACK} between {_FIRST} and {_LAST} after {_TRIES} tries")

    def give_back(self, port: int) -> None:
        """Let others have the port; harmless when it is not held."""
        lock = self._locks.pop(port, None)
        if lock is not None:
            os.close(lock)

    def close(self) -> None:
        """Give all ports back."""
        for port in tuple(self._locks):
            self.give_back(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self, port: int) -> bool:
        lock = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        if not _free(port):
            os.close(lock)
            return False
        self._locks[port] = lock
        return True


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this too; without it a port whose last connections linger in TIME_WAIT would seem taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _lock_folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"multikueue-ports-{os.getuid()}"
