# SPDX-License-Identifier: Apache-2.0
"""Reserves TCP ports of the loopback interface.

A lock on a small file of the user holds a port for the lifetime of the `PortRegistry`, so that two federations never
choose the same port. A component keeps its port when it or its federation restarts: kubeconfigs stay valid. Ports are
below the kernel's ephemeral range, so outgoing connections do not use them. A port on which another server listens is
not chosen.
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

from devcluster.errors import DevclusterError
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned

LOOPBACK: Final = "127.0.0.1"
SERVICE_RANGE: Final = "10.96.0.0/16"
"""The addresses of Services, behind which nothing listens."""
SERVICE_ADDRESS: Final = "10.96.0.1"
"""The address of the Service `kubernetes`."""
_FIRST, _LAST = 18000, 31999  # below 32768, where Linux starts to hand out ports of outgoing connections
_TRIES: Final = 500


class PortRegistry:
    """The ports that one owner holds. A context manager; `close` releases them and may be called twice."""

    def __init__(self, *, folder: Path | None = None, choice: random.Random | None = None) -> None:
        self._folder = folder or _lock_folder()
        self._random = choice or random.SystemRandom()
        self._locks: dict[int, int] = {}

    def take(self, *, kept_in: Path | None = None) -> int:
        """Hold a port on which no server listens. Raises `DevclusterError` if there is none.

        With `kept_in`, the port in that file is preferred, and the port that was taken is written there.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            # In a shared temporary folder another user may have created it first to redirect our writes.
            raise DevclusterError(f"{self._folder} belongs to another user; set XDG_RUNTIME_DIR to your own folder")
        kept = _kept_port(kept_in)
        if kept is not None and kept not in self._locks and self._hold(kept):
            return kept
        port = self._take_any()
        if kept_in is not None:
            kept_in.parent.mkdir(parents=True, exist_ok=True)
            kept_in.write_text(f"{port}\n")
        return port

    def _take_any(self) -> int:
        for _ in range(_TRIES):
            port = self._random.randint(_FIRST, _LAST)
            if port not in self._locks and self._hold(port):
                return port
        raise DevclusterError(f"no free port of {LOOPBACK} between {_FIRST} and {_LAST} after {_TRIES} tries")

    def release(self, port: int) -> None:
        """Release the port; no effect if it is not held."""
        lock = self._locks.pop(port, None)
        if lock is not None:
            os.close(lock)

    def close(self) -> None:
        """Release all ports."""
        for port in tuple(self._locks):
            self.release(port)

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


def _kept_port(file: Path | None) -> int | None:
    """The port that an earlier run wrote; None if there is none or it is out of range."""
    try:
        port = parse_unsigned(file.read_text().strip() if file is not None else "", field="port", maximum=_LAST)
    except (FileNotFoundError, BadInput):
        return None
    return port if port >= _FIRST else None


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this too; without it a port with connections in TIME_WAIT would seem in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _lock_folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"multikueue-ports-{os.getuid()}"
