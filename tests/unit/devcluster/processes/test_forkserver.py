# SPDX-License-Identifier: Apache-2.0
"""A forked process is as much a process of its own as one that was started: its end, its log, its frozen time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from devcluster.errors import ComponentFailed
from devcluster.processes.forkserver import ForkServer, forkable
from devcluster.processes.process import Process, ProcessSpec, ReadyCheck, at_once

SERVE = ["-m", "http.server", "--bind=127.0.0.1", "0"]
READ = ["-m", "json.tool", "given.json"]


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[ForkServer]:
    server = ForkServer(["http.client"], log=tmp_path / "fork-server.log")
    yield server
    server.close()


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """The file that `READ` reads: it waits there, so that it has started before it ends."""
    os.mkfifo(tmp_path / "given.json")
    return tmp_path / "given.json"


def spec(folder: Path, arguments: list[str], *, ready: ReadyCheck = at_once) -> ProcessSpec:
    return ProcessSpec(
        name="child",
        owner="test",
        arguments=[sys.executable, *arguments],
        folder=folder,
        log=folder / "logs" / "child.log",
        ready=ready,
    )


async def test_a_forked_process_works_in_its_own_folder_and_writes_its_own_log(
    tmp_path: Path, forks: ForkServer, given: Path
) -> None:
    process = Process(spec(tmp_path, READ), forks=forks)
    await process.start()
    await anyio.Path(given).write_text('{"read": "beside the process"}')
    assert await process.wait() == 0
    assert "beside the process" in process.tail()


async def test_a_forked_process_ends_when_it_is_stopped_and_starts_again(tmp_path: Path, forks: ForkServer) -> None:
    process = Process(spec(tmp_path, SERVE), forks=forks)
    await process.start()
    first = process.pid
    await process.stop()
    assert (process.running, process.pid) == (False, None)
    await process.start()
    assert process.running
    assert process.pid != first
    await process.kill()


async def test_the_status_of_a_forked_process_is_that_of_its_own_end(
    tmp_path: Path, forks: ForkServer, given: Path
) -> None:
    failing = Process(spec(tmp_path, READ), forks=forks)
    await failing.start()
    await anyio.Path(given).write_text("no JSON")
    assert await failing.wait() not in (0, None)
    killed = Process(spec(tmp_path, SERVE), forks=forks)
    await killed.start()
    killed.crash()
    assert await killed.wait() == -signal.SIGKILL
    assert not killed.running


async def test_a_forked_process_that_ends_before_it_is_ready_fails_with_the_end_of_its_log(
    tmp_path: Path, forks: ForkServer
) -> None:
    async def never() -> bool:
        return False

    process = Process(spec(tmp_path, ["-m", "no_such_module"], ready=never), forks=forks)
    with pytest.raises(ComponentFailed, match="no_such_module"):
        await process.start()


async def test_a_frozen_fork_counts_as_running_and_its_neighbour_continues(tmp_path: Path, forks: ForkServer) -> None:
    frozen, other = (Process(spec(tmp_path / name, SERVE), forks=forks) for name in ("a", "b"))
    for process in (frozen, other):
        process.spec.folder.mkdir()
        await process.start()
    frozen.pause()
    await _state(frozen, "T")
    assert frozen.running
    await other.stop()
    frozen.resume()
    await frozen.stop()
    assert not frozen.running


async def test_what_was_forked_ends_with_its_server_which_starts_anew_when_asked(
    tmp_path: Path, forks: ForkServer
) -> None:
    process = Process(spec(tmp_path, SERVE), forks=forks)
    await process.start()
    forks.close()
    assert await process.wait() == -signal.SIGKILL
    await process.start()
    assert process.running
    await process.kill()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        pytest.param(["/bin/sleep", "60"], {}, id="another program"),
        pytest.param([sys.executable, "-c", "pass"], {}, id="code on the command line"),
        pytest.param([sys.executable, *SERVE], {"PYTHONPATH": "."}, id="a variable that is read at the start only"),
    ],
)
def test_only_what_a_fork_can_be_is_forked(arguments: list[str], environment: dict[str, str]) -> None:
    assert not forkable(arguments, environment)
    assert forkable([sys.executable, *SERVE], {"HOME": "/"})


async def _state(process: Process, wanted: str) -> None:
    with anyio.fail_after(60):
        while _state_now(process) != wanted:
            await anyio.sleep(0.01)


def _state_now(process: Process) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
