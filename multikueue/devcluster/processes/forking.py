# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.processes.forking SOCKET ENTRY...`: imports once what the processes it forks share.

An entry is a module, or `module:function` for a function to be called besides, which fills caches.

A Python process of ours spends most of its start on imports; here they are paid once for a whole federation, and the
children share the memory. Owns the far side of `forkserver.ForkServer`: one JSON message for each request and each
answer, in order, over a socket of packets. Between two imports it looks for requests, so that the first module that is
named can be forked while the later ones are still being imported.

Runs one thread and no event loop, ever: a fork copies nothing that is half done. A child dies with this process, and
this process with its owner. What has ended stays a zombie until the owner asks for its status: until then nobody else
can get its pid.
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

from multikueue.devcluster.processes.launcher import PR_SET_PDEATHSIG

PACKET: Final = 128 * 1024
_PR_SET_NAME: Final = 15
_MAIN: Final = ".__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A process that is asked for: what `python -m module arguments` would be."""

    module: str
    arguments: Sequence[str]
    folder: str
    log: str
    environment: dict[str, str]


def main(arguments: Sequence[str]) -> None:
    """Serve the owner; in a child, become what was wished for."""
    with socket.socket(fileno=int(arguments[0])) as owner:
        parent = os.getpid()
        wish = _serve(owner, arguments[1:])
    if wish is not None:
        _become(wish, parent)


def _serve(owner: socket.socket, entries: Sequence[str]) -> Wish | None:
    """Answer requests. Returns a wish in each child that was forked for it, and None when the owner is gone."""
    waiting = list(entries)
    asked = select.poll()
    asked.register(owner, select.POLLIN)
    while True:
        while waiting and not asked.poll(0):
            _prepare(waiting.pop(0))
            if not waiting:
                gc.freeze()  # a collection in a child would touch, and so copy, every page that it shares
        packet = owner.recv(PACKET)
        if not packet:
            return None
        request = orjson.loads(packet)
        if "reap" in request:
            owner.send(orjson.dumps({"status": _status(request["reap"])}))
            continue
        pid = os.fork()
        if pid == 0:
            return Wish(**request)
        owner.send(orjson.dumps({"pid": pid}))


def _status(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return -signal.SIGKILL  # the child of another server before us, which it died with
    return os.waitstatus_to_exitcode(status)


def _prepare(entry: str) -> None:
    module, _, function = entry.partition(":")
    imported = import_module(module)
    if function:
        getattr(imported, function)()
    if module.endswith(_MAIN):
        del sys.modules[module]  # a child executes it anew, as its `__main__`


def _become(wish: Wish, parent: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the signal was set, so no signal will come
        os._exit(1)
    libc.prctl(_PR_SET_NAME, f"mk {wish.module.rpartition('.')[2]}".encode()[:15], 0, 0, 0)
    os.setsid()
    log = os.open(wish.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(wish.folder)
    os.environ.update(wish.environment)
    sys.argv = [wish.module, *wish.arguments]
    runpy.run_module(wish.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
