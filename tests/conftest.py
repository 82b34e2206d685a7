# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: asyncio as the one backend, and nothing left behind.

A test fails when it leaves a task, an open file or socket, or a child process. What a fixture of a wider scope holds
does not count: a manager that outlives the test may begin a task or open one more connection while the test runs. It
fails as well when a programming error was logged meanwhile: an informer lists anew and a controller tries again, so
that nothing else would tell. `breaks_on_purpose` marks those that want that.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import os
import time
import traceback
from collections.abc import Coroutine, Generator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

import anyio
import hypothesis
import pytest

from multikueue.core.errors import MultikueueError
from tests.conformance.summary import pytest_terminal_summary as pytest_terminal_summary
from tests.support.combinations import mark_left_out

# A busy machine takes long for one example now and then; speed is measured by tests/bench.
hypothesis.settings.register_profile("multikueue", deadline=None)
hypothesis.settings.load_profile("multikueue")

T = TypeVar("T")

_UNTIL: Final = os.environ.get("MK_TESTS_UNTIL", "")
"""Seconds of Unix time from which no further test is begun; empty for no limit. CI sets it for its longest tests."""
_SELF = Path("/proc/self")
_TEAR_DOWN_SECONDS = 10.0
_SETTLE_SECONDS = 10.0  # a closed transport gives its socket back one turn of the loop later, a child when it is reaped


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what CI leaves out, before any of it is deselected."""
    mark_left_out(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what CI has no time for (`LONGEST_UNTIL` in the Makefile); the number of skipped tests is printed."""
    if _UNTIL and time.time() > float(_UNTIL):
        pytest.skip("no time left: MK_TESTS_UNTIL is over")


def pytest_collection_finish() -> None:
    """Thousands of tests and modules live until the end: no collection of garbage need walk them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)
"""What our own code should never raise by itself; errors of servers, files and users are other classes."""


class _Mistakes(logging.Handler):
    """Notes what was logged of exceptions that only a bug explains."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _MISTAKES) and not isinstance(error, MultikueueError):
            self.found.append("".join(traceback.format_exception(error)))


@pytest.fixture(autouse=True)
def _logs_no_mistakes(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = _Mistakes()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    if handler.found and request.node.get_closest_marker("breaks_on_purpose") is None:
        pytest.fail("a programming error was logged:\n" + "\n".join(handler.found))


def _open_files() -> dict[str, str]:
    found = {}
    for entry in os.scandir(_SELF / "fd"):
        try:
            found[entry.name] = os.readlink(entry.path)
        except FileNotFoundError:  # the descriptor of this very scan
            continue
    return found


def _children() -> set[str]:
    found: set[str] = set()
    for task in (_SELF / "task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):  # that thread has ended
            continue
    return found


def _has_servers_of_a_wider_scope(request: pytest.FixtureRequest) -> bool:
    """Whether an asynchronous fixture of the test is kept for others: its connections come and go by themselves."""
    # pytest has no public way to ask for the fixtures of a test before they are set up.
    found = request.node._fixtureinfo.name2fixturedefs.values()
    return any(
        each.scope != "function" and inspect.isasyncgenfunction(each.func) for each in (named[-1] for named in found)
    )


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    files, children = _open_files(), _children()
    others: tuple[str, ...] = ("anon_inode:[event", "/dev/urandom")
    if _has_servers_of_a_wider_scope(request):
        others += ("socket:",)
    yield
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        opened = {
            number: target
            for number, target in _open_files().items()
            if files.get(number) != target
            and not target.startswith(others)
            and not target.endswith("/fd")  # the folder of this very scan
        }
        now = _children()
        born = now - children if len(now) > len(children) else set()  # one that was restarted is not left behind
        if not opened and not born:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"the test left open files or sockets {sorted(opened.values())} and children {sorted(born)}")
        gc.collect()
        time.sleep(0.02)


_RUNNING: ContextVar[WeakSet[asyncio.Task[Any]] | None] = ContextVar("_RUNNING", default=None)
"""Where the tasks of the running test are noted; tasks that a wider fixture begins have the context of that fixture."""


def _noting(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], **how: Any
) -> asyncio.Task[T]:
    task: asyncio.Task[T] = asyncio.Task(coroutine, loop=loop, **how)
    if (noted := _RUNNING.get()) is not None:
        noted.add(task)
    return task


def _left(begun: WeakSet[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Those that still run; not those of connections that a server of a wider fixture was asked over meanwhile."""
    running = {task for task in begun if not task.done()}
    return {task for task in running if getattr(task.get_coro(), "__qualname__", "") != "RequestHandler.start"}


def _limit(test: pytest.Function) -> float:
    marker = test.get_closest_marker("timeout")
    return float(marker.args[0] if marker is not None else test.config.getini("timeout"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wrap each coroutine test so that a task it leaves running fails it, and so does one that takes too long.

    The alarm of pytest-timeout leaves the coroutine where it waits, and the tear-down of its fixtures would wait for it
    for ever; it is left to end what is not a coroutine.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return

    limit = _limit(pyfuncitem) - _TEAR_DOWN_SECONDS

    @functools.wraps(test)
    async def checked(*args: object, **kwargs: object) -> None:
        asyncio.get_running_loop().set_task_factory(_noting)
        begun: WeakSet[asyncio.Task[Any]] = WeakSet()
        noted = _RUNNING.set(begun)
        try:
            with anyio.fail_after(limit):
                await test(*args, **kwargs)
        finally:
            _RUNNING.reset(noted)
        for _ in range(5):  # a closed TLS connection gives its socket back one turn of the loop later for each layer
            await asyncio.sleep(0)
        for _ in range(10):  # cancelled tasks need a few turns of the loop to end
            if not _left(begun):
                return
            await asyncio.sleep(0.01)
        left = _left(begun)
        assert not left, f"the test left tasks running: {sorted(task.get_name() for task in left)}"

    pyfuncitem.obj = checked
