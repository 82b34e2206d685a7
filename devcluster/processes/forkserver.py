# SPDX-License-Identifier: Apache-2.0
"""Starts Python processes as forks of a server that has imported their modules.

Owns the server process and the protocol (`forking.py` is the server side). A forked process is killed, frozen,
restarted and logged like any other, but starts almost a second of CPU time faster. Imports no slow modules, so that a
program can start the fork server before its own imports.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from devcluster.errors import ComponentFailed
from devcluster.processes import forking, launcher

_NAME: Final = "fork server"
_ANSWER_SECONDS: Final = 60.0  # imports are slow on a busy machine
_PYTHON: Final = "PYTHON"


def forkable(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command runs a Python module, without variables that only a starting interpreter reads."""
    ours = list(arguments[:2]) == [sys.executable, "-m"]
    return ours and not any(name.startswith(_PYTHON) for name in environment)


class ForkServer:
    """Starts processes of the imported modules, and of others, which import what they need."""

    def __init__(self, modules: Sequence[str], *, log: Path) -> None:
        self.log = log
        self._modules = tuple(modules)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start it unless it runs. Does not wait for its imports."""
        if self._process is not None and self._process.poll() is None:
            return
        if threading.current_thread() is not threading.main_thread():
            # The parent-death signal is sent when the thread ends: a child of a pool thread would die with that thread.
            raise RuntimeError(f"{_NAME}: processes are started from the main thread only")
        self.close()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_ANSWER_SECONDS)
        self._socket = ours
        far = [sys.executable, "-m", forking.__name__, str(theirs.fileno()), *self._modules]
        with theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *far],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def spawn(self, arguments: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]) -> Forked:
        """Fork a process that runs the command. Raises `ComponentFailed` if the server cannot."""
        self.start()
        _, _, module, *rest = arguments
        answer = self._ask(
            {
                "module": module,
                "arguments": rest,
                "folder": str(folder),
                "log": str(log),
                "environment": dict(environment),
            }
        )
        if answer is None:
            raise ComponentFailed(_NAME, problem="ended before it could start a process", log=self.log, tail="")
        return Forked(self, answer["pid"])

    def reap(self, pid: int) -> int:
        """The exit status of an ended process; negative for a signal."""
        answer = self._ask({"reap": pid})
        return -signal.SIGKILL if answer is None else answer["status"]  # the server died, and the process with it

    def close(self) -> None:
        """Kill the server, and with it the processes that it started."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ask(self, request: Mapping[str, object]) -> dict[str, int] | None:
        if self._socket is None:
            return None
        try:
            self._socket.send(orjson.dumps(request))
            packet = self._socket.recv(forking.PACKET)
        except OSError:
            packet = b""
        if not packet:
            self.close()  # it ended, or hangs and would answer the next request with this response
            return None
        answer: dict[str, int] = orjson.loads(packet)
        return answer


class Forked:
    """One forked process, with the part of `subprocess.Popen` that `Process` uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        # The pid cannot be reused: only the server can reap it, and does so on request.
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status once it has ended."""
        if self.returncode is None and self._ended():
            self.returncode = self._server.reap(self.pid)
            os.close(self._descriptor)
        return self.returncode

    def wait(self) -> int:
        """Wait until it ends; the exit status."""
        while (status := self.poll()) is None:
            _readable(self._descriptor, None)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; no effect if it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def _ended(self) -> bool:
        return _readable(self._descriptor, 0)


def _readable(descriptor: int, milliseconds: int | None) -> bool:
    poll = select.poll()  # select() supports no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))
