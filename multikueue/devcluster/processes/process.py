# SPDX-License-Identifier: Apache-2.0
"""One child process as a component: start until ready, stop, kill, pause, with a log file.

Owns the process from fork to reaping. Promises that it dies when the thread that started it dies, also on SIGKILL, and
that its output is in its log. An end that nobody asked for is seen by `wait` and by the next `start`; whether to
revive it is the owner's decision. Linux only: pidfds and the parent-death signal have no counterpart elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from multikueue.devcluster.errors import ComponentFailed
from multikueue.devcluster.processes import launcher
from multikueue.devcluster.processes.forkserver import Forked, ForkServer, forkable

_LAUNCHER: Final = launcher.__file__
_POLL_SECONDS: Final = 0.02
_TAIL_BYTES: Final = 64 * 1024

ReadyCheck: TypeAlias = Callable[[], Awaitable[bool]]


async def at_once() -> bool:
    """The check of a process that is ready as soon as it runs."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How to run it."""

    name: str
    owner: str = ""
    """What it belongs to, for messages: there are several of that name in a federation."""
    arguments: Sequence[str]
    """The program (absolute path) and its arguments."""
    folder: Path
    """Its working directory."""
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What differs from our own environment."""
    ready: ReadyCheck = at_once
    ready_within: float = 60.0
    """Seconds; a machine that builds something else at the same time is slow."""


class Process:
    """A child process; implements `multikueue.devcluster.cluster.Component`.

    With a fork server a module of ours starts as a fork of it, any other program as always.
    """

    def __init__(self, spec: ProcessSpec, *, forks: ForkServer | None = None) -> None:
        self.spec = spec
        self._forks = forks
        self._child: subprocess.Popen[bytes] | Forked | None = None
        self._wanted = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.spec.log

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._child is not None and self._child.poll() is None

    @property
    def wanted(self) -> bool:
        """Whether it should be running: started, and neither stopped nor killed by us."""
        return self._wanted

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    async def start(self) -> None:
        """Start and wait until it is ready; harmless when it runs.

        Raises `ComponentFailed` when it ends or does not become ready in time; then, and on cancellation, it is ended.
        """
        self._wanted = True
        if self.running:
            return
        try:
            self._spawn()
            await self._wait_until_ready()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end()
            raise

    async def stop(self, *, grace: float = 10.0) -> None:
        """Ask it to end, and make it end after `grace` seconds; harmless when it has ended."""
        self._wanted = False
        if not self.running:
            return
        self.resume()  # a stopped process cannot handle SIGTERM
        if grace > 0:
            self._signal(signal.SIGTERM)
            with anyio.move_on_after(grace):
                await self.wait()
                return
        await self.kill()

    async def kill(self) -> None:
        """End it with SIGKILL and reap it."""
        self._wanted = False
        await self._end()

    def crash(self) -> None:
        """End it with SIGKILL as if it had failed by itself, so that whoever revives it does."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it with SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    async def wait(self) -> int | None:
        """Wait until it ends; its exit status, negative for a signal, None when it was never started."""
        child = self._child
        if child is None or child.poll() is not None:
            return None if child is None else child.returncode
        # A pidfd becomes readable when the process ends. A child that nobody has reaped keeps its pid.
        descriptor = os.pidfd_open(child.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return child.wait()

    def failure(self, problem: str) -> ComponentFailed:
        """An error that tells where the log is and how it ends."""
        return ComponentFailed(
            f"{self.spec.owner} {self.name}".strip(), problem=problem, log=self.log, tail=self.tail()
        )

    def tail(self, *, lines: int = 15) -> str:
        """The end of its log."""
        return tail(self.log, lines=lines)

    def _spawn(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            # The parent-death signal follows the thread: a child of a pool's thread would die with that thread.
            raise RuntimeError(f"{self.name}: processes are started from the main thread only")
        spec = self.spec
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        if self._forks is not None and forkable(spec.arguments, spec.environment):
            self._child = self._forks.spawn(
                spec.arguments, folder=spec.folder, log=spec.log, environment=spec.environment
            )
            return
        command = [sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid()), *spec.arguments]
        with spec.log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                cwd=spec.folder,
                env={**os.environ, **spec.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # ^C at the terminal reaches the owner alone, which ends us in order
            )

    async def _wait_until_ready(self) -> None:
        with anyio.move_on_after(self.spec.ready_within):
            while True:
                if not self.running:
                    status = self._child.returncode if self._child is not None else None
                    raise self.failure(f"ended with status {status} before it was ready")
                if await self.spec.ready():
                    return
                await anyio.sleep(_POLL_SECONDS)
        raise self.failure(f"not ready after {self.spec.ready_within:.0f} s")

    async def _end(self) -> None:
        self._signal(signal.SIGKILL)
        await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def tail(log: Path, *, lines: int) -> str:
    """The last lines of a file; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
