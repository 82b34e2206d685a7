# SPDX-License-Identifier: Apache-2.0
"""Becomes another program that the kernel kills as soon as its owner is gone: `launcher.py OWNER_PID PROGRAM ARG...`.

Run as a script with `python -I -S`, so it imports nothing of ours. The kernel's parent-death signal survives exec; it
is set here, in the child, because doing it between fork and exec in a threaded Python process may deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Tie our life to the owner's and exec the program; never returns."""
    owner, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != owner:  # it ended before the signal was set, so no signal will come
        sys.exit(f"the owner, process {owner}, has ended already")
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
