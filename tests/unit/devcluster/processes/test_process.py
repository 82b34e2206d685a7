# SPDX-License-Identifier: Apache-2.0
"""A child process starts until ready, fails with its log, freezes, and ends with its owner."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import pytest

from devcluster.errors import ComponentFailed
from devcluster.processes.process import Process, ProcessSpec, ReadyCheck, at_once, keep_running
from multikueue.core.backoff import Backoff

SLEEP = ["/bin/sleep", "60"]


def spec(folder: Path, arguments: list[str], *, ready: ReadyCheck = at_once, within: float = 10.0) -> ProcessSpec:
    return ProcessSpec(
        name="child",
        owner="test",
        arguments=arguments,
        folder=folder,
        log=folder / "logs" / "child.log",
        ready=ready,
        ready_within=within,
    )


async def test_a_started_process_runs_until_it_is_stopped(tmp_path: Path) -> None:
    process = Process(spec(tmp_path, SLEEP))
    await process.start()
    assert process.running
    pid = process.pid
    await process.stop()
    assert (process.running, process.pid) == (False, None)
    assert pid is not None
    assert not _exists(pid)


async def test_a_process_that_ends_before_it_is_ready_fails_with_the_end_of_its_log(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    process = Process(spec(tmp_path, ["/bin/sh", "-c", "echo the disk is full; exit 3"], ready=never))
    with pytest.raises(ComponentFailed, match="test child: ended with status 3") as caught:
        await process.start()
    assert caught.value.tail == "the disk is full"


async def test_a_process_that_never_becomes_ready_is_ended(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    process = Process(spec(tmp_path, SLEEP, ready=never, within=0.2))
    with pytest.raises(ComponentFailed, match="not ready after"):
        await process.start()
    assert not process.running


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    process = Process(spec(tmp_path, ["/no/such/program"], ready=never))
    with pytest.raises(ComponentFailed, match="/no/such/program: No such file"):
        await process.start()


async def test_a_process_that_ignores_sigterm_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    async def armed() -> bool:
        return ready.exists()

    script = f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done"
    process = Process(spec(tmp_path, ["/bin/sh", "-c", script], ready=armed))
    await process.start()
    await process.stop(grace=0.1)
    assert await process.wait() == -signal.SIGKILL


async def test_a_paused_process_is_frozen_and_can_be_stopped(tmp_path: Path) -> None:
    process = Process(spec(tmp_path, SLEEP))
    await process.start()
    process.pause()
    await _until(lambda: _state(process.pid) == "T")
    process.resume()
    await _until(lambda: _state(process.pid) == "S")
    process.pause()
    await process.stop(grace=5.0)
    assert await process.wait() == -signal.SIGTERM


async def test_output_is_appended_over_restarts(tmp_path: Path) -> None:
    process = Process(spec(tmp_path, ["/bin/sh", "-c", "echo hello; exec sleep 60"]))
    for expected in ("hello\n", "hello\nhello\n"):
        await process.start()
        await _until(partial(_holds, process.log, expected))
        await process.stop()


async def test_a_process_that_crashes_is_revived_and_one_that_was_stopped_is_not(tmp_path: Path) -> None:
    crashing, stopped = Process(spec(tmp_path, SLEEP)), Process(spec(tmp_path, SLEEP))
    await crashing.start()
    await stopped.start()
    first = crashing.pid
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_running, [crashing, stopped])
        await stopped.stop()
        crashing.crash()
        await _until(lambda: crashing.pid not in (None, first))
        assert not stopped.running
        tasks.cancel_scope.cancel()
    await crashing.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_a_child_dies_with_its_owner(tmp_path: Path, how: signal.Signals) -> None:
    script = f"""
import anyio, sys
from pathlib import Path
from devcluster.processes.process import Process, ProcessSpec
async def main():
    folder = Path({str(tmp_path)!r})
    child = Process(ProcessSpec(name="c", arguments=["/bin/sleep", "60"], folder=folder, log=folder / "log"))
    await child.start()
    print(child.pid, flush=True)
    await anyio.sleep(60)
anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        _wait(lambda: Path(f"/proc/{child}/comm").read_text().strip() == "sleep")  # past the launcher
        owner.send_signal(how)
    _wait(lambda: not _exists(child))


def test_processes_are_started_from_the_main_thread_only(tmp_path: Path) -> None:
    # A child of another thread would be killed when that thread ends.
    process = Process(spec(tmp_path, SLEEP))

    async def in_thread() -> None:
        await anyio.to_thread.run_sync(anyio.run, process.start)

    with pytest.raises(RuntimeError, match="main thread"):
        anyio.run(in_thread)


async def _keep_running(processes: list[Process]) -> None:
    await keep_running(processes, backoff=Backoff(base=0.01))


async def _until(condition: object) -> None:
    assert callable(condition)
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.01)


def _wait(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _exists(pid: int) -> bool:
    try:
        return _state(pid) != "Z"
    except FileNotFoundError:
        return False


def _state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def _holds(file: Path, text: str) -> bool:
    return file.read_text() == text
