# SPDX-License-Identifier: Apache-2.0
"""`launcher.py OWNER_PID PROGRAM ARG...`: execs a program that the kernel kills when its owner dies.

Runs as a script with `python -I -S` and imports no package of ours. The parent-death signal survives exec. It is set
here, in the child, because setting it between fork and exec in a threaded Python process may deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Set the parent-death signal and exec the program; never returns."""
    owner, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != owner:  # the owner ended before the signal was set, so no signal arrives
        sys.exit(f"the owner process {owner} has ended")
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
