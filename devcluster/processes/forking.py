# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.processes.forking SOCKET ENTRY...`: imports modules once and forks processes that use them.

An entry is a module, or `module:function` for a function to call after the import, which fills caches.

Imports take most of the start time of our processes; here they run once for a federation, and the children share the
memory. This is the server side of `forkserver.ForkServer`: one JSON message per request and response, in order, over a
packet socket. Requests are also handled between imports, so that the first module can be forked while later ones are
still being imported.

The process has one thread and no event loop, so that a fork copies no half-finished state. A child dies with this
process, and this process dies with its owner. A process that ended stays a zombie until the owner reads its status:
until then its pid is not reused.
"""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import orjson

from devcluster.processes.launcher import PR_SET_PDEATHSIG

PACKET: Final = 128 * 1024
_PR_SET_NAME: Final = 15
_MAIN: Final = ".__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRequest:
    """A process to fork, equivalent to `python -m module arguments`."""

    module: str
    arguments: Sequence[str]
    folder: str
    log: str
    environment: dict[str, str]


def main(arguments: Sequence[str]) -> None:
    """Serve the owner; in a child, become the requested process."""
    with socket.socket(fileno=int(arguments[0])) as owner:
        parent = os.getpid()
        requested = _serve(owner, arguments[1:])
    if requested is not None:
        _become(requested, parent)


def _serve(owner: socket.socket, entries: Sequence[str]) -> ProcessRequest | None:
    """Answer requests. Returns the request in each forked child, and None when the owner has closed the socket."""
    waiting = list(entries)
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    while True:
        while waiting and not poll.poll(0):
            _prepare(waiting.pop(0))
            if not waiting:
                gc.freeze()  # a garbage collection in a child would copy all shared pages
        packet = owner.recv(PACKET)
        if not packet:
            return None
        request = orjson.loads(packet)
        if "reap" in request:
            owner.send(orjson.dumps({"status": _status(request["reap"])}))
            continue
        pid = os.fork()
        if pid == 0:
            return ProcessRequest(**request)
        owner.send(orjson.dumps({"pid": pid}))


def _status(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return -signal.SIGKILL  # the child of an earlier server, with which it died
    return os.waitstatus_to_exitcode(status)


def _prepare(entry: str) -> None:
    module, _, function = entry.partition(":")
    imported = import_module(module)
    if function:
        getattr(imported, function)()
    if module.endswith(_MAIN):
        del sys.modules[module]  # a child executes it again as `__main__`


def _become(requested: ProcessRequest, parent: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the signal was set, so no signal arrives
        os._exit(1)
    libc.prctl(_PR_SET_NAME, f"mk {requested.module.rpartition('.')[2]}".encode()[:15], 0, 0, 0)
    os.setsid()
    log = os.open(requested.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(requested.folder)
    os.environ.update(requested.environment)
    sys.argv = [requested.module, *requested.arguments]
    runpy.run_module(requested.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
