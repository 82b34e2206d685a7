# SPDX-License-Identifier: Apache-2.0
"""One child process as a component: start until ready, stop, kill, pause, with a log file.

Owns the process from fork to reaping. It dies when the thread that started it dies, also on SIGKILL; its output goes to
its log. `wait` and the next `start` notice a crash; `keep_running` restarts crashed processes with back-off, as a
kubelet does. Linux only, as it needs pidfds and the parent-death signal.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from devcluster.errors import ComponentFailed
from devcluster.processes import launcher
from devcluster.processes.forkserver import Forked, ForkServer, forkable
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock

log = logging.getLogger(__name__)

_LAUNCHER: Final = launcher.__file__
_POLL_SECONDS: Final = 0.02
_TAIL_BYTES: Final = 64 * 1024
_IDLE_SECONDS: Final = 0.5  # between two checks of a process that was stopped on purpose
_STABLE_SECONDS: Final = 60.0  # a process that ran for this long restarts without delay

ReadyCheck: TypeAlias = Callable[[], Awaitable[bool]]


async def at_once() -> bool:
    """Readiness of a process that is ready as soon as it runs."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How to run a process."""

    name: str
    owner: str = ""
    """The cluster it belongs to, for messages: a federation has several processes of one name."""
    arguments: Sequence[str]
    """The program (absolute path) and its arguments."""
    folder: Path
    """Its working directory."""
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additions to the environment of this process."""
    ready: ReadyCheck = at_once
    health: str = ""
    """The URL of its health endpoint, for other processes; empty if there is none."""
    ready_within: float = 60.0
    """Seconds; long enough for a busy machine."""


class Process:
    """A child process; implements `devcluster.cluster.Component`.

    With a fork server, a Python module starts as a fork of it, any other program as a subprocess.
    """

    def __init__(self, spec: ProcessSpec, *, forks: ForkServer | None = None) -> None:
        self.spec = spec
        self._forks = forks
        self._child: subprocess.Popen[bytes] | Forked | None = None
        self._wanted = False
        self.restarts = 0
        """How often `keep_running` has restarted it."""

    @property
    def name(self) -> str:
        """The name of the component."""
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
        """Whether it should run: started, and not stopped or killed through this object."""
        return self._wanted

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    async def start(self) -> None:
        """Start it and wait until it is ready; no effect if it runs.

        Raises `ComponentFailed` if it ends or does not become ready in time; then, and on cancellation, it is killed.
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
        """Send SIGTERM, and SIGKILL after `grace` seconds; no effect if it has ended."""
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
        """Send SIGKILL and reap it."""
        self._wanted = False
        await self._end()

    def crash(self) -> None:
        """Send SIGKILL as if it had crashed, so that `keep_running` restarts it."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it with SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `pause`."""
        self._signal(signal.SIGCONT)

    async def wait(self) -> int | None:
        """Wait until it ends. Returns its exit status: negative for a signal, None if it was never started."""
        child = self._child
        if child is None or child.poll() is not None:
            return None if child is None else child.returncode
        # A pidfd becomes readable when the process ends. A child that is not reaped keeps its pid.
        descriptor = os.pidfd_open(child.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return child.wait()

    def failure(self, problem: str) -> ComponentFailed:
        """An error with the path and the end of the log."""
        return ComponentFailed(
            f"{self.spec.owner} {self.name}".strip(), problem=problem, log=self.log, tail=self.tail()
        )

    def tail(self, *, lines: int = 15) -> str:
        """The end of its log."""
        return tail(self.log, lines=lines)

    def _spawn(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            # The parent-death signal is sent when the thread ends: a child of a pool thread would die with that thread.
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
                start_new_session=True,  # ^C at the terminal reaches only the owner, which stops its processes in order
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


async def keep_running(
    processes: Sequence[Process],
    *,
    backoff: Backoff,
    clock: Clock | None = None,
    changed: Callable[[Process], None] | None = None,
) -> None:
    """Restart processes that crash, until cancelled; `changed` is called for every end and start."""
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(_restart_when_ended, process, backoff, clock or SystemClock(), changed)


async def _restart_when_ended(
    process: Process, backoff: Backoff, clock: Clock, changed: Callable[[Process], None] | None
) -> None:
    attempt = 0
    while True:
        started = clock.monotonic()
        status = await process.wait()
        if not process.wanted:
            await anyio.sleep(_IDLE_SECONDS)
            continue
        if clock.monotonic() - started > _STABLE_SECONDS:
            attempt = 0
        attempt += 1
        delay = backoff.delay(attempt, random.SystemRandom())
        log.warning("process ended, restarting name=%s status=%s delay=%.1fs", process.name, status, delay)
        if changed is not None:
            changed(process)
        await anyio.sleep(delay)
        try:
            if process.wanted:
                process.restarts += 1
                await process.start()
        except ComponentFailed as error:
            log.warning("%s", error)
        if changed is not None:
            changed(process)


def tail(log: Path, *, lines: int) -> str:
    """The last lines of a file; empty if it does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
